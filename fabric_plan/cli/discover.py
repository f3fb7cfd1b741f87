"""``fabric-plan discover``: from the live nodes (or their saved facts) to an inventory, or to the reason
why not.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from fabric_plan.cli.console import Console
from fabric_plan.cli.found import add_output, finish, replaceable
from fabric_plan.discover.from_facts import evidence, found_node
from fabric_plan.discover.identify import identify
from fabric_plan.discover.infer import infer
from fabric_plan.discover.live import Asked, Told, ask, probe, saved
from fabric_plan.errors import ExitCode, UsageError
from fabric_plan.inventory.schema import TopologyKind
from fabric_plan.node.records import LldpNeighbour
from fabric_plan.resources import hardware_roles
from fabric_plan.transport.ssh import Ssh

EXAMPLE = "fabric-plan discover spark1 spark2 spark3 spark4 -o inventories/home.yaml"
HARDWARE = "dgx-spark"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this verb's arguments."""
    parser.add_argument(
        "nodes",
        nargs="*",
        metavar="NODE",
        help="[NAME=][USER@]HOST[:PORT], in rank order; your SSH configuration counts",
    )
    parser.add_argument(
        "--facts", metavar="DIR", help="read saved facts, DIR/NAME.json, instead of asking the nodes"
    )
    parser.add_argument(
        "--probe-cables",
        action="store_true",
        help="let the nodes send a few LLDP frames on their fabric functions (never on the management port)",
    )
    parser.add_argument("--topology", choices=list(TopologyKind), help="refuse what is not this")
    parser.add_argument(
        "--hardware", default=HARDWARE, help=f"the hardware role of the nodes (default {HARDWARE})"
    )
    add_output(parser)


def run(options: argparse.Namespace, console: Console) -> ExitCode:
    """Collect, infer, write the inventory; a refusal writes nothing."""
    roles = hardware_roles()
    if options.hardware not in roles:
        raise UsageError(
            f"unknown hardware role `{options.hardware}`", hint=f"known: {', '.join(sorted(roles))}"
        )
    replaceable(options.output, options.force)
    told, heard = _saved(options) if options.facts else _live(options, console)
    nodes = tuple(
        found_node(one.name, roles[options.hardware], one.facts, one.login, heard.get(one.name, ()))
        for one in told
    )
    declared = TopologyKind(options.topology) if options.topology else None
    facts = {one.name: one.facts for one in told}
    outcome = infer(evidence(nodes, facts, ranked=bool(options.nodes), declared=declared), roles)
    return finish(outcome, "discover", options.output, console)


Heard = dict[str, tuple[LldpNeighbour, ...]]


def _saved(options: argparse.Namespace) -> tuple[tuple[Told, ...], Heard]:
    if options.probe_cables:
        raise UsageError("saved facts have no cables to probe", hint="leave out --facts or --probe-cables")
    return saved(Path(options.facts), options.nodes), {}


def _live(options: argparse.Namespace, console: Console) -> tuple[tuple[Told, ...], Heard]:
    if not options.nodes:
        raise UsageError("no node is named", hint=EXAMPLE)
    role = hardware_roles()[options.hardware]
    told, connections = ask(Ssh(), [Asked.parse(word) for word in options.nodes], console.note)
    try:
        if not options.probe_cables:
            return told, {}
        functions = {}
        for one in told:
            found = identify(found_node(one.name, role, one.facts, one.login)).functions.values()
            # The way to the node is never probed, even where somebody logs in over the fabric.
            way_in = one.facts.ssh.dev if one.facts.ssh else None
            functions[one.name] = [interface.netdev for interface in found if interface.netdev != way_in]
        return told, probe(connections, functions, console.note)
    finally:
        for connection in connections.values():
            connection.close()
