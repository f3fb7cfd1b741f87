"""A node's document into `Facts`, or one clear error."""

from __future__ import annotations

import json
from typing import Any, NoReturn, cast

from fabric_plan.errors import NodeError
from fabric_plan.facts.decode import DecodeError, decode
from fabric_plan.node.document import SCHEMA, Facts

MAX_DOCUMENT_BYTES = 16 << 20


def load_facts(document: bytes, *, node: str) -> Facts:
    """Return the facts in `document`, which `node` sent or which was saved from it.

    Raises `NodeError` when it is too large, no JSON, of another version, or has a value of the wrong type.
    """
    return facts_of(parse_json(document, where=node), node=node)


def parse_json(document: bytes, *, where: str) -> Any:
    """Return the JSON value in `document`; `where` is the node or file that it came from. Raises `NodeError`
    when it is too large or no JSON.
    """
    if len(document) > MAX_DOCUMENT_BYTES:
        raise NodeError(f"facts of {len(document)} bytes, {MAX_DOCUMENT_BYTES} at most", where=where)
    try:
        return json.loads(document, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise NodeError(
            f"the facts are no JSON: {error}",
            where=where,
            hint="a node answers with one JSON document, and `fabric-plan collect -o` saves one",
        ) from None


def facts_of(value: object, *, node: str) -> Facts:
    """Return the facts in a parsed document. Raises `NodeError` for another version or a value of the wrong
    type.
    """
    schema = value.get("schema") if isinstance(value, dict) else None
    if schema != SCHEMA:
        raise NodeError(
            f"facts of schema {str(schema)[:40]!r}, expected {SCHEMA!r}",
            where=node,
            hint="collect them again with this version",
        )
    try:
        return cast("Facts", decode(Facts, value))
    except DecodeError as error:
        raise NodeError(f"the facts make no sense at {error.where[:120]}: {error}", where=node) from None


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")
