"""Cables from what the ports heard of each other: LLDP of a running daemon, or frames that were sent to
find out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fabric_plan.discover.cabling import Cabling, Seat, Seats, Segment
from fabric_plan.discover.evidence import Neighbour
from fabric_plan.errors import FabricPlanError
from fabric_plan.findings import Notice
from fabric_plan.topology.fabric import End


@dataclass(frozen=True, slots=True)
class Heard:
    """The cables that were heard, and the ports that heard somebody who is no node of ours."""

    cables: tuple[tuple[End, End], ...]
    refusals: tuple[FabricPlanError, ...]
    strangers: tuple[Notice, ...]


def heard(seats: Seats) -> Heard:
    """Return the cables that the neighbours of `seats` make. A port that heard two different ones is a
    refusal: a switch is there.
    """
    peers: dict[End, set[End]] = defaultdict(set)
    strangers = []
    for seat, interface in sorted(seats.items(), key=lambda item: item[0]):
        for neighbour in interface.neighbours:
            other = _find(seats, seat, neighbour)
            if other is not None:
                peers[seat.end].add(other)
                peers[other].add(seat.end)
            elif not _own_twin(seats, seat, neighbour):
                who = " ".join(word for word in (neighbour.system, neighbour.port) if word)
                strangers.append(
                    Notice(
                        "unknown-neighbour",
                        f"{seat.node} {interface.netdev} hears {who}, which is no port of these nodes",
                    )
                )
    refusals = [
        FabricPlanError(
            f"{end} hears {' and '.join(str(other) for other in sorted(others))}: a switch or a "
            "bridge stands between",
            hint="for a switched fabric give each rail one subnet; for cables take the switch out",
            id="heard-several",
        )
        for end, others in sorted(peers.items())
        if len(others) > 1
    ]
    cables = {tuple(sorted((end, next(iter(others))))) for end, others in peers.items() if len(others) == 1}
    return Heard(tuple((a, b) for a, b in sorted(cables)), tuple(refusals), tuple(dict.fromkeys(strangers)))


def _find(seats: Seats, seat: Seat, neighbour: Neighbour) -> End | None:
    """Return the port of another node that `neighbour` describes; a MAC says it alone, a name only with its
    system.
    """
    for other, interface in seats.items():
        if other.node == seat.node or neighbour.port is None:
            continue
        if interface.mac is not None and interface.mac == neighbour.port.lower():
            return other.end
        same_system = (
            neighbour.system is not None and neighbour.system.split(".")[0] == other.node.split(".")[0]
        )
        if same_system and neighbour.port in (interface.netdev, *interface.names):
            return other.end
    return None


def _own_twin(seats: Seats, seat: Seat, neighbour: Neighbour) -> bool:
    """Tell whether a function heard its own node: twins share a segment, and a daemon speaks on both."""
    own = [interface for other, interface in seats.items() if other.node == seat.node]
    return any(
        neighbour.port is not None and neighbour.port.lower() in (i.netdev.lower(), i.mac) for i in own
    )


def joined(addressed: Cabling, found: Heard) -> Cabling:
    """Add what was heard to what the addresses say. Where they contradict each other, the cable heard is the
    real one: refuse.
    """
    return Cabling(
        segments=(*addressed.segments, *_new(addressed.segments, found.cables)),
        refusals=(*addressed.refusals, *found.refusals, *_disagree(addressed.segments, found.cables)),
        notices=(*addressed.notices, *found.strangers),
    )


def _new(segments: Sequence[Segment], cables: Sequence[tuple[End, End]]) -> Iterator[Segment]:
    taken = {end for segment in segments for end in segment.ends}
    for cable in cables:
        if not taken & set(cable):
            yield Segment(cable, {}, "lldp")


def _disagree(segments: Sequence[Segment], cables: Sequence[tuple[End, End]]) -> Iterator[FabricPlanError]:
    for a, b in cables:
        for segment in segments:
            if len(segment.ends) == 2 and len({a, b} & set(segment.ends)) == 1:
                yield FabricPlanError(
                    f"the addresses say {segment}, but {a} hears {b}",
                    hint="a cable was moved after the addresses were given: move it back, or "
                    "renumber the two ports",
                    id="heard-otherwise",
                )
