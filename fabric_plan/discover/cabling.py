"""Derive the cables from what the two ends have in common: a subnet, or what each heard of the other over
LLDP.

Nothing is assumed about which port goes where. Where addresses say two things at once, both are named and
nothing is drawn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from fabric_plan.discover.evidence import Claim, Interface
from fabric_plan.errors import FabricPlanError
from fabric_plan.findings import Notice
from fabric_plan.topology.fabric import End

LINK_LOCAL = IPv4Network("169.254.0.0/16")


@dataclass(frozen=True, slots=True, order=True)
class Seat:
    """One function in its place: node, port and plane."""

    node: str
    port: str
    plane: int

    @property
    def end(self) -> End:
        """The port that the function sits behind."""
        return End(self.node, self.port)


Seats = Mapping[Seat, Interface]


@dataclass(frozen=True, slots=True)
class Lane:
    """One plane of a segment: its subnet, and the addresses in the order of the segment's ends."""

    subnet: IPv4Network
    addresses: tuple[IPv4Address, ...]


@dataclass(frozen=True, slots=True)
class Segment:
    """One Ethernet segment: a cable of two ends, or a rail of a switch. `basis` is what it was told from."""

    ends: tuple[End, ...]
    lanes: Mapping[int, Lane]
    basis: str = "subnet"
    rail: str | None = None

    def __str__(self) -> str:
        return " - ".join(str(end) for end in self.ends)


@dataclass(frozen=True, slots=True)
class Cabling:
    """What hangs together, what contradicts itself, and what was noticed."""

    segments: tuple[Segment, ...]
    refusals: tuple[FabricPlanError, ...]
    notices: tuple[Notice, ...]


@dataclass(frozen=True, slots=True)
class _Held:
    """A seat's claim on an address."""

    seat: Seat
    interface: Interface
    claim: Claim

    def __str__(self) -> str:
        return f"{self.seat.node} {self.interface.netdev} {self.claim.address}"


def cabling(seats: Seats, order: Sequence[str]) -> Cabling:
    """Return the segments that the addresses of `seats` make; `order` is the nodes' declared order."""
    refusals: list[FabricPlanError] = []
    notices: list[Notice] = []
    groups = _groups(seats)
    _drop_leftovers(groups, notices)
    refusals += _prefixes_differ(groups)
    refusals += _same_address(groups)
    found: dict[frozenset[End], dict[int, tuple[IPv4Network, list[_Held]]]] = defaultdict(dict)
    alone: list[tuple[IPv4Network, list[_Held]]] = []
    for subnet, held in groups.items():
        ends = {h.seat.end for h in held}
        nodes = {end.node for end in ends}
        if len(nodes) == 1:
            alone.append((subnet, held))
            continue
        if len(ends) > len(nodes) or 2 < len(nodes) < len(order):
            refusals.append(_one_subnet_for_all(subnet, held))
            continue
        by_plane: dict[int, list[_Held]] = defaultdict(list)
        for h in held:
            by_plane[h.seat.plane].append(h)
        if any({h.seat.end for h in one} != ends for one in by_plane.values()):
            refusals.append(_crossed(subnet, held))
            continue
        for plane, one in by_plane.items():
            found[frozenset(ends)].setdefault(plane, (subnet, one))
    refusals += _ports_in_two(found)
    lonely = [
        (subnet, held)
        for subnet, held in alone
        if not any(subnet != other and subnet.overlaps(other) for other in groups)
    ]
    refusals += _alone([(subnet, held) for subnet, held in lonely if not _without_link(held)], found)
    notices += [_idle_address(held) for _, held in lonely if _without_link(held)]
    segments = [_segment(ends, lanes, order) for ends, lanes in found.items()]
    segments.sort(key=lambda segment: order.index(segment.ends[0].node))
    return Cabling(tuple(segments), tuple(refusals), tuple(notices))


def _groups(seats: Seats) -> dict[IPv4Network, list[_Held]]:
    groups: dict[IPv4Network, list[_Held]] = defaultdict(list)
    for seat, interface in sorted(seats.items(), key=lambda item: item[0]):
        for claim in interface.claims:
            # Link-local addresses are one subnet on every port and tell no cable.
            if claim.address.network.prefixlen < 32 and not claim.address.network.overlaps(LINK_LOCAL):
                groups[claim.address.network].append(_Held(seat, interface, claim))
    return groups


def _drop_leftovers(groups: dict[IPv4Network, list[_Held]], notices: list[Notice]) -> None:
    """Take away a second address of a function where the first one has a partner and this one has none, or
    stands beside it.
    """
    per_seat: dict[Seat, list[IPv4Network]] = defaultdict(list)
    for subnet, held in groups.items():
        for h in held:
            per_seat[h.seat].append(subnet)
    joined = {subnet for subnet, held in groups.items() if len({h.seat.node for h in held}) > 1}
    for seat, subnets in per_seat.items():
        if len(subnets) < 2 or not joined & set(subnets):
            continue
        keep = next(subnet for subnet in subnets if subnet in joined)
        for subnet in dict.fromkeys(subnets):
            mine = [h for h in groups[subnet] if h.seat == seat]
            extra = mine[1:] if subnet == keep else [] if subnet in joined else mine
            for h in extra:
                groups[subnet].remove(h)
                notices.append(_extra_address(h))
    for subnet in [subnet for subnet, held in groups.items() if not held]:
        del groups[subnet]


def _extra_address(held: _Held) -> Notice:
    text = (
        f"{held}: a second address on the function ({held.claim.source}); no other node shares its "
        "subnet and it is left out"
    )
    return Notice(
        "extra-address",
        text,
        hint="netplan adds up the addresses of all files: take the line out, or apply with --take-over",
    )


def _prefixes_differ(groups: Mapping[IPv4Network, list[_Held]]) -> Iterator[FabricPlanError]:
    """Two functions that nobody else shares a subnet with, one subnet inside the other: somebody mistyped the
    prefix.
    """
    subnets = sorted(groups, key=lambda net: net.prefixlen)
    for i, wide in enumerate(subnets):
        for narrow in subnets[i + 1 :]:
            if wide.prefixlen == narrow.prefixlen or not wide.overlaps(narrow):
                continue
            a, b = groups[wide][0], groups[narrow][0]
            yield FabricPlanError(
                f"{a} and {b}: the subnets overlap without being equal",
                hint="give both ends of a cable the same prefix length, and every cable and plane a "
                "subnet of its own",
                id="prefix-mismatch",
            )


def _same_address(groups: Mapping[IPv4Network, list[_Held]]) -> Iterator[FabricPlanError]:
    for held in groups.values():
        by_ip: dict[IPv4Address, list[_Held]] = defaultdict(list)
        for h in held:
            by_ip[h.claim.address.ip].append(h)
        for ip, twice in by_ip.items():
            if len(twice) > 1:
                who = " and ".join(f"{h.seat.node} {h.interface.netdev}" for h in twice)
                yield FabricPlanError(
                    f"{who} both have {ip}",
                    hint="give one of them another address of the subnet",
                    id="duplicate-address",
                )


def _one_subnet_for_all(subnet: IPv4Network, held: Sequence[_Held]) -> FabricPlanError:
    who = ", ".join(dict.fromkeys(f"{h.seat.end} ({h.interface.netdev} {h.claim.address.ip})" for h in held))
    return FabricPlanError(
        f"one subnet {subnet} stands on {who}: "
        "a cable has two ends, and a rail of a switch one of every node",
        hint="give every cable and plane a subnet of its own",
        id="one-subnet-for-all",
    )


def _crossed(subnet: IPv4Network, held: Sequence[_Held]) -> FabricPlanError:
    who = " and ".join(f"{h.seat.node} {h.interface.netdev} (plane {h.seat.plane})" for h in held)
    return FabricPlanError(
        f"{subnet} joins different planes: {who}",
        hint="swap the addresses of the two functions of one of these ports, so that a subnet stays "
        "within a plane",
        id="planes-crossed",
    )


def _ports_in_two(
    found: Mapping[frozenset[End], Mapping[int, tuple[IPv4Network, list[_Held]]]],
) -> Iterator[FabricPlanError]:
    at: dict[End, list[frozenset[End]]] = defaultdict(list)
    for ends in found:
        for end in ends:
            at[end].append(ends)
    said: set[frozenset[frozenset[End]]] = set()
    for end, groups in sorted(at.items()):
        if len(groups) < 2 or frozenset(groups) in said:
            continue
        said.add(frozenset(groups))
        words = []
        for ends in groups:
            others = ", ".join(str(other) for other in sorted(ends) if other != end)
            words += [
                f"{subnet} (plane {plane}) to {others}" for plane, (subnet, _) in sorted(found[ends].items())
            ]
        yield FabricPlanError(
            f"{end} would be cabled to two places: {' and '.join(words)}",
            hint="both functions of a port share its one cable: correct the addresses of the wrong plane",
            id="planes-disagree",
        )


def _without_link(held: Sequence[_Held]) -> bool:
    return all(h.interface.carrier is False for h in held)


def _idle_address(held: Sequence[_Held]) -> Notice:
    text = (
        f"{' and '.join(map(str, held))}: an address on a port without a link, and no other node "
        "shares its subnet: left out"
    )
    return Notice("idle-address", text, hint="plug the cable in, or take the address away")


def _alone(
    alone: Sequence[tuple[IPv4Network, list[_Held]]],
    found: Mapping[frozenset[End], Mapping[int, tuple[IPv4Network, list[_Held]]]],
) -> Iterator[FabricPlanError]:
    for subnet, held in alone:
        first = held[0]
        ends = sorted({h.seat.end for h in held})
        if len(ends) > 1:
            yield FabricPlanError(
                f"{first.seat.node}: {' and '.join(end.port for end in ends)} are in one subnet "
                f"{subnet}, and no other node is",
                hint="a cable joins two nodes: give the two ports different subnets, each shared "
                "with its neighbour",
                id="self-cable",
            )
            continue
        # The twin's cable says where the missing partner should be.
        other = next(
            (end for group in found if ends[0] in group for end in sorted(group) if end != ends[0]), None
        )
        beyond = f" (its twin's cable leads to {other})" if other else ""
        yield FabricPlanError(
            f"{' and '.join(map(str, held))}: no other node has an address in {subnet}{beyond}",
            hint="correct the address at one end, so that both are in one subnet, or take it away "
            "where there is no cable",
            id="address-without-partner",
        )


def _segment(
    ends: frozenset[End],
    lanes: Mapping[int, tuple[IPv4Network, list[_Held]]],
    order: Sequence[str],
) -> Segment:
    # The way people say a cable: from the first port to the second, else from the node that comes first.
    placed = tuple(sorted(ends, key=lambda end: (end.port, order.index(end.node))))
    built = {}
    for plane, (subnet, held) in sorted(lanes.items()):
        at = {h.seat.end: h.claim.address.ip for h in held}
        built[plane] = Lane(subnet, tuple(at[end] for end in placed))
    return Segment(placed, built)
