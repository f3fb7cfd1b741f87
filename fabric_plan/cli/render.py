"""``fabric-plan render``: from an inventory to files for review, with the proof that they work."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from fabric_plan import resources
from fabric_plan.cli.common import add_inventory, add_nodes, chosen_nodes, print_notices, read_plan
from fabric_plan.cli.console import Console
from fabric_plan.cli.prove import print_proof, refuse_unproven
from fabric_plan.cli.write_tree import PLAN_FILE, REVIEW_FILE, contents_before, write_tree
from fabric_plan.errors import ExitCode
from fabric_plan.findings import Notice
from fabric_plan.planner.model import Plan
from fabric_plan.render.document import dump
from fabric_plan.render.output import plan_document
from fabric_plan.render.tree import Rendered, render
from fabric_plan.report.drawing import draw
from fabric_plan.report.renumbered import renumbered, subnets_before
from fabric_plan.report.summary import cable_table, node_table, set_table
from fabric_plan.simulate.proof import Proof
from fabric_plan.simulate.prove import prove

EXAMPLE = "fabric-plan render -i inventories/ring4.yaml -o build/"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this verb's arguments."""
    add_inventory(parser)
    add_nodes(parser)
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="where the files go; without it nothing is written"
    )
    parser.add_argument("--force", action="store_true", help="render although the proof failed")


def render_plan(plan: Plan) -> Rendered:
    """Render `plan` with the roles and templates that this tool carries."""
    return render(plan, resources.layers(), resources.templates())


def run(options: argparse.Namespace, console: Console) -> ExitCode:
    """Plan, prove, render, write, report."""
    plan = read_plan(options.inventory)
    nodes = chosen_nodes(plan, options.node)
    with console.stage(f"proving {len(plan.nodes)} nodes"):
        proof = prove(plan)
    if not options.force:
        refuse_unproven(proof)
    plan = replace(plan, notices=(*plan.notices, *_moved(plan, options.output)))
    with console.stage(f"rendering {len(plan.nodes)} nodes"):
        rendered = render_plan(plan)
    document = plan_document(plan, rendered, proof)
    if options.output:
        files = {
            f"{name}{file.path}": (file.content, int(file.mode, 8))
            for name in nodes
            for file in rendered.files[name]
        }
        with console.stage("drawing the review page"):
            page = _page(plan, rendered, proof, Path(options.output))
        beside = {REVIEW_FILE: (page, 0o644), PLAN_FILE: (dump(document), 0o644)}
        write_tree(Path(options.output), {**files, **beside})
    _report(plan, rendered, console)
    print_proof(plan, proof, console)
    if options.output:
        console.say(
            f"written to {options.output}: {sum(len(rendered.files[name]) for name in nodes)} files "
            f"for {len(nodes)} nodes; open {REVIEW_FILE} there to review"
        )
    if console.json:
        console.document(document)
    return ExitCode.OK


def _page(plan: Plan, rendered: Rendered, proof: Proof, out: Path) -> str:
    """Return the review page, compared with the render that stands in `out`, if there is one."""
    from fabric_plan.report.review import Against, review

    before = contents_before(out)
    against = Against("the render before", before) if before else None
    return review(plan, rendered, proof, resources.layers(), resources.templates(), against=against)


def _moved(plan: Plan, output: str | None) -> tuple[Notice, ...]:
    """Compare with the render that stands in the output directory, where one does."""
    before = Path(output) / PLAN_FILE if output else None
    try:
        return renumbered(plan, subnets_before(json.loads(before.read_text()))) if before else ()
    except (OSError, ValueError, KeyError, TypeError):
        return ()  # none there, or not ours: write_tree has the word on that


def _report(plan: Plan, rendered: Rendered, console: Console) -> None:
    console.say(f"{plan.fabric.name}: a {plan.topology.kind} of {len(plan.nodes)}", "head")
    console.say()
    for line in draw(plan):
        console.say(f"  {line}")
    console.say()
    console.table(*cable_table(plan))
    console.say()
    console.table(*node_table(plan, {name: len(files) for name, files in rendered.files.items()}))
    console.say()
    header, rows = set_table(plan)
    if rows:
        console.table(header, rows)
        console.say()
    print_notices(console, plan.notices)
