"""Runs fabric-plan-marker on recording stand-ins for libibverbs and libmlx5, and reads what was recorded."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DEADLINE_S = 30.0
DEVICE = "rocep1s0f0"
DEVICES = f"{DEVICE}:mlx5:ethernet roceP2p1s0f0:mlx5:ethernet rxe0:other:ethernet ib0:mlx5:infiniband"
BOTH_FORMS = (
    *("--device", DEVICE),
    *("--rule", "10.10.2.11=0x88b5"),
    *("--rule", "10.10.4.11=0x88b6"),
    *("--source-port", "65535=0x88b5"),
)
# Where a removal fails on purpose, the sanitizers' leak report would hide the exit code.
NO_LEAK_CHECK = {"ASAN_OPTIONS": "detect_leaks=0"}
EVENT_DEVICE_FATAL = 8
EVENT_PORT_ACTIVE = 9

Call = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a marker ended: `code` (negative: by a signal), what it said, and the calls it made."""

    code: int
    stdout: str
    stderr: str
    calls: list[Call]

    def names(self) -> list[str]:
        return [call["call"] for call in self.calls]


@dataclass(slots=True)
class Running:
    """A marker that holds its rules."""

    process: subprocess.Popen[str]
    home: Home
    messages: list[str]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> Outcome:
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> Outcome:
        stdout, stderr = self.process.communicate(timeout=DEADLINE_S)
        return Outcome(self.process.returncode, stdout, stderr, self.home.calls())

    def status(self) -> dict[str, str]:
        """Return /proc/PID/status by name."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii").splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@dataclass(slots=True)
class Home:
    """A state directory, the record, the FIFO and the notify socket; short enough for AF_UNIX."""

    root: Path
    binary: Path
    standin: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def state_dir(self) -> Path:
        return self.root / "state"

    @property
    def record(self) -> Path:
        return self.root / "record"

    @property
    def notify_path(self) -> Path:
        return self.root / "notify"

    def environment(self, **extra: str) -> dict[str, str]:
        base = {
            "PATH": os.environ["PATH"],
            "LC_ALL": "C",
            "LD_LIBRARY_PATH": str(self.standin),
            "STANDIN_RECORD": str(self.record),
            "STANDIN_DEVICES": DEVICES,
        }
        return base | self.env | extra

    def command(self, arguments: Sequence[str]) -> list[str]:
        return [str(self.binary), *arguments, "--state-dir", str(self.state_dir)]

    def calls(self) -> list[Call]:
        if not self.record.exists():
            return []
        return [json.loads(line) for line in self.record.read_text(encoding="ascii").splitlines()]

    def forget(self) -> None:
        self.record.unlink(missing_ok=True)

    def run(
        self,
        *arguments: str,
        prefix: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        exact: bool = False,
    ) -> Outcome:
        """Run to the end; `exact` leaves --state-dir away, `prefix` goes in front of the command."""
        self.forget()
        command = [str(self.binary), *arguments] if exact else self.command(arguments)
        done = subprocess.run(
            [*prefix, *command],
            env=self.environment(**(env or {})),
            text=True,
            capture_output=True,
            timeout=DEADLINE_S,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr, self.calls())

    @contextlib.contextmanager
    def listening(self, address: str | None = None) -> Iterator[socket.socket]:
        """A service manager's datagram socket; `address` with a leading @ is an abstract one."""
        name = str(self.notify_path) if address is None else address
        self.notify_path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind("\0" + name[1:] if name.startswith("@") else name)
            listener.settimeout(DEADLINE_S)
            yield listener

    @contextlib.contextmanager
    def holding(self, *arguments: str, prefix: Sequence[str] = (), **env: str) -> Iterator[Running]:
        """Start it, wait until it says that it holds the rules, and end it in any case."""
        self.forget()
        with self.listening() as listener:
            process = subprocess.Popen(
                [*prefix, *self.command(arguments)],
                env=self.environment(NOTIFY_SOCKET=str(self.notify_path), **env),
                text=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            try:
                message = listener.recv(4096).decode()
                assert message.startswith("READY=1\n"), message
                yield Running(process, self, [message])
            finally:
                if process.poll() is None:
                    process.kill()
                process.communicate()

    @contextlib.contextmanager
    def events(self) -> Iterator[int]:
        """A FIFO of device events, which the stand-in is told of; yields the descriptor to write to."""
        path = self.root / "events"
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.env["STANDIN_EVENTS"] = str(path)
        try:
            yield descriptor
        finally:
            del self.env["STANDIN_EVENTS"]
            os.close(descriptor)

    def wait_for_call(self, name: str) -> None:
        """Wait until `name` was called."""
        deadline = time.monotonic() + DEADLINE_S
        while name not in [call["call"] for call in self.calls()]:
            assert time.monotonic() < deadline, f"{name} was not called"
            os.sched_yield()


def event(kind: int) -> bytes:
    return struct.pack("=i", kind)


def created(calls: Sequence[Call]) -> list[int]:
    """The ids of the objects that came to be, in order."""
    return [call["id"] for call in calls if call["call"].startswith("create_") and not call["failed"]]


def destroyed(calls: Sequence[Call]) -> list[int]:
    """The ids of the objects whose destruction was asked for, in order."""
    return [call["id"] for call in calls if call["call"].startswith("destroy_")]


def nothing_left(calls: Sequence[Call]) -> bool:
    """Whether everything was taken back in reverse order, and the device closed with nothing alive on it."""
    opened = [call for call in calls if call["call"] == "open_device" and not call["failed"]]
    closed = [call["alive"] for call in calls if call["call"] == "close_device"]
    return destroyed(calls) == created(calls)[::-1] and closed == [0] * len(opened)


def errno_env(*numbers: int, error: int = errno.EIO) -> dict[str, str]:
    """Let the calls of these numbers fail with `error`."""
    return {"STANDIN_FAIL_AT": ",".join(map(str, numbers)), "STANDIN_ERRNO": str(error)}


def signal_env(number: int, which: signal.Signals) -> dict[str, str]:
    """Let signal `which` arrive during call `number`."""
    return {"STANDIN_SIGNAL_AT": str(number), "STANDIN_SIGNAL": str(int(which))}
