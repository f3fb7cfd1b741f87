"""ip -j: devices with addresses, routes and neighbours."""

from __future__ import annotations

import re
from typing import Any

from ..reading import (
    MAC,
    MismatchError,
    Reading,
    int_of,
    int_or_none,
    json_items,
    object_of,
    objects_of,
    text_of,
    text_or_none,
    words_of,
)
from ..records import Address, Interfaces, Link, Neighbour, Route

_PREFIX = re.compile(r"^([0-9]{1,3}(?:\.[0-9]{1,3}){3}|[0-9a-fA-F]{0,4}:[0-9a-fA-F:.]+)(/[0-9]{1,3})?$")
_ADDRESS_FLAGS = (
    "noprefixroute",
    "secondary",
    "tentative",
    "deprecated",
    "dadfailed",
    "temporary",
    "mngtmpaddr",
)


def interfaces(text: str) -> Reading[Interfaces]:
    """Parse ``ip -j [-d] addr show`` or ``ip -j [-d] link show``; ``-d`` adds the parent device."""
    read = json_items(text, _interface)
    if read.value is None:
        return Reading(None, read.unread)
    found = Interfaces(
        tuple(link for link, _ in read.value),
        tuple(address for _, addresses in read.value for address in addresses),
    )
    return Reading(found, read.unread)


def _interface(item: dict[str, Any]) -> tuple[Link, tuple[Address, ...]]:
    name = text_of(item, "ifname")
    link = Link(
        name=name,
        ifindex=int_or_none(item, "ifindex"),
        mac=_mac(item, "address"),
        permanent_mac=_mac(item, "permaddr"),
        mtu=int_or_none(item, "mtu"),
        max_mtu=int_or_none(item, "max_mtu"),
        state=text_or_none(item, "operstate"),
        flags=words_of(item, "flags"),
        pci=text_or_none(item, "parentdev") if item.get("parentbus") == "pci" else None,
        phys_port_name=text_or_none(item, "phys_port_name"),
        master=text_or_none(item, "master"),
        kind=text_or_none(object_of(item, "linkinfo"), "info_kind"),
        altnames=words_of(item, "altnames"),
    )
    addresses = tuple(_address(entry, name) for entry in objects_of(item, "addr_info") if entry)
    return link, addresses


def _mac(item: dict[str, Any], key: str) -> str | None:
    """Return a link-layer address if it is an Ethernet one (a tunnel's may be an IP address)."""
    value = (text_or_none(item, key) or "").lower()
    return value if MAC.match(value) else None


def _address(entry: dict[str, Any], dev: str) -> Address:
    return Address(
        dev=dev,
        family=text_of(entry, "family"),
        address=text_of(entry, "local"),
        prefix=int_of(entry, "prefixlen"),
        scope=text_or_none(entry, "scope"),
        dynamic=entry.get("dynamic") is True,
        flags=tuple(flag for flag in _ADDRESS_FLAGS if entry.get(flag) is True),
    )


def routes(text: str) -> Reading[tuple[Route, ...]]:
    """Parse ``ip -j [-d] route show``: a route with several next hops gives one row a hop."""
    read = json_items(text, _route)
    value = None if read.value is None else tuple(route for rows in read.value for route in rows)
    return Reading(value, read.unread)


def _route(item: dict[str, Any]) -> tuple[Route, ...]:
    hops = objects_of(item, "nexthops")
    return tuple(_hop(item, hop) for hop in hops) if hops else (_hop(item, item),)


def _hop(item: dict[str, Any], hop: dict[str, Any]) -> Route:
    return Route(
        to=destination(text_of(item, "dst")),
        dev=text_or_none(hop, "dev"),
        via=text_or_none(hop, "gateway") or text_or_none(object_of(hop, "via"), "host"),
        src=text_or_none(item, "prefsrc"),
        protocol=text_or_none(item, "protocol"),
        scope=text_or_none(item, "scope"),
        type=text_or_none(item, "type") or "unicast",
        table=text_or_none(item, "table") or "main",
        metric=int_or_none(item, "metric"),
        flags=words_of(item, "flags") or words_of(hop, "flags"),
    )


def destination(word: str) -> str:
    """Return a route's destination with its prefix length; iproute2 leaves out a host's."""
    if word == "default":
        return word
    match = _PREFIX.match(word)
    if match is None:
        raise MismatchError("not a destination", word)
    return word if match[2] else f"{word}/{128 if ':' in word else 32}"


def neighbours(text: str) -> Reading[tuple[Neighbour, ...]]:
    """Parse ``ip -j neigh show``."""

    def one(item: dict[str, Any]) -> Neighbour:
        return Neighbour(
            text_of(item, "dst"), text_of(item, "dev"), _mac(item, "lladdr"), words_of(item, "state")
        )

    return json_items(text, one)
