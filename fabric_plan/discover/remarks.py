"""What is worth saying about cables that plan all the same: MTUs that differ, dead links, missing
addresses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from fabric_plan.discover.cabling import Seat, Seats, Segment
from fabric_plan.discover.evidence import FoundNode, Interface
from fabric_plan.findings import Notice
from fabric_plan.topology.fabric import End

NETPLAN_MTU = 1500  # what the kernel takes where nobody says


def remarks(
    nodes: Sequence[FoundNode], seats: Seats, segments: Sequence[Segment], planes: Sequence[int]
) -> Iterator[Notice]:
    """Yield every notice about `segments` as they are on the nodes; `planes` are those of the fabric."""
    yield from _mtu(seats, segments)
    yield from _dead(seats, segments)
    yield from _incomplete(segments, planes)
    yield from _unknown(seats, segments)
    yield from _elsewhere(nodes, seats, segments)


def _elsewhere(nodes: Sequence[FoundNode], seats: Seats, segments: Sequence[Segment]) -> Iterator[Notice]:
    """A subnet of the fabric that another interface of a node (Docker's bridge, the LAN) has as well."""
    functions = {(seat.node, interface.netdev) for seat, interface in seats.items()}
    subnets = {lane.subnet for segment in segments for lane in segment.lanes.values()}
    for node in nodes:
        for interface in node.interfaces:
            if (node.name, interface.netdev) in functions:
                continue
            for claim in interface.claims:
                for subnet in sorted(net for net in subnets if net.overlaps(claim.address.network)):
                    text = f"{node.name} {interface.netdev} {claim.address} overlaps the fabric's {subnet}"
                    hint = "one of them gets the other's traffic: renumber either"
                    yield Notice("subnet-elsewhere", text, hint=hint)


def _unknown(seats: Seats, segments: Sequence[Segment]) -> Iterator[Notice]:
    """A port with a link and nothing that says where it leads: said, not guessed."""
    known = {end for segment in segments for end in segment.ends}
    for end in sorted({seat.end for seat, interface in seats.items() if interface.carrier} - known):
        text = f"{end} has a link, and neither an address nor a neighbour tells where it leads"
        yield Notice("unknown-link", text, hint="discover --probe-cables tells, or state it in cables.yaml")


def _cabled(
    seats: Seats, segments: Sequence[Segment]
) -> Iterator[tuple[Segment, int, list[tuple[End, Interface]]]]:
    """Yield each plane of each segment with the functions at its ends, where they are known."""
    for segment in segments:
        for plane in segment.lanes:
            ends = [
                (end, seats[Seat(end.node, end.port, plane)])
                for end in segment.ends
                if Seat(end.node, end.port, plane) in seats
            ]
            yield segment, plane, ends


def _mtu_of(interface: Interface) -> int:
    return NETPLAN_MTU if interface.mtu is None else interface.mtu


def usual_mtu(seats: Seats, segments: Sequence[Segment]) -> int | None:
    """Return the MTU that most cabled functions have, the larger one where two are equally frequent."""
    counts = Counter(_mtu_of(interface) for _, _, ends in _cabled(seats, segments) for _, interface in ends)
    return max(counts, key=lambda mtu: (counts[mtu], mtu)) if counts else None


def _mtu(seats: Seats, segments: Sequence[Segment]) -> Iterator[Notice]:
    uneven = False
    seen = set()
    for segment, plane, ends in _cabled(seats, segments):
        mtus = {_mtu_of(interface) for _, interface in ends}
        seen |= mtus
        if len(mtus) < 2:
            continue
        uneven = True
        said = " and ".join(f"{end.node} {interface.netdev} {_mtu_of(interface)}" for end, interface in ends)
        yield Notice(
            "mtu-mismatch",
            f"cable {segment}, plane {plane}: the MTU differs: {said}; frames over {min(mtus)} are "
            "dropped without an error",
            hint="apply sets both ends to the inventory's mtu",
        )
    if seen == {NETPLAN_MTU}:
        text = (
            "no MTU is set on any fabric port, so all run at 1500; both ends agree, but RoCE's "
            "path MTU falls to 1024 bytes"
        )
        yield Notice("mtu-default", text, hint="write `mtu: 9000` into the inventory")
    elif len(seen) > 1 and not uneven:
        text = f"the MTU differs from cable to cable ({', '.join(map(str, sorted(seen)))})"
        yield Notice(
            "mtu-uneven", text, hint="the inventory has one mtu for all of them: the one that most ports have"
        )


def _dead(seats: Seats, segments: Sequence[Segment]) -> Iterator[Notice]:
    for segment in segments:
        without = [end for end in segment.ends if _link(seats, end) is False]
        if without:
            text = (
                f"cable {segment}: no link at {' and '.join(map(str, without))}, only the "
                "addresses say that it is there"
            )
            yield Notice("no-link", text, hint="plug the cable in at both ends, and look at `ip -br link`")


def _link(seats: Seats, end: End) -> bool | None:
    carriers = [interface.carrier for seat, interface in seats.items() if seat.end == end]
    return None if not carriers or None in carriers else any(carriers)


def _incomplete(segments: Sequence[Segment], planes: Sequence[int]) -> Iterator[Notice]:
    for segment in segments:
        absent = [plane for plane in planes if plane not in segment.lanes]
        if absent and segment.basis == "subnet":
            text = (
                f"cable {segment} has no addresses in plane {' and '.join(map(str, absent))}, "
                "other cables have: the plan gives it some from the pool"
            )
            yield Notice(
                "plane-incomplete",
                text,
                hint="pin subnet: and addresses: in the inventory to choose them yourself",
            )
        elif absent:
            text = f"cable {segment} has no addresses yet: the plan gives it some from the pool"
            yield Notice(
                "cable-without-addresses",
                text,
                hint="pin subnet: and addresses: in the inventory to choose them yourself",
            )
