"""A transaction cut at every point, then ended in every way: the node is wholly old or new, and says so."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fabric_plan.node.transaction.faults import POINTS
from tests.node.txn.faults import RECOVERIES, Story, Whole, carry_out, judge, run_out
from tests.node.txn.processes import Spawner
from tests.node.txn.support import F0, F1, Driver
from tests.node.txn.world import World


class Scenario:
    """A node that is to be brought from one version to the next again and again; None is nothing of ours."""

    def __init__(self, world: World, old: str | None, new: str | None) -> None:
        self.world, self.version = world, new
        if old:
            Driver(world).apply(old)
        world.reboot()
        world.keep()
        self.generation = 2 if old else 1
        self.old = Whole.of(world)
        story = carry_out(world, new)
        assert story.answers[-2:] == ["confirm: ok", "release: ok"], story.answers
        self.new = Whole.of(world)
        world.reboot()
        self.booted = Whole.of(world)
        assert self.new != self.old and self.booted.files == self.new.files

    def back(self) -> World:
        """Return the node as it was before."""
        self.world.come_back()
        return self.world

    def judge(self, story: Story) -> list[str]:
        """Return what is wrong with the node."""
        return judge(self.world, self.old, (self.new, self.booted), story, self.generation)


@contextmanager
def scenario(spawner: Spawner, old: str | None, new: str | None) -> Iterator[Scenario]:
    """Make a scenario, and end its node."""
    with tempfile.TemporaryDirectory(prefix="fp-") as home:
        world = World(Path(home), (F0, F1), spawner)
        yield Scenario(world, old, new)
        world.close()
        assert not world.broken, world.broken


class Tally:
    """Counts the cases and what was wrong with them; says so at the end."""

    def __init__(self) -> None:
        self.cases = 0
        self.wrong: list[str] = []

    def take(self, wrong: list[str]) -> None:
        """Take the judgement of one case, which has to be that nothing is wrong."""
        self.cases += 1
        self.wrong += wrong
        assert wrong == []

    def __str__(self) -> str:
        false = sum(word.startswith("false report") for word in self.wrong)
        stranded = sum(word.startswith("stranded") for word in self.wrong)
        other = len(self.wrong) - false - stranded
        return f"fault matrix of one node: {self.cases} cases, {stranded} stranded, {false} false reports" + (
            f", {other} left something behind" if other else ""
        )


@pytest.fixture(scope="module")
def tally() -> Iterator[Tally]:
    """The count of this run."""
    count = Tally()
    yield count
    print(f"\n{count}")


@pytest.fixture(scope="module")
def upgrade(spawner: Spawner) -> Iterator[Scenario]:
    """From the first generation to the second."""
    with scenario(spawner, "v1", "v2") as made:
        yield made


@pytest.fixture(scope="module", params=["first", "remove"])
def ends(spawner: Spawner, request: pytest.FixtureRequest) -> Iterator[Scenario]:
    """From nothing of ours to the first generation, and the other way."""
    with scenario(spawner, *((None, "v2") if request.param == "first" else ("v1", None))) as made:
        yield made


# Points in a loop are passed for each file; the first, a middle and a later one stand for all.
TIMES = {"commit.file": (1, 3, 9), "place.file": (1, 3, 9), "execute.step-noted": tuple(range(1, 11))}
TIMES["execute.step-done"] = TIMES["execute.step-noted"]
CUTS = [f"{point}:{n}" for point in POINTS for n in TIMES.get(point, (1,))]
CRASH, FULL = "FABRIC_PLAN_CRASH_AT", "FABRIC_PLAN_ENOSPC_AT"

# These stand for the matrix where there is no time for all of it.
QUICK = ("place.file:3", "execute.step-noted:5", "commit.file:3", "commit.pointed:1", "undo.units-stopped:1")


def cut(made: Scenario, kind: str, point: str) -> Story:
    """Carry an apply out with one point armed; the points of an undo need one."""
    world = made.back()
    world.environment[kind] = point
    story = carry_out(world, made.version, undo=point.startswith("undo."))
    world.environment.clear()
    return story


def killed(world: World, story: Story) -> bool:
    """Tell whether the point was passed: a process was killed there."""
    return story.died or any(process.poll() == -9 for process in world.services.values())


def kill_and_judge(upgrade: Scenario, tally: Tally, point: str, recovery: str) -> None:
    """Do one case of the matrix."""
    story = cut(upgrade, CRASH, point)
    assert killed(upgrade.world, story), story.answers
    RECOVERIES[recovery](upgrade.world, story)
    tally.take(upgrade.judge(story))


@pytest.mark.parametrize("recovery", RECOVERIES)
@pytest.mark.parametrize("point", QUICK)
def test_a_few_cuts(upgrade: Scenario, tally: Tally, point: str, recovery: str) -> None:
    kill_and_judge(upgrade, tally, point, recovery)


@pytest.mark.faults
@pytest.mark.parametrize("recovery", RECOVERIES)
@pytest.mark.parametrize("point", [point for point in CUTS if point not in QUICK])
def test_a_process_killed(upgrade: Scenario, tally: Tally, point: str, recovery: str) -> None:
    kill_and_judge(upgrade, tally, point, recovery)


@pytest.mark.faults
@pytest.mark.parametrize("recovery", ["reboot", "next-begin", "ask-again"])
@pytest.mark.parametrize("point", [f"{point}:1" for point in POINTS])
def test_a_first_apply_and_a_removal_cut(ends: Scenario, tally: Tally, point: str, recovery: str) -> None:
    story = cut(ends, CRASH, point)
    RECOVERIES[recovery](ends.world, story)
    tally.take(ends.judge(story))


@pytest.mark.faults
@pytest.mark.parametrize("recovery", ["timer", "reboot", "ask-again"])
@pytest.mark.parametrize("point", CUTS)
def test_no_room_on_the_disk(upgrade: Scenario, tally: Tally, point: str, recovery: str) -> None:
    story = cut(upgrade, FULL, point)
    RECOVERIES[recovery](upgrade.world, story)
    tally.take(upgrade.judge(story))


@pytest.mark.faults
@pytest.mark.parametrize("point", [point for point in CUTS if point.startswith("undo.")])
def test_an_undo_cut_twice(upgrade: Scenario, tally: Tally, point: str) -> None:
    world = upgrade.world
    story = cut(upgrade, CRASH, point)
    assert killed(world, story)
    world.environment[CRASH] = point
    if world.timers:
        run_out(world)
        assert world.fire() == -9 or point in ("undo.ended:1",)
    world.environment.clear()
    RECOVERIES["next-begin"](world, story)
    tally.take(upgrade.judge(story))


# mv is what recover.sh replaces with: once for each of the ten files, then result, current and the journal.
STEPS_OF_A_JOURNAL = 13
MV = """#!/bin/bash
count=$(($(cat {count} 2>/dev/null || echo 0) + 1))
echo $count >{count}
if [ $count = {stop} ]; then kill -9 $PPID; fi
exec /bin/mv "$@"
"""


@pytest.mark.faults
@pytest.mark.parametrize("recovery", ["reboot", "next-begin", "ask-again", "timer"])
@pytest.mark.parametrize("stop", range(1, STEPS_OF_A_JOURNAL + 1))
def test_a_journal_cut_at_every_step(upgrade: Scenario, tally: Tally, stop: int, recovery: str) -> None:
    world = upgrade.back()
    folder = world.home / "mv"
    folder.mkdir(exist_ok=True)
    (folder / "count").unlink(missing_ok=True)
    (folder / "mv").write_text(MV.format(count=folder / "count", stop=stop))
    (folder / "mv").chmod(0o755)
    world.environment["PATH"] = f"{folder}:{world.env()['PATH']}"
    story = carry_out(world, "v2")
    world.environment.clear()
    assert "confirm: commit-unfinished" in story.answers, story.answers
    RECOVERIES[recovery](world, story)
    wrong = upgrade.judge(story)
    tally.take([*wrong, *([] if Whole.of(world) == upgrade.new else ["stranded: decided, but not finished"])])
