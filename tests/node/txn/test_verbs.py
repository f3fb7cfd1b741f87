"""Every verb's good path: a first apply, a second one, and going back."""

from __future__ import annotations

from tests.node.txn.support import Driver, expected, tree
from tests.node.txn.world import World


def test_a_first_apply_from_begin_to_release(world: World, driver: Driver) -> None:
    begun = driver.begin()
    assert (begun["generation"], begun["current"]) == (1, None)
    before = world.files()
    driver.carry_on("v1")
    assert before == {}
    assert world.files() == expected(tree("v1"))
