"""One virtual machine: its QEMU command line, its process, its monitor, its console."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import host
from lab.build import Artifacts
from lab.errors import LabError
from lab.spec import PORTS, LabSpec, Node
from lab.waiting import wait_for

# A second emulated processor costs more than it gives: they wait for one another.
PROCESSORS = {"kvm": 2, "tcg": 1}
# An emulated machine that has to wait for a processor is slow, not broken.
PATIENCE = "systemd.default_timeout_start_sec=900 systemd.default_device_timeout_sec=900"
CONSOLE_TAIL = 25  # lines
KERNEL_ARGUMENTS = (
    "console=ttyS0 panic=-1 mitigations=off nokaslr nowatchdog tsc=reliable quiet apparmor=0 "
    "systemd.show_status=0 net.ifnames=1 audit=0 selinux=0 cryptomgr.notests random.trust_cpu=on"
)


@dataclass(frozen=True, slots=True)
class Machine:
    """A node's machine. `ssh_port` is on 127.0.0.1; `gateway` is the address of its port forwarding on the
    management LAN.
    """

    spec: LabSpec
    node: Node
    run_dir: Path
    artifacts: Artifacts
    accelerator: str
    memory_mib: int
    ssh_port: int
    gateway: str

    @property
    def index(self) -> int:
        """The node's place in the lab, from 0."""
        return self.spec.nodes.index(self.node)

    @property
    def disk(self) -> Path:
        """The overlay that this machine writes to."""
        return self.run_dir / f"{self.node.name}.qcow2"

    @property
    def console(self) -> Path:
        """What the serial console printed since the machine was started."""
        return self.run_dir / f"{self.node.name}.console"

    @property
    def hardware(self) -> Path:
        """The second disk: the table that tells the guest what hardware it has."""
        return self.run_dir / f"{self.node.name}.hardware"

    def sockets(self) -> dict[str, str]:
        """The ends of this machine's wires in the run directory: fabric ports, `lan` and `gw`. The names
        are short.
        """
        return {kind: f"{kind}.{self.index}" for kind in (*PORTS, "lan", "gw")}

    def _wire(self, kind: str) -> list[str]:
        path = self.sockets()[kind]
        return ["-netdev", f"stream,id={kind},server=off,addr.type=unix,addr.path={path}"]

    def _network_arguments(self) -> list[str]:
        mgmt = self.node.mgmt
        prefix = mgmt.address.rpartition("/")[2]
        net, _, last = self.gateway.rpartition(".")
        user = f"user,id=user,restrict=on,ipv6=off,net={mgmt.ip}/{prefix},host={self.gateway}"
        argv = [*self._wire("lan"), "-device", f"virtio-net-pci,netdev=lan,mac={mgmt.mac},addr=0x2"]
        # the port forwarding is a host of its own on that LAN
        argv += [
            "-netdev",
            f"{user},dns={net}.{int(last) + 1},hostfwd=tcp:127.0.0.1:{self.ssh_port}-{mgmt.ip}:22",
        ]
        argv += ["-netdev", "hubport,id=hub-user,hubid=1,netdev=user", *self._wire("gw")]
        argv += ["-netdev", "hubport,id=hub-gw,hubid=1,netdev=gw"]
        for slot, port in enumerate(PORTS, start=0x10):
            argv += [
                *self._wire(port),
                "-device",
                f"virtio-net-pci,netdev={port},mac={wire_mac(port)},addr={slot:#x}",
            ]
        return argv

    def command(self) -> list[str]:
        """The QEMU command line; all socket names are relative to the run directory."""
        if self.accelerator == "kvm":
            accelerator = ["-accel", "kvm", "-cpu", "host"]
        else:
            accelerator = ["-accel", "tcg,thread=multi,tb-size=256", "-cpu", "Nehalem"]
        argv = [
            "qemu-system-x86_64",
            *accelerator,
            "-M",
            "q35",
            "-smp",
            str(PROCESSORS[self.accelerator]),
            "-m",
            str(self.memory_mib),
        ]
        argv += ["-nodefaults", "-no-user-config", "-display", "none", "-name", f"lab-{self.node.name}"]
        argv += [
            "-serial",
            f"file:{self.console.name}",
            "-qmp",
            f"unix:{self.node.name}.qmp,server=on,wait=off",
        ]
        argv += ["-kernel", str(self.artifacts.kernel), "-initrd", str(self.artifacts.initramfs)]
        argv += ["-append", f"{KERNEL_ARGUMENTS} {PATIENCE if self.accelerator == 'tcg' else ''}"]
        argv += ["-drive", f"file={self.disk.name},format=qcow2,if=none,id=system,cache=unsafe"]
        argv += ["-device", "virtio-blk-pci,drive=system,addr=0x3"]
        argv += ["-drive", f"file={self.hardware.name},format=raw,if=none,id=table,readonly=on,cache=unsafe"]
        argv += ["-device", "virtio-blk-pci,drive=table,addr=0x4"]
        argv += ["-device", "virtio-rng-pci,addr=0x5"]
        return argv + self._network_arguments()

    # ------------------------------------------------------------ process

    def start(self, saved: Path | None = None) -> None:
        """Start QEMU: a cold boot, or the resumption of a saved state."""
        (self.run_dir / f"{self.node.name}.qmp").unlink(missing_ok=True)
        self.console.unlink(missing_ok=True)
        incoming = ["-incoming", f"exec:cat {shlex.quote(str(saved))}"] if saved else []
        log = self.run_dir / f"{self.node.name}.qemu.log"
        pid = host.spawn([*self.command(), *incoming], log=log, cwd=self.run_dir)
        self._pid_file.write_text(str(pid))

    @property
    def _pid_file(self) -> Path:
        return self.run_dir / f"{self.node.name}.pid"

    def pid(self) -> int | None:
        """The process, while it is alive and ours."""
        try:
            pid = int(self._pid_file.read_text())
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)  # our own child, when it ended
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return pid if f"lab-{self.node.name}\0".encode() in command else None

    def stop(self) -> None:
        """Pull the plug and wait until the process is gone."""
        if self.pid():
            with contextlib.suppress(LabError, OSError):
                self.qmp({"execute": "quit"})
            with contextlib.suppress(LabError):
                wait_for(f"{self.node.name}'s QEMU to end", lambda: self.pid() is None, seconds=10)
        pid = self.pid()
        if pid:
            os.kill(pid, signal.SIGKILL)
            wait_for(f"{self.node.name}'s QEMU to die", lambda: self.pid() is None, seconds=10)

    def log_tail(self) -> str:
        """The last lines of console and QEMU, for an error message."""
        lines = [f"--- console of {self.node.name}"]
        for path in (self.console, self.run_dir / f"{self.node.name}.qemu.log"):
            if path.exists():
                lines += path.read_text(errors="replace").splitlines()[-CONSOLE_TAIL:]
        return "\n".join(lines)

    # ------------------------------------------------------------ monitor

    def _connect(self) -> socket.socket | None:
        if not self.pid():
            raise LabError(f"{self.node.name} is not running\n{self.log_tail()}")
        sock = socket.socket(socket.AF_UNIX)
        # a unix socket's name is short: address it through the open directory
        directory = os.open(self.run_dir, os.O_PATH | os.O_DIRECTORY)
        try:
            sock.connect(f"/proc/self/fd/{directory}/{self.node.name}.qmp")
        except OSError:
            sock.close()
            return None
        finally:
            os.close(directory)
        return sock

    def qmp(self, *commands: dict[str, Any], seconds: float = 30) -> Any:
        """Run monitor commands, return the last one's result; LabError with QEMU's words when one fails."""
        sock = wait_for(f"{self.node.name}'s monitor", self._connect, seconds=seconds, evidence=self.log_tail)
        result: Any = None
        with sock, sock.makefile("rw") as stream:
            sock.settimeout(seconds)
            stream.readline()
            for command in ({"execute": "qmp_capabilities"}, *commands):
                stream.write(json.dumps(command) + "\n")
                stream.flush()
                while True:
                    line = stream.readline()
                    if not line:
                        return None  # `quit` closes the monitor
                    answer = json.loads(line)
                    if "error" in answer:
                        raise LabError(f"{self.node.name}: {command['execute']}: {answer['error']['desc']}")
                    if "return" in answer:
                        result = answer["return"]
                        break
        return result

    def start_saving(self, to: Path) -> None:
        """Stop the guest and begin to write its memory and devices to `to`."""
        self.qmp(
            {"execute": "stop"},
            {"execute": "migrate-set-parameters", "arguments": {"max-bandwidth": 1 << 33}},
            {"execute": "migrate", "arguments": {"uri": f"exec:cat > {shlex.quote(str(to))}"}},
        )

    def finish_saving(self) -> None:
        """Wait until the state is written."""

        def done() -> bool:
            status = (self.qmp({"execute": "query-migrate"}) or {}).get("status")
            if status == "failed":
                raise LabError(f"{self.node.name}: the state could not be saved")
            return bool(status == "completed")

        wait_for(f"{self.node.name}'s state to be written", done, seconds=180, evidence=self.log_tail)

    def resume(self) -> None:
        """Let a machine run that was started from a saved state."""
        wait_for(
            f"{self.node.name} to load its state",
            lambda: (self.qmp({"execute": "query-status"}) or {}).get("status", "inmigrate") != "inmigrate",
            seconds=120,
            evidence=self.log_tail,
        )
        self.qmp({"execute": "cont"})

    def power_cycle(self) -> None:
        """Reset the machine as a power cut does: nothing is flushed, nobody is told."""
        self.qmp({"execute": "system_reset"})


def wire_mac(port: str) -> str:
    """The MAC of the virtual card that is the cable of `port`; the guest finds it by that."""
    return f"52:54:01:00:00:{PORTS.index(port):02x}"


def gateways(spec: LabSpec) -> Sequence[str]:
    """An address for every node's port forwarding (the one after it serves as QEMU's name server): free
    ones of the management LAN.
    """
    taken = {node.mgmt.ip for node in spec.nodes}
    base = spec.nodes[0].mgmt.ip.rpartition(".")[0]
    last = 252
    found: list[str] = []
    while len(found) < len(spec.nodes):
        pair = (f"{base}.{last}", f"{base}.{last + 1}")
        if not taken.intersection(pair):
            found.append(pair[0])
        last -= 2
    return found
