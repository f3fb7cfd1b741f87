"""Notice when a new plan moves subnets that an earlier one gave: a cable put in the middle renumbers those
after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fabric_plan.findings import Notice
from fabric_plan.planner.model import Plan
from fabric_plan.topology.fabric import End

Before = Mapping[frozenset[End], Mapping[int, str]]


def subnets_before(document: Mapping[str, Any]) -> Before:
    """Return the subnets by plane of every cable of a plan document. Raises what a malformed one raises."""
    return {
        frozenset(End(end["node"], end["port"]) for end in cable["ends"]): {
            int(plane): str(subnet) for plane, subnet in cable["subnets"].items()
        }
        for cable in document["cables"]
    }


def renumbered(plan: Plan, before: Before) -> tuple[Notice, ...]:
    """Return a notice that names every cable whose subnets are not what they were."""
    moved = []
    for cable in plan.fabric.cables:
        old = before.get(frozenset(cable.ends), {})
        for plane, subnet in sorted(old.items()):
            new = plan.subnets.get((cable.index, plane))
            if new is not None and str(new) != subnet:
                moved.append(f"{cable}, plane {plane}: {subnet} becomes {new}")
    if not moved:
        return ()
    return (
        Notice(
            "subnets-renumbered",
            f"{len(moved)} subnets move against the render before: "
            f"{'; '.join(moved[:4])}{'; ...' if moved[4:] else ''}",
            hint="`fabric-plan pin --from OLD/plan.json --write` keeps the old ones; every moved "
            "address disrupts its node",
        ),
    )
