"""The staging lab as fixtures: a session builds and boots it, a test starts from a kept state."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fabric_plan.cli.common import read_inventory
from lab import driver, host
from lab.build import build
from lab.driver import CLEAN, Lab
from lab.errors import LabUnavailableError
from lab.spec import from_fabric
from tests.lab.plan import Plan
from tests.lab.tool import ROOT, Tool

# The example ring on the lab's hardware: no speed is asked of it, and it is given its time. The smoke tier
# takes any fabric that a lab can be made of.
INVENTORY = Path(os.environ.get("FABRIC_PLAN_LAB_INVENTORY", ROOT / "inventories" / "lab4.yaml")).absolute()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Booting virtual machines is asked for (``-m lab``), never a side effect of running all tests."""
    asked = "lab" in config.option.markexpr
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.lab)
            item.add_marker(pytest.mark.enable_socket)
            if not asked:
                item.add_marker(pytest.mark.skip(reason="needs the staging lab: make test-lab"))
    # The tutorial boots a lab of its own, and there is one at a time: it comes before that of all others, and
    # leaves them the nodes that it applied the plan to.
    items.sort(key=lambda item: item.path.name != "test_tutorial.py")


def pytest_report_header(config: pytest.Config) -> str | None:
    """What a record is a record of."""
    if "lab" not in config.option.markexpr:
        return None
    argv = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude", "*"]
    commit = subprocess.run(argv, capture_output=True, text=True).stdout.strip() or "unknown"
    return f"lab: {INVENTORY.name} at commit {commit}, {os.cpu_count()} processors"


@dataclass(slots=True)
class Session:
    """The lab of this test run, and which kept state it is in untouched (None: somebody used it)."""

    lab: Lab
    untouched: str | None

    def at(self, state: str) -> Lab:
        """Return the lab in a kept state."""
        if self.untouched != state:
            self.untouched = None
            with host.stage(f"restore of `{state}`"):
                self.lab.restore(state)
            self.untouched = state
        return self.lab


@pytest.fixture(scope="session")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """The lab's fabric, rendered."""
    out = tmp_path_factory.mktemp("rendered") / INVENTORY.stem
    argv = [sys.executable, "-m", "fabric_plan", "render", "-i", str(INVENTORY), "-o", str(out)]
    subprocess.run(argv, check=True, capture_output=True, cwd=ROOT)
    return Plan.read(out)


@pytest.fixture(scope="session")
def session() -> Iterator[Session]:
    """The lab of the inventory; one that is up already is taken and left up."""
    spec = from_fabric(read_inventory(str(INVENTORY)).fabric)
    running = (host.run_dir() / driver.STATE).exists()
    if running:
        lab = Lab.open()
        if (lab.spec, lab.artifacts) != (spec, build(host.cache_dir())):
            pytest.fail("another lab is up: fabric-plan lab down", pytrace=False)
        yield Session(lab, None)
        return
    try:
        lab = driver.start(spec)
    except LabUnavailableError as error:
        # asked for by name: what cannot be had must not look like a pass
        pytest.fail(f"no lab here: {error.message}{f' ({error.hint})' if error.hint else ''}", pytrace=False)
    yield Session(lab, CLEAN)
    lab.down()


@pytest.fixture
def factory(session: Session) -> Lab:
    """Nodes as from the factory, only to be looked at."""
    return session.at(CLEAN)


@pytest.fixture
def lab(session: Session) -> Lab:
    """Nodes as from the factory, to do anything with."""
    lab = session.at(CLEAN)
    session.untouched = None
    return lab


@pytest.fixture
def planned(session: Session, plan: Plan) -> Lab:
    """Nodes that have the rendered files and booted with them, only to be looked at."""
    if not session.lab.has(plan.planned):
        lab = session.at(CLEAN)
        session.untouched = None
        with host.stage("rendered files put on all nodes"):
            lab.each(lambda name: plan.put(lab, name))
        with host.stage("reboot of all nodes"):
            for batch in lab.batches():
                lab.reboot(*batch)
            plan.wait_all_settled(lab)
        plan.keep(lab, plan.planned)
    return session.at(plan.planned)


@pytest.fixture
def meshed(session: Session, planned: Lab) -> Lab:
    """Nodes with the mesh up, to do anything with."""
    session.untouched = None
    return planned


@pytest.fixture
def looked_at(session: Session, plan: Plan) -> Tool:
    """Nodes that `apply` brought from their factory state to the plan, only to be looked at."""
    if not session.lab.has(plan.applied):
        lab = session.at(CLEAN)
        session.untouched = None
        with host.stage("first apply"):
            done = Tool(lab, INVENTORY).change("apply")
            assert done.document and set(done.ends.values()) == {"applied"}, (done.document, done.said)
        plan.keep_applied(lab)
    return Tool(session.at(plan.applied), INVENTORY)


@pytest.fixture
def applied(session: Session, looked_at: Tool) -> Tool:
    """Nodes that `apply` brought to the plan, to do anything with."""
    session.untouched = None
    return looked_at


@pytest.fixture
def unapplied(lab: Lab) -> Tool:
    """Nodes as from the factory, for a tool that will change them."""
    return Tool(lab, INVENTORY)


@pytest.fixture(scope="session")
def factory_states(session: Session) -> dict[str, str]:
    """What `test_apply.states` reads of nodes as from the factory."""
    from tests.lab.test_apply import states

    return states(session.at(CLEAN))
