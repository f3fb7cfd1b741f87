"""The nodes of a running lab: their machines, ssh to them, waiting for them."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from lab import host
from lab.build import Artifacts
from lab.errors import LabError
from lab.machine import Machine, gateways
from lab.spec import LabSpec
from lab.waiting import wait_for

T = TypeVar("T")

MEMORY_MIB = 640
# deadlines in seconds, by accelerator
BOOT = {"kvm": 120, "tcg": 900}
COMMAND = {"kvm": 60, "tcg": 240}
# seconds between two looks: an emulated node that is looked at without pause does little else
BETWEEN_LOOKS = {"kvm": 0.5, "tcg": 2.0}


@dataclass(frozen=True, slots=True)
class Result:
    """What a command on a node gave."""

    code: int
    out: str
    err: str

    @property
    def ok(self) -> bool:
        """Whether it ended with 0."""
        return self.code == 0


@dataclass(slots=True, kw_only=True)
class Remote:
    """Access to the nodes of the lab in `run_dir`; `ports` are their ssh ports on 127.0.0.1, in order."""

    spec: LabSpec
    artifacts: Artifacts
    accelerator: str
    run_dir: Path
    ports: tuple[int, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes' names, in order."""
        return tuple(node.name for node in self.spec.nodes)

    def machine(self, name: str) -> Machine:
        """The machine of a node."""
        node = self.spec.node(name)
        index = self.spec.nodes.index(node)
        return Machine(
            self.spec,
            node,
            self.run_dir,
            self.artifacts,
            self.accelerator,
            MEMORY_MIB,
            self.ports[index],
            gateways(self.spec)[index],
        )

    def machines(self) -> list[Machine]:
        """All machines, in order."""
        return [self.machine(name) for name in self.names]

    def each(self, work: Callable[[str], T], names: Iterable[str] | None = None) -> dict[str, T]:
        """Run `work` on nodes at the same time."""
        wanted = tuple(names or self.names)
        pool = ThreadPoolExecutor(len(wanted))
        patient = True
        try:
            return dict(zip(wanted, pool.map(work, wanted), strict=True))
        except KeyboardInterrupt:
            patient = False  # what they wait for may take minutes, and ends with the machines
            raise
        finally:
            pool.shutdown(wait=patient)

    # -------------------------------------------------------- keys

    def client_key(self) -> Path:
        return _make_key(host.cache_dir() / "id_ed25519", "fabric-plan-lab")

    def host_key(self, name: str) -> Path:
        return _make_key(self.run_dir / f"{name}.hostkey", name)

    def write_ssh_files(self) -> None:
        known, config = [], []
        for machine in self.machines():
            key = public_part(self.host_key(machine.node.name)).read_text().rpartition(" ")[0]
            known.append(f"[127.0.0.1]:{machine.ssh_port} {key}")
            config += [
                f"Host {machine.node.name} {machine.node.mgmt.ip}",
                "  HostName 127.0.0.1",
                f"  Port {machine.ssh_port}",
                f"  HostKeyAlias [127.0.0.1]:{machine.ssh_port}",
            ]
        config += ["Host *", f'  IdentityFile "{self.client_key()}"', "  IdentitiesOnly yes"]
        config += [f'  UserKnownHostsFile "{self.run_dir}/known_hosts"', "  StrictHostKeyChecking yes"]
        config += [
            "  BatchMode yes",
            "  ConnectTimeout 150",
            "  ServerAliveInterval 5",
            "  ServerAliveCountMax 12",
        ]
        # cheap ones: the guests compute them under emulation
        config += ["  KexAlgorithms curve25519-sha256", "  MACs umac-64@openssh.com"]
        config += ["  LogLevel ERROR", ""]
        (self.run_dir / "known_hosts").write_text("\n".join(known) + "\n")
        (self.run_dir / "ssh_config").write_text("\n".join(config))

    # --------------------------------------------------------------- ssh

    def ssh_command(self, name: str, user: str = "root", *options: str) -> list[str]:
        """The ssh command line to a node, without a command."""
        self.spec.node(name)
        control = [
            "-o",
            "ControlMaster=auto",
            "-o",
            f'ControlPath="{self.run_dir}/cm-{name}-{user}"',
            "-o",
            "ControlPersist=600",
        ]
        return ["ssh", "-F", str(self.run_dir / "ssh_config"), *control, *options, f"{user}@{name}"]

    def ssh(
        self,
        name: str,
        command: str,
        *,
        text: str | None = None,
        user: str = "root",
        check: bool = True,
        seconds: float | None = None,
    ) -> Result:
        """Run a command on a node; LabError when it fails (unless `check` is off) or does not end in time."""
        limit = seconds or COMMAND[self.accelerator]
        argv = [*self.ssh_command(name, user), command]
        try:
            done = subprocess.run(
                argv,
                input=text or "",
                capture_output=True,
                text=True,
                errors="replace",
                timeout=limit,
                env=host.environment(),
            )
        except subprocess.TimeoutExpired:
            raise LabError(
                f"{name}: `{command[:120]}` did not end within {limit:.0f} s\n{self.machine(name).log_tail()}"
            ) from None
        result = Result(done.returncode, done.stdout, done.stderr)
        if check and not result.ok:
            raise LabError(
                f"{name}: `{command[:200]}` ended with {result.code}\n{(result.out + result.err)[-2000:]}"
            )
        return result

    def out(self, name: str, command: str, **options: Any) -> str:
        """What a command on a node printed, without the white space around it."""
        return self.ssh(name, command, **options).out.strip()

    def put(self, name: str, path: str, text: str, mode: str = "0644") -> None:
        """Write a file on a node, with its directories."""
        self.ssh(name, f"install -D -m {mode} /dev/stdin {path}", text=text)

    def put_tree(self, name: str, tree: Path) -> None:
        """Copy a directory's files, with their modes and as root's, over a node's root."""
        limit = COMMAND[self.accelerator]
        pack = ["tar", "-C", str(tree), "--owner=0", "--group=0", "-cf", "-", "."]
        # times are left out: a resumed guest's clock may be behind
        argv = [*self.ssh_command(name), "tar -C / --no-overwrite-dir -xmf -"]
        try:
            content = subprocess.run(pack, capture_output=True, check=True, timeout=limit).stdout
            done = subprocess.run(argv, input=content, capture_output=True, timeout=limit)
        except subprocess.TimeoutExpired:
            tail = self.machine(name).log_tail()
            raise LabError(f"{name}: files were not copied within {limit:.0f} s\n{tail}") from None
        if done.returncode:
            raise LabError(f"{name}: files were not copied: {done.stderr.decode(errors='replace')[-500:]}")

    def drop_connections(self, names: Iterable[str] | None = None) -> None:
        for name in names or self.names:
            for path in self.run_dir.glob(f"cm-{name}-*"):
                argv = ["ssh", "-o", f'ControlPath="{path}"', "-O", "exit", "lab"]
                with contextlib.suppress(subprocess.TimeoutExpired):
                    subprocess.run(argv, capture_output=True, timeout=10)
                path.unlink(missing_ok=True)

    # ----------------------------------------------------------- waiting

    def wait(self, name: str, what: str, command: str, *, seconds: float | None = None) -> str:
        """Wait until a shell command on a node succeeds; return its output. LabError with the console's
        tail otherwise.
        """
        last = Result(1, "", "")

        def tried() -> Result | None:
            nonlocal last
            last = self.ssh(name, command, check=False)
            return last if last.ok else None

        def evidence() -> str:
            return f"last answer: {(last.out + last.err)[-800:]}\n{self.machine(name).log_tail()}"

        limit = seconds or COMMAND[self.accelerator]
        every = BETWEEN_LOOKS[self.accelerator]
        return wait_for(f"{what} on {name}", tried, seconds=limit, every=every, evidence=evidence).out

    def _ssh_answers(self, name: str) -> bool:
        with contextlib.suppress(LabError):
            return self.ssh(name, "true", check=False, seconds=180).ok
        return False

    def wait_ready(self, name: str, after: int = 0) -> None:
        """Wait until a node's boot is over and it answers; `after` is how much of its console to leave
        aside.
        """
        machine = self.machine(name)

        def ready() -> bool:
            text = machine.console.read_text(errors="replace")[after:] if machine.console.exists() else ""
            if "LAB-FAILED" in text:
                raise LabError(f"{name} did not start\n{machine.log_tail()}")
            if machine.pid() is None:
                raise LabError(f"{name}: QEMU ended\n{machine.log_tail()}")
            return "LAB-READY" in text

        wait_for(f"{name} to boot", ready, seconds=BOOT[self.accelerator], evidence=machine.log_tail)
        wait_for(
            f"{name} to answer",
            lambda: self._ssh_answers(name),
            seconds=COMMAND[self.accelerator],
            evidence=machine.log_tail,
        )
        self.ssh(name, "systemctl is-system-running --wait", check=False, seconds=BOOT[self.accelerator])

    def counters(self, name: str, netdev: str) -> dict[str, int]:
        """ethtool's statistics of an interface."""
        lines = self.out(name, f"ethtool -S {netdev}").splitlines()[1:]
        return {key.strip(): int(value) for key, _, value in (line.partition(":") for line in lines)}


def _make_key(path: Path, comment: str) -> Path:
    if not public_part(path).exists():  # the part that is written last
        path.unlink(missing_ok=True)
        host.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path], seconds=20)
    return path


def public_part(key: Path) -> Path:
    return key.with_name(f"{key.name}.pub")
