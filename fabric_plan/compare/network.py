"""Links, MTU, addresses, routes, kernel settings and NetworkManager's part in them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from ipaddress import IPv4Address, IPv4Network

from fabric_plan.compare.desired import Desired, DesiredFunction, DesiredRoute
from fabric_plan.compare.model import Change, Resource, StepKind
from fabric_plan.facts.questions import effective_sysctl, link_of
from fabric_plan.node.document import Facts
from fabric_plan.node.records import Link, Route

ADDRESSES_GO = "takes this function's addresses away for a few seconds"


def network_changes(desired: Desired, facts: Facts) -> Iterator[Change]:
    """Yield what differs between the planned network state and the live one."""
    if facts.interfaces.value is None:
        yield Change(Resource.UNKNOWN, "interfaces", "not readable", "readable")
        return
    for function in desired.functions:
        link = link_of(facts, name=function.netdev)
        if link is None:
            yield Change(Resource.LINK, function.netdev, None, "present", interface=function.netdev)
            continue
        if function.address is not None:
            yield from _link(desired, function, link)
            yield from _addresses(function, facts)
    yield from _routes(desired, facts)
    yield from _sysctls(desired, facts)


def _link(desired: Desired, function: DesiredFunction, link: Link) -> Iterator[Change]:
    name = function.netdev
    if "UP" not in link.flags:
        yield Change(Resource.LINK, name, "down", "up", StepKind.NETPLAN, name, ADDRESSES_GO)
    if link.mtu != desired.mtu:
        have = None if link.mtu is None else str(link.mtu)
        yield Change(Resource.MTU, name, have, str(desired.mtu), StepKind.NETPLAN, name, ADDRESSES_GO)


def _addresses(function: DesiredFunction, facts: Facts) -> Iterator[Change]:
    found = facts.interfaces.value
    assert found is not None
    name = function.netdev
    have = {f"{a.address}/{a.prefix}" for a in found.addresses if a.dev == name and a.family == "inet"}
    if function.address not in have:
        yield Change(Resource.ADDRESS, name, None, function.address, StepKind.NETPLAN, name, ADDRESSES_GO)
    for address in sorted(have - {function.address}):
        yield Change(Resource.ADDRESS, name, address, None, StepKind.NETPLAN, name, ADDRESSES_GO)


def _routes(desired: Desired, facts: Facts) -> Iterator[Change]:
    if facts.routes.value is None:
        yield Change(Resource.UNKNOWN, "routes", "not readable", "readable")
        return
    ours = {function.netdev for function in desired.functions}
    main = [r for r in facts.routes.value if r.table == "main" and r.type == "unicast" and r.to != "default"]
    mend = StepKind.MESH if desired.mesh else StepKind.NETPLAN
    for route in desired.routes:
        best = min((r for r in main if _same(r.to, route.to)), key=lambda r: r.metric or 0, default=None)
        if best is None or not _matches(best, route):
            have = None if best is None else _words(best.via, best.dev, best.src)
            disrupts = None if desired.mesh else ADDRESSES_GO
            want = _words(route.via, route.dev, route.src)
            yield Change(Resource.ROUTE, route.to, have, want, mend, route.dev, disrupts)
    wanted = [route.to for route in desired.routes]
    for found in main:
        if found.dev in ours and found.via and not any(_same(found.to, to) for to in wanted):
            if found.protocol in ("214",) and desired.mesh:
                yield Change(
                    Resource.ROUTE, found.to, _words(found.via, found.dev, found.src), None, StepKind.MESH
                )
            elif not any(
                IPv4Address(found.via) in IPv4Network(f.address, strict=False)
                for f in desired.functions
                if f.address
            ):
                continue
            else:
                name = f"route {found.to}"
                yield Change(
                    Resource.FOREIGN, name, _words(found.via, found.dev, found.src), None, interface=found.dev
                )


def _same(one: str, other: str) -> bool:
    return _network(one) == _network(other)


@cache
def _network(text: str) -> IPv4Network | str:
    try:
        return IPv4Network(text)
    except ValueError:
        return text


def _matches(found: Route, wanted: DesiredRoute) -> bool:
    # Without a planned source the kernel's own choice is right, whether the tool prints it or not.
    source = wanted.src is None or found.src == wanted.src
    return found.via == wanted.via and found.dev == wanted.dev and source


def _words(via: str | None, dev: str | None, src: str | None) -> str:
    return " ".join(
        part for part in (via and f"via {via}", dev and f"dev {dev}", src and f"src {src}") if part
    )


def _sysctls(desired: Desired, facts: Facts) -> Iterator[Change]:
    for setting in desired.sysctls:
        key = f"net.ipv4.conf.{setting.scope}.{setting.name}"
        if setting.scope in ("all", "default"):
            read = facts.sysctls.get(key)
            have = int(read) if read is not None and read.isdigit() else None
        else:
            have = effective_sysctl(facts, setting.scope, setting.name)
        if have != setting.value:
            shown = "not readable" if have is None else str(have)
            interface = None if setting.scope in ("all", "default") else setting.scope
            yield Change(Resource.SYSCTL, key, shown, str(setting.value), StepKind.SYSCTL, interface)
