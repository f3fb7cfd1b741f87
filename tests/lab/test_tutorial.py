"""docs/tutorial.md as it is written, in a lab of its own."""

from __future__ import annotations

import os
import subprocess

import pytest

from lab import driver, host
from tests.docs.tutorial import commands
from tests.golden_trees import ROOT
from tests.lab.plan import Plan

pytestmark = pytest.mark.lab

LIMIT_S = 5400


def test_every_command_does_what_the_page_says(plan: Plan) -> None:
    if (host.run_dir() / driver.STATE).exists():
        pytest.fail("another lab is up: fabric-plan lab down", pytrace=False)
    boot, render, apply, verify, down = commands()
    # The page is read by a person in a fresh clone: nothing of this test's own environment may help.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(command: str) -> str:
        done = subprocess.run(
            command, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        print("\n".join(line for line in done.stderr.splitlines() if line.startswith("lab:")))
        return done.stdout

    try:
        said = run(boot)
        assert all(f"spark{i}" in said for i in (1, 2, 3, 4))
        assert "proof: ok" in run(render)
        said = run(apply)
        assert all(f"spark{i}: applied" in said for i in (1, 2, 3, 4)), said
        said = run(apply)
        assert all(f"spark{i}: unchanged" in said for i in (1, 2, 3, 4)), said
        run(verify)
        plan.keep_applied(driver.Lab.open())
    finally:
        run(down)
