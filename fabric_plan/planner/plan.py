"""Put the plan together: every part in the order in which it depends on the others."""

from __future__ import annotations

from dataclasses import replace

from fabric_plan.findings import Notice
from fabric_plan.planner.addresses import Addresses, addressed_planes, assign_addresses, assign_subnets
from fabric_plan.planner.load import load_of
from fabric_plan.planner.model import NodePlan, Plan, PlannedFunction
from fabric_plan.planner.notices import notices
from fabric_plan.planner.paths import direct_paths, relayed_paths
from fabric_plan.planner.prefix import separating_prefix
from fabric_plan.planner.routes import kernel_routes, relay_routes
from fabric_plan.planner.rules import markers_of, rules_by_node
from fabric_plan.topology.detect import detect
from fabric_plan.topology.fabric import Cable, End, Fabric, Node


def plan_fabric(fabric: Fabric, noticed: tuple[Notice, ...] = ()) -> Plan:
    """Plan `fabric`; `noticed` is what the inventory's checks said. Raises `RefusalError` where no plan
    follows.
    """
    topology = detect(fabric)
    subnets = assign_subnets(fabric)
    addresses = assign_addresses(fabric, subnets)
    planes_of = {cable.index: addressed_planes(fabric, cable) for cable in fabric.cables}
    relayed = relayed_paths(topology, fabric.mesh, fabric.managed)
    paths = (*direct_paths(fabric, planes_of), *relayed)
    rules = rules_by_node(fabric, topology, relayed)
    at = {end: cable for cable in fabric.cables for end in cable.ends}

    def node_plan(node: Node) -> NodePlan:
        return NodePlan(
            name=node.name,
            rank=node.rank,
            position=topology.position(node.name),
            functions=_functions(fabric, node, at, addresses),
            kernel_routes=kernel_routes(fabric, topology, subnets, addresses, node.name),
            relay_routes=relay_routes(fabric, addresses, relayed, node.name),
            rules=rules.get(node.name, ()),
            markers=markers_of(fabric, addresses, relayed, node.name),
        )

    nodes = tuple(node_plan(node) for node in fabric.nodes)
    plan = Plan(
        fabric=fabric,
        topology=topology,
        subnets=subnets,
        nodes=nodes,
        paths=paths,
        load=load_of(fabric, relayed),
        nccl_prefix=separating_prefix(nodes),
        notices=noticed,
    )
    return replace(plan, notices=(*noticed, *notices(plan)))


def _functions(
    fabric: Fabric, node: Node, at: dict[End, Cable], addresses: Addresses
) -> tuple[PlannedFunction, ...]:
    planned = []
    for function in node.functions:
        cable = at.get(End(node.name, function.port))
        address = addresses.get((cable.index, function.plane, node.name)) if cable else None
        planned.append(
            PlannedFunction(function, function.plane in fabric.managed, cable if address else None, address)
        )
    return tuple(planned)
