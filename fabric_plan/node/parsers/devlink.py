"""devlink: parameters, reload statistics, eswitch, info, ports (JSON and text); mlx5's hairpin table."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..reading import (
    MismatchError,
    Reading,
    Unreadable,
    clean,
    each_line,
    excerpt,
    int_of,
    is_json,
    load_json,
    number,
    object_of,
    objects_of,
    pairs,
    text_of,
    text_or_none,
    unreadable,
)
from ..records import DevlinkInfo, DevlinkParam, DevlinkPort, Eswitch, Hairpin, Reloads

R = TypeVar("R")
_DEVICE = re.compile(r"^((?:pci|auxiliary|netdevsim|faux)/\S+?):(?: +(.*))?$")
_HAIRPIN = re.compile(
    r"^Hairpin peer_vhca_id (\d+) prio (\d+) refcnt (\d+)(?: num_channels (\d+) num_packets (\d+))?$"
)


def params(text: str) -> Reading[Mapping[str, tuple[DevlinkParam, ...]]]:
    """Parse ``devlink dev param show``: the parameters of each device."""
    if is_json(text):
        return _by_device(text, "param", _json_params)

    def block(lines: list[str]) -> tuple[DevlinkParam, ...]:
        found: list[tuple[str, str | None, dict[str, str]]] = []
        for line in lines:
            words = line.split()
            if words[0] == "name" and len(words) in (2, 4):
                named = pairs(words)
                found.append((named["name"], named.get("type"), {}))
            elif words[0] == "cmode" and found and len(words) >= 4 and words[2] == "value":
                found[-1][2][words[1]] = " ".join(words[3:])
            elif words != ["values:"]:
                raise MismatchError("unknown line of a parameter", line)
        return tuple(DevlinkParam(*entry) for entry in found)

    return _text_devices(text, block, join=lambda old, new: old + new)


def _json_params(entry: Any) -> tuple[DevlinkParam, ...]:
    if not isinstance(entry, list) or not all(isinstance(param, dict) for param in entry):
        raise MismatchError("expected a list of parameters", entry)
    found = []
    for param in entry:
        values = {text_of(value, "cmode"): _word(value.get("value")) for value in objects_of(param, "values")}
        found.append(DevlinkParam(text_of(param, "name"), text_or_none(param, "type"), values))
    return tuple(found)


def _word(value: Any) -> str:
    """Return a parameter's value as the text output spells it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int)):
        return clean(str(value))
    raise MismatchError("a value that is neither word nor number", value)


def reloads(text: str) -> Reading[Mapping[str, Reloads]]:
    """Parse ``devlink -s dev show``: reload counts of each device since its driver's probe."""
    if is_json(text):
        return _by_device(text, "dev", _json_reloads)

    def block(lines: list[str]) -> Reloads:
        tables: dict[str, dict[str, dict[str, int]]] = {"reload": {}, "remote_reload": {}}
        side = action = ""
        failed: bool | None = None
        for line in lines:
            words = line.split()
            if line in ("reload:", "remote_reload:"):
                side, action = line[:-1], ""
            elif words[0] == "reload_failed" and len(words) == 2:
                failed = words[1] == "true"
            elif len(words) == 1 and line.endswith(":") and side:
                action = line[:-1]
            elif side and action:
                counts = {limit: number(count) for limit, count in pairs(words).items()}
                tables[side].setdefault(action, {}).update(counts)
            elif line != "stats:":
                raise MismatchError("unknown line of reload statistics", line)
        return Reloads(tables["reload"], tables["remote_reload"], failed)

    return _text_devices(text, block)


def _json_reloads(entry: Any) -> Reloads:
    if not isinstance(entry, dict):
        raise MismatchError("expected an object", entry)
    stats = object_of(entry, "stats")
    sides = []
    for side in ("reload", "remote_reload"):
        actions = object_of(stats, side)
        sides.append({clean(action): _counts(object_of(actions, action)) for action in actions})
    failed = entry.get("reload_failed")
    return Reloads(sides[0], sides[1], failed if isinstance(failed, bool) else None)


def _counts(limits: dict[str, Any]) -> dict[str, int]:
    return {clean(limit): int_of(limits, limit) for limit in limits}


def eswitch(text: str) -> Reading[Mapping[str, Eswitch]]:
    """Parse ``devlink dev eswitch show``; a driver may print a device without any mode."""
    if is_json(text):
        return _by_device(text, "dev", _json_eswitch)

    def block(lines: list[str]) -> Eswitch:
        named = pairs(" ".join(lines).split())
        return Eswitch(named.get("mode"), named.get("inline-mode"), named.get("encap-mode"))

    return _text_devices(text, block)


def _json_eswitch(entry: Any) -> Eswitch:
    if not isinstance(entry, dict):
        raise MismatchError("expected an object", entry)
    return Eswitch(
        text_or_none(entry, "mode"), text_or_none(entry, "inline-mode"), text_or_none(entry, "encap-mode")
    )


def info(text: str) -> Reading[Mapping[str, DevlinkInfo]]:
    """Parse ``devlink dev info``: driver, serial number and versions of each device."""
    if is_json(text):
        return _by_device(text, "info", _json_info)

    def block(lines: list[str]) -> DevlinkInfo:
        named: dict[str, str] = {}
        versions: dict[str, dict[str, str]] = {}
        kind = ""
        for line in lines:
            name, _, value = line.partition(" ")
            if line in ("fixed:", "running:", "stored:"):
                kind = line[:-1]
                versions[kind] = {}
            elif line == "versions:":
                continue
            elif not value:
                raise MismatchError("unknown line of device information", line)
            elif kind:
                versions[kind][name] = value.strip()
            else:
                named[name] = value.strip()
        return DevlinkInfo(named.get("driver"), named.get("serial_number"), versions)

    return _text_devices(text, block)


def _json_info(entry: Any) -> DevlinkInfo:
    if not isinstance(entry, dict):
        raise MismatchError("expected an object", entry)
    kinds = object_of(entry, "versions")
    versions = {
        clean(kind): {clean(name): text_of(object_of(kinds, kind), name) for name in object_of(kinds, kind)}
        for kind in kinds
    }
    return DevlinkInfo(text_or_none(entry, "driver"), text_or_none(entry, "serial_number"), versions)


def ports(text: str) -> Reading[Mapping[str, DevlinkPort]]:
    """Parse ``devlink port show``: by port handle (``pci/0000:01:00.0/0``)."""
    if is_json(text):

        def one(entry: Any) -> DevlinkPort:
            if not isinstance(entry, dict):
                raise MismatchError("expected an object", entry)
            return DevlinkPort(text_or_none(entry, "netdev"), text_or_none(entry, "flavour"))

        return _by_device(text, "port", one)

    def block(lines: list[str]) -> DevlinkPort:
        words = lines[0].split() if lines else []
        named = {word: words[at + 1] for at, word in enumerate(words[:-1]) if word in ("netdev", "flavour")}
        return DevlinkPort(named.get("netdev"), named.get("flavour"))

    return _text_devices(text, block)


def hairpins(text: str) -> Reading[tuple[Hairpin, ...]]:
    """Parse mlx5's debugfs ``tc/hairpin_table_dump``: one line a live hairpin (older kernels: no size)."""

    def line(words: str) -> Hairpin:
        match = _HAIRPIN.match(words)
        if match is None:
            raise MismatchError("unknown line of the hairpin table", words)
        numbers = [None if group is None else number(group) for group in match.groups()]
        peer, prio, refcount, channels, packets = numbers
        return Hairpin(peer or 0, prio or 0, refcount or 0, channels, packets)

    return each_line(text, line)


def _by_device(text: str, root: str, parse: Callable[[Any], R]) -> Reading[Mapping[str, R]]:
    """Parse ``{root: {device: entry}}``, each device for itself."""
    try:
        document = load_json(text)
    except MismatchError as error:
        return Reading(None, (error.unreadable,))
    devices = document.get(root) if isinstance(document, dict) else None
    if not isinstance(devices, dict):
        # devlink prints an empty document where it has nothing to show.
        return Reading({}) if document in ({}, []) else unreadable(f"no object named {root}", text)
    found: dict[str, R] = {}
    unread: list[Unreadable] = []
    for device, entry in devices.items():
        try:
            found[clean(device)] = parse(entry)
        except MismatchError as error:
            unread.append(error.unreadable)
    return Reading(found if found or not unread else None, tuple(unread))


def _text_devices(
    text: str, parse: Callable[[list[str]], R], join: Callable[[R, R], R] | None = None
) -> Reading[Mapping[str, R]]:
    """Parse blocks that each begin with ``device:``; `join` merges a device's further blocks."""
    found: dict[str, R] = {}
    unread: list[Unreadable] = []
    device: str | None = None
    lines: list[str] = []

    def finish() -> None:
        if device is None:
            if lines:
                unread.extend(unreadable("not a device line", lines[0]).unread)
            return
        try:
            value = parse(lines)
        except MismatchError as error:
            unread.append(error.unreadable)
            return
        if device in found and join is None:
            unread.append(Unreadable("a device that stands twice", excerpt("\n".join([device, *lines]))))
        else:
            found[device] = join(found[device], value) if join and device in found else value

    for line in text.splitlines():
        head = _DEVICE.match(line.rstrip())
        if head:
            finish()
            device, lines = head[1], [head[2]] if head[2] else []
        elif line.strip():
            lines.append(line.strip())
    finish()
    return Reading(found if found or not unread else None, tuple(unread))
