"""Compare the cables found with a stated table, and say which ends to move so that the table comes true."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fabric_plan.errors import FabricPlanError
from fabric_plan.topology.fabric import End

Pair = frozenset[End]


@dataclass(frozen=True, slots=True)
class Compared:
    """The stated cables that are not there, the cables there that nobody stated, and the moves that mend
    both.
    """

    missing: tuple[tuple[End, End], ...]
    unexpected: tuple[tuple[End, End], ...]
    moves: tuple[str, ...]


def compare(stated: Sequence[tuple[End, End]], found: Sequence[tuple[End, End]]) -> Compared:
    """Compare; a cable is the same whichever of its ends stands first."""
    wanted, there = [frozenset(pair) for pair in stated], [frozenset(pair) for pair in found]
    missing = tuple(pair for pair in stated if frozenset(pair) not in there)
    unexpected = tuple(pair for pair in found if frozenset(pair) not in wanted)
    return Compared(missing, unexpected, tuple(_moves(missing, unexpected)))


def _moves(missing: Sequence[tuple[End, End]], unexpected: Sequence[tuple[End, End]]) -> Iterator[str]:
    """Yield the fewest moves: each swap of two plugs makes at least one stated cable, the last one of a
    circle makes two.
    """
    peer = {a: b for pair in unexpected for a, b in (pair, pair[::-1])}
    for a, b in missing:
        if peer.get(a) == b:
            continue  # an earlier swap made it on the way
        at_a, at_b = peer.get(a), peer.get(b)
        if at_a is not None and at_b is not None:
            # Either pair of plugs may be swapped; equal port names keep the cabling style.
            one, other = (at_a, b) if at_a.port == b.port or a.port != at_b.port else (a, at_b)
            yield (
                f"swap the ends plugged into {other} and {one}"
                if _after(one, other)
                else f"swap the ends plugged into {one} and {other}"
            )
            peer.update({a: b, b: a, at_a: at_b, at_b: at_a})
        elif at_a is None and at_b is None:
            yield f"plug a cable into {a} and {b}"
            peer.update({a: b, b: a})
        else:
            keep, move_to, loose = (a, b, at_a) if at_a is not None else (b, a, at_b)
            assert loose is not None
            yield f"move the end plugged into {loose} to {move_to} (gives {keep} - {move_to})"
            peer.update({keep: move_to, move_to: keep})
            peer.pop(loose, None)


def _after(one: End, other: End) -> bool:
    return (one.node, one.port) > (other.node, other.port)


def table_refusal(compared: Compared) -> FabricPlanError:
    """Return what the table wants and what is there instead, with the moves as the hint."""
    wants = " and ".join(f"{a} - {b}" for a, b in compared.missing)
    shows = " and ".join(f"{a} - {b}" for a, b in compared.unexpected)
    said = [f"the table wants {wants}"] if wants else []
    said += (
        [f"the addresses show {shows}" if wants else f"the addresses show {shows}, which is not in the table"]
        if shows
        else []
    )
    return FabricPlanError(
        ", ".join(said) + ("" if shows else ", the addresses show no such cable"),
        hint="; ".join(compared.moves) or "add the cable to cables.yaml",
        id="table-cables-missing" if compared.missing else "table-cables-unexpected",
    )
