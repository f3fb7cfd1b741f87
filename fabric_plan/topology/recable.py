"""The smallest set of moved cable ends that would make one ring of separate loops and chains."""

from __future__ import annotations

from fabric_plan.topology.fabric import Cable, End, Fabric


def recabling(fabric: Fabric) -> str | None:
    """Say which ends to swap so that separate loops become one ring; None where a swap cannot do it.

    Swapping one end of a cable in one loop with the end *of the same port name* in another merges the two
    loops, so loops are merged one after the other: one swap fewer than there are loops is the least that can
    do it.
    """
    loops = _loops(fabric)
    if loops is None or len(loops) < 2:
        return None
    swaps: list[str] = []
    merged = loops[0]
    for loop in loops[1:]:
        pair = _swap(merged, loop)
        if pair is None:
            return None
        (a, b), (new_a, new_b) = pair
        swaps.append(f"swap the ends plugged into {a} and {b} (gives {new_a} and {new_b})")
        merged = merged + loop
    return "; ".join(swaps)


def _loops(fabric: Fabric) -> list[list[Cable]] | None:
    """Return the cables of each closed loop, or None where some part is not a closed loop."""
    left = list(fabric.cables)
    loops: list[list[Cable]] = []
    while left:
        loop = [left.pop(0)]
        nodes = {end.node for end in loop[0].ends}
        grown = True
        while grown:
            grown = False
            for cable in list(left):
                if nodes & {end.node for end in cable.ends}:
                    left.remove(cable)
                    loop.append(cable)
                    nodes |= {end.node for end in cable.ends}
                    grown = True
        if len(loop) != len(nodes):
            return None
        loops.append(loop)
    return loops


def _swap(first: list[Cable], second: list[Cable]) -> tuple[tuple[End, End], tuple[str, str]] | None:
    for one in reversed(first):
        for other in reversed(second):
            for i in (1, 0):
                for j in (1, 0):
                    a, b = one.ends[i], other.ends[j]
                    if a.port == b.port:
                        return (a, b), (f"{one.ends[1 - i]} - {b}", f"{other.ends[1 - j]} - {a}")
    one, other = first[-1], second[-1]
    a, b = one.ends[1], other.ends[1]
    return (a, b), (f"{one.ends[0]} - {b}", f"{other.ends[0]} - {a}")
