"""The program as it travels: one archive that calls itself again for its service and its timer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fabric_plan.transport.program import program
from tests.node.test_program import old_python
from tests.node.txn.faults import Whole, run_out
from tests.node.txn.support import F0, F1, SYSCTLS, TOKEN, changes, expected, tree
from tests.node.txn.world import World

STEPS = [
    {"kind": "place"},
    {"kind": "daemon-reload"},
    {"kind": "netplan", "interfaces": []},
    {"kind": "netplan", "interfaces": [F0, F1]},
    {"kind": "mesh"},
]
BEGIN = {
    "id": "0123456789abcdef",
    "holder": "a",
    "lease_s": 60,
    "intent": "apply",
    "digest": "",
    "fabric": "",
    "node": "",
    "version": "",
}


class Archive:
    """Calls of the archive, each in a Python of its own."""

    def __init__(self, world: World, folder: Path, python: str) -> None:
        self.world, self.python = world, python
        self.path = folder / "program.pyz"
        self.path.write_bytes(program().content)

    def call(self, verb: str, request: dict[str, Any]) -> dict[str, Any]:
        done = subprocess.run(
            [self.python, "-I", "-S", str(self.path), verb, "--root", str(self.world.root)],
            input=json.dumps(request).encode(),
            capture_output=True,
            env=self.world.env(),
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        reply: dict[str, Any] = json.loads(done.stdout)
        assert reply["ok"], reply
        return reply

    def trial(self) -> str:
        """Bring the first version to its trial and return the token."""
        token = str(self.call("begin", BEGIN)["token"])
        files = changes(self.world, tree("v1"))
        stage = {"token": token, "files": files, "sysctls": list(SYSCTLS), "interfaces": [F0, F1]}
        self.call("stage", stage)
        self.call("run", {"token": token, "id": TOKEN, "steps": STEPS, "arm_s": 60})
        # What the service runs must not change under it, so it is a copy of the archive.
        self.path.unlink()
        next(iter(self.world.services.values())).wait(30)
        self.path.write_bytes(program().content)
        assert self.call("status", {"token": token})["phase"] == "trial"
        return token


@pytest.fixture(params=["this", "3.9"])
def archive(world: World, tmp_path: Path, request: pytest.FixtureRequest) -> Archive:
    """The archive, kept outside of the node, under this Python and under the oldest that has to do."""
    python = sys.executable if request.param == "this" else old_python()
    if python is None:
        pytest.skip("no Python 3.9 here")
    return Archive(world, tmp_path, python)


def test_an_apply_by_the_archive_alone(world: World, archive: Archive) -> None:
    token = archive.trial()
    archive.call("confirm", {"token": token})
    assert world.files() == expected(tree("v1"))
    archive.call("release", {"token": token})
    assert not list((world.root / "run/fabric-plan").glob("program-*"))


def test_the_timer_of_an_archive_that_is_gone(world: World, archive: Archive) -> None:
    before = Whole.of(world)
    archive.trial()
    archive.path.unlink()
    run_out(world)
    assert world.fire() == 0
    assert Whole.of(world) == before
