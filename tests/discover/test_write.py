"""The inventory that is written loads as the inventory that was meant, whatever odd names it holds."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric_plan.discover.write import _scalar, inventory_text
from fabric_plan.inventory.load import load
from fabric_plan.inventory.schema import Inventory
from fabric_plan.resources import hardware_roles
from tests.strategies import Sketch, sketches

ODD = [
    "no",
    "on",
    "y",
    "null",
    "1e3",
    "0x10",
    "123",
    "1.5",
    "2026-11-29",
    "1_000",
    "off",
    "TRUE",
    "a-b",
    "x.y",
    "~",
    "=",
    "<<",
]


def loaded(text: str) -> Inventory:
    return load(text, "drawn.yaml", hardware_roles()).inventory


@given(sketch=sketches())
@settings(max_examples=30, deadline=None)
def test_what_is_written_loads_as_it_was(sketch: Sketch) -> None:
    inventory = loaded(sketch.text())
    text = inventory_text(inventory, ["a comment"])
    assert loaded(text) == inventory
    assert inventory_text(loaded(text), ["a comment"]) == text


@pytest.mark.parametrize("word", ODD)
def test_words_that_yaml_would_read_as_something_else_are_quoted(word: str) -> None:
    assert yaml.safe_load(f"key: {_scalar(word)}") == {"key": word}
    assert yaml.safe_load(f"[{_scalar(word)}, x]") == [word, "x"]


@given(
    word=st.text(
        alphabet=st.characters(codec="ascii", categories=("L", "N", "P", "S")), min_size=1, max_size=12
    )
)
def test_any_word_comes_back(word: str) -> None:
    assert yaml.safe_load(f"[{_scalar(word)}]") == [word]


@pytest.mark.parametrize("name", ["no", "on", "123", "0x10", "1e3", "null"])
def test_a_node_may_be_called_anything_that_a_host_may(name: str) -> None:
    document = Sketch(nodes=2, shape="line").document()
    text = yaml.safe_dump(document).replace("n0", name).replace(f"name: {name}", f"name: '{name}'")
    inventory = loaded(text.replace(f"- {name}.f0", f"- '{name}.f0'"))
    assert inventory.nodes[0].name == name
    assert loaded(inventory_text(inventory)) == inventory
