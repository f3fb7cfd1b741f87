"""``fabric-plan remove``: take the mesh, plane 2 or everything off the nodes, leaving what is not ours."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace

from fabric_plan import resources
from fabric_plan.cli.common import add_inventory, add_nodes, chosen_nodes, read_inventory
from fabric_plan.cli.console import Console
from fabric_plan.cli.deploying import add_deploying, deploy, desired_states, ours_on
from fabric_plan.cli.reaching import add_reaching, this_node
from fabric_plan.compare.desired import Desired, desired_of
from fabric_plan.errors import ExitCode
from fabric_plan.inventory.schema import MeshPaths
from fabric_plan.planner.plan import plan_fabric

EXAMPLE = "fabric-plan remove mesh -i inventories/home.yaml"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this verb's arguments."""
    parser.add_argument(
        "what",
        choices=("mesh", "plane2", "everything"),
        help="mesh: rules, markers and relay routes; plane2: also its addresses and 90-NM files; "
        "everything of ours",
    )
    add_inventory(parser)
    add_nodes(parser)
    add_reaching(parser)
    add_deploying(parser)


def run(options: argparse.Namespace, console: Console) -> ExitCode:
    """Deploy what is left of the plan without the part that goes."""
    loaded = read_inventory(options.inventory)
    fabric = loaded.fabric
    leaving: dict[str, frozenset[str]] = {}
    if options.what == "plane2":
        leaving = {
            node.name: frozenset(function.netdev for function in node.functions if function.plane == 2)
            for node in fabric.nodes
        }
        fabric = replace(fabric, planes={1: fabric.planes[1]})
    elif options.what == "mesh":
        fabric = replace(fabric, mesh=MeshPaths.OFF)
    plan = plan_fabric(fabric, loaded.notices)
    names = chosen_nodes(plan, options.node)
    if options.local:
        names = (this_node([node.name for node in plan.nodes], options.node),)
    everything = options.what == "everything"

    def left() -> Mapping[str, Desired]:
        if everything:
            return {name: desired_of(name, {}, resources.layers()) for name in names}
        return desired_states(plan, names)

    ours = dict.fromkeys(names, ()) if everything else ours_on(plan, names)
    gone = {name: netdevs for name, netdevs in leaving.items() if name in names}
    return deploy("remove", plan, ours, left, options, console, gone)
