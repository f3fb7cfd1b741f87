"""Links, addresses, GIDs, routes and kernel settings of one node."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network

from fabric_plan.checks.model import Check, Verdict, at
from fabric_plan.checks.scene import View
from fabric_plan.compare.desired import SYSCTL_FILE, DesiredFunction
from fabric_plan.compare.model import Resource
from fabric_plan.compare.preflight import identity
from fabric_plan.facts.questions import gid_of, link_of
from fabric_plan.node.document import RdmaPort

# The largest RoCE MTU below an Ethernet MTU, its headers and checksum taken off.
_ROCE_MTUS = (4096, 2048, 1024, 512, 256)
_ROCE_HEADERS = 58


def network_checks(view: View) -> Iterator[Check]:
    """Yield the checks of everything below hardware forwarding."""
    macs = {f.mac: node for node, functions in view.scene.known.items() for f in functions if f.mac}
    wrong = {finding.interface: finding for finding in identity(view.want, view.facts, macs)}
    for function in view.functions:
        yield from _function(view, function)
        finding = wrong.get(function.netdev)
        if finding is None or finding.id != "function-missing":
            planned = f"{function.pci}, {function.mac or 'any MAC'}"
            yield view.check(
                "identity",
                Verdict.FAIL if finding else Verdict.PASS,
                finding.message if finding else planned,
                planned,
                interface=function.netdev,
                needs=view.needs(*(f.netdev for f in view.functions)),
                mend=finding.hint if finding else None,
            )
    yield from _routes(view)
    for setting in view.want.sysctls:
        key = f"net.ipv4.conf.{setting.scope}.{setting.name}"
        own = None if setting.scope in ("all", "default") else setting.scope
        yield view.judged(
            "sysctl",
            view.of(Resource.SYSCTL, key),
            str(setting.value),
            readable=("interfaces",),
            interface=own,
            subject=key,
            needs=view.needs(SYSCTL_FILE, own),
        )


def _function(view: View, function: DesiredFunction) -> Iterator[Check]:
    name = function.netdev
    link = link_of(view.facts, name=name)
    gone = [c for c in view.of(Resource.LINK, name) if c.have is None]
    netplan = view.netplan_file(function.plane)
    needs = view.needs(netplan)
    yield view.judged("function", gone, "present", readable=("interfaces",), interface=name, needs=needs)
    if link is None:
        return
    down = view.of(Resource.LINK, name)
    yield view.judged("link-up", down, "up", readable=("interfaces",), interface=name, needs=needs)
    yield view.check(
        "carrier",
        Verdict.PASS if link.carrier else Verdict.FAIL,
        "carrier" if link.carrier else "no carrier",
        "carrier",
        interface=name,
        needs=(*view.needs(*_twins(view, function)), *_opposite(view, function)),
    )
    yield view.judged(
        "mtu",
        view.of(Resource.MTU, name),
        str(view.want.mtu),
        readable=("interfaces",),
        interface=name,
        needs=needs,
    )
    port = next((p for p in view.facts.rdma.ports.value or () if p.device == function.rdma), None)
    yield _rdma_port(view, function, port)
    yield _roce_mtu(view, function)
    yield from _addresses(view, function, needs)


def _twins(view: View, function: DesiredFunction) -> list[str]:
    return [f.netdev for f in view.functions if f.port == function.port]


def _opposite(view: View, function: DesiredFunction) -> tuple[str, ...]:
    """Return the functions at the far end, and their nodes, as things that a check rests on."""
    peers = view.scene.peers.get((view.node, function.netdev), ())
    return tuple(thing for node, netdev in peers for thing in (node, at(node, netdev)))


def _rdma_port(view: View, function: DesiredFunction, port: RdmaPort | None) -> Check:
    expected = f"{function.rdma} on {function.netdev}, active"
    if view.facts.rdma.ports.value is None:
        verdict, read = Verdict.NOT_PROVEN, "RDMA devices: not readable"
    elif port is None:
        verdict, read = Verdict.FAIL, f"there is no {function.rdma}"
    else:
        right = port.netdev == function.netdev and (port.state or "").endswith("ACTIVE")
        verdict = Verdict.PASS if right else Verdict.FAIL
        read = f"{port.device} on {port.netdev or 'no device'}, {port.state or 'state unknown'}"
    return view.check(
        "rdma-port", verdict, read, expected, interface=function.netdev, subject=function.rdma,
        needs=view.needs(),
    )  # fmt: skip


def _roce_mtu(view: View, function: DesiredFunction) -> Check:
    want = next((mtu for mtu in _ROCE_MTUS if mtu <= view.want.mtu - _ROCE_HEADERS), _ROCE_MTUS[-1])
    devices = view.facts.rdma.verbs.value or ()
    words = next((d.port.get("active_mtu", "") for d in devices if d.device == function.rdma), "").split()
    verdict = Verdict.NOT_PROVEN if not words else Verdict.FAIL
    return view.check(
        "roce-mtu",
        Verdict.PASS if words[:1] == [str(want)] else verdict,
        words[0] if words else "not readable (ibv_devinfo)",
        str(want),
        interface=function.netdev,
        needs=view.needs(),
    )


def _addresses(view: View, function: DesiredFunction, needs: tuple[str, ...]) -> Iterator[Check]:
    name, address = function.netdev, function.address
    assert address is not None
    changes = view.of(Resource.ADDRESS, name)
    missing = [c for c in changes if c.want is not None]
    other = [c for c in changes if c.want is None]
    conflicts = tuple(c.name for c in view.of(Resource.CONFLICT) if c.interface == name)
    needs = (*needs, *view.needs(*conflicts))
    yield view.judged("address", missing, address, readable=("interfaces",), interface=name, needs=needs)
    yield view.judged(
        "address-extra", other, "no other", readable=("interfaces",), interface=name, needs=needs
    )
    gid = gid_of(view.facts, name, address.partition("/")[0])
    if view.facts.rdma.gids.value is None:
        verdict, read = Verdict.NOT_PROVEN, "GIDs: not readable"
    else:
        verdict = Verdict.PASS if gid and gid.device == function.rdma else Verdict.FAIL
        read = f"{gid.device} index {gid.index}" if gid else "no RoCE v2 GID of this address"
    yield view.check(
        "gid", verdict, read, f"RoCE v2 GID of {address.partition('/')[0]} on {function.rdma}",
        interface=name, needs=needs,
    )  # fmt: skip


def _routes(view: View) -> Iterator[Check]:
    for route in view.want.routes:
        plane = next((f.plane for f in view.functions if f.netdev == route.dev), 0)
        found = [c for c in view.of(Resource.ROUTE, route.to) if c.interface == route.dev]
        words = " ".join(
            w for w in (f"via {route.via}", f"dev {route.dev}", route.src and f"src {route.src}") if w
        )
        yield view.judged(
            "route",
            found,
            words,
            readable=("interfaces", "routes"),
            interface=route.dev,
            subject=route.to,
            needs=view.needs(view.netplan_file(plane), "fabric-plan-mesh.service"),
        )
    nets = [IPv4Network(f.address, strict=False) for f in view.functions if f.address]
    nets += [IPv4Network(r.to) for r in view.want.routes]
    inside = [
        c
        for c in view.of(Resource.FOREIGN)
        if c.name.startswith("route ") and _inside(c.name.removeprefix("route "), nets)
    ]
    ours = [c for c in view.of(Resource.ROUTE) if c.want is None]
    things = ("net.ipv4.conf.all.accept_redirects", "net.ipv4.conf.all.send_redirects")
    for change in (*inside, *ours):
        yield view.check(
            "route-override",
            Verdict.FAIL,
            f"{change.name.removeprefix('route ')} {change.have}",
            "no route of others inside the fabric's subnets",
            interface=change.interface,
            subject=change.name.removeprefix("route "),
            needs=view.needs(*things),
        )
    if not inside and not ours:
        yield view.judged("route-override", (), "none", readable=("interfaces", "routes"), needs=view.needs())


def _inside(to: str, nets: list[IPv4Network]) -> bool:
    try:
        found = IPv4Network(to)
    except ValueError:
        return False
    return any(found.subnet_of(net) for net in nets)
