"""Links, addresses, routes, neighbours, sysctls and counters of the kernel's IP."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ..parsers import counters, ip_json, ip_text
from ..reading import Reading, is_json, unreadable
from ..records import Interfaces, Neighbour, Route
from ..tools import Tools
from ..tree import Tree

R = TypeVar("R")

# Per device and for all and default; the value in effect is joined from the two by the reader.
SYSCTLS_IPV4 = (
    "accept_redirects",
    "arp_announce",
    "arp_ignore",
    "forwarding",
    "rp_filter",
    "secure_redirects",
    "send_redirects",
)
SYSCTLS_IPV6 = ("disable_ipv6", "accept_redirects")
SYSCTLS_GLOBAL = ("net.ipv4.ip_forward",)


def _either(from_json: Callable[[str], R], from_text: Callable[[str], R]) -> Callable[[str], R]:
    """Return a parser of both forms of an output; an empty one reads alike in both."""
    return lambda text: from_json(text) if is_json(text) else from_text(text)


def interfaces(tools: Tools) -> Reading[Interfaces]:
    """Return all devices and their addresses."""
    parse = _either(ip_json.interfaces, ip_text.interfaces)
    return tools.ask(parse, ["ip", "-j", "-d", "addr", "show"], ["ip", "addr", "show"])


def routes(tools: Tools) -> Reading[tuple[Route, ...]]:
    """Return the IPv4 routes of all tables and the IPv6 routes of the main one."""
    parse = _either(ip_json.routes, ip_text.routes)
    four = tools.ask(
        parse,
        ["ip", "-j", "-4", "route", "show", "table", "all"],
        ["ip", "-4", "route", "show", "table", "all"],
    )
    six = tools.ask(parse, ["ip", "-j", "-6", "route", "show"], ["ip", "-6", "route", "show"])
    if four.value is None:
        return four
    return Reading((*four.value, *(six.value or ())), (*four.unread, *six.unread))


def neighbours(tools: Tools) -> Reading[tuple[Neighbour, ...]]:
    """Return the neighbour table."""
    parse = _either(ip_json.neighbours, ip_text.neighbours)
    return tools.ask(parse, ["ip", "-j", "neigh", "show"], ["ip", "neigh", "show"])


def sysctls(tree: Tree, functions: Iterable[str]) -> Mapping[str, str | None]:
    """Return the sysctls that matter, by their dotted names; None for one that is not there."""
    names = list(SYSCTLS_GLOBAL)
    for scope in ("all", "default", *functions):
        names += [f"net.ipv4.conf.{scope}.{key}" for key in SYSCTLS_IPV4]
        names += [f"net.ipv6.conf.{scope}.{key}" for key in SYSCTLS_IPV6]
    return {name: tree.attribute(f"/proc/sys/{_place(name)}") for name in names}


def _place(name: str) -> str:
    """Return the path of a sysctl; a device's name may hold dots."""
    words = name.split(".")
    if words[2:3] == [] or words[2] != "conf":
        return "/".join(words)
    return "/".join([*words[:3], ".".join(words[3:-1]), words[-1]])


def snmp(tree: Tree) -> Reading[Mapping[str, int]]:
    """Return the counters of /proc/net/snmp (``Ip.ForwDatagrams``)."""
    text = tree.read("/proc/net/snmp")
    return unreadable("/proc/net/snmp cannot be read") if text is None else counters.snmp(text)
