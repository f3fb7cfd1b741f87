"""The node program's records against those of `dataclasses`: the same to whoever uses them."""

from __future__ import annotations

import dataclasses
import json
import pickle
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Generic, TypeVar

import pytest

from fabric_plan.node import plain

T = TypeVar("T")


@plain.dataclass(frozen=True)
class Ours:
    one: int
    two: str = "x"
    three: Mapping[str, int] = plain.field(default_factory=dict)

    @property
    def twice(self) -> int:
        return 2 * self.one


@dataclasses.dataclass(frozen=True)
class Theirs:
    one: int
    two: str = "x"
    three: Mapping[str, int] = dataclasses.field(default_factory=dict)


@plain.dataclass(frozen=True)
class Box(Generic[T]):
    content: T


@plain.dataclass
class Changeable:
    steps: list[str] = plain.field(default_factory=list)


GIVEN: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((1,), {}),
    ((1, "y", {"a": 1}), {}),
    ((), {"two": "z", "one": 3}),
]
WRONG: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((1, 2, 3, 4), {}),
    ((1,), {"one": 2}),
    ((1,), {"four": 2}),
]


@pytest.mark.parametrize(("values", "named"), GIVEN)
def test_a_record_holds_compares_and_prints_as_a_dataclass_does(
    values: tuple[Any, ...], named: dict[str, Any]
) -> None:
    ours, theirs = Ours(*values, **named), Theirs(*values, **named)
    assert vars(ours) == vars(theirs) and list(vars(ours)) == list(vars(theirs))
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    strange: object = theirs
    assert ours == Ours(*values, **named) and ours != strange
    assert ours != Ours(99)
    assert deepcopy(ours) == ours == pickle.loads(pickle.dumps(ours))
    assert json.dumps(ours, default=vars) == json.dumps(theirs, default=vars)


@pytest.mark.parametrize(("values", "named"), WRONG)
def test_what_a_dataclass_refuses_is_refused(values: tuple[Any, ...], named: dict[str, Any]) -> None:
    for kind in (Theirs, Ours):
        with pytest.raises(TypeError):
            kind(*values, **named)


def test_what_is_frozen_stays_as_it_is() -> None:
    ours = Ours(1)
    for name in ("one", "four"):
        with pytest.raises(AttributeError):
            setattr(ours, name, 2)
        with pytest.raises(AttributeError):
            delattr(ours, name)
    assert ours.one == 1 and ours.twice == 2
    assert len({Box(1), Box(1), Box(2)}) == 2
    changeable = Changeable()
    changeable.steps = ["a"]
    assert changeable.steps == ["a"] and Changeable().steps == []
    with pytest.raises(TypeError):
        hash(changeable)


def test_a_default_that_is_made_anew_is_nobody_elses() -> None:
    Changeable().steps.append("a")
    assert Changeable().steps == []


def test_the_controller_sees_dataclasses() -> None:
    assert dataclasses.is_dataclass(Ours) and dataclasses.is_dataclass(Box[int](1))
    assert [f.name for f in dataclasses.fields(Ours)] == ["one", "two", "three"] == list(plain.names(Ours))
    by_name = {f.name: f for f in dataclasses.fields(Ours)}
    assert by_name["one"].default is dataclasses.MISSING
    assert by_name["two"].default == "x" and by_name["three"].default_factory is dict
    assert dataclasses.replace(Ours(1), two="y") == plain.replace(Ours(1), two="y") == Ours(1, "y")
    assert dataclasses.asdict(Box(Ours(1))) == {"content": {"one": 1, "two": "x", "three": {}}}
