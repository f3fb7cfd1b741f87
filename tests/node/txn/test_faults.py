"""A transaction cut at every point, then ended in every way: the node is wholly old or new, and says so."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabric_plan.node.transaction.faults import POINTS
from tests.node.txn.faults import RECOVERIES, Story, Whole, carry_out, judge
from tests.node.txn.processes import Spawner
from tests.node.txn.support import F0, F1, Driver
from tests.node.txn.world import World


class Upgrade:
    """A node at its first generation, to be brought to the second again and again."""

    def __init__(self, world: World) -> None:
        self.world = world
        Driver(world).apply("v1")
        world.reboot()
        world.keep()
        self.old = Whole.of(world)
        story = carry_out(world, "v2")
        assert story.answers[-2:] == ["confirm: ok", "release: ok"], story.answers
        self.new = Whole.of(world)
        assert self.new != self.old

    def back(self) -> World:
        """Return the node at its first generation."""
        self.world.come_back()
        return self.world


@pytest.fixture(scope="module")
def upgrade(spawner: Spawner) -> Iterator[Upgrade]:
    """The scenario, made once."""
    with tempfile.TemporaryDirectory(prefix="fp-") as home:
        world = World(Path(home), (F0, F1), spawner)
        yield Upgrade(world)
        world.close()
        assert not world.broken, world.broken


# Points in a loop are passed for each file; the first, a middle and a later one stand for all.
TIMES = {"commit.file": (1, 3, 9), "place.file": (1, 3, 9), "execute.step-noted": tuple(range(1, 11))}
TIMES["execute.step-done"] = TIMES["execute.step-noted"]
CUTS = [f"{point}:{n}" for point in POINTS for n in TIMES.get(point, (1,))]


def cut(world: World, kind: str, point: str) -> Story:
    """Carry an apply out with one point armed; undo's points need a step that fails."""
    world.environment[kind] = point
    undo = point.startswith("undo.")
    story = carry_out(world, "v2", undo=undo)
    world.environment.clear()
    return story


def killed(world: World, story: Story) -> bool:
    """Tell whether the point was passed: a process was killed there."""
    return story.died or any(process.poll() == -9 for process in world.services.values())


@pytest.mark.faults
@pytest.mark.parametrize("recovery", RECOVERIES)
@pytest.mark.parametrize("point", CUTS)
def test_a_process_killed(upgrade: Upgrade, point: str, recovery: str) -> None:
    world = upgrade.back()
    story = cut(world, "FABRIC_PLAN_CRASH_AT", point)
    assert killed(world, story), story.answers
    RECOVERIES[recovery](world, story)
    assert judge(world, upgrade.old, upgrade.new, story) == []
