"""netplan status: who manages an interface and by which definition, from JSON and from text."""

from __future__ import annotations

import re
from typing import Any

from ..reading import (
    MismatchError,
    Reading,
    Unreadable,
    clean,
    each,
    load_json,
    objects_of,
    text_or_none,
    unreadable,
)
from ..records import NetplanInterface

_HEAD = re.compile(r"^\W*\d+: (\S+) (\S+) (\S+) \((\w+)(?:: (.+))?\)$")
_FIELD = re.compile(r"^ +([A-Z][A-Za-z ]*): +(\S.*)$")


def status(text: str) -> Reading[tuple[NetplanInterface, ...]]:
    """Parse ``netplan status --all`` with ``-f json`` or without."""
    return _from_json(text) if text.lstrip().startswith("{") else _from_text(text)


def _from_json(text: str) -> Reading[tuple[NetplanInterface, ...]]:
    try:
        document = load_json(text)
    except MismatchError as error:
        return Reading(None, (error.unreadable,))
    if not isinstance(document, dict):
        return unreadable("expected a JSON object", document)

    def one(entry: tuple[str, Any]) -> NetplanInterface | None:
        name, item = entry
        if name == "netplan-global-state":
            return None
        if not isinstance(item, dict):
            raise MismatchError("expected an object", item)
        return NetplanInterface(
            clean(name),
            text_or_none(item, "type"),
            text_or_none(item, "operstate"),
            text_or_none(item, "backend"),
            text_or_none(item, "id"),
            tuple(clean(address) for table in objects_of(item, "addresses") for address in table),
            tuple(text_or_none(route, "to") or "" for route in objects_of(item, "routes")),
        )

    return each(document.items(), one)


def _from_text(text: str) -> Reading[tuple[NetplanInterface, ...]]:
    found: list[NetplanInterface] = []
    unread: list[Unreadable] = []
    label = ""
    for line in text.splitlines():
        head, field = _HEAD.match(line), _FIELD.match(line)
        if head:
            backend = None if head[4] == "unmanaged" else head[4]
            found.append(NetplanInterface(head[1], head[2], head[3], backend, head[5]))
            label = ""
        elif field or (line.startswith(" ") and label and line.strip()):
            if field:
                label = field[1]
            if found:
                found[-1] = _with(found[-1], label, field[2] if field else line.strip())
        elif line.strip():
            unread.extend(unreadable("not a line of netplan status", line).unread)
    return Reading(tuple(found) if found or not unread else None, tuple(unread))


def _with(item: NetplanInterface, label: str, value: str) -> NetplanInterface:
    """Return the interface with a line of its lists added; other labels carry nothing that is compared."""
    if label == "Addresses":
        return NetplanInterface(**{**vars(item), "addresses": (*item.addresses, value)})
    if label == "Routes":
        return NetplanInterface(**{**vars(item), "routes": (*item.routes, value)})
    return item
