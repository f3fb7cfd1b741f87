"""Questions that compare, discover and verify ask alike of a node's facts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import TypeVar

from fabric_plan.errors import NodeError
from fabric_plan.node.document import Facts, File
from fabric_plan.node.reading import Reading
from fabric_plan.node.records import Gid, Link

T = TypeVar("T")

# How the kernel joins conf.all and conf.<device> (include/linux/inetdevice.h).
_JOINED_BY_MAX = frozenset({"rp_filter", "arp_ignore", "arp_announce", "send_redirects"})
NETPLAN_LAYERS = ("/run/netplan", "/etc/netplan", "/lib/netplan")


def must_read(reading: Reading[T], what: str, *, node: str) -> T:
    """Return a reading's value, or raise `NodeError` with the reason for its absence.

    A value with gaps is returned; a consumer for which a gap matters looks at `reading.unread` itself.
    """
    if reading.value is None:
        reasons = "; ".join(f"{piece.reason} {piece.excerpt}".strip() for piece in reading.unread[:2])
        raise NodeError(f"cannot read {what}: {reasons or 'nothing was said'}", where=node)
    return reading.value


def link_of(
    facts: Facts, *, name: str | None = None, pci: str | None = None, mac: str | None = None
) -> Link | None:
    """Return the one link with this name, PCI address or (permanent) MAC; None when none or several do."""
    links = facts.interfaces.value.links if facts.interfaces.value else ()
    found = [
        link
        for link in links
        if (name is None or name == link.name or name in link.altnames)
        and (pci is None or pci == link.pci)
        and (mac is None or mac == (link.permanent_mac or link.mac))
    ]
    return found[0] if len(found) == 1 else None


def effective_sysctl(facts: Facts, dev: str, name: str) -> int | None:
    """Return the value of ``net.ipv4.conf.<dev>.<name>`` that the kernel acts on; None when it was not read.

    The kernel takes the larger of `all` and the device for rp_filter, arp_ignore, arp_announce and
    send_redirects. accept_redirects is joined by *and* on a device that forwards and by *or* on one that does
    not. Everything else counts for the device alone.
    """

    def read(scope: str, key: str) -> int | None:
        value = facts.sysctls.get(f"net.ipv4.conf.{scope}.{key}")
        return int(value) if value is not None and value.isascii() and value.isdigit() else None

    own, common = read(dev, name), read("all", name)
    if name in _JOINED_BY_MAX:
        return None if own is None or common is None else max(own, common)
    if name == "accept_redirects":
        forwarding = read(dev, "forwarding")
        if own is None or common is None or forwarding is None:
            return None
        return int(own and common) if forwarding else int(own or common)
    return own


def shadowed(files: Mapping[str, File]) -> Mapping[str, File]:
    """Return the netplan definitions in effect, in their order; of one name /run hides /etc hides /lib."""
    winners: dict[str, tuple[int, str]] = {}
    for path in files:
        place = PurePosixPath(path)
        folder = str(place.parent)
        rank = NETPLAN_LAYERS.index(folder) if folder in NETPLAN_LAYERS else len(NETPLAN_LAYERS)
        winners[place.name] = min(winners.get(place.name, (rank, path)), (rank, path))
    return {path: files[path] for _, (_, path) in sorted(winners.items())}


def gid_of(facts: Facts, netdev: str, address: str) -> Gid | None:
    """Return the RoCE v2 GID of an address on a device, None where there is none. Its index drifts; its
    address does not.
    """
    return next(
        (
            gid
            for gid in facts.rdma.gids.value or ()
            if gid.address == address and gid.netdev == netdev and gid.type == "v2"
        ),
        None,
    )
