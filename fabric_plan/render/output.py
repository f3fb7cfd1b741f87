"""What a render writes beside the nodes' files: plan.json with the digests of all of them."""

from __future__ import annotations

from typing import Any

from fabric_plan.planner.model import Plan
from fabric_plan.render.document import plan_core, proof_part
from fabric_plan.render.tree import Rendered
from fabric_plan.simulate.proof import Proof


def plan_document(plan: Plan, rendered: Rendered, proof: Proof) -> dict[str, Any]:
    """Return the whole of plan.json: the canonical plan, its digest, the files of every node, warnings and
    proof.
    """
    core = plan_core(plan)
    nodes = {
        name: {
            **part,
            "hardware": plan.fabric.node(name).hardware.hardware,
            "mgmt": plan.fabric.node(name).mgmt,
            "mgmt_netdev": plan.fabric.node(name).mgmt_netdev,
            "ssh": {"user": plan.fabric.node(name).ssh_user, "port": plan.fabric.node(name).ssh_port},
            "files": [
                {"path": file.path, "mode": file.mode, "sha256": file.sha256} for file in rendered.files[name]
            ],
        }
        for name, part in core["nodes"].items()
    }
    head = {"schema": core["schema"], "digest": rendered.digest}
    return {
        **head,
        **{key: value for key, value in core.items() if key != "schema"},
        "nodes": nodes,
        "warnings": [{"id": notice.id, "text": notice.text} for notice in plan.notices],
        "proof": proof_part(plan, proof),
    }
