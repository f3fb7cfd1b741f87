"""Disks that are really full: small file systems in memory, filled at the worst moment."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.txn.faults import STEPS, Whole
from tests.node.txn.support import Driver, RefusedError, changes, tree
from tests.node.txn.world import World

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a file system in memory"),
]
SIZE = "4m"


class Disk:
    """A small file system on one folder of the node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)], check=True)

    def fill(self) -> None:
        """Leave no byte."""
        with (self.folder / "filler").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"\0" * 4096)
            except OSError:
                return

    def make_room(self) -> None:
        """Take the filling away."""
        (self.folder / "filler").unlink()


@pytest.fixture
def disks(world: World) -> Iterator[dict[str, Disk]]:
    """File systems of their own for /run, /var/lib and /etc."""
    if subprocess.run(["mount", "--version"], capture_output=True, check=False).returncode:
        pytest.skip("no mount here")
    made = {name: Disk(world.root / name) for name in ("run", "var/lib", "etc")}
    for path in ("netplan", "systemd/system"):
        (world.root / "etc" / path).mkdir(parents=True)
    yield made
    for disk in made.values():
        subprocess.run(["umount", str(disk.folder)], check=True)


def in_trial(world: World) -> Driver:
    """Bring the node to a trial."""
    driver = Driver(world)
    driver.begin()
    driver.stage(changes(world, tree("v1")))
    assert driver.run(STEPS)["phase"] == "trial"
    return driver


def refused(driver: Driver, verb: str) -> str:
    """Return the id of a refusal."""
    with pytest.raises(RefusedError) as error:
        driver.ask(verb)
    return str(error.value.id)


@pytest.mark.parametrize("full", ["run", "var/lib", "etc"])
def test_a_full_disk_is_seen_before_anything(world: World, disks: dict[str, Disk], full: str) -> None:
    driver = Driver(world)
    driver.begin()
    before = Whole.of(world)
    disks[full].fill()
    with pytest.raises(RefusedError) as error:
        driver.stage(changes(world, tree("v1")))
    assert error.value.id == "no-room"
    disks[full].make_room()
    assert Whole.of(world) == before
    driver.ask("release")
    Driver(world).apply("v1")


@pytest.mark.parametrize("full", ["var/lib", "etc"])
def test_a_disk_that_is_full_at_the_confirmation(world: World, disks: dict[str, Disk], full: str) -> None:
    before = Whole.of(world)
    driver = in_trial(world)
    disks[full].fill()
    assert refused(driver, "confirm") == "no-room"
    assert driver.ask("status")["phase"] == "trial"
    disks[full].make_room()
    assert driver.ask("confirm")["generation"] == 1
    assert Whole.of(world) != before


@pytest.mark.parametrize("full", ["run", "var/lib", "etc"])
def test_an_undo_needs_no_room(world: World, disks: dict[str, Disk], full: str) -> None:
    before = Whole.of(world)
    driver = in_trial(world)
    disks[full].fill()
    driver.ask("undo")
    assert driver.ask("status")["phase"] == "rolled-back"
    disks[full].make_room()
    assert Whole.of(world) == before


def test_a_run_that_fills_up_during_the_steps(world: World, disks: dict[str, Disk]) -> None:
    before = Whole.of(world)
    driver = Driver(world)
    driver.begin()
    driver.stage(changes(world, tree("v1")))
    # What was kept in reserve lets the state be saved; whether the tools get along is theirs to say.
    world.during["^systemctl daemon-reload"] = disks["run"].fill
    assert driver.run(STEPS)["phase"] in ("trial", "failed")
    driver.ask("undo")
    assert Whole.of(world) == before
