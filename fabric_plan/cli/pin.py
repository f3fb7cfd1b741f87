"""``fabric-plan pin``: write the present subnets into the inventory: a new cable moves none."""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

from fabric_plan.cli.common import add_inventory, read_inventory, write_whole
from fabric_plan.cli.console import Console
from fabric_plan.errors import ExitCode, FabricPlanError
from fabric_plan.inventory.pin import pinned_text
from fabric_plan.planner.plan import plan_fabric
from fabric_plan.report.renumbered import subnets_before
from fabric_plan.resources import hardware_roles

EXAMPLE = "fabric-plan pin -i inventories/home.yaml --write"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this verb's arguments."""
    add_inventory(parser)
    parser.add_argument(
        "--from",
        dest="plan",
        metavar="PLAN",
        help="the subnets of this plan.json instead of those chosen now",
    )
    parser.add_argument("--write", action="store_true", help="change the file instead of printing it")


def run(options: argparse.Namespace, console: Console) -> ExitCode:
    """Print or write the inventory with its subnets."""
    if options.inventory == "-":
        raise FabricPlanError("an inventory from stdin cannot be pinned", hint="name the file")
    fabric = read_inventory(options.inventory).fabric
    subnets: dict[int, dict[int, str]] = defaultdict(dict)
    if options.plan:
        try:
            before = subnets_before(json.loads(Path(options.plan).read_text()))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FabricPlanError(f"is not a plan.json ({error})", where=options.plan) from None
        for cable in fabric.cables:
            subnets[cable.index] = dict(before.get(frozenset(cable.ends), {}))
    else:
        for (index, plane), subnet in plan_fabric(fabric).subnets.items():
            subnets[index][plane] = str(subnet)
    chosen = {index: nets for index, nets in subnets.items() if nets and not fabric.cables[index].pins}
    text = pinned_text(Path(options.inventory).read_text(), options.inventory, chosen, hardware_roles())
    if options.write:
        write_whole(Path(options.inventory), text)
        console.say(f"{options.inventory}: {len(chosen)} cables pinned")
    else:
        console.say(text.rstrip("\n"))
    if console.json:
        console.document({"schema": "fabric-plan/pin/v1", "text": text, "cables": len(chosen)})
    return ExitCode.OK
