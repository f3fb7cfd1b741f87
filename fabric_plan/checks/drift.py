"""What changed between two looks at a fabric. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fabric_plan.checks.counters import forwarded, overflow, sent_best, sequence
from fabric_plan.checks.model import Check, Verification
from fabric_plan.checks.scene import Scene
from fabric_plan.facts.questions import gid_of

# A plane is silent when it sent less than this share of what its twin did, and that was traffic at all.
SILENT_SHARE = 0.02
TRAFFIC_BYTES = 10_000_000


class What(StrEnum):
    """The kinds of events."""

    FINDING = "finding"
    MENDED = "mended"
    GID_MOVED = "gid-moved"
    DROPS = "drops"
    FORWARDED = "forwarded"
    PLANE_SILENT = "plane-silent"
    REBOOT = "reboot"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that changed on a node; `text` says it for people, `id` is the check's where it is one."""

    what: What
    node: str
    interface: str | None
    text: str
    id: str | None = None

    def document(self) -> dict[str, Any]:
        """Return the event as JSON."""
        return {
            "event": str(self.what),
            "node": self.node,
            "interface": self.interface,
            "id": self.id,
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class Look:
    """One look: the scene and what was made of it."""

    scene: Scene
    verification: Verification


def drift(before: Look | None, now: Look) -> Iterator[Event]:
    """Yield what changed since the look before; at the first look every finding is new."""
    yield from _findings(before, now)
    if before is None:
        return
    for node, functions in now.scene.known.items():
        old, new = before.scene.facts.get(node), now.scene.facts.get(node)
        if old is None or new is None:
            continue
        if old.host.boot_id != new.host.boot_id:
            yield Event(What.REBOOT, node, None, f"booted again: {new.host.boot_id}")
            continue
        for function in functions:
            if function.address is None:
                continue
            address = function.address.partition("/")[0]
            one, two = gid_of(old, function.netdev, address), gid_of(new, function.netdev, address)
            if one and two and one.index != two.index:
                text = f"the GID of {address} moved from index {one.index} to {two.index}"
                yield Event(What.GID_MOVED, node, function.netdev, text)
            for name, rise in (
                ("rx_out_of_buffer", _rise(overflow(old, function.netdev), overflow(new, function.netdev))),
                ("out of sequence", _rise(sequence(old, function.rdma), sequence(new, function.rdma))),
            ):
                if rise:
                    yield Event(What.DROPS, node, function.netdev, f"{name} rose by {rise}")
        yield from _planes(before, now, node)
        if now.scene.desired[node].rules and (rise := _rise(forwarded(old), forwarded(new))):
            text = f"the kernel forwarded {rise} packets; honest TCP to far nodes does that too"
            yield Event(What.FORWARDED, node, None, text)


def _findings(before: Look | None, now: Look) -> Iterator[Event]:
    def keyed(look: Look | None) -> dict[tuple[str, str, str | None, str], Check]:
        roots = look.verification.roots if look else ()
        return {(r.check.id, r.check.node, r.check.interface, r.check.subject): r.check for r in roots}

    old, new = keyed(before), keyed(now)
    for place, check in new.items():
        if place not in old or old[place].read != check.read:
            text = f"{check.verdict}: {check.place}: {check.read} (expected {check.expected})"
            yield Event(What.FINDING, check.node, check.interface, text, check.id)
    for place, check in old.items():
        if place not in new:
            yield Event(What.MENDED, check.node, check.interface, f"{check.place}: mended", check.id)


def _rise(before: int | None, after: int | None) -> int:
    return 0 if before is None or after is None or after < before else after - before


def _planes(before: Look, now: Look, node: str) -> Iterator[Event]:
    moved: dict[int, int] = {}
    for function in now.scene.known[node]:
        if function.address is not None:
            rise = _rise(
                sent_best(before.scene.facts[node], function), sent_best(now.scene.facts[node], function)
            )
            moved[function.plane] = moved.get(function.plane, 0) + rise
    total = sum(moved.values())
    for plane, bytes_ in sorted(moved.items()) if len(moved) > 1 and total >= TRAFFIC_BYTES else ():
        if bytes_ < SILENT_SHARE * total:
            yield Event(What.PLANE_SILENT, node, None, f"plane {plane} sent {bytes_} of {total} bytes")
