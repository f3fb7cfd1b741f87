"""The smallest set of plugs to move that makes one ring (or one line) of separate loops and chains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fabric_plan.topology.fabric import End, Fabric

Pair = tuple[End, End]


@dataclass(frozen=True, slots=True)
class Swap:
    """Exchange two plugs; `gives` are the two cables then."""

    one: End
    other: End
    gives: tuple[Pair, Pair]

    def __str__(self) -> str:
        first, second = (f"{a} - {b}" for a, b in self.gives)
        return f"swap the ends plugged into {self.one} and {self.other} (gives {first} and {second})"


@dataclass(frozen=True, slots=True)
class Move:
    """Pull one plug out and put it into a free port; `keeps` is where the cable's other plug stays."""

    plug: End
    to: End
    keeps: End

    def __str__(self) -> str:
        return f"move the end plugged into {self.plug} to {self.to} (gives {self.keeps} - {self.to})"


@dataclass(frozen=True, slots=True)
class Add:
    """Plug in one more cable."""

    one: End
    other: End

    def __str__(self) -> str:
        return f"plug a cable into {self.one} and {self.other}"


Step = Swap | Move | Add


def recabling(fabric: Fabric, *, closed: bool) -> str | None:
    """Say what to move so that all parts become one, a ring where it is to be `closed`; None where nothing
    is to be done.
    """
    return "; ".join(map(str, steps(fabric, closed=closed))) or None


def steps(fabric: Fabric, *, closed: bool) -> tuple[Step, ...]:
    """Return the fewest steps that join all parts of `fabric`.

    A loop has to be opened by one step, and the same step can join it to another part; each chain lacks one
    cable to be a part of a ring. So with chains it is a move for each loop and a cable for each chain (one
    fewer for a line), without any it is one swap fewer than there are loops.
    """
    loops, chains = _parts(fabric)
    if chains:
        return tuple(_chained(loops, chains, closed=closed))
    return tuple(_merged(loops))


@dataclass(frozen=True, slots=True)
class _Chain:
    """A part with two free ports."""

    head: End
    tail: End


def _parts(fabric: Fabric) -> tuple[list[list[Pair]], list[_Chain]]:
    """Return the cables of each closed loop, and each chain by its free ports; both in the order of the
    inventory.
    """
    left: list[Pair] = [(cable.ends[0], cable.ends[1]) for cable in fabric.cables]
    loops: list[list[Pair]] = []
    chains: list[_Chain] = []
    while left:
        part = [left.pop(0)]
        nodes = {end.node for end in part[0]}
        while joined := [pair for pair in left if nodes & {end.node for end in pair}]:
            left = [pair for pair in left if pair not in joined]
            part += joined
            nodes |= {end.node for pair in joined for end in pair}
        used = {end for pair in part for end in pair}
        free = [
            End(node.name, port)
            for node in fabric.nodes
            if node.name in nodes
            for port in list(node.hardware.ports)[:2]
            if End(node.name, port) not in used
        ]
        if len(free) == 2:
            chains.append(_Chain(free[0], free[1]))
        else:
            loops.append(part)
    return loops, chains


def _chained(loops: Sequence[list[Pair]], chains: Sequence[_Chain], *, closed: bool) -> Iterator[Step]:
    head, tail = chains[0].head, chains[0].tail
    for loop in loops:
        keeps, plug = _like(loop, tail)
        yield Move(plug, tail, keeps)
        tail = plug
    for chain in chains[1:]:
        near, far = chain.head, chain.tail
        if near.port == tail.port and far.port != tail.port:
            near, far = far, near  # f0 to f1 wherever that is to be had
        yield Add(tail, near)
        tail = far
    if closed:
        yield Add(tail, head)


def _like(loop: Sequence[Pair], port_of: End) -> Pair:
    """Return a cable of `loop`, its second end on a port called like `port_of`, where there is one."""
    turned = [pair for a, b in reversed(loop) for pair in ((a, b), (b, a))]
    return next((pair for pair in turned if pair[1].port == port_of.port), turned[0])


def _merged(loops: Sequence[list[Pair]]) -> Iterator[Step]:
    merged = loops[0] if loops else []
    for loop in loops[1:]:
        one, other = _alike(merged, loop)
        (a, b), (c, d) = one, other
        made = ((a, d), (c, b))
        yield Swap(b, d, made)
        gone = (set(one), set(other))
        merged = [pair for pair in (*merged, *loop) if set(pair) not in gone] + list(made)


def _alike(first: Sequence[Pair], second: Sequence[Pair]) -> tuple[Pair, Pair]:
    """Return a cable of each, turned so that their second ends are on ports of one name, where that is to
    be had.
    """
    pairs = [(one, other) for one in _turns(first) for other in _turns(second)]
    return next((pair for pair in pairs if pair[0][1].port == pair[1][1].port), pairs[0])


def _turns(loop: Sequence[Pair]) -> Iterator[Pair]:
    for a, b in reversed(loop):
        yield a, b
        yield b, a
