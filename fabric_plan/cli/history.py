"""``fabric-plan history``: the generations that the nodes keep."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict

from fabric_plan.apply.history import history_of
from fabric_plan.cli.common import add_inventory, add_nodes, chosen_nodes, read_plan
from fabric_plan.cli.console import Console
from fabric_plan.cli.deploying import on_nodes
from fabric_plan.cli.reaching import add_reaching, this_node
from fabric_plan.errors import ExitCode

EXAMPLE = "fabric-plan history -i inventories/home.yaml"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this verb's arguments."""
    add_inventory(parser)
    add_nodes(parser)
    add_reaching(parser)


def run(options: argparse.Namespace, console: Console) -> ExitCode:
    """Ask every node and list what it keeps, the newest first."""
    plan = read_plan(options.inventory)
    names = chosen_nodes(plan, options.node)
    if options.local:
        names = (this_node([node.name for node in plan.nodes], options.node),)
    found = on_nodes(plan, names, options, console, history_of)
    rows = [
        (
            name,
            f"{generation.number}{' *' if generation.number == history.current else ''}",
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(generation.when_unix)),
            generation.intent,
            generation.digest[:12],
            generation.who,
            generation.result,
        )
        for name, history in found.items()
        for generation in history.generations
    ]
    console.table(("node", "generation", "when", "what", "plan", "who", "result"), rows)
    console.say("* is in effect")
    if console.json:
        console.document(
            {
                "schema": "fabric-plan/history/v1",
                "nodes": {
                    name: {
                        "current": history.current,
                        "generations": [asdict(generation) for generation in history.generations],
                    }
                    for name, history in found.items()
                },
            }
        )
    return ExitCode.OK
