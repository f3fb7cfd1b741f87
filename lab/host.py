"""The machine that the lab runs on: its packages, its accelerator, its directories, its commands."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lab.errors import LabError, LabUnavailableError
from lab.waiting import wait_for

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
# What an ordinary user needs beside.
UNPRIVILEGED: Mapping[str, str] = {"fakeroot": "fakeroot", "newuidmap": "uidmap"}
# The suite's keys: Debian has them, Ubuntu only with this package.
KEYRING = (Path("/usr/share/keyrings/debian-archive-keyring.gpg"), "debian-archive-keyring")
MIN_QEMU = (7, 2)  # the first with datagram netdevs over unix sockets
SBIN = "/usr/sbin:/sbin"
# The name of a unix socket has 107 bytes; ssh's, with a node's name and a suffix, takes the most.
LONGEST_RUN_DIR = 64


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
            input=text or "",
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
    except subprocess.TimeoutExpired as error:
        said = (
            error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else error.stdout or ""
        )
        raise LabError(f"`{words[0]}` did not end within {seconds:.0f} s\n{_tail(said)}") from None
    if done.returncode:
        raise LabError(f"`{' '.join(words)[:200]}` ended with {done.returncode}\n{_tail(done.stdout)}")
    return done.stdout


def _tail(text: str) -> str:
    return "\n".join(text.splitlines()[-25:])


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
    wanted = PROGRAMS if is_root() else {**PROGRAMS, **UNPRIVILEGED}
    missing = {package for program, package in wanted.items() if not find(program)}
    keyring, package = KEYRING
    return sorted(missing if keyring.exists() else {*missing, package})


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
            # nobody is there to answer a question, and another apt may be at work
            apt = [
                *sudo,
                "env",
                "DEBIAN_FRONTEND=noninteractive",
                "apt-get",
                "-qq",
                "-o",
                "DPkg::Lock::Timeout=120",
            ]
            run([*apt, "update"], seconds=300)
            run([*apt, "install", "-y", "--no-install-recommends", *missing], seconds=600)
    check_qemu()


def qemu_version() -> str:
    """The version of the QEMU that is here."""
    words = run(["qemu-system-x86_64", "--version"], seconds=20).split()
    return words[3] if len(words) > 3 else "0.0"


def check_qemu() -> None:
    """LabUnavailableError unless a QEMU new enough is here."""
    version = qemu_version()
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


def replace_text(path: Path, text: str) -> None:
    """Write a file so that a reader finds the old text or the new one, even when this process is killed."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text)
    new.replace(path)


@contextlib.contextmanager
def sole(path: Path, *, seconds: float) -> Iterator[None]:
    """Hold the lock file `path`; LabError when another process has held it for `seconds`."""

    def taken() -> bool:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    with path.open("a") as file:
        wait_for(f"another lab's work to end ({path})", taken, seconds=seconds)
        yield


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
    """Where a running lab lives: $FABRIC_PLAN_LAB_RUN, or a private directory: on a disk, for the nodes'
    disks lie there, and with a short name, for those of unix sockets are.
    """
    path = Path(os.environ.get("FABRIC_PLAN_LAB_RUN") or f"/var/tmp/fabric-plan-lab-{os.getuid()}")
    if len(os.fsencode(path.absolute())) > LONGEST_RUN_DIR:
        raise LabError(
            f"{path} is too long a name: unix sockets lie in it",
            hint=f"set FABRIC_PLAN_LAB_RUN to one of at most {LONGEST_RUN_DIR} bytes",
        )
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.stat().st_uid != os.getuid():
        raise LabError(
            f"{path} belongs to another user", hint="set FABRIC_PLAN_LAB_RUN to a directory of your own"
        )
    return path.resolve()
