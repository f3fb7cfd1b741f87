"""``fabric-plan adopt``: from what already configures the nodes to an inventory, or to the reason why not."""

from __future__ import annotations

import argparse
from pathlib import Path

from fabric_plan.cli.console import Console
from fabric_plan.cli.found import add_output, finish, replaceable
from fabric_plan.discover.folder import read_folder
from fabric_plan.discover.infer import infer
from fabric_plan.errors import ExitCode
from fabric_plan.resources import hardware_roles

EXAMPLE = "fabric-plan adopt found/ -o inventories/home.yaml"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this verb's arguments."""
    parser.add_argument(
        "directory",
        metavar="DIR",
        help="nodes/NAME/etc/netplan/*.yaml, nodes/NAME/ip-addr.json, or a rendered tree; "
        "inventory.yaml (order, management) and cables.yaml beside them where you have them",
    )
    add_output(parser)


def run(options: argparse.Namespace, console: Console) -> ExitCode:
    """Read the folder, infer, write the inventory; a refusal writes nothing."""
    replaceable(options.output, options.force)
    roles = hardware_roles()
    outcome = infer(read_folder(Path(options.directory), roles), roles)
    return finish(outcome, "adopt", options.output, console)
