"""``fabric-plan review``: the review page with the live state, from saved facts, beside the plan."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fabric_plan import resources
from fabric_plan.cli.common import add_inventory, read_plan, write_whole
from fabric_plan.cli.console import Console
from fabric_plan.cli.reaching import saved_facts
from fabric_plan.cli.write_tree import REVIEW_FILE
from fabric_plan.compare.desired import desired_of
from fabric_plan.errors import ExitCode, FabricPlanError
from fabric_plan.node.document import Facts
from fabric_plan.planner.model import Plan
from fabric_plan.render.tree import render
from fabric_plan.report.live import Live, disruptions
from fabric_plan.report.review import review
from fabric_plan.simulate.prove import prove

EXAMPLE = "fabric-plan review facts.json -i inventories/home.yaml -o live.html"
_START = b"<!DOCTYPE html>"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this verb's arguments."""
    parser.add_argument(
        "facts", nargs="+", metavar="FACTS", help="facts saved by `collect -o`: files, or folders of them"
    )
    add_inventory(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        default=REVIEW_FILE,
        help=f"where the page goes (default {REVIEW_FILE})",
    )


def run(options: argparse.Namespace, console: Console) -> ExitCode:
    """Compare and write the page; no node is asked, nothing is changed anywhere."""
    plan = read_plan(options.inventory)
    out = Path(options.output)
    if out.exists() and (not out.is_file() or not out.read_bytes().startswith(_START)):
        raise FabricPlanError("is there and is no page", where=options.output, hint="name another file")
    facts = _facts(options.facts, plan)
    rendered = render(plan, resources.layers(), resources.templates())
    wants = {
        name: desired_of(name, {file.path: (file.mode, file.content) for file in files}, resources.layers())
        for name, files in rendered.files.items()
        if name in facts
    }
    live = Live.of(wants, facts, {name: _words(found.taken_unix) for name, found in facts.items()})
    with console.stage("proving the plan"):
        proof = prove(plan)
    page = review(plan, rendered, proof, resources.layers(), resources.templates(), live=live)
    write_whole(out, page)
    counts = live.differences()
    rows = [
        (name, str(counts[name]), str(len(live.diffs[name].disruptive)), live.taken[name]) for name in wants
    ]
    console.table(("node", "differences", "disruptive", "facts of"), rows)
    missing = [node.name for node in plan.nodes if node.name not in facts]
    if missing:
        console.say(f"no facts of {', '.join(missing)}")
    found = disruptions(live.steps)
    for one in found:
        console.say(f"{one['count']} times: {one['words']}{_in_all(one['seconds'])}")
    console.say(f"written to {options.output}")
    if console.json:
        console.document(
            {
                "schema": "fabric-plan/review/v1",
                "page": options.output,
                "nodes": {
                    name: {"differences": counts[name], "disruptive": len(live.diffs[name].disruptive)}
                    for name in wants
                },
                "missing": missing,
                "disruptions": found,
                "findings": [
                    {"id": one.id, "node": one.node, "severity": str(one.severity), "text": one.message}
                    for one in live.findings
                ],
            }
        )
    return ExitCode.OK


def _facts(names: list[str], plan: Plan) -> dict[str, Facts]:
    """Return the facts of the plan's nodes, in its order. Raises `FabricPlanError` where there are none, or
    two of one node.
    """
    found: dict[str, Facts] = {}
    for name in names:
        for node, facts in saved_facts(name).items():
            if node in found:
                raise FabricPlanError(f"has facts of {node}, and so has a file before it", where=name)
            found[node] = facts
    known = {node.name: found[node.name] for node in plan.nodes if node.name in found}
    if not known:
        raise FabricPlanError(
            f"facts of {', '.join(found) or 'nobody'}, none of whom is a node of this inventory",
            where=" ".join(names),
            hint=f"the nodes are {', '.join(node.name for node in plan.nodes)}",
        )
    return known


def _words(unix: int) -> str:
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _in_all(seconds: Any) -> str:
    return f"; {seconds[0]} to {seconds[1]} s in all" if seconds else ""
