"""``fabric-plan collect``: the facts of all nodes, in parallel, to look at, to keep, or to send along."""

from __future__ import annotations

import argparse
import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fabric_plan.cli.common import add_inventory, add_nodes, chosen_nodes, read_plan, write_whole
from fabric_plan.cli.console import Console
from fabric_plan.cli.reaching import add_reaching, this_node, transport_of
from fabric_plan.errors import ExitCode, FabricPlanError, UsageError
from fabric_plan.facts.load import facts_of
from fabric_plan.facts.saved import collection
from fabric_plan.node.document import Facts
from fabric_plan.transport.base import Target, each
from fabric_plan.transport.collecting import question

EXAMPLE = "fabric-plan collect -i inventories/home.yaml -o facts.json"
Question = tuple[Target, tuple[str, ...]]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this verb's arguments."""
    add_inventory(parser, required=False)
    add_nodes(parser)
    add_reaching(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE|DIR",
        help="where the facts go: one file, or NODE.json in a folder that is there or ends with /",
    )


def run(options: argparse.Namespace, console: Console) -> ExitCode:
    """Ask every node once; what came is kept even where a node failed."""
    questions = _questions(options)
    transport = transport_of(options)

    def ask(asked: Question) -> dict[str, Any]:
        target, interfaces = asked
        with console.stage(f"{target.name}: asked for its facts"):
            connection = transport.connect(target)
            try:
                request, limit_s = question(target, interfaces)
                return connection.call("collect", request, limit_s=limit_s)
            finally:
                connection.close()

    documents: dict[str, dict[str, Any]] = {}
    facts: dict[str, Facts] = {}
    failed: dict[str, FabricPlanError] = {}
    for name, result in each(questions, ask).items():
        try:
            if isinstance(result, FabricPlanError):
                raise result
            facts[name] = facts_of(result, node=name)
            documents[name] = result
        except FabricPlanError as error:
            failed[name] = error
    if facts:
        console.table(("node", "host name", "system", "kernel", "functions", "not read", "ms"), _rows(facts))
    document = collection(documents, {name: " ".join(error.lines()) for name, error in failed.items()})
    if options.output is not None:
        _write(options.output, document, console)
    if console.json:
        console.document(document)
    for failure in failed.values():
        console.error(failure)
    return ExitCode.ERROR if failed else ExitCode.OK


def _questions(options: argparse.Namespace) -> dict[str, Question]:
    """Return by node where it is and what to ask; without an inventory this machine, and what is there."""
    if options.inventory is None:
        if not options.local or len(options.node) > 1:
            raise UsageError("which nodes?", hint="-i INVENTORY names them, or --local means this machine")
        name = options.node[0] if options.node else socket.gethostname()
        return {name: (Target(name, "localhost"), ())}
    plan = read_plan(options.inventory)
    names = chosen_nodes(plan, options.node)
    if options.local:
        names = (this_node([node.name for node in plan.nodes], options.node),)
    nodes = [plan.fabric.node(name) for name in names]
    return {
        node.name: (Target.of(node), tuple(function.netdev for function in node.functions)) for node in nodes
    }


def _rows(facts: Mapping[str, Facts]) -> Iterator[tuple[str, ...]]:
    for name, found in facts.items():
        host = found.host
        yield (
            name,
            host.hostname or "?",
            host.os or "?",
            host.kernel or "?",
            str(len(found.functions)),
            str(_gaps(found)),
            str(found.took_ms),
        )


def _gaps(found: Any) -> int:
    """Return how many pieces of the facts could not be read."""
    own = len(getattr(found, "unread", ()))
    if hasattr(found, "__dataclass_fields__"):
        return own + sum(
            _gaps(getattr(found, name)) for name in found.__dataclass_fields__ if name != "unread"
        )
    if isinstance(found, Mapping):
        return sum(map(_gaps, found.values()))
    return sum(map(_gaps, found)) if isinstance(found, tuple) else 0


def _write(output: str, document: Mapping[str, Any], console: Console) -> None:
    """Write one file with everything, or one a node."""
    path = Path(output)
    if path.is_dir() or output.endswith("/"):
        for name, facts in document["nodes"].items():
            write_whole(path / f"{name}.json", json.dumps(facts, indent=2) + "\n")
    else:
        write_whole(path, json.dumps(document, indent=2) + "\n")
    console.note(f"written to {output}")
