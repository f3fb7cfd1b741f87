"""``fabric-plan rollback``: every node back to the generation before, as one transaction."""

from __future__ import annotations

import argparse

from fabric_plan import resources
from fabric_plan.apply.history import files_of, history_of
from fabric_plan.cli.common import add_inventory, add_nodes, chosen_nodes, read_plan
from fabric_plan.cli.console import Console
from fabric_plan.cli.deploying import add_deploying, deploy, on_nodes
from fabric_plan.cli.reaching import add_reaching, this_node
from fabric_plan.compare.desired import Desired, desired_of
from fabric_plan.errors import ExitCode
from fabric_plan.transport.base import Connection

EXAMPLE = "fabric-plan rollback -i inventories/home.yaml"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this verb's arguments."""
    add_inventory(parser)
    add_nodes(parser)
    add_reaching(parser)
    add_deploying(parser)
    parser.add_argument(
        "--to", type=int, metavar="N", help="this generation instead of the one before; 0: before the first"
    )


def run(options: argparse.Namespace, console: Console) -> ExitCode:
    """Read what was in place before on each node, and deploy that."""
    plan = read_plan(options.inventory)
    names = chosen_nodes(plan, options.node)
    if options.local:
        names = (this_node([node.name for node in plan.nodes], options.node),)

    def before(connection: Connection) -> Desired:
        number = history_of(connection).before() if options.to is None else options.to
        console.note(f"{connection.target.name}: back to generation {number}")
        return desired_of(connection.target.name, files_of(connection, number), resources.layers())

    wants = on_nodes(plan, names, options, console, before)
    ours = {name: tuple(function.netdev for function in want.functions) for name, want in wants.items()}
    return deploy("rollback", plan, ours, lambda: wants, options, console)
