"""Give every plane of a cable a subnet, every cabled function an address (docs/reference/inventory.md)."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from fabric_plan.errors import RefusalError
from fabric_plan.topology.fabric import Cable, Fabric

# How many segments can be numbered from .10 on before a /28 and shorter runs out is checked by `_hosts`.
_FIRST_HOST = 10

Subnets = Mapping[tuple[int, int], IPv4Network]
Addresses = Mapping[tuple[int, int, str], IPv4Interface]


def addressed_planes(fabric: Fabric, cable: Cable) -> tuple[int, ...]:
    """Return the planes in which `cable` has addresses: every managed one, and an unmanaged one where it is
    pinned.
    """
    return tuple(plane for plane in fabric.planes if plane in fabric.managed or plane in cable.pins)


def assign_subnets(fabric: Fabric) -> Subnets:
    """Return the subnet by (cable index, plane).

    The number of a subnet in the pool is 2 x cable index + (plane - 1), so a pin that says what would have
    been chosen changes nothing else. Where a pinned subnet is in the way, the next number that nobody has a
    claim on is
    taken. Raises `RefusalError` where the pool runs out.
    """
    wanted = [(cable, plane) for cable in fabric.cables for plane in addressed_planes(fabric, cable)]
    subnets = {
        (cable.index, plane): cable.pins[plane].subnet for cable, plane in wanted if plane in cable.pins
    }
    pinned = tuple(subnets.values())
    open_ = [(cable, plane) for cable, plane in wanted if plane not in cable.pins]
    claimed = {_number(cable, plane) for cable, plane in open_}
    room = 1 << max(0, fabric.prefix - fabric.pool.prefixlen)
    displaced = []
    for cable, plane in open_:
        number = _number(cable, plane)
        if number < room and not _overlaps(_subnet(fabric, number), pinned):
            subnets[cable.index, plane] = _subnet(fabric, number)
        else:
            displaced.append((cable, plane))
    for cable, plane in displaced:
        number = _number(cable, plane)
        while number < room and (number in claimed or _overlaps(_subnet(fabric, number), pinned)):
            number += 1
        if number >= room:
            raise RefusalError(
                f"the pool {fabric.pool} holds {room} subnets of /{fabric.prefix}: none is left for "
                f"plane {plane} of {cable}",
                hint="take a larger addressing.pool or a longer addressing.prefix",
                id="pool-exhausted",
            )
        claimed.add(number)
        subnets[cable.index, plane] = _subnet(fabric, number)
    return dict(sorted(subnets.items()))


def _number(cable: Cable, plane: int) -> int:
    return 2 * cable.index + plane - 1


def _subnet(fabric: Fabric, number: int) -> IPv4Network:
    size = 1 << (32 - fabric.prefix)
    return IPv4Network((int(fabric.pool.network_address) + number * size, fabric.prefix))


def _overlaps(subnet: IPv4Network, others: tuple[IPv4Network, ...]) -> bool:
    return any(subnet.overlaps(other) for other in others)


def assign_addresses(fabric: Fabric, subnets: Subnets) -> Addresses:
    """Return the address with its prefix by (cable index, plane, node name). Raises `RefusalError` where a
    rail is too small.
    """
    out: dict[tuple[int, int, str], IPv4Interface] = {}
    for cable in fabric.cables:
        for plane in addressed_planes(fabric, cable):
            subnet = subnets[cable.index, plane]
            pin = cable.pins.get(plane)
            hosts = pin.addresses if pin and pin.addresses else _hosts(cable, subnet)
            for end, host in zip(cable.ends, hosts, strict=True):
                out[cable.index, plane, end.node] = IPv4Interface((host, subnet.prefixlen))
    return out


def _hosts(cable: Cable, subnet: IPv4Network) -> tuple[IPv4Address, ...]:
    first = 0 if subnet.prefixlen == 31 else 1 if subnet.prefixlen >= 29 else _FIRST_HOST
    room = subnet.num_addresses - first - (0 if subnet.prefixlen == 31 else 1)
    if room < len(cable.ends):
        raise RefusalError(
            f"{cable}: {subnet} has no room for {len(cable.ends)} ends from .{first} on",
            hint="take a shorter prefix",
            id="subnet-too-small",
        )
    return tuple(subnet.network_address + first + i for i in range(len(cable.ends)))
