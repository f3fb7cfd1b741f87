"""A plan with one thing wrong in it never proves, and the failure says where."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fabric_plan.planner.model import Plan
from fabric_plan.simulate.prove import prove
from tests.simulate.mutations import Mutation, mutations
from tests.strategies import ALTERNATING, Sketch, sketches


def _complaint(mutation: Mutation) -> str | None:
    """Say what the proof did not see; None where a failure names a path and the broken node."""
    proof = prove(mutation.plan)
    if proof.ok:
        return f"not caught: {mutation.what} at {mutation.node}"
    if not any(" to " in failure.path and mutation.node in str(failure) for failure in proof.failures):
        said = [str(failure) for failure in proof.failures]
        return f"no path named: {mutation.what} at {mutation.node}: {said}"
    return None


def _some_of_each_kind(plan: Plan, count: int) -> Iterator[Mutation]:
    kinds: dict[str, list[Mutation]] = defaultdict(list)
    for mutation in mutations(plan):
        kinds[mutation.what].append(mutation)
    for every in kinds.values():
        yield from every if len(every) <= count else random.Random(4).sample(every, count)


@pytest.mark.parametrize(
    "sketch",
    [
        Sketch(mesh="opposite"),
        Sketch(mesh="universal", flips=ALTERNATING),
        Sketch(mesh="balanced", prefix=31),
        Sketch(mesh="opposite", marker="rewrite-probe", prefix=30),
        Sketch(mesh="opposite", planes=("managed",)),
        Sketch(nodes=5, shape="line", mesh="universal"),
        Sketch(nodes=3),
        Sketch(nodes=2),
        Sketch(nodes=4, shape="switched"),
    ],
    ids=lambda sketch: f"{sketch.shape}{sketch.nodes}-{sketch.mesh}",
)
def test_every_kind_of_mutation_is_caught_and_its_path_named(sketch: Sketch) -> None:
    tried = _some_of_each_kind(sketch.plan(), 6)
    assert [complaint for one in tried if (complaint := _complaint(one)) is not None] == []


@settings(
    deadline=None,
    max_examples=40,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)
@given(sketches(), st.randoms(use_true_random=False))
def test_no_mutation_of_any_plan_proves(sketch: Sketch, chance: random.Random) -> None:
    every = list(mutations(sketch.plan()))
    tried = chance.sample(every, min(len(every), 4))
    assert [complaint for one in tried if (complaint := _complaint(one)) is not None] == []
