"""Cables from what the ports heard of each other: LLDP of a running daemon, or frames that were sent to
find out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fabric_plan.discover.cabling import Cabling, Seat, Seats, Segment
from fabric_plan.discover.evidence import Neighbour
from fabric_plan.errors import FabricPlanError
from fabric_plan.findings import Notice
from fabric_plan.topology.fabric import End


@dataclass(frozen=True, slots=True)
class Heard:
    """By port: which ports of other nodes it hears or is heard by; and what else was heard.

    `loops` are pairs of ports of one node that hear each other.
    """

    peers: Mapping[End, frozenset[End]]
    loops: tuple[tuple[End, End], ...]
    strangers: tuple[Notice, ...]

    @property
    def cables(self) -> tuple[tuple[End, End], ...]:
        """The pairs that hear each other and nobody else."""
        alone = {end: next(iter(others)) for end, others in self.peers.items() if len(others) == 1}
        return tuple((a, b) for a, b in sorted(alone.items()) if a < b and alone.get(b) == a)


def heard(seats: Seats) -> Heard:
    """Return what the neighbours of `seats` tell."""
    peers: dict[End, set[End]] = defaultdict(set)
    loops: set[tuple[End, End]] = set()
    strangers = []
    for seat, interface in sorted(seats.items(), key=lambda item: item[0]):
        for neighbour in interface.neighbours:
            other = _find(seats, seat, neighbour)
            if other is None:
                who = " ".join(word for word in (neighbour.system, neighbour.port) if word)
                text = f"{seat.node} {interface.netdev} hears {who}, which is no port of these nodes"
                strangers.append(Notice("unknown-neighbour", text))
            elif other.node != seat.node:
                peers[seat.end].add(other)
                peers[other].add(seat.end)
            elif other != seat.end:  # its own twin shares the cable and may well be heard
                loops.add((min(other, seat.end), max(other, seat.end)))
    frozen = {end: frozenset(others) for end, others in sorted(peers.items())}
    return Heard(frozen, tuple(sorted(loops)), tuple(dict.fromkeys(strangers)))


def _find(seats: Seats, seat: Seat, neighbour: Neighbour) -> End | None:
    """Return the port that `neighbour` describes; a MAC says it alone, a name only with its system."""
    if neighbour.port is None:
        return None
    for other, interface in seats.items():
        if interface.mac is not None and interface.mac == neighbour.port.lower():
            return other.end
        named = neighbour.system is not None and neighbour.system.split(".")[0] == other.node.split(".")[0]
        if named and neighbour.port in (interface.netdev, *interface.names):
            return other.end
    return None


def joined(addressed: Cabling, found: Heard) -> Cabling:
    """Add what was heard to what the addresses say. Where they contradict each other, the cable heard is the
    real one: refuse.
    """
    return Cabling(
        segments=(*addressed.segments, *_new(addressed.segments, found.cables)),
        refusals=(
            *addressed.refusals,
            *_looped(found),
            *_several(addressed.segments, found),
            *_disagree(addressed.segments, found.cables),
        ),
        notices=(*addressed.notices, *found.strangers),
    )


def _new(segments: Sequence[Segment], cables: Sequence[tuple[End, End]]) -> Iterator[Segment]:
    taken = {end for segment in segments for end in segment.ends}
    for cable in cables:
        if not taken & set(cable):
            yield Segment(cable, {}, "lldp")


def _looped(found: Heard) -> Iterator[FabricPlanError]:
    for a, b in found.loops:
        yield FabricPlanError(
            f"{a} and {b} hear each other: one cable joins the node to itself",
            hint="plug one of its ends into the next node",
            id="self-cable",
        )


def _several(segments: Sequence[Segment], found: Heard) -> Iterator[FabricPlanError]:
    """A port that hears several others has no cable; where the addresses make it a rail, all is well."""
    for end, others in found.peers.items():
        rail = any({end, *others} <= set(segment.ends) for segment in segments if len(segment.ends) > 2)
        if len(others) > 1 and not rail:
            names = " and ".join(str(other) for other in sorted(others))
            yield FabricPlanError(
                f"{end} hears {names}: a switch or a bridge stands between",
                hint="for a switched fabric give each rail one subnet; for cables take the switch out",
                id="heard-several",
            )


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
