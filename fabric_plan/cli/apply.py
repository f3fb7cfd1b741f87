"""``fabric-plan apply``: put the plan on the nodes, as one transaction."""

from __future__ import annotations

import argparse

from fabric_plan.cli.common import add_inventory, add_nodes, chosen_nodes, print_notices, read_plan
from fabric_plan.cli.console import Console
from fabric_plan.cli.deploying import add_deploying, deploy, desired_states, ours_on
from fabric_plan.cli.prove import refuse_unproven
from fabric_plan.cli.reaching import add_reaching, this_node
from fabric_plan.errors import ExitCode
from fabric_plan.simulate.prove import prove

EXAMPLE = "fabric-plan apply -i inventories/home.yaml"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this verb's arguments."""
    add_inventory(parser)
    add_nodes(parser)
    add_reaching(parser)
    add_deploying(parser)
    parser.add_argument(
        "--take-over",
        action="store_true",
        help="move stanzas of our interfaces out of other netplan files; the originals come back on rollback",
    )


def run(options: argparse.Namespace, console: Console) -> ExitCode:
    """Prove the plan, then deploy it to the chosen nodes."""
    plan = read_plan(options.inventory)
    refuse_unproven(prove(plan))
    names = chosen_nodes(plan, options.node)
    if options.local:
        names = (this_node([node.name for node in plan.nodes], options.node),)
    print_notices(console, plan.notices)
    return deploy("apply", plan, ours_on(plan, names), lambda: desired_states(plan, names), options, console)
