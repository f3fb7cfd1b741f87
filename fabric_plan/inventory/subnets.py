"""Planes, subnets and addresses: what overlaps, what lies in a range that fails, what no host can carry."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network

from fabric_plan.inventory.parts import Problem, segments
from fabric_plan.inventory.schema import CableEntry, Inventory, PlaneEntry, RailEntry
from fabric_plan.inventory.source import Path
from fabric_plan.roles import Hardwares

# Ranges that work on paper and fail on real networks (docs/fabric.md 3).
_BAD_RANGES = (
    (IPv4Network("169.254.0.0/16"), "link-local addresses are one subnet on every port of a host"),
    (IPv4Network("127.0.0.0/8"), "loopback addresses never leave a host"),
    (IPv4Network("224.0.0.0/4"), "multicast addresses belong to no interface"),
    (IPv4Network("240.0.0.0/4"), "these addresses are reserved"),
    (IPv4Network("0.0.0.0/8"), "these addresses mean `this network`"),
)
_FAKE_DNS = IPv4Network("198.18.0.0/15")


def check_planes(inventory: Inventory, roles: Hardwares) -> Iterator[Problem]:
    if not inventory.planes:
        yield Problem(
            ("planes",),
            "no-planes",
            "planes: is empty",
            "write {1: managed} for one plane, or leave it out for both",
        )
    elif 1 not in inventory.planes:
        yield Problem(
            ("planes",),
            "no-plane-1",
            "plane 1 is missing",
            "plane 2 alone is called plane 1: swap the functions, or add plane 1",
        )
    for base, label, segment in segments(inventory):
        for j, entry in enumerate(segment.planes or []):
            path: Path = (*base, "planes", j)
            if j + 1 not in inventory.planes:
                yield Problem(
                    path,
                    "plane-not-declared",
                    f"{label} gives plane {j + 1} a subnet, but planes: has no plane {j + 1}",
                )
                continue
            yield from _pinned_addresses(path, label, segment, entry)


def _pinned_addresses(
    path: Path, label: str, segment: CableEntry | RailEntry, entry: PlaneEntry
) -> Iterator[Problem]:
    if entry.addresses is None:
        return
    if entry.subnet is None:
        yield Problem(
            (*path, "addresses"),
            "addresses-without-subnet",
            f"{label} pins addresses without a subnet",
            "write subnet: beside them",
        )
        return
    if len(entry.addresses) != len(segment.ends):
        yield Problem(
            (*path, "addresses"),
            "address-count",
            f"{label} pins {len(entry.addresses)} addresses for {len(segment.ends)} ends",
        )
        return
    for k, address in enumerate(entry.addresses):
        if not usable(address, entry.subnet):
            yield Problem(
                (*path, "addresses", k),
                "address-outside-subnet",
                f"{label}: {address} is not a host address of {entry.subnet}",
            )
    if len(set(entry.addresses)) != len(entry.addresses):
        yield Problem((*path, "addresses"), "duplicate-address", f"{label} gives both ends the same address")


def usable(address: IPv4Address, subnet: IPv4Network) -> bool:
    """Tell whether a host may carry `address` in `subnet`: both addresses of a /31, else neither network nor
    broadcast.
    """
    if address not in subnet:
        return False
    return subnet.prefixlen >= 31 or address not in (subnet.network_address, subnet.broadcast_address)


def check_subnets(inventory: Inventory, roles: Hardwares) -> Iterator[Problem]:
    pinned: list[tuple[Path, str, int, str, IPv4Network, list[IPv4Address] | None]] = []
    for base, label, segment in segments(inventory):
        words = f"cable {' - '.join(segment.ends)}" if isinstance(segment, CableEntry) else label
        for j, entry in enumerate(segment.planes or []):
            if entry.subnet is not None:
                pinned.append(
                    ((*base, "planes", j, "subnet"), words, j + 1, label, entry.subnet, entry.addresses)
                )
    for path, words, plane, label, subnet, addresses in pinned:
        yield from _range(path, f"{words} plane {plane}", subnet, inventory)
        for other_path, other_words, other_plane, other_label, other, other_addresses in pinned:
            if (other_label, other_plane) >= (label, plane) or not subnet.overlaps(other):
                continue
            if label == other_label and subnet == other and addresses and other_addresses:
                # Both functions of one port in one subnet: legal where the addresses differ; the planner
                # warns.
                for address in sorted(set(addresses) & set(other_addresses)):
                    yield Problem(
                        path,
                        "duplicate-address",
                        f"{words}: {address} stands on plane {other_plane} and on plane {plane}",
                    )
                continue
            place = words if label == other_label else f"{other_words} and {words}"
            if subnet == other:
                what = f"plane {other_plane} and plane {plane} share the subnet {subnet} on {place}"
            else:
                big, small = (other, subnet) if other.prefixlen < subnet.prefixlen else (subnet, other)
                planes = {id(other): other_plane, id(subnet): plane}
                what = (
                    f"plane {planes[id(big)]} {big} contains plane {planes[id(small)]} {small} on "
                    f"{place}: overlapping subnets"
                )
                path = other_path if big is other else path
            yield Problem(
                path, "overlapping-subnets", what, "give every plane of every cable a subnet of its own"
            )


def _range(path: Path, words: str, subnet: IPv4Network, inventory: Inventory) -> Iterator[Problem]:
    for bad, why in _BAD_RANGES:
        if subnet.overlaps(bad):
            yield Problem(
                path,
                "unusable-range",
                f"{words}: {subnet} lies in {bad}: {why}",
                "use a private range, for example 10.10.0.0/16",
            )
    if subnet.overlaps(_FAKE_DNS):
        yield Problem(
            path,
            "fake-dns-range",
            f"{words}: {subnet} lies in {_FAKE_DNS}, where local proxies answer with fake DNS addresses",
            "use a private range if a proxy runs on the nodes",
            refuse=False,
        )
    for node in inventory.nodes:
        if node.mgmt and node.mgmt.replace(".", "").isdigit() and IPv4Address(node.mgmt) in subnet:
            yield Problem(
                path,
                "management-in-fabric",
                f"{words}: {subnet} contains the management address {node.mgmt} of {node.name}",
                "keep the fabric's subnets apart from the management network",
            )


def check_pool(inventory: Inventory, roles: Hardwares) -> Iterator[Problem]:
    pool, prefix = inventory.addressing.pool, inventory.addressing.prefix
    if prefix < pool.prefixlen:
        yield Problem(
            ("addressing", "prefix"),
            "pool-too-small",
            f"the pool {pool} has no room for a /{prefix}",
            "take a longer prefix or a larger pool",
        )
    yield from _range(("addressing", "pool"), "the address pool", pool, inventory)
