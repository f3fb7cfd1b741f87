"""The one runner for commands on the node: bounded time, bounded output, no shell, no input."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from .plain import dataclass
from .reading import Reading, Unreadable, unreadable

T = TypeVar("T")

OUTPUT_BYTES = 4 << 20
SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")


@dataclass(frozen=True)
class Output:
    """How a command ended: its status, or None and the `reason` when it did not run to its end."""

    status: int | None
    stdout: str
    stderr: str
    reason: str | None = None


class Tools:
    """Runs commands found in PATH and, unless `own_path`, in the sbin folders that ssh leaves out of it.

    `patience` multiplies the limits of a transaction, for a machine that is emulated.
    """

    def __init__(self, limit_s: float, own_path: bool = False, patience: float = 1.0) -> None:
        self.limit_s = limit_s
        self.own_path = own_path
        self.patience = patience
        path = os.environ.get("PATH", "/usr/bin:/bin").split(":")
        self.path = ":".join(path if own_path else [*path, *(place for place in SBIN if place not in path)])
        # More at once than the machine can run would only make each of them late.
        self._slots = threading.BoundedSemaphore(min(32, 2 + 2 * (os.cpu_count() or 1)))

    def find(self, name: str) -> str | None:
        """Return where a command is, or None. A name with a slash is its place."""
        places = [name] if "/" in name else [f"{folder or '.'}/{name}" for folder in self.path.split(":")]
        for place in places:
            if os.access(place, os.X_OK) and os.path.isfile(place):  # noqa: PTH113
                return place
        return None

    def run(self, argv: Sequence[str], limit_s: float | None = None) -> Output:
        """Run a command to its end or its limit; it and its children are killed at the limit."""
        program = self.find(argv[0])
        if program is None:
            return Output(None, "", "", f"{argv[0]} is not there")
        limit = self.limit_s if limit_s is None else limit_s
        environment = {**os.environ, "PATH": self.path, "LC_ALL": "C", "LANG": "C", "NO_COLOR": "1"}
        with self._slots:
            try:
                process = subprocess.Popen(
                    [program, *argv[1:]],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                return Output(None, "", "", f"{argv[0]} cannot be run: {error.strerror}")
            return _finish(process, argv[0], limit)

    def ask(self, parse: Callable[[str], Reading[T]], *commands: Sequence[str]) -> Reading[T]:
        """Return what `parse` makes of the first command that succeeds and is read wholly, else of the best.

        The further commands ask the same question in another form, for tools whose JSON is missing or broken.
        """
        best: Reading[T] = Reading(None, ())
        for argv in commands:
            output = self.run(argv)
            if output.reason is not None:
                return best if best.unread else unreadable(output.reason)
            if output.status != 0:
                words = output.stderr.strip() or output.stdout.strip()
                reading: Reading[T] = unreadable(f"{' '.join(argv)} ended with {output.status}", words)
            else:
                reading = parse(output.stdout)
                if not reading.complete:
                    asked = " ".join(argv)
                    gaps = tuple(Unreadable(f"{asked}: {gap.reason}", gap.excerpt) for gap in reading.unread)
                    reading = Reading(reading.value, gaps)
            if reading.complete:
                return reading
            if best.value is None and (reading.value is not None or not best.unread):
                best = reading
        return best


def _finish(process: subprocess.Popen[bytes], name: str, limit_s: float) -> Output:
    """Read both outputs to their end; over the time or the size the command is killed with its children."""
    deadline = time.monotonic() + limit_s
    streams = [stream.fileno() for stream in (process.stdout, process.stderr) if stream is not None]
    data = {stream: bytearray() for stream in streams}
    reason: str | None = None
    with process, selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map() and reason is None:
            left = deadline - time.monotonic()
            for key, _ in selector.select(max(0.0, left)):
                piece = os.read(key.fd, 65536)
                data[key.fd] += piece
                if not piece:
                    selector.unregister(key.fd)
                if len(data[key.fd]) > OUTPUT_BYTES:
                    reason = f"{name} printed more than {OUTPUT_BYTES} bytes"
            if left <= 0:
                reason = reason or f"{name} took over {limit_s:g} s"
        reason = reason or _end(process, name, deadline - time.monotonic(), limit_s)
        if reason is not None:
            _kill(process)
    stdout, stderr = (bytes(data[stream]).decode("utf-8", "replace") for stream in streams)
    return Output(None if reason else process.returncode, stdout, stderr, reason)


def _end(process: subprocess.Popen[bytes], name: str, left_s: float, limit_s: float) -> str | None:
    """Wait for a command that has closed its outputs."""
    try:
        process.wait(max(0.01, left_s))
    except subprocess.TimeoutExpired:
        return f"{name} took over {limit_s:g} s"
    return None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the command's whole session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
