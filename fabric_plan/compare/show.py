"""A comparison for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fabric_plan.compare.model import Change, Diff, Resource

SCHEMA = "fabric-plan/diff/v1"


def sign(change: Change) -> str:
    """Return ``+`` for what is to come, ``-`` for what is to go, ``~`` for what is to change, ``?`` for what
    was not readable.
    """
    if change.resource is Resource.UNKNOWN:
        return "?"
    if not change.counts:
        return "="
    return "+" if change.have is None else "-" if change.want is None else "~"


def lines(diffs: Mapping[str, Diff]) -> Iterator[tuple[str, str | None]]:
    """Yield (line, style) for people: disruptions first, then node by node."""
    disruptive = [(name, change) for name, found in diffs.items() for change in found.disruptive]
    if disruptive:
        yield f"disrupts ({len(disruptive)}):", "bad"
        said = set()
        for name, change in disruptive:
            line = f"  {name}: {change.interface or change.name}: {change.disrupts}"
            if line not in said:
                said.add(line)
                yield line, None
    for name, found in diffs.items():
        counted = [change for change in found.changes if change.counts]
        yield (f"{name}: no difference" if not counted else f"{name}: {len(counted)} differences"), "head"
        for change in found.changes:
            yield f"  {sign(change)} {_line(change)}", "dim" if not change.counts else None


def _line(change: Change) -> str:
    if not change.counts:
        return f"{change.name}: {change.have} (not ours, left alone)"
    have, want = change.have, change.want
    state = want if have is None else f"{have} goes" if want is None else f"{have} -> {want}"
    return f"{change.resource} {change.name}: {state}"


def document(diffs: Mapping[str, Diff]) -> dict[str, Any]:
    """Return the comparison as JSON."""
    return {
        "schema": SCHEMA,
        "differs": any(found.differs for found in diffs.values()),
        "nodes": {
            name: [
                {
                    "resource": str(change.resource),
                    "name": change.name,
                    "have": change.have,
                    "want": change.want,
                    "step": str(change.step) if change.step else None,
                    "interface": change.interface,
                    "disrupts": change.disrupts,
                }
                for change in found.changes
            ]
            for name, found in diffs.items()
        },
    }
