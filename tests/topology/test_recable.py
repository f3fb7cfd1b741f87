"""What is to be moved makes one ring, and nothing shorter would."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import pytest
import yaml

from fabric_plan.inventory.load import load
from fabric_plan.resources import hardware_roles
from fabric_plan.topology.fabric import End, Fabric
from fabric_plan.topology.recable import Add, Move, Step, Swap, steps

Cables = frozenset[frozenset[str]]

SHAPES = {
    "two pairs": "a.f0-b.f1 b.f0-a.f1 c.f0-d.f1 d.f0-c.f1",
    "two pairs, equal ports": "a.f0-b.f0 a.f1-b.f1 c.f0-d.f0 c.f1-d.f1",
    "three pairs": "a.f0-b.f1 b.f0-a.f1 c.f0-d.f1 d.f0-c.f1 e.f0-f.f1 f.f0-e.f1",
    "two triangles": "a.f0-b.f1 b.f0-c.f1 c.f0-a.f1 d.f0-e.f1 e.f0-f.f1 f.f0-d.f1",
    "two lines": "a.f0-b.f1 c.f0-d.f1",
    "line and loop": "a.f0-b.f1 c.f0-d.f1 d.f0-c.f1",
    "line and two loops": "a.f0-b.f1 c.f0-d.f1 d.f0-c.f1 e.f0-f.f0 e.f1-f.f1",
    "three lines": "a.f0-b.f0 c.f1-d.f1 e.f0-f.f1",
}


def fabric(text: str) -> Fabric:
    cables = [cable.split("-") for cable in text.split()]
    names = sorted({end.split(".")[0] for pair in cables for end in pair})
    document = {"nodes": [{"name": name} for name in names], "cables": [{"ends": pair} for pair in cables]}
    return load(yaml.safe_dump(document, sort_keys=False), "x.yaml", hardware_roles()).fabric


def word(end: End) -> str:
    return f"{end.node}.{end.port}"


def cables_of(one: Fabric) -> Cables:
    return frozenset(frozenset(map(word, cable.ends)) for cable in one.cables)


def after(cables: Cables, step: Step) -> Cables:
    """Do a step, as the person at the rack would."""

    def replaced(pair: frozenset[str], old: str, new: str) -> frozenset[str]:
        return (pair - {old}) | {new}

    if isinstance(step, Add):
        return cables | {frozenset({word(step.one), word(step.other)})}
    if isinstance(step, Move):
        (pair,) = [pair for pair in cables if word(step.plug) in pair]
        assert word(step.keeps) in pair
        return (cables - {pair}) | {replaced(pair, word(step.plug), word(step.to))}
    (one,) = [pair for pair in cables if word(step.one) in pair]
    (other,) = [pair for pair in cables if word(step.other) in pair]
    made = {
        replaced(one, word(step.one), word(step.other)),
        replaced(other, word(step.other), word(step.one)),
    }
    assert made == {frozenset(map(word, pair)) for pair in step.gives}
    return (cables - {one, other}) | made


def is_ring(cables: Cables, nodes: int) -> bool:
    ends = [end for pair in cables for end in pair]
    if len(cables) != nodes or len(set(ends)) != 2 * nodes:
        return False
    here, port, seen = "a", "a.f0", 0
    while True:
        (pair,) = [pair for pair in cables if port in pair]
        (there,) = pair - {port}
        here, arrived = there.split(".")
        seen += 1
        port = f"{here}.{'f1' if arrived == 'f0' else 'f0'}"
        if here == "a":
            return seen == nodes


@pytest.mark.parametrize("name", SHAPES)
def test_the_steps_make_a_ring(name: str) -> None:
    one = fabric(SHAPES[name])
    cables = cables_of(one)
    assert not is_ring(cables, len(one.nodes))
    for step in steps(one, closed=True):
        cables = after(cables, step)
    assert is_ring(cables, len(one.nodes))


def following(cables: Cables, ports: list[str]) -> Iterator[Cables]:
    """Every cabling that one step away is."""
    used = {end for pair in cables for end in pair}
    free = [port for port in ports if port not in used]
    for a, b in combinations(free, 2):
        yield cables | {frozenset({a, b})}
    for pair in cables:
        for plug in pair:
            (keeps,) = pair - {plug}
            for port in free:
                yield (cables - {pair}) | {frozenset({keeps, port})}
    for one, other in combinations(cables, 2):
        for a in one:
            for b in other:
                (keep_a,), (keep_b,) = one - {a}, other - {b}
                yield (cables - {one, other}) | {frozenset({keep_a, b}), frozenset({keep_b, a})}


@pytest.mark.parametrize("name", [name for name in SHAPES if len(SHAPES[name].split()) <= 4])
def test_nothing_shorter_makes_a_ring(name: str) -> None:
    one = fabric(SHAPES[name])
    nodes = len(one.nodes)
    ports = [f"{node.name}.{port}" for node in one.nodes for port in ("f0", "f1")]
    count = len(steps(one, closed=True))
    reached = {cables_of(one)}
    for _ in range(count - 1):
        reached |= {cables for before in reached for cables in following(before, ports)}
        assert not any(is_ring(cables, nodes) for cables in reached)


def test_a_swap_after_a_swap_names_the_cables_as_they_are_then() -> None:
    first, second = steps(fabric(SHAPES["three pairs"]), closed=True)
    assert isinstance(first, Swap) and isinstance(second, Swap)
    assert str(
        first
    ) == "swap the ends plugged into a.f1 and c.f1 (gives b.f0 - c.f1 and d.f0 - a.f1)".replace(".", " ")


def test_a_line_is_not_closed() -> None:
    one = fabric(SHAPES["two lines"])
    assert [type(step) for step in steps(one, closed=False)] == [Add]
    assert [type(step) for step in steps(one, closed=True)] == [Add, Add]
