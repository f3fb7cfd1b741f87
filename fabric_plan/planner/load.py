"""What relayed traffic puts on cables and queues, and how large messages may be (docs/fabric.md 5, 6)."""

from __future__ import annotations

from collections import Counter

from fabric_plan.planner.model import CableLoad, Load, Path, QueueLoad
from fabric_plan.topology.fabric import Fabric

# A hairpin queue entry holds 64 bytes; a queue is planned to three quarters, the rest is for what else is in
# flight.
ENTRY_BYTES = 64
FILL = 0.75

# Measured on a four-ring: at 8192 entries bursts of 480 KB are clean, below that messages over about 100 KB
# overflow.
CAP_FULL_QUEUE = 262144
CAP_SMALL_QUEUE = 81920
FULL_QUEUE = 8192


def size_cap(queue_size: int, bound: int) -> int:
    """Return the RoCE size cap, bytes, for queues of `queue_size` entries, at most `bound` a peer."""
    return min(CAP_FULL_QUEUE if queue_size >= FULL_QUEUE else CAP_SMALL_QUEUE, bound)


def queue_bound(queue_size: int, busiest: float) -> int:
    """Return how many bytes a peer may send at once so that the fullest queue, at `busiest` messages, stays
    within its share.
    """
    return int(queue_size * ENTRY_BYTES * FILL / busiest)


def load_of(fabric: Fabric, paths: tuple[Path, ...]) -> Load:
    """Return the load of the relayed `paths`. A message to a peer is split over its planes, so a path carries
    that share.
    """
    on_cable: Counter[tuple[int, int]] = Counter()
    in_queue: Counter[tuple[int, str, int, str, str]] = Counter()
    for path in paths:
        if path.direct:
            continue
        for cable in path.cables:
            on_cable[cable.index, path.plane] += 1
        for i, relay in enumerate(path.through):
            node = fabric.node(relay)
            ingress = node.function(path.cables[i].end(relay).port, path.plane)
            egress = node.function(path.cables[i + 1].end(relay).port, path.plane)
            in_queue[node.rank, relay, path.plane, ingress.netdev, egress.netdev] += 1
    queues = tuple(
        QueueLoad(relay, dev, redirect, plane, count)
        for (_, relay, plane, dev, redirect), count in sorted(in_queue.items())
    )
    cables = tuple(
        CableLoad(cable, plane, on_cable[cable.index, plane])
        for cable in fabric.cables
        for plane in fabric.managed
    )
    busiest = max(in_queue.values(), default=0) / len(fabric.managed) if in_queue else 0.0
    if not busiest:
        return Load(cables, queues, 0.0, None, None)
    bound = queue_bound(fabric.hairpin.queue_size, busiest)
    return Load(cables, queues, busiest, bound, size_cap(fabric.hairpin.queue_size, bound))
