"""lldpcli -f json show neighbors details."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..reading import MismatchError, Reading, clean, each, load_json, object_of, text_or_none, unreadable
from ..records import LldpNeighbour


def neighbours(text: str) -> Reading[tuple[LldpNeighbour, ...]]:
    """Parse the neighbours: one is an object by interface name, several are an array of such objects."""
    try:
        document = load_json(text)
    except MismatchError as error:
        return Reading(None, (error.unreadable,))
    lldp = document.get("lldp") if isinstance(document, dict) else None
    if not isinstance(lldp, dict):
        return unreadable("no object named lldp", document)
    return each(_interfaces(lldp.get("interface", [])), _neighbour)


def _interfaces(value: Any) -> Iterator[tuple[str, Any]]:
    for table in value if isinstance(value, list) else [value]:
        if isinstance(table, dict):
            yield from table.items()
        else:
            yield "", table


def _neighbour(entry: tuple[str, Any]) -> LldpNeighbour:
    dev, item = entry
    if not dev or not isinstance(item, dict):
        raise MismatchError("not a neighbour", item)
    name, chassis = _chassis(object_of(item, "chassis"))
    port = object_of(item, "port")
    managed = chassis.get("mgmt-ip", [])
    addresses = managed if isinstance(managed, list) else [managed]
    return LldpNeighbour(
        dev=clean(dev),
        chassis_name=name,
        chassis_id=text_or_none(object_of(chassis, "id"), "value"),
        port_id=text_or_none(object_of(port, "id"), "value"),
        port_id_type=text_or_none(object_of(port, "id"), "type"),
        port_description=text_or_none(port, "descr"),
        management=tuple(clean(address) for address in addresses if isinstance(address, str)),
    )


def _chassis(table: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Return the chassis' name and fields; a chassis without a name stands there without that level."""
    if isinstance(table.get("id"), dict) and "value" in table["id"]:
        return text_or_none(table, "name"), table
    if len(table) != 1:
        raise MismatchError("not a chassis", table)
    name = next(iter(table))
    return clean(name), object_of(table, name)
