"""The machine that the lab runs on: its packages, its accelerator, its directories, its commands."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lab.errors import LabError, LabUnavailableError

# program -> Debian and Ubuntu package
PROGRAMS: Mapping[str, str] = {
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "depmod": "kmod",
    "cpio": "cpio",
    "xz": "xz-utils",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
}
FAKEROOT = ("fakeroot", "fakeroot")
MIN_QEMU = (7, 2)  # the first with datagram netdevs over unix sockets
SBIN = "/usr/sbin:/sbin"


def environment() -> dict[str, str]:
    """The environment of every command: the system directories are on the path of an ordinary user too."""
    return {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:{SBIN}", "LC_ALL": "C.UTF-8"}


def find(program: str) -> str | None:
    """Return the path of `program`, system directories included."""
    return shutil.which(program, path=environment()["PATH"])


def run(
    argv: Sequence[str | Path], *, seconds: float, text: str | None = None, cwd: Path | None = None
) -> str:
    """Run a command and return its output; LabError with the output's tail when it fails or takes longer
    than `seconds`.
    """
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words,
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            cwd=cwd,
            env=environment(),
        )
    except FileNotFoundError:
        raise LabUnavailableError(
            f"no program `{words[0]}` here", hint="`make lab` installs what the lab needs"
        ) from None
    except subprocess.TimeoutExpired:
        raise LabError(f"`{words[0]}` did not end within {seconds:.0f} s") from None
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-25:])
        raise LabError(f"`{' '.join(words)[:200]}` ended with {done.returncode}\n{tail}")
    return done.stdout


# Processes that outlive what started them; held here so that nothing complains that they still run.
_background: list[subprocess.Popen[bytes]] = []


def spawn(argv: Sequence[str | Path], *, log: Path, cwd: Path) -> int:
    """Start a process of its own session that goes on without us, its words in `log`; return its number."""
    with log.open("w") as out:
        process = subprocess.Popen(
            [str(word) for word in argv],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=cwd,
            env=environment(),
            start_new_session=True,
        )
    _background.append(process)
    return process.pid


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """Print how long a stage took."""
    start = time.monotonic()
    print(f"lab: {name} ...", file=sys.stderr, flush=True)
    yield
    print(f"lab: {name}: {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)


def is_root() -> bool:
    """Whether this process is root."""
    return os.geteuid() == 0


def missing_packages() -> list[str]:
    """Return the packages of the programs that are not here."""
    wanted = dict(PROGRAMS) if is_root() else {**PROGRAMS, FAKEROOT[0]: FAKEROOT[1]}
    return sorted({package for program, package in wanted.items() if not find(program)})


def install_packages() -> None:
    """Install what is missing with apt-get; as an ordinary user through `sudo -n`. LabUnavailableError
    where that cannot be.
    """
    missing = missing_packages()
    if missing:
        names = " ".join(missing)
        if not find("apt-get"):
            raise LabUnavailableError(f"the lab needs {names}, and there is no apt-get here to install them")
        sudo = [] if is_root() else ["sudo", "-n"]
        if sudo and subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode:
            raise LabUnavailableError(
                f"the lab needs packages that only root can install: {names}",
                hint=f"sudo apt-get install {names}",
            )
        with stage(f"host packages ({names})"):
            run([*sudo, "apt-get", "update", "-qq"], seconds=300)
            run([*sudo, "apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing], seconds=600)
    check_qemu()


def check_qemu() -> None:
    """LabUnavailableError unless a QEMU new enough is here."""
    words = run(["qemu-system-x86_64", "--version"], seconds=20).split()
    version = words[3] if len(words) > 3 else "0.0"
    if tuple(int(part) for part in version.split(".")[:2]) < MIN_QEMU:
        raise LabUnavailableError(
            f"QEMU {version} is too old", hint="the lab needs 7.2 (Debian 12, Ubuntu 24.04) or later"
        )


def kvm_usable() -> bool:
    """Whether /dev/kvm can be opened for writing; whether it then runs a kernel is another question."""
    try:
        os.close(os.open("/dev/kvm", os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def free_memory_mib() -> int:
    """Memory that can be given to guests now, in MiB."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // 1024
    return 0


def cache_dir() -> Path:
    """Where built images are kept: $FABRIC_PLAN_LAB_CACHE, or ~/.cache/fabric-plan/lab."""
    named = os.environ.get("FABRIC_PLAN_LAB_CACHE")
    base = (
        Path(named)
        if named
        else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fabric-plan" / "lab"
    )
    base.mkdir(parents=True, exist_ok=True)
    return base.resolve()


def run_dir() -> Path:
    """Where a running lab lives: $FABRIC_PLAN_LAB_RUN, or a short private directory (unix socket names are
    short).
    """
    named = os.environ.get("FABRIC_PLAN_LAB_RUN")
    path = (
        Path(named)
        if named
        else Path(os.environ.get("XDG_RUNTIME_DIR") or "/tmp") / f"fabric-plan-lab-{os.getuid()}"
    )
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.stat().st_uid != os.getuid():
        raise LabError(
            f"{path} belongs to another user", hint="set FABRIC_PLAN_LAB_RUN to a directory of your own"
        )
    return path.resolve()
