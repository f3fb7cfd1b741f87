"""The whole chain: the command line as a process of its own, SSH, the node program, four machines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.apply.machine import Machine
from tests.scripts.support import plan_of
from tests.ssh.nodes import Cluster, start

PROJECT = Path(__file__).resolve().parents[2]
RUN_LIMIT_S = 400


@dataclass
class Result:
    """How a run of the command line ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The document on standard output."""
        return json.loads(self.stdout)

    def __str__(self) -> str:
        return f"status {self.status}\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"


@dataclass
class Chain:
    """Four machines, and who runs the command line against them."""

    cluster: Cluster
    machines: dict[str, Machine]
    home: Path
    inventories: dict[str, Path] = field(default_factory=dict)
    factory: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    first: Result | None = None

    @property
    def inventory(self) -> Path:
        """The inventory of the ring with its mesh."""
        return self.inventories["mesh"]

    def write_inventory(self, name: str, text: str) -> Path:
        """Keep an inventory under a name; the fabric is called the same in all."""
        path = self.home / f"{name}.yaml"
        path.write_text(text)
        self.inventories[name] = path
        return path

    def begin(
        self, verb: str, *words: str, inventory: Path | None = None, path: str = ""
    ) -> subprocess.Popen[str]:
        """Start the command line and return its process; `path` stands first in its PATH."""
        more = {"PATH": f"{path}:{os.environ['PATH']}"} if path else {}
        return subprocess.Popen(
            self.command(verb, *words, inventory=inventory),
            cwd=PROJECT,
            env={**os.environ, "PYTHONPATH": str(PROJECT), "HOME": str(self.home), **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def command(self, verb: str, *words: str, inventory: Path | None = None) -> list[str]:
        """Return the words of a run."""
        where = ["-i", str(inventory or self.inventory), "--ssh-config", str(self.cluster.config)]
        return [sys.executable, "-m", "fabric_plan", *verb.split(), *where, *words]

    def run(self, verb: str, *words: str, inventory: Path | None = None, path: str = "") -> Result:
        """Run the command line to its end."""
        process = self.begin(verb, *words, inventory=inventory, path=path)
        out, err = process.communicate(timeout=RUN_LIMIT_S)
        return Result(process.returncode, out, err)

    def change(self, verb: str = "apply", *words: str, inventory: Path | None = None) -> Result:
        """Run a verb that changes nodes, with everything permitted, and let the machines come to rest."""
        result = self.run(verb, "--yes", "--allow-disruption", *words, inventory=inventory)
        self.rest()
        return result

    def rest(self) -> None:
        """Wait until nothing runs on any machine."""
        for machine in self.machines.values():
            machine.rest()

    def forget(self) -> None:
        """Empty the logs."""
        for machine in self.machines.values():
            machine.log.clear()

    def logs(self) -> dict[str, list[list[str]]]:
        """Return the state-changing calls of every machine since `forget`."""
        return {name: list(machine.log) for name, machine in self.machines.items()}

    def ends(self, result: Result) -> dict[str, str]:
        """Return what the report says of each node."""
        return {name: node["end"] for name, node in result.json["nodes"].items()}


@contextmanager
def four_machines() -> Iterator[Chain]:
    """Run the four of the ring; their paths are short, since a socket's may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="fp-") as folder:
        base = Path(folder)
        (base / "home").mkdir()
        with start(base, 4) as cluster:
            text = cluster.inventory()
            plan = plan_of(text, "loopback.yaml")
            machines = {ssh.name: Machine(ssh, plan.node(ssh.name)) for ssh in cluster.nodes}
            chain = Chain(cluster, machines, base / "home")
            chain.write_inventory("mesh", text)
            chain.write_inventory("addresses", cluster.inventory("planes: {1: managed}\n"))
            try:
                yield chain
            finally:
                for machine in machines.values():
                    machine.close()
                broken = {name: m.broken for name, m in machines.items() if m.broken}
                assert not broken, broken
