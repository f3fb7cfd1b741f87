"""The plan as a JSON document: the contract with other programs (docs/reference/plan.md), and its digest."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from fabric_plan import __version__
from fabric_plan.inventory.schema import MarkerEntry
from fabric_plan.planner.model import KernelRoute, Marker, NodePlan, Plan, PlannedFunction, RelayRoute, Rule
from fabric_plan.simulate.proof import Proof

SCHEMA = "fabric-plan/plan/v1"
NODE_SCHEMA = "fabric-plan/node/v1"


def _ethertype(value: int | None) -> str | None:
    return None if value is None else f"0x{value:04x}"


def _function(planned: PlannedFunction) -> dict[str, Any]:
    function = planned.function
    return {
        "port": function.port,
        "plane": function.plane,
        "netdev": function.netdev,
        "rdma": function.rdma,
        "pci": function.pci,
        "mac": function.mac,
        "address": str(planned.address) if planned.address else None,
        "managed": planned.managed,
    }


def _kernel_route(route: KernelRoute) -> dict[str, Any]:
    return {"to": str(route.to), "via": str(route.via), "dev": route.dev, "plane": route.plane}


def _relay_route(route: RelayRoute) -> dict[str, Any]:
    return {
        "to": str(route.to),
        "via": str(route.via),
        "dev": route.dev,
        "src": str(route.src),
        "peer": route.peer,
        "through": list(route.through),
        "plane": route.plane,
    }


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "dev": rule.dev,
        "protocol": _ethertype(rule.ethertype),
        "src_mac": rule.src_mac,
        "dst_mac": rule.dst_mac,
        "set_type": _ethertype(rule.set_type),
        "set_dst_mac": rule.set_dst_mac,
        "redirect": rule.redirect,
        "pref": rule.pref,
        "handle": rule.handle,
        "plane": rule.plane,
        "cookie": rule.cookie,
        "senders": list(rule.senders),
        "receiver": rule.receiver,
    }


def _marker(marker: Marker) -> dict[str, Any]:
    return {
        "rdma": marker.rdma,
        "source_port": marker.source_port,
        "ethertype": _ethertype(marker.ethertype),
        "destinations": [
            {"address": str(destination.address), "ethertype": _ethertype(destination.ethertype)}
            for destination in marker.destinations
        ],
    }


def _marker_program(marker: MarkerEntry) -> dict[str, Any]:
    """Return where the inventory says that a marker lies, and its digest; nothing for the usual place."""
    return {"marker_path": marker.path, "marker_sha256": marker.sha256} if marker.path else {}


def node_part(node: NodePlan) -> dict[str, Any]:
    """Return what the plan says of one node."""
    return {
        "rank": node.rank,
        "ring_position": node.position,
        "functions": [_function(planned) for planned in node.functions],
        "kernel_routes": [_kernel_route(route) for route in node.kernel_routes],
        "relay_routes": [_relay_route(route) for route in node.relay_routes],
        "rules": [_rule(rule) for rule in node.rules],
        "markers": [_marker(marker) for marker in node.markers],
    }


def plan_core(plan: Plan) -> dict[str, Any]:
    """Return the canonical plan: everything that the digest covers."""
    fabric = plan.fabric
    return {
        "schema": SCHEMA,
        "fabric": fabric.name,
        "status": "research-only" if plan.research_only else "supported",
        "topology": {"kind": str(plan.topology.kind), "order": list(plan.topology.order)},
        "mtu": fabric.mtu,
        "planes": {str(plane): str(mode) for plane, mode in fabric.planes.items()},
        "hairpin": {"queue_size": fabric.hairpin.queue_size, "num_queues": fabric.hairpin.num_queues},
        "mesh": {
            "paths": str(fabric.mesh),
            "marker": str(fabric.marker.dialect),
            **_marker_program(fabric.marker),
        },
        "cables": [
            {
                "ends": [{"node": end.node, "port": end.port} for end in cable.ends],
                "subnets": {
                    str(plane): str(plan.subnets[cable.index, plane])
                    for plane in fabric.planes
                    if (cable.index, plane) in plan.subnets
                },
                **({"rail": cable.rail} if cable.rail else {}),
            }
            for cable in fabric.cables
        ],
        "nodes": {node.name: node_part(node) for node in plan.nodes},
        "nccl": {
            "prefix": plan.nccl_prefix,
            "library": str(fabric.nccl_library),
            "channels": fabric.nccl_channels,
        },
    }


def digest(core: dict[str, Any]) -> str:
    """Return the plan's SHA-256 over its canonical JSON: sorted keys, no blanks, ASCII."""
    return hashlib.sha256(json.dumps(core, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def proof_part(plan: Plan, proof: Proof) -> dict[str, Any]:
    """Return what the plan document says of the proof."""
    return {
        "ok": proof.ok,
        "rdma_paths": proof.rdma_paths,
        "kernel_forwarded": proof.kernel_forwarded,
        "load": [
            {
                "cable": [f"{end.node}.{end.port}" for end in load.cable.ends],
                "plane": load.plane,
                "relayed_paths": load.paths,
            }
            for load in plan.load.cables
        ],
        "queues": [
            {
                "node": load.node,
                "dev": load.dev,
                "redirect": load.redirect,
                "plane": load.plane,
                "relayed_paths": load.paths,
            }
            for load in plan.load.queues
        ],
        "busiest_queue": plan.load.busiest,
        "queue_bound_per_peer": plan.load.bound,
        "size_cap": plan.load.cap,
    }


def node_document(core: dict[str, Any], plan_digest: str, name: str) -> dict[str, Any]:
    """Return ``node.json``: the node's own part, the plan's digest and the version that rendered it."""
    return {
        "schema": NODE_SCHEMA,
        "version": __version__,
        "digest": plan_digest,
        "fabric": core["fabric"],
        "node": name,
        "mtu": core["mtu"],
        "hairpin": core["hairpin"],
        **{key: value for key, value in core["mesh"].items() if key.startswith("marker_")},
        **core["nodes"][name],
    }


def dump(document: dict[str, Any]) -> str:
    """Write a document as people and diffs read it: two blanks, in the order in which it was built."""
    return json.dumps(document, indent=2, ensure_ascii=True) + "\n"
