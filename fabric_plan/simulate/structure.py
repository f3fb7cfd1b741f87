"""What is wrong with a plan before any frame is walked: doubles, overlaps, what a kernel would refuse."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network

from fabric_plan.planner.model import KernelRoute, NodePlan, Path, Plan, RelayRoute, Rule
from fabric_plan.planner.tags import ETHERTYPE_IPV4
from fabric_plan.simulate.proof import Failure
from fabric_plan.simulate.wire import Nic, Wire
from fabric_plan.topology.fabric import End

# Kind, planned path or place, message.
_Fault = tuple[str, str, str]


def check_structure(wire: Wire, plan: Plan) -> Iterator[Failure]:
    """Yield everything that is wrong with `plan` as it stands."""
    structure = _Structure(wire, plan)
    for kind, path, message in structure.faults():
        yield Failure(kind, path, (), message)


def _ends(path: Path) -> Iterator[End]:
    """Yield every port that `path` goes through."""
    yield path.out
    for relay, into, out in zip(path.through, path.cables, path.cables[1:], strict=False):
        yield into.end(relay)
        yield out.end(relay)
    yield path.into


class _Structure:
    """The checks of one plan. Each names a planned path: people look for what breaks, not for an entry."""

    def __init__(self, wire: Wire, plan: Plan) -> None:
        self._wire = wire
        self._plan = plan
        self._paths: dict[tuple[str, str, int], Path] | None = None

    def faults(self) -> Iterator[_Fault]:
        yield from self._doubles(
            "duplicate-address", ((str(n.address.ip), n) for n in self._wire.nics if n.address)
        )
        yield from self._doubles("duplicate-mac", ((nic.mac, nic) for nic in self._wire.nics if nic.known))
        yield from self._addresses()
        yield from self._subnets()
        yield from self._macs()
        for node in self._plan.nodes:
            yield from self._collisions(node)
            for rule in node.rules:
                yield from self._rule(node, rule)
            yield from self._markers(node)
            yield from self._routes(node)

    def _over(self, nic: Nic | None, otherwise: str) -> str:
        """Return the first planned path over `nic`, relayed ones first."""
        if self._paths is None:
            self._paths = {}
            for path in sorted(self._plan.paths, key=lambda path: -len(path.through)):
                for end in _ends(path):
                    self._paths.setdefault((end.node, end.port, path.plane), path)
        found = self._paths.get((nic.node, nic.port, nic.plane)) if nic is not None else None
        return str(found) if found is not None else otherwise

    def _doubles(self, kind: str, values: Iterable[tuple[str, Nic]]) -> Iterator[_Fault]:
        seen: dict[str, Nic] = {}
        for value, nic in values:
            if value in seen:
                path = self._over(nic, self._over(seen[value], str(nic)))
                yield kind, path, f"{seen[value]} and {nic} both have {value}"
            seen.setdefault(value, nic)

    def _addresses(self) -> Iterator[_Fault]:
        for nic in self._wire.nics:
            if nic.address is None:
                continue
            path = self._over(nic, str(nic))
            if nic.segment is None:
                yield "no-cable", path, f"{nic} has the address {nic.address} and no cable"
                continue
            subnet, network = self._plan.subnets.get((nic.segment, nic.plane)), nic.address.network
            ends = (network.network_address, network.broadcast_address) if network.prefixlen < 31 else ()
            if network != subnet or nic.address.ip in ends:
                message = f"{nic} has {nic.address}, which is no host address of its cable's subnet {subnet}"
                yield "address-outside", path, message

    def _subnets(self) -> Iterator[_Fault]:
        """Each cable and plane has a subnet of its own, but for twins that the inventory put into one."""
        users: dict[IPv4Network, dict[tuple[int, int], Nic]] = defaultdict(dict)
        for nic in self._wire.nics:
            if nic.address is not None and nic.segment is not None:
                users[nic.address.network].setdefault((nic.segment, nic.plane), nic)
        widest: IPv4Network | None = None
        for network in sorted(users, key=lambda network: (int(network.network_address), network.prefixlen)):
            first, *others = users[network].values()
            for other in others:
                if other.segment != first.segment or other.segment not in self._wire.shared:
                    message = (
                        f"{first} (plane {first.plane}) and {other} (plane {other.plane}) share {network}"
                    )
                    yield "shared-subnet", self._over(other, str(other)), message
            if widest is not None and network.overlaps(widest):
                outer = next(iter(users[widest].values()))
                yield (
                    "shared-subnet",
                    self._over(first, str(first)),
                    f"{network} of {first} lies in {widest} of {outer}",
                )
            else:
                widest = network

    def _macs(self) -> Iterator[_Fault]:
        for nic in self._wire.nics if self._plan.mesh else ():
            if nic.managed and nic.address is not None and not nic.known:
                yield (
                    "no-mac",
                    self._over(nic, str(nic)),
                    f"the MAC of {nic} is missing, and relays rewrite MACs",
                )

    def _collisions(self, node: NodePlan) -> Iterator[_Fault]:
        places = Counter((rule.dev, rule.pref, rule.handle) for rule in node.rules)
        protocols: dict[tuple[str, int], set[int]] = defaultdict(set)
        alike: dict[tuple[str, int, str], list[Rule]] = defaultdict(list)
        for rule in node.rules:
            protocols[rule.dev, rule.pref].add(rule.ethertype)
            alike[rule.dev, rule.ethertype, rule.dst_mac].append(rule)
        for rule in node.rules:
            path, name = self._rule_path(node, rule), f"{node.name} {rule.dev}"
            if places[rule.dev, rule.pref, rule.handle] > 1:
                yield (
                    "rule-collision",
                    path,
                    f"{name} has two rules with preference {rule.pref} and handle {rule.handle}",
                )
            tags = " and ".join(f"0x{tag:04x}" for tag in sorted(protocols[rule.dev, rule.pref]))
            if len(protocols[rule.dev, rule.pref]) > 1:
                yield (
                    "second-protocol",
                    path,
                    f"{name} has {tags} on preference {rule.pref}, which takes one protocol",
                )
            others = [other for other in alike[rule.dev, rule.ethertype, rule.dst_mac] if other is not rule]
            if any(
                None in (other.src_mac, rule.src_mac) or other.src_mac == rule.src_mac for other in others
            ):
                yield (
                    "ambiguous-rule",
                    path,
                    f"one frame can match two rules of {name}, {rule.pref}/{rule.handle} being one",
                )

    def _rule_path(self, node: NodePlan, rule: Rule) -> str:
        nic = self._wire.by_netdev.get((node.name, rule.dev))
        for path in self._plan.paths:
            if (
                nic is not None
                and node.name in path.through
                and path.src in rule.senders
                and path.plane == nic.plane
            ):
                relay = path.through.index(node.name)
                if (
                    path.cables[relay].end(node.name).port == nic.port
                    and path.cables[relay + 1].other(node.name).node == rule.receiver
                ):
                    return str(path)
        return f"{', '.join(rule.senders)} to {rule.receiver} through {node.name}, plane {rule.plane}"

    def _rule(self, node: NodePlan, rule: Rule) -> Iterator[_Fault]:
        name = f"rule {rule.pref}/{rule.handle} of {node.name} {rule.dev}"
        for kind, message in self._rule_faults(node, rule):
            yield kind, self._rule_path(node, rule), f"{name} {message}"

    def _rule_faults(self, node: NodePlan, rule: Rule) -> Iterator[tuple[str, str]]:
        ingress = self._wire.by_netdev.get((node.name, rule.dev))
        egress = self._wire.by_netdev.get((node.name, rule.redirect))
        if rule.ethertype == ETHERTYPE_IPV4:
            yield "unmarked-relayed", "matches plain IPv4: unmarked frames are never relayed"
        if ingress is None or egress is None:
            yield (
                "no-device",
                f"names {rule.dev if ingress is None else rule.redirect}, which is no function there",
            )
            return
        if ingress is egress:
            yield "redirect", "redirects to the function that the frame came in by"
        if ingress.plane != egress.plane:
            yield (
                "redirect",
                f"redirects from plane {ingress.plane} to {egress.netdev} on plane {egress.plane}",
            )
        if not (ingress.managed and egress.managed):
            yield "unmanaged", "touches an unmanaged plane"
        if rule.dst_mac != ingress.mac:
            yield (
                "foreign-match",
                f"matches frames to {rule.dst_mac}, and {rule.dev} has the MAC {ingress.mac}",
            )

    def _markers(self, node: NodePlan) -> Iterator[_Fault]:
        devices = Counter(marker.rdma for marker in node.markers)
        for marker in node.markers:
            nic = self._wire.by_netdev.get((node.name, marker.netdev))
            path = self._over(nic, f"{node.name} {marker.rdma}")
            if nic is None or nic.rdma != marker.rdma:
                yield (
                    "no-device",
                    path,
                    f"{marker.rdma} and {marker.netdev} of a marker are not one function of {node.name}",
                )
            if devices[marker.rdma] > 1:
                yield "two-markers", path, f"{node.name} has two markers on {marker.rdma}"

    def _routes(self, node: NodePlan) -> Iterator[_Fault]:
        """What a kernel would refuse: a gateway off the device's subnet, a second route to one prefix."""
        routes: tuple[KernelRoute | RelayRoute, ...] = (*node.kernel_routes, *node.relay_routes)
        targets = Counter(route.to for route in routes)
        for route in routes:
            path, name = (
                f"{node.name} to {route.to}, plane {route.plane}",
                f"the route of {node.name} to {route.to}",
            )
            nic = self._wire.by_netdev.get((node.name, route.dev))
            if nic is None or nic.address is None:
                yield "no-device", path, f"{name} leaves by {route.dev}, which is no function with an address"
                continue
            if route.via not in nic.address.network or route.via == nic.address.ip:
                yield (
                    "gateway",
                    path,
                    f"the gateway {route.via} of {name} is no neighbour on {route.dev} ({nic.address})",
                )
            if not nic.managed or route.plane != nic.plane:
                yield (
                    "unmanaged",
                    path,
                    f"{name} leaves by {route.dev}, no managed function of plane {route.plane}",
                )
            if targets[route.to] > 1:
                yield "two-routes", path, f"{node.name} has two routes to {route.to}"
