"""Walk one RDMA frame along every planned path: marker, cables, MAC filters, hairpin rules, no kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address

from fabric_plan.planner.model import Marker, NodePlan, Path, Plan, RelayRoute, Rule
from fabric_plan.planner.rules import MARKED_SOURCE_PORT
from fabric_plan.planner.tags import ETHERTYPE_IPV4
from fabric_plan.simulate.proof import Failure, Step, Trip
from fabric_plan.simulate.wire import Nic, Route, Wire

# Any other port of the range that drivers hash to: what a direct queue pair has.
_ORDINARY_SOURCE_PORT = 0xC000


@dataclass(frozen=True, slots=True)
class Walked:
    """What became of the planned paths; `forwarded` counts the frames that ended in front of a kernel."""

    trips: tuple[Trip, ...]
    failures: tuple[Failure, ...]
    forwarded: int


@dataclass(slots=True)
class _Frame:
    ethertype: int
    src_mac: str
    dst_mac: str


class _Astray(Exception):  # noqa: N818 - the end of a walk, not an error of ours
    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


def walk_paths(wire: Wire, plan: Plan) -> Walked:
    """Walk every planned path; see that each has its mirror, and that nothing is left that serves no path."""
    trips, failures, forwarded = [], [], 0
    used: set[tuple[str, Rule]] = set()
    for path in plan.paths:
        steps: list[Step] = []
        crossed: list[tuple[str, Rule]] = []
        try:
            _walk(wire, path, steps, crossed)
        except _Astray as end:
            forwarded += end.kind == "kernel-forwarded"
            failures.append(Failure(end.kind, str(path), tuple(str(step) for step in steps), end.message))
        else:
            trips.append(Trip(path, tuple(steps)))
        used.update(crossed)
    all_arrived = not failures
    failures += _mirrors(plan)
    begun = _begun(wire, plan)
    for node in plan.nodes:
        failures += _relay_routes(wire, node, begun[node.name])
        failures += _markers(node, begun[node.name])
        if all_arrived:  # else a rule is unused because a path broke before it
            failures += _unused(node, used)
    return Walked(tuple(trips), tuple(failures), forwarded)


def _walk(wire: Wire, path: Path, steps: list[Step], crossed: list[tuple[str, Rule]]) -> None:
    """Walk `path`, noting every step. Raises `_Astray` where the frame does something else than planned."""
    source, target = _end(wire, path, path.src, path.out.port), _end(wire, path, path.dst, path.into.port)
    frame = _Frame(ETHERTYPE_IPV4, source.mac, _next_hop_mac(wire, source, target.ip))
    frame.ethertype = _marked(
        wire.markers.get((source.node, source.netdev)), target.ip, relayed=not path.direct
    )
    steps.append(Step(source.node, source.netdev, "sends", frame.ethertype, frame.dst_mac))
    out = source
    for node, port in _planned_hops(path):
        nic = _received(wire, out, frame)
        if (nic.node, nic.port, nic.plane) != (node, port, path.plane):
            steps.append(Step(nic.node, nic.netdev, "receives", frame.ethertype, frame.dst_mac))
            raise _Astray(
                "off-path",
                f"the frame reaches {nic} (plane {nic.plane}), planned was {node} {port}, plane {path.plane}",
            )
        rule = wire.match(nic, frame.ethertype, frame.src_mac, frame.dst_mac)
        if nic is target:
            _arrive(nic, frame, rule, steps)
            return
        out = _relay(wire, nic, frame, rule, steps)
        assert rule is not None
        crossed.append((nic.node, rule))


def _planned_hops(path: Path) -> Iterator[tuple[str, str]]:
    for cable, relay in zip(path.cables, path.through, strict=False):
        yield relay, cable.end(relay).port
    yield path.dst, path.into.port


def _end(wire: Wire, path: Path, node: str, port: str) -> Nic:
    nic = wire.by_port.get((node, port, path.plane))
    if nic is None or nic.address is None:
        raise _Astray("no-address", f"{node} {port} has no address in plane {path.plane}")
    return nic


def _next_hop_mac(wire: Wire, source: Nic, ip: int) -> str:
    """Return the MAC that the kernel gives the queue pair: that of the gateway on its own device."""
    routes = wire.tables[source.node].lookup(ip, source.netdev)
    if not routes:
        raise _Astray("no-route", f"{source.node} has no route to {IPv4Address(ip)} out of {source.netdev}")
    if len(routes) > 1:
        raise _Astray(
            "two-routes",
            f"{source.node} has {len(routes)} equal routes to {IPv4Address(ip)} out of {source.netdev}",
        )
    return _answer(wire, source, routes[0], ip).mac


def _answer(wire: Wire, source: Nic, route: Route, ip: int) -> Nic:
    wanted = ip if route.via is None else route.via
    answers = wire.resolve(source, wanted)
    if len(answers) != 1:
        who = " and ".join(str(nic) for nic in answers) if answers else "nobody"
        raise _Astray(
            "arp", f"{who} on the cable of {source} answers for {IPv4Address(wanted)} (route {route})"
        )
    return answers[0]


def _marked(marker: Marker | None, ip: int, *, relayed: bool) -> int:
    """Return the EtherType with which a frame to `ip` leaves; by source port only the port matters."""
    if marker is None:
        return ETHERTYPE_IPV4
    if marker.source_port is not None:
        port = MARKED_SOURCE_PORT if relayed else _ORDINARY_SOURCE_PORT
        return marker.ethertype or ETHERTYPE_IPV4 if port == marker.source_port else ETHERTYPE_IPV4
    for destination in marker.destinations:
        if int(destination.address) == ip:
            return destination.ethertype
    return ETHERTYPE_IPV4


def _received(wire: Wire, out: Nic, frame: _Frame) -> Nic:
    found = wire.receivers(out, frame.dst_mac)
    if len(found) != 1:
        who = " and ".join(str(nic) for nic in found) if found else "nobody"
        raise _Astray("lost", f"{who} on the cable of {out} accepts frames to {frame.dst_mac}")
    return found[0]


def _arrive(nic: Nic, frame: _Frame, rule: Rule | None, steps: list[Step]) -> None:
    if rule is not None:
        steps.append(Step(nic.node, nic.netdev, "relays", rule.set_type, rule.set_dst_mac))
        raise _Astray(
            "relayed-on",
            f"{nic} is where the path ends, and its rule {rule.pref}/{rule.handle} sends the frame on",
        )
    if frame.ethertype != ETHERTYPE_IPV4:
        steps.append(Step(nic.node, nic.netdev, "drops", frame.ethertype, frame.dst_mac))
        raise _Astray(
            "tagged-at-end",
            f"the frame arrives at {nic} with EtherType 0x{frame.ethertype:04x} and not 0x0800",
        )
    steps.append(Step(nic.node, nic.netdev, "receives", frame.ethertype, frame.dst_mac))


def _relay(wire: Wire, nic: Nic, frame: _Frame, rule: Rule | None, steps: list[Step]) -> Nic:
    """Apply `rule` to the frame and return the function that it leaves by."""
    if rule is None and frame.ethertype == ETHERTYPE_IPV4:
        steps.append(Step(nic.node, nic.netdev, "forwards", frame.ethertype, frame.dst_mac))
        raise _Astray(
            "kernel-forwarded",
            f"the frame is plain IPv4 at {nic}, a relay: the kernel of {nic.node} would have to forward it",
        )
    if rule is None:
        steps.append(Step(nic.node, nic.netdev, "drops", frame.ethertype, frame.dst_mac))
        raise _Astray(
            "no-rule",
            f"no rule of {nic} matches 0x{frame.ethertype:04x} from {frame.src_mac} to {frame.dst_mac}",
        )
    if frame.ethertype == ETHERTYPE_IPV4:
        raise _Astray("unmarked-relayed", f"rule {rule.pref}/{rule.handle} of {nic} relays plain IPv4")
    frame.ethertype, frame.dst_mac = rule.set_type, rule.set_dst_mac
    steps.append(Step(nic.node, nic.netdev, "relays", frame.ethertype, frame.dst_mac))
    out = wire.by_netdev.get((nic.node, rule.redirect))
    if out is None or out is nic or out.plane != nic.plane:
        message = f"redirects to {rule.redirect}, which is not the other port of its plane"
        raise _Astray("redirect", f"rule {rule.pref}/{rule.handle} of {nic} {message}")
    return out


def _mirrors(plan: Plan) -> Iterator[Failure]:
    """RoCE acknowledges every message: without the way back over the same cables a path is none."""
    known = {(path.plane, path.out, path.into, path.through) for path in plan.paths}
    for path in plan.paths:
        if (path.plane, path.into, path.out, path.through[::-1]) not in known:
            yield Failure(
                "no-mirror",
                str(path),
                (),
                f"no path is planned back from {path.dst} to {path.src} over the same cables",
            )


def _begun(wire: Wire, plan: Plan) -> dict[str, dict[tuple[str, int], Path]]:
    """Return, by node, the relayed paths that begin there by (device, far address)."""
    found: dict[str, dict[tuple[str, int], Path]] = {node.name: {} for node in plan.nodes}
    for path in plan.paths:
        if path.direct:
            continue
        out = wire.by_port.get((path.src, path.out.port, path.plane))
        into = wire.by_port.get((path.dst, path.into.port, path.plane))
        if out is not None and into is not None:
            found[path.src][out.netdev, into.ip] = path
    return found


def _relay_routes(wire: Wire, node: NodePlan, wanted: Mapping[tuple[str, int], Path]) -> Iterator[Failure]:
    """Each relayed path has a host route of its own, even where a subnet route happens to go the same way."""
    found = {
        (route.dev, int(route.to.network_address)) for route in node.relay_routes if route.to.prefixlen == 32
    }
    for (dev, ip), path in wanted.items():
        if (dev, ip) not in found:
            yield Failure(
                "no-relay-route",
                str(path),
                (),
                f"{node.name} has no host route to {IPv4Address(ip)} out of {dev}",
            )
    for route in node.relay_routes:
        yield from _relay_route(wire, node, route, (route.dev, int(route.to.network_address)) in wanted)


def _relay_route(wire: Wire, node: NodePlan, route: RelayRoute, planned: bool) -> Iterator[Failure]:
    place, name = (
        f"{node.name} to {route.peer}, plane {route.plane}",
        f"the relay route of {node.name} to {route.to}",
    )
    if not planned or route.to.prefixlen != 32:
        yield Failure("stray-route", place, (), f"{name} dev {route.dev} belongs to no planned path")
    nic = wire.by_netdev.get((node.name, route.dev))
    if nic is None or nic.address is None or nic.address.ip != route.src:
        yield Failure(
            "route-source", place, (), f"{name} has source {route.src}, not the address of {route.dev}"
        )


def _markers(node: NodePlan, wanted: Mapping[tuple[str, int], Path]) -> Iterator[Failure]:
    """A marker that tags what no relayed path sends would break ordinary traffic."""
    for marker in node.markers:
        for destination in marker.destinations if marker.source_port is None else ():
            if (marker.netdev, int(destination.address)) not in wanted:
                flow = f"{node.name} {marker.rdma} to {destination.address}"
                yield Failure(
                    "stray-marker", flow, (), f"the marker tags {flow}, where no relayed path leads"
                )


def _unused(node: NodePlan, used: set[tuple[str, Rule]]) -> Iterator[Failure]:
    for rule in node.rules:
        if (node.name, rule) not in used:
            path = f"{', '.join(rule.senders)} to {rule.receiver} through {node.name}, plane {rule.plane}"
            message = f"rule {rule.pref}/{rule.handle} of {node.name} {rule.dev} carries no planned path"
            yield Failure("unused-rule", path, (), message)
