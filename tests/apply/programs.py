"""Real processes of a machine: what its systemd starts, and what an SSH session started on it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.node.txn.processes import Process, Spawner


def running(root: str) -> list[int]:
    """Return the processes whose last word is this root: the node program below it."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[-2:] == [os.fsencode(root), b""]:
            found.append(int(place.parent.name))
    return found


class Service(Process):
    """A process that systemd would run, the leader of a session of its own."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            list(command),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.poll()

    def wait(self, timeout: float) -> int:
        return self._process.wait(timeout)

    def kill(self, how: int = signal.SIGKILL) -> None:
        try:
            os.killpg(self.pid, how)
        except ProcessLookupError:
            return


class Programs(Spawner):
    """Starts the node program as a real process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self, words: Sequence[str], environment: Mapping[str, str], request: str = "") -> Process:
        return Service(words, environment)
