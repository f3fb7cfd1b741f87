"""The node that a transaction works on: its files, its tools, and how this program is called again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
from collections.abc import Iterator, Sequence

from ..plain import dataclass
from ..tools import Output, Tools
from ..tree import Tree, last_name
from . import store
from .refusal import RefusalError

RUN = "/run/fabric-plan"
VAR = "/var/lib/fabric-plan"
STATE = f"{RUN}/apply.json"
LOCK = f"{RUN}/apply.lock"
COMMIT_LOCK = f"{RUN}/commit.lock"
TRIALS = f"{RUN}/trial"
STAGE = f"{VAR}/stage"
JOURNAL = f"{VAR}/journal"
CURRENT = f"{VAR}/current"
GENERATIONS = f"{VAR}/generations"

# Where the package is no archive it is found again by its folder and its name.
_LOADER = (
    "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__')"
)


@dataclass(frozen=True)
class Node:
    """A node below a root directory."""

    tree: Tree
    tools: Tools

    def place(self, path: str) -> str:
        """Return where a path of the node lies."""
        return self.tree.place(path)

    def prepare(self) -> None:
        """Make our folders. Everybody may read /run/fabric-plan: the engine's environment stands there."""
        store.ensure_dir(self.place(RUN), 0o755)
        store.ensure_dir(self.place(TRIALS), 0o700)
        store.ensure_dir(self.place(VAR), 0o700)
        store.ensure_dir(self.place(GENERATIONS), 0o700)

    @contextlib.contextmanager
    def locked(self, wait_s: float) -> Iterator[None]:
        """Hold the one lock of timer, confirm, undo, run and the rest. Raises `RefusalError` "busy"."""
        self.prepare()
        with store.locked(self.place(LOCK), wait_s, "another verb is at work on this node"):
            yield

    def run(self, argv: Sequence[str], limit_s: float) -> Output:
        """Run a command to its end or its limit in seconds."""
        return self.tools.run(argv, limit_s * self.tools.patience)

    def must(self, argv: Sequence[str], limit_s: float, id: str = "command-failed") -> str:
        """Run a command that has to succeed and return what it printed. Raises `RefusalError`."""
        output = self.run(argv, limit_s)
        if output.status != 0:
            raise RefusalError(id, failure(argv, output))
        return output.stdout

    def script(self, path: str, *arguments: str) -> list[str]:
        """Return the command of a script by its path on the node; bash runs it from file systems without
        exec too.
        """
        return ["bash", self.place(path), *arguments]

    def verb(self, verb: str) -> list[str]:
        """Return the command that calls this program again, from a place that only root can write."""
        package = (__package__ or "").rpartition(".")[0]
        folder = __file__
        for _ in range(package.count(".") + 3):
            folder = os.path.dirname(folder)  # noqa: PTH120 - inside an archive it is no path
        root = ["--root", self.tree.root] if self.tree.root else []
        if self.tools.patience != 1:
            root += ["--patience", f"{self.tools.patience:g}"]
        if os.path.isfile(folder):  # noqa: PTH113 - an archive
            return [sys.executable, "-I", "-S", self._keep(folder), verb, *root]
        return [sys.executable, "-I", "-c", _LOADER, folder, package, verb, *root]

    def _keep(self, archive: str) -> str:
        """Copy the archive beside the state: what the timer will run must not change under it."""
        with open(archive, "rb") as file:  # noqa: PTH123
            data = file.read()
        kept = self.place(f"{RUN}/program-{hashlib.sha256(data).hexdigest()[:16]}.pyz")
        if not os.path.exists(kept):  # noqa: PTH110
            store.write_file(kept, data, 0o600, durable=False)
        return kept


def failure(argv: Sequence[str], output: Output) -> str:
    """Say how a command failed: its last words, or how it ended."""
    said = [line.strip() for text in (output.stderr, output.stdout) for line in text.splitlines()]
    words = "; ".join([line for line in said if line][-3:])[:400]
    name = last_name(argv[1] if argv[0] == "bash" else argv[0])
    how = output.reason or f"{name} ended with {output.status}"
    return f"{how}: {words}" if words else how


def uptime_s() -> float:
    """Return the seconds since boot, sleep included: nobody sets this clock, and /run does not outlive it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
