"""The command line against the lab's nodes, as a person runs it: a process of its own, over SSH."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabric_plan.cli.common import read_plan
from fabric_plan.planner.model import Plan
from lab.driver import Lab

ROOT = Path(__file__).parents[2]
LIMIT_S = 5400
# A node that is emulated takes its time over every step of another one too.
CONFIRM_S = 1800


@dataclass(frozen=True, slots=True)
class Done:
    """How a run ended: its exit code, the document on standard output, and what it said."""

    status: int
    document: dict[str, Any]
    said: str

    @property
    def ends(self) -> dict[str, str]:
        """What a report of apply, rollback or remove says of each node."""
        return {name: node["end"] for name, node in self.document["nodes"].items()}

    @property
    def findings(self) -> list[str]:
        """What a verification found, in words; what was said where it came to no document."""
        found = [
            f"{f['node']} {f['interface']} {f['id']}: {f['read']}" for f in self.document.get("findings", ())
        ]
        return found if self.document else [self.said]


@dataclass(frozen=True, slots=True)
class Tool:
    """`inventory` is the one that the lab's nodes come from, with `hardware: lab`."""

    lab: Lab
    inventory: Path

    @property
    def plan(self) -> Plan:
        """The plan of the inventory."""
        return read_plan(str(self.inventory))

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Start the command line and return its process, the leader of a session."""
        config = str(self.lab.run_dir / "ssh_config")
        argv = [sys.executable, "-m", "fabric_plan", *words, "-i", str(self.inventory), "--json"]
        return subprocess.Popen(
            [*argv, "--ssh-config", config],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def end(self, process: subprocess.Popen[str]) -> Done:
        """Wait for a run."""
        try:
            out, err = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # or it would go on with the next test's nodes
            raise
        return Done(process.returncode, json.loads(out or "{}"), err)

    def run(self, *words: str) -> Done:
        """Run the command line to its end."""
        return self.end(self.begin(*words))

    def begin_change(self, *words: str, confirm_s: int = CONFIRM_S) -> subprocess.Popen[str]:
        """Start a verb that changes nodes, with everything permitted."""
        return self.begin(*words, "--yes", "--allow-disruption", "--confirm-timeout", str(confirm_s))

    def change(self, *words: str) -> Done:
        """Run a verb that changes nodes to its end, with everything permitted."""
        return self.end(self.begin_change(*words))
