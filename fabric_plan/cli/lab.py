"""``fabric-plan lab``: rehearse on virtual machines. The lab itself lives in the source tree, beside this
package.
"""

from __future__ import annotations

import argparse

from fabric_plan.cli.console import Console
from fabric_plan.errors import ExitCode, FabricPlanError

EXAMPLE = "fabric-plan lab up -i inventories/ring4.yaml"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the lab's own verbs; an installed package, which has none, takes any words to refuse them."""
    try:
        from lab.cli import add_verbs
    except ModuleNotFoundError:
        parser.add_argument("lab_verb", nargs=argparse.REMAINDER, metavar="VERB", help="in a clone alone")
        return
    add_verbs(parser)


def run(options: argparse.Namespace, console: Console) -> ExitCode:
    """Do what the lab's verb says."""
    try:
        from lab.cli import run as run_verb
    except ModuleNotFoundError:
        raise FabricPlanError(
            "the lab is not part of the installed package", hint="run this in a clone of the source"
        ) from None
    return run_verb(options)
