"""``fabric-plan validate``: read an inventory, plan it, say all that is wrong with it."""

from __future__ import annotations

import argparse

from fabric_plan.cli.common import add_inventory, notice_documents, print_notices, read_plan
from fabric_plan.cli.console import Console
from fabric_plan.errors import ExitCode

EXAMPLE = "fabric-plan validate -i inventories/ring4.yaml"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this verb's arguments."""
    add_inventory(parser)


def run(options: argparse.Namespace, console: Console) -> ExitCode:
    """Load and plan the inventory; an error says why it cannot be."""
    plan = read_plan(options.inventory)
    print_notices(console, plan.notices)
    console.say(
        f"{options.inventory}: a {plan.topology.kind} of {len(plan.nodes)}: {' '.join(plan.topology.order)}"
    )
    if console.json:
        console.document(
            {
                "schema": "fabric-plan/validate/v1",
                "ok": True,
                "topology": {"kind": str(plan.topology.kind), "order": list(plan.topology.order)},
                "warnings": notice_documents(plan.notices),
            }
        )
    return ExitCode.OK
