"""What ``adopt`` and ``discover`` share: show what was found, write the inventory, or say why there is
none.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fabric_plan.cli.common import notice_documents, write_whole
from fabric_plan.cli.console import Console
from fabric_plan.discover.infer import Outcome
from fabric_plan.errors import EvidenceError, ExitCode, FabricPlanError
from fabric_plan.report.drawing import draw


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the option that says where the inventory goes."""
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="where the inventory goes; without it, to stdout"
    )
    parser.add_argument("--force", action="store_true", help="replace FILE if it is there")


def finish(outcome: Outcome, verb: str, output: str | None, console: Console) -> ExitCode:
    """Show the outcome and write its inventory to `output`. Raises `EvidenceError` after a refusal: then
    nothing is written.
    """
    _show(outcome, console)
    if console.json:
        console.document(_document(outcome, verb))
    if outcome.refusals or outcome.text is None:
        raise EvidenceError(list(outcome.refusals))
    if output is not None:
        write_whole(Path(output), outcome.text)
        console.note(f"written to {output}")
    elif not console.json:
        console.say(outcome.text.rstrip("\n"))
    return ExitCode.OK


def replaceable(output: str | None, force: bool) -> None:
    """Refuse to lose somebody's inventory. Raises `FabricPlanError` where `output` is there and `force` is
    not.
    """
    if output is not None and Path(output).exists() and not force:
        raise FabricPlanError("is already there", where=output, hint="name another file, or add --force")


def _show(outcome: Outcome, console: Console) -> None:
    """Write what was found to stderr: stdout may be the inventory."""
    if outcome.plan is not None:
        plan = outcome.plan
        console.note(f"found a {plan.topology.kind} of {len(plan.nodes)}: {' '.join(plan.topology.order)}")
        for line in draw(plan):
            console.note(f"  {line}")
    elif outcome.segments:
        console.note("cables found:")
        for segment in outcome.segments:
            lanes = ", ".join(f"plane {plane} {lane.subnet}" for plane, lane in segment.lanes.items())
            console.note(f"  {segment}" + (f" ({lanes})" if lanes else ""))
    for notice in outcome.notices:
        console.note(f"warning: {notice.text} [{notice.id}]")
        if notice.hint:
            console.note(f"  hint: {notice.hint}")


def _document(outcome: Outcome, verb: str) -> dict[str, Any]:
    return {
        "schema": f"fabric-plan/{verb}/v1",
        "outcome": "refuse" if outcome.refusals else "plan",
        "scope": str(outcome.scope) if outcome.scope else None,
        "topology": {
            "kind": str(outcome.topology.kind) if outcome.topology else None,
            "order": list(outcome.order),
        },
        "cables": [
            {
                "ends": [{"node": end.node, "port": end.port} for end in segment.ends],
                "subnets": {str(plane): str(lane.subnet) for plane, lane in segment.lanes.items()},
                "basis": segment.basis,
            }
            for segment in outcome.segments
        ],
        "planes": list(outcome.planes),
        "nccl": {"prefix": outcome.plan.nccl_prefix if outcome.plan else None},
        "errors": [
            {"id": error.id, "where": error.where, "text": error.message, "hint": error.hint}
            for error in outcome.refusals
        ],
        "warnings": notice_documents(outcome.notices),
        "inventory": None if outcome.refusals else outcome.text,
    }
