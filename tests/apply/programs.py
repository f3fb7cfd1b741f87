"""Real processes of a machine: what its systemd starts, and what an SSH session started on it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.node.txn.processes import Outside, Process, Spawner


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


class Programs(Spawner):
    """Starts the node program as a real process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self, words: Sequence[str], environment: Mapping[str, str], request: str = "") -> Process:
        return Outside(words, environment)
