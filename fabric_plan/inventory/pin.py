"""Write the subnets that a plan chose into the inventory that it came from, so that a new cable moves none of
them.

The text is edited line by line: comments, order and style stay as the user wrote them.
"""

from __future__ import annotations

from collections.abc import Mapping

from fabric_plan.errors import FabricPlanError
from fabric_plan.inventory.load import Loaded, load
from fabric_plan.inventory.source import parse_yaml
from fabric_plan.planner.plan import plan_fabric
from fabric_plan.roles import Hardwares

Subnets = Mapping[int, Mapping[int, str]]


def pinned_text(text: str, name: str, subnets: Subnets, roles: Hardwares) -> str:
    """Return `text` with the `subnets` (by cable index and plane) of every cable that names none.

    Raises `FabricPlanError` with the lines to write where the text is in a form that cannot be edited safely.
    """
    document = parse_yaml(text, name)
    lines = text.splitlines(keepends=True)
    cables = document.data.get("cables", []) if isinstance(document.data, dict) else []
    inserts: list[tuple[int, str]] = []
    for index, cable in enumerate(cables):
        if "planes" in cable or index not in subnets:
            continue
        mark = document.keys["cables", index, "ends"]
        last = max(document.values["cables", index, "ends", i].line for i in (0, 1))
        inserts.append((last, f"{' ' * (mark.column - 1)}{planes_line(subnets[index])}\n"))
    for line, inserted in sorted(inserts, reverse=True):
        if not lines[line - 1].endswith("\n"):
            lines[line - 1] += "\n"
        lines.insert(line, inserted)
    pinned = "".join(lines)
    if not _same(load(text, name, roles), pinned, name, roles, subnets):
        raise FabricPlanError(
            "the cables are written in a form that cannot be edited safely",
            where=name,
            hint="write these yourself: "
            + "; ".join(f"cables[{i}]: {planes_line(nets)}" for i, nets in subnets.items()),
            id="pin-by-hand",
        )
    return pinned


def planes_line(subnets: Mapping[int, str]) -> str:
    """Return the ``planes:`` entry of one cable."""
    entries = ", ".join(f"{{subnet: {subnet}}}" for _, subnet in sorted(subnets.items()))
    return f"planes: [{entries}]"


def _same(before: Loaded, pinned: str, name: str, roles: Hardwares, subnets: Subnets) -> bool:
    """Tell whether the edited text means the same fabric, with exactly the wanted subnets."""
    try:
        after = load(pinned, name, roles)
    except FabricPlanError:
        return False
    if [cable.ends for cable in after.fabric.cables] != [cable.ends for cable in before.fabric.cables]:
        return False
    found = plan_fabric(after.fabric).subnets
    wanted = {(index, plane): subnet for index, nets in subnets.items() for plane, subnet in nets.items()}
    return all(str(found.get(key)) == subnet for key, subnet in wanted.items())
