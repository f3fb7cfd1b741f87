"""What the verbs share: the inventory argument, and the way from a file to a proven plan."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from fabric_plan.cli.console import Console
from fabric_plan.errors import FabricPlanError
from fabric_plan.findings import Notice
from fabric_plan.inventory.load import Loaded, load
from fabric_plan.planner.model import Plan
from fabric_plan.planner.plan import plan_fabric
from fabric_plan.resources import hardware_roles


def add_inventory(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add the option that names the inventory; ``-`` reads standard input."""
    parser.add_argument(
        "-i", "--inventory", required=required, metavar="FILE", help="the inventory (YAML; - for stdin)"
    )


def add_nodes(parser: argparse.ArgumentParser) -> None:
    """Add the option that limits a verb to some nodes."""
    parser.add_argument(
        "--node", action="append", default=[], metavar="NAME", help="this node alone (repeatable)"
    )


def read_inventory(name: str) -> Loaded:
    """Read and load the inventory file `name`. Raises `InventoryError`, or `FabricPlanError` where it cannot
    be read.
    """
    if name == "-":
        return load(sys.stdin.buffer.read(), "<stdin>", hardware_roles())
    path = Path(name)
    try:
        text = path.read_bytes()
    except IsADirectoryError:
        raise FabricPlanError("is a directory", where=name, hint="name the inventory file in it") from None
    except OSError as error:
        near = (
            sorted(str(p) for p in Path("inventories").glob("*.yaml")) if Path("inventories").is_dir() else []
        )
        hint = f"there is {', '.join(near)}" if near else None
        raise FabricPlanError(f"cannot read the inventory: {error.strerror}", where=name, hint=hint) from None
    return load(text, name, hardware_roles())


def read_plan(name: str) -> Plan:
    """Read the inventory file `name` and plan it. Raises `InventoryError` or `RefusalError`."""
    loaded = read_inventory(name)
    try:
        return plan_fabric(loaded.fabric, loaded.notices)
    except FabricPlanError as error:
        error.where = error.where or name
        raise


def chosen_nodes(plan: Plan, names: list[str]) -> tuple[str, ...]:
    """Return the nodes that ``--node`` names, all of them where it names none. Raises `FabricPlanError` for a
    stranger.
    """
    known = [node.name for node in plan.nodes]
    for name in names:
        if name not in known:
            raise FabricPlanError(f"there is no node `{name}`", hint=f"the nodes are {', '.join(known)}")
    return tuple(name for name in known if not names or name in names)


def notice_documents(notices: tuple[Notice, ...]) -> list[dict[str, Any]]:
    """Return notices as plan.json and ``--json`` carry them."""
    return [{"id": notice.id, "text": notice.text} for notice in notices]


def print_notices(console: Console, notices: tuple[Notice, ...]) -> None:
    """Say every warning with its place and its hint."""
    for notice in notices:
        where = f"{notice.where}: " if notice.where else ""
        console.say(f"{console.style('warning:', 'bad')} {where}{notice.text} [{notice.id}]")
        if notice.hint:
            console.say(f"  hint: {notice.hint}")


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
