"""The shape of a fabric: which kind it is, and the walk along its cables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fabric_plan.inventory.schema import TopologyKind
from fabric_plan.topology.fabric import Cable, End


@dataclass(frozen=True, slots=True)
class Hop:
    """One cable crossed in one direction: out of `out`, into `into`."""

    cable: Cable
    out: End
    into: End


@dataclass(frozen=True, slots=True)
class Topology:
    """The walk: `cables[i]` joins `order[i]` and `order[i + 1]`, and the last one closes a ring.

    A switched fabric has no walk: its order is the inventory's and `cables` is empty. A pair's two cables are
    both in `cables`, the first one being its walk.
    """

    kind: TopologyKind
    order: tuple[str, ...]
    cables: tuple[Cable, ...]

    @property
    def closed(self) -> bool:
        """True where the walk comes back to where it began."""
        return self.kind in (TopologyKind.RING, TopologyKind.TRIANGLE)

    def position(self, node: str) -> int:
        """Return the position of `node` in the walk, from 0."""
        return self.order.index(node)

    def hop(self, position: int, direction: int) -> Hop | None:
        """Return the hop from `position` forward (+1) or backward (-1); None past the end of a line."""
        count = len(self.order)
        target = position + direction
        if not self.closed and not 0 <= target < count:
            return None
        cable = self.cables[(position if direction > 0 else target) % count]
        here, there = self.order[position % count], self.order[target % count]
        return Hop(cable, cable.end(here), cable.end(there))

    def walk(self, start: int, direction: int) -> Iterator[Hop]:
        """Yield the hops from position `start` on: once round a ring, or to the end of a line."""
        position = start
        for _ in range(len(self.order)):
            hop = self.hop(position, direction)
            if hop is None:
                return
            yield hop
            position = (position + direction) % len(self.order)
