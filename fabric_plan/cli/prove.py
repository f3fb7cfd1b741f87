"""``fabric-plan prove``: walk every frame of the plan, and say which does not arrive; with kernels too."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from fabric_plan.cli.common import add_inventory, print_notices, read_plan
from fabric_plan.cli.console import Console
from fabric_plan.errors import ExitCode, ProofError
from fabric_plan.planner.model import Plan
from fabric_plan.report.summary import proof_lines
from fabric_plan.simulate.proof import Proof
from fabric_plan.simulate.prove import prove

if TYPE_CHECKING:
    from fabric_plan.prove.netns import Pinged

EXAMPLE = "fabric-plan prove -i inventories/ring4.yaml"

SHOWN = 10


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this verb's arguments."""
    add_inventory(parser)
    parser.add_argument(
        "--netns",
        action="store_true",
        help="also put links, addresses, routes and kernel settings into network namespaces of this machine "
        "and ping every fabric address from every node (Linux, root)",
    )


def run(options: argparse.Namespace, console: Console) -> ExitCode:
    """Plan and prove; a proof that fails is an error."""
    plan = read_plan(options.inventory)
    with console.stage(f"proving {len(plan.nodes)} nodes"):
        proof = prove(plan)
    print_notices(console, plan.notices)
    print_proof(plan, proof, console)
    if console.verbose:
        for trip in proof.hops:
            console.say(f"  {trip.path}", "head")
            for step in trip.steps:
                console.say(f"    {step}")
    if console.json:
        from fabric_plan.render.document import proof_part

        failures = [
            {"kind": f.kind, "path": f.path, "message": f.message, "trace": list(f.trace)}
            for f in proof.failures
        ]
        document = {"schema": "fabric-plan/proof/v1", **proof_part(plan, proof), "failures": failures}
    pinged = _ping(plan, console) if options.netns else None
    if console.json:
        console.document(document | ({"netns": _pinged_part(pinged)} if pinged else {}))
    return ExitCode.OK if proof.ok and (pinged is None or pinged.ok) else ExitCode.ERROR


def _ping(plan: Plan, console: Console) -> Pinged:
    """Ping every address through real kernels, and say what came of it."""
    from fabric_plan.prove.netns import ping_all

    console.progress(f"building {len(plan.nodes)} nodes in network namespaces and pinging ..")
    pinged = ping_all(plan)
    figures = f"{pinged.answered} of {pinged.asked} pings answered, {pinged.size} bytes each"
    if pinged.ok:
        console.say(f"kernels: ok ({figures}, every MAC learned is the planned function's)", "good")
    else:
        console.say(f"kernels: failed ({figures})", "bad")
    for failure in pinged.failures[:SHOWN]:
        console.say(f"  {failure}")
    if len(pinged.failures) > SHOWN:
        console.say(f"  and {len(pinged.failures) - SHOWN} more")
    return pinged


def _pinged_part(pinged: Pinged) -> dict[str, Any]:
    failures = [
        {"node": f.node, "peer": f.peer, "address": str(f.address), "why": f.why} for f in pinged.failures
    ]
    return {
        "ok": pinged.ok,
        "asked": pinged.asked,
        "answered": pinged.answered,
        "size": pinged.size,
        "failures": failures,
    }


def print_proof(plan: Plan, proof: Proof, console: Console) -> None:
    """Say the verdict, its figures, and what failed."""
    first, *rest = proof_lines(plan, proof)
    console.say(first, "good" if proof.ok else "bad")
    for line in rest:
        console.say(line)
    for failure in proof.failures[:SHOWN]:
        console.say(f"  {failure}")
        for step in failure.trace:
            console.say(f"    {step}")
    if len(proof.failures) > SHOWN:
        console.say(f"  and {len(proof.failures) - SHOWN} more")


def refuse_unproven(proof: Proof) -> None:
    """Raise `ProofError` where the proof failed, naming the paths."""
    if proof.ok:
        return
    said = "; ".join(str(failure) for failure in proof.failures[:3])
    more = f"; and {len(proof.failures) - 3} more" if len(proof.failures) > 3 else ""
    raise ProofError(
        f"the plan fails its proof: {said}{more}",
        hint="`fabric-plan prove` shows every hop; --force renders it all the same",
    )
