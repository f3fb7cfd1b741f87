"""ethtool: features (-k) and counters (-S), from JSON and from text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..reading import MismatchError, Reading, clean, each_line, int_of, is_json, json_items, number, object_of
from ..records import Feature

_FEATURE = re.compile(r"^\s*([\w.-]+): (on|off)(?: \[(?:(fixed)|requested (on|off))\])?$")
_COUNTER = re.compile(r"^\s*(\S.*?): (\d+)$")


def features(text: str) -> Reading[Mapping[str, Feature]]:
    """Parse ``ethtool [--json] -k DEV``."""
    if is_json(text):
        return _merged(json_items(text, _json_features))

    def line(row: str) -> dict[str, Feature] | None:
        if row.startswith("Features for "):
            return None
        match = _FEATURE.match(row)
        if match is None:
            raise MismatchError("not a feature line", row)
        active = match[2] == "on"
        requested = active if match[4] is None else match[4] == "on"
        return {match[1]: Feature(active, match[3] is not None, requested)}

    return _merged(each_line(text, line))


def _json_features(item: dict[str, Any]) -> dict[str, Feature]:
    return {clean(name): _json_feature(object_of(item, name)) for name in item if name != "ifname"}


def _json_feature(entry: dict[str, Any]) -> Feature:
    active, fixed, requested = (entry.get(key) for key in ("active", "fixed", "requested"))
    if not isinstance(active, bool):
        raise MismatchError("a feature that is neither on nor off", entry)
    return Feature(
        active, fixed if isinstance(fixed, bool) else None, requested if isinstance(requested, bool) else None
    )


def counters(text: str) -> Reading[Mapping[str, int]]:
    """Parse ``ethtool -S DEV``."""
    if is_json(text):
        return _merged(
            json_items(text, lambda item: {clean(key): int_of(item, key) for key in item if key != "ifname"})
        )

    def line(row: str) -> dict[str, int] | None:
        if row == "NIC statistics:":
            return None
        match = _COUNTER.match(row)
        if match is None:
            raise MismatchError("not a counter line", row)
        return {match[1]: number(match[2])}

    return _merged(each_line(text, line))


def _merged(read: Reading[tuple[dict[str, Any], ...]]) -> Reading[Mapping[str, Any]]:
    """Join the rows of one device."""
    if read.value is None:
        return Reading(None, read.unread)
    return Reading({name: value for row in read.value for name, value in row.items()}, read.unread)
