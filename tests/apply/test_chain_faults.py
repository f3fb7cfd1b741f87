"""The whole chain, cut: the controller killed, a connection lost, the node program killed, no room on a disk.

A change of files on all four machines is applied, and something breaks in the middle. Whatever it was: when
every lease and timer has run out, each machine is wholly what it was or wholly what was planned, the report
told no lie, and the next apply brings all of them to the plan.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apply.chain import Chain, Result
from tests.apply.machine import Machine

pytestmark = pytest.mark.chain
VICTIM = "spark3"

# Moments by a call that the machine gets to see.
MOMENTS = {
    "armed": r"^systemd-run --quiet --unit=fabric-plan-undo-",
    "in the steps": r"^tc qdisc show",
    "right after its commit": r"^systemctl stop fabric-plan-undo-\d+-\*\.timer",
}
CRASHES = (
    "stage.trial",
    "run.started",
    "execute.step-noted",
    "confirm.decided",
    "commit.point",
    "commit.pointed",
)

State = dict[str, tuple[Any, Any]]


def states(chain: Chain) -> State:
    """What lasts and what lives on every machine."""
    return {name: (machine.lasting(), machine.kernel_state()) for name, machine in chain.machines.items()}


@pytest.fixture(scope="module")
def ends(chain: Chain) -> tuple[State, State, Path]:
    """The state before and after the change, and the inventory of the change: another number of channels."""
    for machine in chain.machines.values():
        machine.come_back()
    text = chain.cluster.inventory("mesh: {paths: opposite}\nnccl: {channels: 8}\n")
    changed = chain.write_inventory("channels", text)
    old = states(chain)
    result = chain.change("apply", "--json", inventory=changed)
    assert result.status == 0, str(result)
    new = states(chain)
    assert all(old[name][0] != new[name][0] for name in old)
    return old, new, changed


@pytest.fixture
def cut(applied: Chain) -> Iterator[Chain]:
    """Machines to break; whole again afterwards."""
    yield applied
    for machine in applied.machines.values():
        machine.during.clear()


def judge(chain: Chain, ends: tuple[State, State, Path], result: Result | None) -> None:
    """Hold that no machine is stranded, that the report is true, and that the next apply converges."""
    old, new, changed = ends
    for machine in chain.machines.values():
        machine.environment.pop("FABRIC_PLAN_CRASH_AT", None)
        machine.environment.pop("FABRIC_PLAN_ENOSPC_AT", None)
        machine.wrap()
    chain.rest()
    at_the_report = {name: machine.lasting() for name, machine in chain.machines.items()}
    for machine in chain.machines.values():
        machine.pass_time()
    now = states(chain)
    for name in chain.machines:
        assert now[name][0] in (old[name][0], new[name][0]), f"{name} is neither old nor new"
        assert now[name][1] == (old if now[name][0] == old[name][0] else new)[name][1], name
    if result is not None and result.stdout:
        for name, node in result.json["nodes"].items():
            if node["end"] == "applied":
                assert at_the_report[name] == new[name][0] == now[name][0], f"{name} is not applied"
            if node["end"] in ("rolled back", "untouched"):
                assert at_the_report[name] == old[name][0] == now[name][0], f"{name} is not back"
    elif result is not None:
        assert result.status == 1 and result.stderr
        assert now == old, "an error without a report means that nothing was changed"
    again = chain.change("apply", "--json", inventory=changed)
    assert again.status == 0, str(again)
    assert states(chain) == new


def at(machine: Machine, moment: str, act: Callable[[], None]) -> None:
    """Do something once, when the machine comes to that moment."""
    machine.during[MOMENTS[moment]] = act


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("node", ["spark1", VICTIM])
def test_the_controller_is_killed(
    cut: Chain, ends: tuple[State, State, Path], moment: str, node: str
) -> None:
    found: list[int] = []
    at(cut.machines[node], moment, lambda: os.killpg(found[0], signal.SIGKILL))
    process = cut.begin("apply", "--yes", "--json", inventory=ends[2])
    found.append(process.pid)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    judge(cut, ends, None)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_connection_is_cut(cut: Chain, ends: tuple[State, State, Path], moment: str) -> None:
    machine = cut.machines[VICTIM]
    at(machine, moment, machine.ssh.drop)
    judge(cut, ends, cut.run("apply", "--yes", "--json", inventory=ends[2]))


@pytest.mark.parametrize("point", CRASHES)
def test_the_node_program_is_killed(cut: Chain, ends: tuple[State, State, Path], point: str) -> None:
    machine = cut.machines[VICTIM]
    machine.environment["FABRIC_PLAN_CRASH_AT"] = point
    machine.wrap()
    judge(cut, ends, cut.run("apply", "--yes", "--json", "--confirm-timeout", "30", inventory=ends[2]))


@pytest.mark.parametrize("point", ["stage.trial", "place.file", "commit.file", "commit.point"])
def test_a_disk_is_full(cut: Chain, ends: tuple[State, State, Path], point: str) -> None:
    machine = cut.machines[VICTIM]
    machine.environment["FABRIC_PLAN_ENOSPC_AT"] = point
    machine.wrap()
    result = cut.run("apply", "--yes", "--json", inventory=ends[2])
    assert result.status == 1, str(result)
    assert "space" in result.stdout + result.stderr
    judge(cut, ends, result)
