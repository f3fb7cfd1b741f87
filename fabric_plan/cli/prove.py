"""``fabric-plan prove``: walk every frame of the plan, and say which does not arrive."""

from __future__ import annotations

import argparse

from fabric_plan.cli.common import add_inventory, print_notices, read_plan
from fabric_plan.cli.console import Console
from fabric_plan.errors import ExitCode, ProofError
from fabric_plan.planner.model import Plan
from fabric_plan.report.summary import proof_lines
from fabric_plan.simulate.proof import Proof
from fabric_plan.simulate.prove import prove

EXAMPLE = "fabric-plan prove -i inventories/ring4.yaml"

SHOWN = 10


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this verb's arguments."""
    add_inventory(parser)


def run(options: argparse.Namespace, console: Console) -> ExitCode:
    """Plan and prove; a proof that fails is an error."""
    plan = read_plan(options.inventory)
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
        console.document({"schema": "fabric-plan/proof/v1", **proof_part(plan, proof), "failures": failures})
    return ExitCode.OK if proof.ok else ExitCode.ERROR


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
