"""Prove a plan: every planned path arrives, every address is reachable, and nothing else moves."""

from __future__ import annotations

from fabric_plan.planner.model import Plan
from fabric_plan.simulate.loops import hairpin_loops
from fabric_plan.simulate.proof import Proof
from fabric_plan.simulate.rdma import walk_paths
from fabric_plan.simulate.structure import check_structure
from fabric_plan.simulate.tcp import walk_flows
from fabric_plan.simulate.wire import build


def prove(plan: Plan) -> Proof:
    """Walk `plan` and return what was seen; a plan that does not work gives failures, never an exception.

    Nothing but what the nodes will carry is read, and the cables; of the planner's intent only the list of
    paths to confirm.
    """
    wire = build(plan)
    rdma = walk_paths(wire, plan)
    flows, tcp = walk_flows(wire, plan)
    failures = (*check_structure(wire, plan), *rdma.failures, *tcp, *hairpin_loops(wire, plan))
    return Proof(
        rdma_paths=len(rdma.trips),
        tcp_flows=flows,
        kernel_forwarded=rdma.forwarded,
        failures=failures,
        hops=rdma.trips,
        load=plan.load,
    )
