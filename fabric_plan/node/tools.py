"""The one runner for commands on the node: bounded time, bounded output, no shell, no input."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

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
    """Runs commands found in PATH and, unless `own_path`, in the sbin folders that ssh leaves out of it."""

    def __init__(self, limit_s: float, own_path: bool = False, parallel: int = 32) -> None:
        self.limit_s = limit_s
        path = os.environ.get("PATH", "/usr/bin:/bin").split(":")
        self.path = ":".join(path if own_path else [*path, *(place for place in SBIN if place not in path)])
        self._slots = threading.BoundedSemaphore(parallel)

    def find(self, name: str) -> str | None:
        """Return where a command is, or None."""
        return shutil.which(name, path=self.path)

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
            killed = threading.Event()
            timer = threading.Timer(limit, _kill, (process, killed))
            timer.daemon = True
            timer.start()
            stdout, stderr, cut = _drain(process, killed)
            timer.cancel()
        if killed.is_set():
            reason = f"printed more than {OUTPUT_BYTES} bytes" if cut else f"took over {limit:g} s"
            return Output(None, stdout, stderr, f"{argv[0]} {reason}")
        return Output(process.returncode, stdout, stderr)

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


def _kill(process: subprocess.Popen[bytes], killed: threading.Event) -> None:
    """Kill the command's whole session; `killed` tells that it did not end by itself."""
    killed.set()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()


def _drain(process: subprocess.Popen[bytes], killed: threading.Event) -> tuple[str, str, bool]:
    """Read both outputs to their end; beyond the bound the command is killed."""
    cut = False

    def pump(name: str) -> bytes:
        nonlocal cut
        stream = getattr(process, name)
        data = bytearray()
        while len(data) <= OUTPUT_BYTES:
            piece = stream.read1(65536)
            if not piece:
                return bytes(data)
            data += piece
        cut = True
        _kill(process, killed)
        return bytes(data[:OUTPUT_BYTES])

    errors: list[bytes] = []
    other = threading.Thread(target=lambda: errors.append(pump("stderr")), daemon=True)
    other.start()
    stdout = pump("stdout")
    other.join()
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    return stdout.decode("utf-8", "replace"), b"".join(errors).decode("utf-8", "replace"), cut
