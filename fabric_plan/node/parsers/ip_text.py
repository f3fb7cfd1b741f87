"""ip without -j, full and brief: devices, addresses, routes and neighbours."""

from __future__ import annotations

import re

from ..reading import MAC, MismatchError, Reading, Unreadable, each_line, number
from ..records import Address, Interfaces, Link, Neighbour, Route
from .ip_json import destination

_HEAD = re.compile(r"^(\d{1,10}): ([^\s:@]+)(?:@\S+)?: <([A-Z0-9_,-]*)> (.*)$")
_BRIEF = re.compile(r"^([^\s@]{1,15})(?:@\S+)? +([A-Z]+)(?: +(.*))?$")
_SCOPES = ("global", "link", "host", "site")
_ROUTE_TYPES = frozenset(
    {"unicast", "local", "broadcast", "multicast", "blackhole", "unreachable", "prohibit", "throw", "anycast"}
)
_ROUTE_KEYS = {
    "via": "via",
    "dev": "dev",
    "src": "src",
    "proto": "protocol",
    "scope": "scope",
    "table": "table",
}
_ROUTE_VALUES = frozenset(
    {"metric", "pref", "expires", "hoplimit", "mtu", "advmss", "error", "realm", "tos", "nhid"}
)
_ROUTE_FLAGS = frozenset(
    {"linkdown", "onlink", "dead", "pervasive", "offload", "trap", "rt_offload", "rt_trap"}
)
_NEIGHBOUR_STATES = frozenset(
    {"REACHABLE", "STALE", "DELAY", "PROBE", "FAILED", "INCOMPLETE", "PERMANENT", "NOARP", "NONE"}
)


def interfaces(text: str) -> Reading[Interfaces]:
    """Parse ``ip addr`` or ``ip link``."""
    links: list[Link] = []
    addresses: list[Address] = []
    unread: list[Unreadable] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        try:
            head = _HEAD.match(line)
            if head:
                links.append(_link(head))
            elif not links or not line[0].isspace():
                raise MismatchError("not a line of ip addr", line)
            else:
                _detail(line, links, addresses)
        except MismatchError as error:
            unread.append(error.unreadable)
    return Reading(Interfaces(tuple(links), tuple(addresses)) if links or not unread else None, tuple(unread))


def _link(head: re.Match[str]) -> Link:
    words = head[4].split()
    named = {word: words[at + 1] for at, word in enumerate(words[:-1]) if word in ("mtu", "state", "master")}
    return Link(
        name=head[2],
        ifindex=number(head[1]),
        mtu=number(named["mtu"]) if "mtu" in named else None,
        state=named.get("state"),
        flags=tuple(flag for flag in head[3].split(",") if flag),
        master=named.get("master"),
    )


def _detail(line: str, links: list[Link], addresses: list[Address]) -> None:
    """Read a line under a device's first one."""
    words = line.split()
    if words[0].startswith("link/"):
        if len(words) > 1 and MAC.match(words[1].lower()):
            links[-1] = Link(**{**vars(links[-1]), "mac": words[1].lower()})
    elif words[0] in ("inet", "inet6"):
        if len(words) < 2:
            raise MismatchError("an address line without an address", line)
        scope = words[words.index("scope") + 1] if "scope" in words[:-1] else None
        flags = tuple(
            flag for flag in ("noprefixroute", "secondary", "tentative", "deprecated") if flag in words
        )
        addresses.append(_address(links[-1].name, words[1], scope, "dynamic" in words, flags))
    elif words[0] not in ("valid_lft", "altname", "vlan", "bridge", "bridge_slave", "veth", "openvswitch"):
        raise MismatchError("unknown line under a device", line)


def _address(dev: str, word: str, scope: str | None, dynamic: bool, flags: tuple[str, ...]) -> Address:
    address, slash, prefix = word.partition("/")
    family = "inet6" if ":" in address else "inet"
    if not address or not set(address) <= set("0123456789abcdefABCDEF.:"):
        raise MismatchError("not an address", word)
    length = number(prefix) if slash else (128 if family == "inet6" else 32)
    return Address(dev, family, address, length, scope if scope in _SCOPES else None, dynamic, flags)


def brief_addresses(text: str) -> Reading[Interfaces]:
    """Parse ``ip -br addr``; a metric behind an address is passed over."""

    def line(row: str) -> tuple[Link, list[Address]]:
        head = _brief(row)
        words = (head[3] or "").split()
        kept = [
            word for at, word in enumerate(words) if word != "metric" and words[at - 1 : at] != ["metric"]
        ]
        name = head[1]
        return Link(name=name, state=head[2]), [_address(name, word, None, False, ()) for word in kept]

    return _brief_rows(each_line(text, line))


def brief_links(text: str) -> Reading[Interfaces]:
    """Parse ``ip -br link``."""

    def line(row: str) -> tuple[Link, list[Address]]:
        head = _brief(row)
        words = (head[3] or "").split()
        if len(words) != 2 or not MAC.match(words[0].lower()) or words[1][:1] + words[1][-1:] != "<>":
            raise MismatchError("not a line of ip -br link", row)
        flags = tuple(flag for flag in words[1][1:-1].split(",") if flag)
        return Link(name=head[1], state=head[2], mac=words[0].lower(), flags=flags), []

    return _brief_rows(each_line(text, line))


def _brief(row: str) -> re.Match[str]:
    head = _BRIEF.match(row)
    if head is None:
        raise MismatchError("not a line of ip -br", row)
    return head


def _brief_rows(read: Reading[tuple[tuple[Link, list[Address]], ...]]) -> Reading[Interfaces]:
    if read.value is None:
        return Reading(None, read.unread)
    links = tuple(link for link, _ in read.value)
    return Reading(
        Interfaces(links, tuple(found for _, all_of in read.value for found in all_of)), read.unread
    )


def routes(text: str) -> Reading[tuple[Route, ...]]:
    """Parse ``ip route show [dev DEV]``: one line a route; `dev` is None where the output leaves it out."""

    def line(row: str) -> Route:
        words = row.split()
        named: dict[str, str] = {"type": words.pop(0)} if words[0] in _ROUTE_TYPES else {}
        if not words:
            raise MismatchError("a route without a destination", row)
        to = destination(words.pop(0))
        flags: list[str] = []
        metric: int | None = None
        rest = iter(words)
        for word in rest:
            if word in _ROUTE_FLAGS:
                flags.append(word)
                continue
            value = next(rest, None)
            if value is None or word not in _ROUTE_KEYS.keys() | _ROUTE_VALUES:
                raise MismatchError("unknown word in a route", row)
            if word in ("via",) and value in ("inet", "inet6"):
                value = next(rest, None) or ""
            if word in _ROUTE_KEYS:
                named[_ROUTE_KEYS[word]] = value
            elif word == "metric":
                metric = number(value)
        return Route(
            to=to,
            dev=named.get("dev"),
            via=named.get("via"),
            src=named.get("src"),
            protocol=named.get("protocol"),
            scope=named.get("scope"),
            type=named.get("type", "unicast"),
            table=named.get("table", "main"),
            metric=metric,
            flags=tuple(flags),
        )

    return each_line(text, line)


def neighbours(text: str) -> Reading[tuple[Neighbour, ...]]:
    """Parse ``ip neigh show``."""

    def line(row: str) -> Neighbour:
        words = row.split()
        named = {word: words[at + 1] for at, word in enumerate(words[:-1]) if word in ("dev", "lladdr")}
        states = tuple(word for word in words if word in _NEIGHBOUR_STATES)
        if "dev" not in named or not states:
            raise MismatchError("not a line of ip neigh", row)
        mac = named.get("lladdr", "").lower()
        return Neighbour(words[0], named["dev"], mac if MAC.match(mac) else None, states)

    return each_line(text, line)
