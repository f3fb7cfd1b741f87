"""``fabric-plan diff``: live state against the plan, from the nodes or from saved facts."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

from fabric_plan.apply.deploy import collect
from fabric_plan.apply.session import Session
from fabric_plan.cli.beside import beside
from fabric_plan.cli.common import add_inventory, add_nodes, chosen_nodes, read_plan
from fabric_plan.cli.console import Console
from fabric_plan.cli.deploying import desired_states, ours_on
from fabric_plan.cli.reaching import add_reaching, saved_facts, this_node, transport_of
from fabric_plan.compare.diff import diff
from fabric_plan.compare.show import document, lines
from fabric_plan.errors import ExitCode, FabricPlanError
from fabric_plan.node.document import Facts
from fabric_plan.planner.model import Plan
from fabric_plan.transport.base import Target, begin_each

EXAMPLE = "fabric-plan diff -i inventories/home.yaml"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this verb's arguments."""
    add_inventory(parser)
    add_nodes(parser)
    add_reaching(parser)
    parser.add_argument(
        "--facts", metavar="FILE|DIR", help="facts saved by `collect -o`, instead of the nodes"
    )
    parser.add_argument(
        "--detailed-exitcode", action="store_true", help="2 where something differs, instead of 0"
    )


def run(options: argparse.Namespace, console: Console) -> ExitCode:
    """Compare; nothing is changed anywhere."""
    plan = read_plan(options.inventory)
    names = chosen_nodes(plan, options.node)
    if options.local:
        names = (this_node([node.name for node in plan.nodes], options.node),)
    if options.facts:
        facts = _saved(options.facts, names)
        wants = desired_states(plan, names)
    else:
        states = beside(lambda: desired_states(plan, names))
        collecting = _begin_to_collect(options, plan, names, console)
        wants = states()
        facts = _live(collecting())
    found = {name: diff(want, facts[name]) for name, want in wants.items()}
    for line, style in lines(found):
        console.say(line, style)
    if console.json:
        console.document(document(found))
    differs = any(one.differs for one in found.values())
    return ExitCode.DIFFERENCE if differs and options.detailed_exitcode else ExitCode.OK


def _saved(name: str, names: tuple[str, ...]) -> Mapping[str, Facts]:
    facts = saved_facts(name)
    missing = [node for node in names if node not in facts]
    if missing:
        raise FabricPlanError(
            f"no facts of {', '.join(missing)}", where=name, hint="--node limits the comparison to some nodes"
        )
    return facts


def _begin_to_collect(
    options: argparse.Namespace, plan: Plan, names: tuple[str, ...], console: Console
) -> Callable[[], Mapping[str, Facts | FabricPlanError]]:
    transport, ours = transport_of(options), ours_on(plan, names)

    def one(name: str) -> Facts:
        session = Session(Target.of(plan.fabric.node(name)), transport, 0)
        with console.stage(f"{name}: asked for its facts"):
            try:
                return collect(session, ours[name], plan.pinned_files)
            finally:
                session.drop()

    return begin_each({name: name for name in names}, one)


def _live(results: Mapping[str, Facts | FabricPlanError]) -> Mapping[str, Facts]:
    facts = {}
    for name, result in results.items():
        if isinstance(result, FabricPlanError):
            result.where = result.where or name
            raise result
        facts[name] = result
    return facts
