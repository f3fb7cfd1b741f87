"""What the checks and the loader both ask of an inventory: segments, a node's hardware, the nearest word."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from fabric_plan.inventory.schema import END, CableEntry, Inventory, RailEntry
from fabric_plan.inventory.source import Path
from fabric_plan.roles import Hardware, Hardwares


@dataclass(frozen=True, slots=True)
class Problem:
    """A finding with its place as a path into the inventory; `key` points at the key instead of the value."""

    path: Path
    id: str
    message: str
    hint: str | None = None
    key: bool = False
    refuse: bool = True


def suggest(word: str, choices: Iterable[str]) -> str | None:
    """Return the choice that `word` is most likely a misspelling of."""
    found = get_close_matches(word, list(choices), n=1, cutoff=0.6)
    return found[0] if found else None


def segments(inventory: Inventory) -> Iterator[tuple[Path, str, CableEntry | RailEntry]]:
    """Yield every cable and rail with its path and the words a message uses for it."""
    for i, cable in enumerate(inventory.cables):
        yield ("cables", i), f"cables[{i}]", cable
    for i, rail in enumerate(inventory.rails):
        yield ("rails", i), f"rail {rail.name}", rail


def split_end(end: str) -> tuple[str, str]:
    """Split ``node.port``; the schema has seen to it that it is one."""
    match = END.fullmatch(end)
    assert match is not None
    return match["node"], match["port"]


def node_hardware(inventory: Inventory, roles: Hardwares, name: str) -> Hardware | None:
    """Return the hardware role of a node, None where node or role are unknown."""
    for node in inventory.nodes:
        if node.name == name:
            return roles.get(node.hardware or inventory.hardware)
    return None
