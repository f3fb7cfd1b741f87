"""Write an inventory as a person would: short, commented, everything quoted that YAML would otherwise
misread.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import yaml
from pydantic import BaseModel

from fabric_plan.inventory.schema import CableEntry, Inventory, NodeEntry, RailEntry

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
_TEXT = "tag:yaml.org,2002:str"
_RESOLVER: Any = yaml.resolver.Resolver()
_QUOTED_KEYS = ("mac", "pci", "sha256")


def inventory_text(inventory: Inventory, comments: Sequence[str] = ()) -> str:
    """Return the YAML text of `inventory`, under `comments`; loading it gives the same inventory.

    What a hardware role or a default already says is left out, save for the values that describe the fabric.
    """
    lines = [f"# {comment}".rstrip() for comment in comments]
    lines += list(_head(inventory))
    lines.append("nodes:  # in rank order")
    for node in inventory.nodes:
        lines += _node(node)
    for key, entries in (("cables", inventory.cables), ("rails", inventory.rails)):
        if entries:
            lines.append(f"{key}:")
            for entry in entries:
                lines += _segment(entry)
    return "\n".join(lines) + "\n"


def _head(inventory: Inventory) -> Iterator[str]:
    if inventory.fabric is not None:
        yield f"fabric: {_scalar(inventory.fabric)}"
    if inventory.topology is not None:
        yield f"topology: {inventory.topology}"
    fields = type(inventory).model_fields
    if inventory.hardware != fields["hardware"].default:
        yield f"hardware: {_scalar(inventory.hardware)}"
    yield f"mtu: {inventory.mtu}"
    yield f"planes: {_flow(inventory.planes)}"
    for key in ("addressing", "hairpin", "mesh", "nccl"):
        value = getattr(inventory, key)
        if value != fields[key].default:
            yield f"{key}: {_flow(_written(value))}"


def _written(model: BaseModel) -> dict[str, object]:
    """Return the fields of `model` that differ from their defaults."""
    return {
        key: getattr(model, key)
        for key, field in type(model).model_fields.items()
        if getattr(model, key) != field.default
    }


def _node(node: NodeEntry) -> Iterator[str]:
    yield f"  - name: {_scalar(node.name)}"
    for key in ("mgmt", "mgmt_netdev", "hardware"):
        value = getattr(node, key)
        if value is not None:
            yield f"    {key}: {_scalar(value)}"
    if _written(node.ssh):
        yield f"    ssh: {_flow(_written(node.ssh))}"
    if node.ports:
        yield "    ports:"
        for port, functions in node.ports.items():
            yield f"      {_scalar(port)}: {_flow([_written(function) for function in functions])}"


def _segment(entry: CableEntry | RailEntry) -> Iterator[str]:
    ends = f"ends: {_flow(entry.ends)}"
    if isinstance(entry, RailEntry):
        yield f"  - name: {_scalar(entry.name)}"
        yield f"    {ends}"
    else:
        yield f"  - {ends}"
    if entry.planes is not None:
        yield "    planes:"
        for plane in entry.planes:
            yield f"      - {_flow(_written(plane))}"


def _flow(value: object, key: str = "") -> str:
    """Return `value` in YAML's flow style; models are written by the fields that differ from their
    defaults.
    """
    if isinstance(value, BaseModel):
        value = _written(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(k)}: {_flow(v, str(k))}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    return json.dumps(value) if key in _QUOTED_KEYS else _scalar(value)


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    text = str(value.value if isinstance(value, Enum) else value)
    # `no`, `1e3` and the like are words here: what YAML would read as anything but this text is quoted.
    plain = (
        _PLAIN.fullmatch(text) is not None
        and _RESOLVER.resolve(yaml.ScalarNode, text, (True, False)) == _TEXT
    )
    return text if plain else json.dumps(text)
