"""``fabric-plan discover``: from the live nodes (or their saved facts) to an inventory, or to the reason
why not.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from fabric_plan.cli.console import Console
from fabric_plan.cli.found import add_output, finish, replaceable
from fabric_plan.cli.reaching import add_reaching, saved_facts, transport_of
from fabric_plan.discover.evidence import Login
from fabric_plan.discover.from_facts import evidence, found_node
from fabric_plan.discover.identify import identify
from fabric_plan.discover.infer import infer
from fabric_plan.discover.live import Asked, Probed, Told, ask, probe
from fabric_plan.errors import ExitCode, FabricPlanError, UsageError
from fabric_plan.inventory.schema import TopologyKind
from fabric_plan.node.document import Facts
from fabric_plan.resources import hardware_roles
from fabric_plan.roles import Hardware

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
        "--facts",
        metavar="DIR",
        help="saved facts (`collect -o`) instead of asking the nodes: folder or file",
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
    add_reaching(parser)
    parser.set_defaults(inventory=None)
    add_output(parser)


def run(options: argparse.Namespace, console: Console) -> ExitCode:
    """Collect, infer, write the inventory; a refusal writes nothing."""
    roles = hardware_roles()
    if options.hardware not in roles:
        raise UsageError(
            f"unknown hardware role `{options.hardware}`", hint=f"known: {', '.join(sorted(roles))}"
        )
    replaceable(options.output, options.force)
    told, probed = _saved(options) if options.facts else _live(options, console)
    nodes = tuple(
        found_node(one.name, roles[options.hardware], one.facts, one.login, _of(probed, one).heard)
        for one in told
    )
    declared = TopologyKind(options.topology) if options.topology else None
    facts = {one.name: one.facts for one in told}
    notices = tuple(notice for one in told for notice in _of(probed, one).notices)
    found = evidence(nodes, facts, ranked=bool(options.nodes), declared=declared, notices=notices)
    outcome = infer(found, roles)
    return finish(outcome, "discover", options.output, console)


def _of(probed: Mapping[str, Probed], told: Told) -> Probed:
    return probed.get(told.name, Probed())


def _saved(options: argparse.Namespace) -> tuple[tuple[Told, ...], Mapping[str, Probed]]:
    """Return the saved facts of the nodes named, in that order, or of all of them."""
    if options.probe_cables:
        raise UsageError("saved facts have no cables to probe", hint="leave out --facts or --probe-cables")
    facts = saved_facts(options.facts)
    absent = [name for name in options.nodes if name not in facts]
    if absent:
        raise FabricPlanError(
            f"there are no facts of {', '.join(absent)}",
            where=options.facts,
            hint=f"there are: {', '.join(facts)}",
        )
    return tuple(_told(name, facts[name]) for name in options.nodes or sorted(facts)), {}


def _told(name: str, facts: Facts) -> Told:
    """The address that the facts were asked at is the way to the node."""
    return Told(name, Login(facts.ssh.server, facts.ssh.dev) if facts.ssh else Login(), facts)


def _live(options: argparse.Namespace, console: Console) -> tuple[tuple[Told, ...], Mapping[str, Probed]]:
    if not options.nodes or options.local:
        raise UsageError("name the nodes, all of them", hint=EXAMPLE)
    role = hardware_roles()[options.hardware]
    told, connections = ask(
        transport_of(options), [Asked.parse(word) for word in options.nodes], console.progress
    )
    try:
        if not options.probe_cables:
            return told, {}
        return told, probe(
            connections, {one.name: _fabric_functions(one, role) for one in told}, console.progress
        )
    finally:
        for connection in connections.values():
            connection.close()


def _fabric_functions(told: Told, role: Hardware) -> list[str]:
    """Return the devices to probe: never the way to the node, even where somebody logs in over the fabric."""
    found = identify(found_node(told.name, role, told.facts, told.login)).functions.values()
    way_in = told.facts.ssh.dev if told.facts.ssh else None
    return [interface.netdev for interface in found if interface.netdev != way_in]
