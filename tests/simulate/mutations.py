"""Ways to break a plan that works: one change each, in what one node carries or in the cabling."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Interface

from fabric_plan.planner.model import Destination, KernelRoute, NodePlan, Plan, PlannedFunction, Rule
from fabric_plan.planner.tags import ETHERTYPE_IPV4, TAG_BASE
from fabric_plan.topology.fabric import Cable

STRANGE_MAC = "02:de:ad:00:00:01"


@dataclass(frozen=True)
class Mutation:
    """A broken plan, what was done to it, and the node at which it was done."""

    what: str
    plan: Plan = field(repr=False)
    node: str


def with_node(plan: Plan, changed: NodePlan) -> Plan:
    """Return `plan` with one node exchanged."""
    return replace(plan, nodes=tuple(changed if node.name == changed.name else node for node in plan.nodes))


def _each_rule(plan: Plan) -> Iterator[tuple[NodePlan, Rule, Callable[..., Plan]]]:
    for node in plan.nodes:
        for rule in node.rules:

            def changed(node: NodePlan = node, rule: Rule = rule, **fields: object) -> Plan:
                rules = tuple(replace(r, **fields) if r is rule else r for r in node.rules)  # type: ignore[arg-type]
                return with_node(plan, replace(node, rules=rules))

            yield node, rule, changed


def _macs(plan: Plan) -> list[str]:
    known = [f.function.mac for node in plan.nodes for f in node.functions if f.function.mac is not None]
    return [*known, STRANGE_MAC]


def _tags() -> list[int]:
    return [ETHERTYPE_IPV4, *(TAG_BASE + k for k in range(1, 7))]


def wrong_rules(plan: Plan) -> Iterator[Mutation]:
    """Every field of every rule, set to everything that it could be mistaken for."""
    for node, rule, changed in _each_rule(plan):
        own = [f.function.mac for f in node.functions]
        for mac in _macs(plan):
            if mac != rule.dst_mac:
                yield Mutation("wrong dst_mac", changed(dst_mac=mac), node.name)
            if mac != rule.set_dst_mac:
                yield Mutation("wrong set_dst_mac", changed(set_dst_mac=mac), node.name)
            if mac != rule.src_mac and (rule.src_mac is not None or mac in own):
                yield Mutation("wrong src_mac", changed(src_mac=mac), node.name)
        for tag in _tags():
            if tag != rule.ethertype:
                yield Mutation("wrong tag", changed(ethertype=tag), node.name)
            if tag != rule.set_type:
                yield Mutation("wrong set_type", changed(set_type=tag), node.name)
        for function in node.functions:
            if function.function.netdev != rule.redirect:
                yield Mutation("wrong redirect", changed(redirect=function.function.netdev), node.name)
            if function.function.netdev != rule.dev:
                yield Mutation("rule on another device", changed(dev=function.function.netdev), node.name)
        yield Mutation("redirect to nothing", changed(redirect="eth9"), node.name)
        rules = tuple(r for r in node.rules if r is not rule)
        yield Mutation("missing rule", with_node(plan, replace(node, rules=rules)), node.name)
        yield Mutation("rule twice", with_node(plan, replace(node, rules=(*node.rules, rule))), node.name)
        for other in node.rules:
            if other is not rule and other.dev == rule.dev:
                if other.pref == rule.pref:
                    yield Mutation("handle used twice", changed(handle=other.handle), node.name)
                elif other.ethertype != rule.ethertype:
                    yield Mutation(
                        "second protocol on a preference", changed(pref=other.pref, handle=99), node.name
                    )


def wrong_markers(plan: Plan) -> Iterator[Mutation]:
    """Markers missing, tagging wrongly, or tagging what they should leave alone."""
    for node in plan.nodes:
        for i, marker in enumerate(node.markers):

            def changed(node: NodePlan = node, i: int = i, **fields: object) -> Plan:
                marker = replace(node.markers[i], **fields)  # type: ignore[arg-type]
                return with_node(
                    plan, replace(node, markers=(*node.markers[:i], marker, *node.markers[i + 1 :]))
                )

            yield Mutation(
                "missing marker",
                with_node(plan, replace(node, markers=(*node.markers[:i], *node.markers[i + 1 :]))),
                node.name,
            )
            yield Mutation(
                "marker twice", with_node(plan, replace(node, markers=(*node.markers, marker))), node.name
            )
            yield Mutation("marker on another device", changed(netdev="eth9"), node.name)
            if marker.source_port is not None:
                yield Mutation(
                    "marker with the wrong port", changed(source_port=marker.source_port - 1), node.name
                )
                for tag in _tags():
                    if tag != marker.ethertype:
                        yield Mutation("marker with the wrong tag", changed(ethertype=tag), node.name)
                continue
            for j, destination in enumerate(marker.destinations):
                rest = (*marker.destinations[:j], *marker.destinations[j + 1 :])
                yield Mutation("marker without a destination", changed(destinations=rest), node.name)
                for tag in _tags():
                    if tag != destination.ethertype:
                        wrong = Destination(destination.address, tag)
                        yield Mutation(
                            "marker with the wrong tag", changed(destinations=(*rest, wrong)), node.name
                        )
            for path in plan.paths:
                if path.src == node.name and path.direct:
                    address = plan.node(path.dst).at(path.into.port, path.plane).address
                    if address is not None:
                        more = (*marker.destinations, Destination(address.ip, TAG_BASE + 1))
                        yield Mutation("marker tags a neighbour", changed(destinations=more), node.name)


def _neighbours(plan: Plan, node: NodePlan, plane: int) -> dict[str, IPv4Address]:
    """Return the address of the far end by own netdev, for direct cables of `plane`."""
    found = {}
    for path in plan.paths:
        if path.src == node.name and path.direct and path.plane == plane:
            address = plan.node(path.dst).at(path.into.port, plane).address
            if address is not None:
                found[node.at(path.out.port, plane).function.netdev] = address.ip
    return found


def _longer(plan: Plan, node: NodePlan, route: KernelRoute) -> bool:
    """Tell whether the other way round to the target's cable is longer, so that taking it is wrong."""
    cable = next(plan.fabric.cables[index] for (index, plane), net in plan.subnets.items() if net == route.to)
    count = len(plan.topology.order)
    if not plan.topology.closed:
        return True
    at = sorted(
        (plan.topology.position(end.node) - plan.topology.position(node.name)) % count for end in cable.ends
    )
    return at[0] != count - at[1]


def wrong_routes(plan: Plan) -> Iterator[Mutation]:
    """Routes missing, through the wrong neighbour, out of the wrong plane, or with a gateway that is none."""
    for node in plan.nodes:
        for i, route in enumerate(node.kernel_routes):
            rest = (*node.kernel_routes[:i], *node.kernel_routes[i + 1 :])
            yield Mutation("missing route", with_node(plan, replace(node, kernel_routes=rest)), node.name)
            for dev, via in _neighbours(plan, node, route.plane).items():
                if via != route.via and _longer(plan, node, route):
                    wrong = (*rest, replace(route, via=via, dev=dev))
                    yield Mutation(
                        "route through the wrong neighbour",
                        with_node(plan, replace(node, kernel_routes=wrong)),
                        node.name,
                    )
            for function in node.functions:
                if function.function.netdev != route.dev:
                    wrong = (*rest, replace(route, dev=function.function.netdev))
                    yield Mutation(
                        "route out of the wrong function",
                        with_node(plan, replace(node, kernel_routes=wrong)),
                        node.name,
                    )
            nowhere = (*rest, replace(route, via=IPv4Address("10.99.0.1")))
            yield Mutation(
                "gateway off the cable", with_node(plan, replace(node, kernel_routes=nowhere)), node.name
            )
        for i, relay in enumerate(node.relay_routes):
            others = (*node.relay_routes[:i], *node.relay_routes[i + 1 :])
            yield Mutation(
                "missing relay route", with_node(plan, replace(node, relay_routes=others)), node.name
            )
            for dev, via in _neighbours(plan, node, relay.plane).items():
                if via != relay.via:
                    changed = (*others, replace(relay, via=via, dev=dev))
                    yield Mutation(
                        "relay route through the wrong neighbour",
                        with_node(plan, replace(node, relay_routes=changed)),
                        node.name,
                    )
            source = (*others, replace(relay, src=IPv4Address("10.99.0.1")))
            yield Mutation("foreign source", with_node(plan, replace(node, relay_routes=source)), node.name)


def _with_function(plan: Plan, node: NodePlan, old: PlannedFunction, new: PlannedFunction) -> Plan:
    return with_node(plan, replace(node, functions=tuple(new if f is old else f for f in node.functions)))


def wrong_functions(plan: Plan) -> Iterator[Mutation]:
    """Addresses and MACs doubled, missing, moved; two planes in one subnet; a plane that nobody manages."""
    everything = [(node, function) for node in plan.nodes for function in node.functions]
    addressed = [(node, function) for node, function in everything if function.address is not None]
    matched = {
        mac
        for node in plan.nodes
        for rule in node.rules
        for mac in (rule.dst_mac, rule.set_dst_mac, rule.src_mac)
    }
    for node, f in addressed:
        assert f.address is not None and f.cable is not None
        for other_node, other in addressed:
            assert other.address is not None
            if other is f:
                continue
            yield Mutation(
                "duplicate address",
                _with_function(plan, node, f, replace(f, address=other.address)),
                other_node.name,
            )
            twins = other_node is node and other.function.port == f.function.port
            if twins and other.address.network != f.address.network:
                free = other.address.network[-2 if other.address.network.prefixlen < 31 else 0]
                host = IPv4Interface((free, other.address.network.prefixlen))
                yield Mutation(
                    "two planes in one subnet",
                    _with_function(plan, node, f, replace(f, address=host)),
                    node.name,
                )
        outside = replace(f, address=IPv4Interface("10.99.0.1/24"))
        yield Mutation("address outside its subnet", _with_function(plan, node, f, outside), node.name)
        if f.address.network.prefixlen < 31:
            network = replace(
                f, address=IPv4Interface((f.address.network.network_address, f.address.network.prefixlen))
            )
            yield Mutation("network address", _with_function(plan, node, f, network), node.name)
        gone = replace(f, address=None, cable=None)
        yield Mutation("missing address", _with_function(plan, node, f, gone), node.name)
        if f.function.mac in matched:
            for mac, what in ((STRANGE_MAC, "exchanged card"), (None, "missing MAC")):
                new = replace(f, function=replace(f.function, mac=mac))
                yield Mutation(what, _with_function(plan, node, f, new), node.name)
        if f.managed and any(route.dev == f.function.netdev for route in node.kernel_routes):
            yield Mutation("unmanaged", _with_function(plan, node, f, replace(f, managed=False)), node.name)
    for node, f in everything:
        for _, other in everything:
            if other is not f and other.function.mac is not None and (f.address or other.address):
                new = replace(f, function=replace(f.function, mac=other.function.mac))
                yield Mutation("duplicate MAC", _with_function(plan, node, f, new), node.name)


def wrong_cabling(plan: Plan) -> Iterator[Mutation]:
    """Two cables with one end each exchanged, a cable pulled out."""
    cables = plan.fabric.cables
    for a in cables:
        for b in cables:
            if a.index >= b.index:
                continue
            for i in range(len(a.ends)):
                for j in range(len(b.ends)):
                    one = replace(a, ends=(*a.ends[:i], b.ends[j], *a.ends[i + 1 :]))
                    two = replace(b, ends=(*b.ends[:j], a.ends[i], *b.ends[j + 1 :]))
                    yield Mutation(
                        "swapped cable ends", _with_cables(plan, {a.index: one, b.index: two}), a.ends[i].node
                    )
        yield Mutation(
            "cable pulled out", _with_cables(plan, {a.index: replace(a, ends=a.ends[:1])}), a.ends[-1].node
        )


def _with_cables(plan: Plan, changed: dict[int, Cable]) -> Plan:
    cables = tuple(changed.get(cable.index, cable) for cable in plan.fabric.cables)
    return replace(plan, fabric=replace(plan.fabric, cables=cables))


def wrong_paths(plan: Plan) -> Iterator[Mutation]:
    """A path planned one way only, or not at all although rules stand for it."""
    for path in plan.paths:
        rest = tuple(other for other in plan.paths if other is not path)
        yield Mutation("missing reverse path", replace(plan, paths=rest), path.src)


def mutations(plan: Plan) -> Iterator[Mutation]:
    """Return every mutation of `plan`."""
    for kind in (wrong_rules, wrong_markers, wrong_routes, wrong_functions, wrong_cabling, wrong_paths):
        yield from kind(plan)
