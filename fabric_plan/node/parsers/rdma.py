"""rdma: links, devices, queue pairs and contexts, from JSON and from text.

Whether RDMA is in use is decided from queue pairs and contexts, so a line that cannot be read must never look
like a line that is not there: it stays in `Reading.unread`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..reading import (
    MismatchError,
    Reading,
    each,
    each_line,
    int_of,
    int_or_none,
    is_json,
    json_items,
    number,
    pairs,
    text_of,
    text_or_none,
)
from ..records import QueuePair, RdmaContext, RdmaDevice, RdmaLink

_DEVICE = re.compile(r"^(\d+): (\S+?): (.*)$")
_CAPS = re.compile(r"\bcaps: <[^>]*>")


def links(text: str) -> Reading[tuple[RdmaLink, ...]]:
    """Parse ``rdma link show``."""

    def from_json(item: dict[str, Any]) -> RdmaLink:
        return RdmaLink(
            text_of(item, "ifname"),
            int_of(item, "port"),
            text_or_none(item, "state"),
            text_or_none(item, "physical_state"),
            text_or_none(item, "netdev"),
        )

    def from_line(line: str) -> RdmaLink:
        device, port, named = _link_line(line)
        if port is None:
            raise MismatchError("a link without a port", line)
        return RdmaLink(device, port, named.get("state"), named.get("physical_state"), named.get("netdev"))

    return json_items(text, from_json) if is_json(text) else each_line(text, from_line)


def devices(text: str) -> Reading[tuple[RdmaDevice, ...]]:
    """Parse ``rdma dev show``, with ``-d`` or without."""

    def from_json(item: dict[str, Any]) -> RdmaDevice:
        return RdmaDevice(
            text_of(item, "ifname"),
            text_or_none(item, "node_type"),
            text_or_none(item, "protocol"),
            text_or_none(item, "fw"),
            text_or_none(item, "node_guid"),
            text_or_none(item, "sys_image_guid"),
        )

    def from_text(line: str) -> RdmaDevice:
        head = _DEVICE.match(line)
        if head is None:
            raise MismatchError("not a device line", line)
        named = pairs(_CAPS.sub("", head[3]).split())
        return RdmaDevice(
            head[2],
            named.get("node_type"),
            named.get("protocol"),
            named.get("fw"),
            named.get("node_guid"),
            named.get("sys_image_guid"),
        )

    return json_items(text, from_json) if is_json(text) else each(_unwrapped(text), from_text)


def _unwrapped(text: str) -> Iterator[str]:
    """Yield one line a device: detailed output goes on over several lines."""
    line = ""
    for part in text.splitlines():
        if _DEVICE.match(part) and line:
            yield line
            line = part
        elif part.strip():
            line = f"{line} {part.strip()}" if line else part
    if line:
        yield line


def queue_pairs(text: str) -> Reading[tuple[QueuePair, ...]]:
    """Parse ``rdma resource show qp``. A queue pair without a process is the kernel's."""

    def from_json(item: dict[str, Any]) -> QueuePair:
        pid = int_or_none(item, "pid")
        return QueuePair(
            text_of(item, "ifname"),
            int_or_none(item, "port"),
            int_or_none(item, "lqpn"),
            text_of(item, "type"),
            text_or_none(item, "state"),
            pid,
            _comm(text_or_none(item, "comm")),
            pid is None,
        )

    def from_line(line: str) -> QueuePair:
        device, port, named = _link_line(line)
        if "type" not in named:
            raise MismatchError("a queue pair without a type", line)
        pid = number(named["pid"]) if "pid" in named else None
        lqpn = number(named["lqpn"]) if "lqpn" in named else None
        state = named.get("state")
        return QueuePair(device, port, lqpn, named["type"], state, pid, _comm(named.get("comm")), pid is None)

    return json_items(text, from_json) if is_json(text) else each_line(text, from_line)


def contexts(text: str) -> Reading[tuple[RdmaContext, ...]]:
    """Parse ``rdma resource show ctx``."""

    def from_json(item: dict[str, Any]) -> RdmaContext:
        return RdmaContext(
            text_of(item, "ifname"),
            int_or_none(item, "ctxn"),
            int_or_none(item, "pid"),
            _comm(text_or_none(item, "comm")),
        )

    def from_line(line: str) -> RdmaContext:
        device, _, named = _link_line(line)
        pid = number(named["pid"]) if "pid" in named else None
        ctxn = number(named["ctxn"]) if "ctxn" in named else None
        return RdmaContext(device, ctxn, pid, _comm(named.get("comm")))

    return json_items(text, from_json) if is_json(text) else each_line(text, from_line)


def _comm(word: str | None) -> str | None:
    return None if word is None else word.strip("[]")


def _link_line(line: str) -> tuple[str, int | None, dict[str, str]]:
    """Read ``link DEVICE/PORT key value ...``; the command's name may hold blanks and comes last."""
    head, comm, name = line.partition(" comm ")
    words = head.split()
    if len(words) < 2 or words[0] not in ("link", "dev"):
        raise MismatchError("not a resource line", line)
    device, _, port = words[1].partition("/")
    named = pairs(words[2:])
    if comm:
        named["comm"] = name.strip()
    return device, number(port) if port not in ("", "-") else None, named
