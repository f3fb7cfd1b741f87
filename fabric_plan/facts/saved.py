"""Facts of several nodes in one document: what ``collect`` saves and ``--facts`` reads again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fabric_plan.errors import FabricPlanError
from fabric_plan.facts.load import facts_of, parse_json
from fabric_plan.node.document import SCHEMA as FACTS_SCHEMA
from fabric_plan.node.document import Facts

SCHEMA = "fabric-plan/collection/v1"


def collection(documents: Mapping[str, Mapping[str, Any]], failed: Mapping[str, str]) -> dict[str, Any]:
    """Return the document for facts by node, and for the nodes that gave none the reasons."""
    return {"schema": SCHEMA, "nodes": dict(documents), "failed": dict(failed)}


def read_collection(content: bytes, *, where: str, alone: str) -> dict[str, Facts]:
    """Return the facts by node in a saved document; the facts of one node are called `alone`.

    Raises `FabricPlanError` where it is neither a collection nor facts.
    """
    value = parse_json(content, where=where)
    schema = value.get("schema") if isinstance(value, dict) else None
    if schema == FACTS_SCHEMA:
        return {alone: facts_of(value, node=alone)}
    nodes = value.get("nodes") if schema == SCHEMA else None
    if not isinstance(nodes, dict):
        raise FabricPlanError(
            f"is no collection of facts (schema {json.dumps(schema)[:40]})",
            where=where,
            hint="`fabric-plan collect -o` writes one",
        )
    return {name: facts_of(document, node=name) for name, document in nodes.items()}
