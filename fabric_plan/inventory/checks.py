"""What needs two facts of an inventory at once: cables that name no node, subnets that overlap, names used
twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from ipaddress import IPv4Address, IPv4Network, ip_address

from fabric_plan.inventory.schema import (
    END,
    CableEntry,
    Inventory,
    MeshPaths,
    NodeEntry,
    PlaneEntry,
    RailEntry,
)
from fabric_plan.inventory.source import Path
from fabric_plan.roles import Hardware, Hardwares

# Ranges that work on paper and fail on real networks (docs/fabric.md 3).
_BAD_RANGES = (
    (IPv4Network("169.254.0.0/16"), "link-local addresses are one subnet on every port of a host"),
    (IPv4Network("127.0.0.0/8"), "loopback addresses never leave a host"),
    (IPv4Network("224.0.0.0/4"), "multicast addresses belong to no interface"),
    (IPv4Network("240.0.0.0/4"), "these addresses are reserved"),
    (IPv4Network("0.0.0.0/8"), "these addresses mean `this network`"),
)
_FAKE_DNS = IPv4Network("198.18.0.0/15")


@dataclass(frozen=True, slots=True)
class Problem:
    """A finding with its place as a path into the inventory; `key` points at the key instead of the value."""

    path: Path
    id: str
    message: str
    hint: str | None = None
    key: bool = False
    refuse: bool = True


def suggest(word: str, choices: Iterable[str]) -> str | None:
    """Return the choice that `word` is most likely a misspelling of."""
    found = get_close_matches(word, list(choices), n=1, cutoff=0.6)
    return found[0] if found else None


def segments(inventory: Inventory) -> Iterator[tuple[Path, str, CableEntry | RailEntry]]:
    """Yield every cable and rail with its path and the words a message uses for it."""
    for i, cable in enumerate(inventory.cables):
        yield ("cables", i), f"cables[{i}]", cable
    for i, rail in enumerate(inventory.rails):
        yield ("rails", i), f"rail {rail.name}", rail


def split_end(end: str) -> tuple[str, str]:
    """Split ``node.port``; the schema has seen to it that it is one."""
    match = END.fullmatch(end)
    assert match is not None
    return match["node"], match["port"]


def node_hardware(inventory: Inventory, roles: Hardwares, name: str) -> Hardware | None:
    """Return the hardware role of a node, None where node or role are unknown."""
    for node in inventory.nodes:
        if node.name == name:
            return roles.get(node.hardware or inventory.hardware)
    return None


def _hardware(inventory: Inventory, roles: Hardwares) -> Iterator[Problem]:
    named: list[tuple[Path, str]] = [(("hardware",), inventory.hardware)]
    named += [
        (("nodes", i, "hardware"), node.hardware) for i, node in enumerate(inventory.nodes) if node.hardware
    ]
    for path, role in named:
        if role not in roles:
            close = suggest(role, roles)
            hint = f"did you mean `{close}`?" if close else f"known: {', '.join(sorted(roles))}"
            yield Problem(path, "unknown-hardware", f"unknown hardware role `{role}`", hint)


def _twice(inventory: Inventory, roles: Hardwares) -> Iterator[Problem]:
    seen: dict[str, dict[str, Path]] = defaultdict(dict)

    def claim(kind: str, value: str | None, path: Path, whose: str) -> Iterator[Problem]:
        if value is None:
            return
        if value in seen[kind]:
            yield Problem(
                path,
                f"duplicate-{kind.split()[0]}",
                f"{whose}: {kind} `{value}` is used twice",
                "each one stands once",
            )
        seen[kind].setdefault(value, path)

    for i, node in enumerate(inventory.nodes):
        base: Path = ("nodes", i)
        yield from claim("node name", node.name, (*base, "name"), node.name)
        yield from claim("management address", _reached_at(node), (*base, "mgmt"), node.name)
        for port, functions in node.ports.items():
            for j, function in enumerate(functions):
                here: Path = (*base, "ports", port, j)
                whose = f"{node.name} ports.{port}"
                yield from claim("mac", function.mac, (*here, "mac"), whose)
                for kind, value in (
                    ("netdev", function.netdev),
                    ("rdma", function.rdma),
                    ("pci", function.pci),
                ):
                    yield from claim(f"{kind} of {node.name}", value, (*here, kind), whose)


def _reached_at(node: NodeEntry) -> str | None:
    """Return what has to differ between nodes: the management address, on loopback together with the SSH port
    (servers side by side on this machine, or tunnels).
    """
    if node.mgmt is not None and node.ssh.port is not None and _is_loopback(node.mgmt):
        return f"{node.mgmt} port {node.ssh.port}"
    return node.mgmt


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def _node_ports(inventory: Inventory, roles: Hardwares) -> Iterator[Problem]:
    for i, node in enumerate(inventory.nodes):
        hardware = node_hardware(inventory, roles, node.name)
        if hardware is None:
            continue
        for port, functions in node.ports.items():
            path: Path = ("nodes", i, "ports", port)
            if port not in hardware.ports:
                yield _no_port(path, node.name, port, hardware, key=True)
                continue
            known = len(hardware.ports[port].functions)
            if not 1 <= len(functions) <= known:
                yield Problem(
                    path,
                    "function-count",
                    f"{node.name} ports.{port} lists {len(functions)} functions; the hardware has "
                    f"{known}, one a plane",
                )


def _no_port(path: Path, node: str, port: str, hardware: Hardware, *, key: bool = False) -> Problem:
    ports = " and ".join(hardware.ports)
    meant = hardware.port_named(port)
    spellings = ", ".join("/".join(p.spellings[:2]) for p in hardware.ports.values())
    hint = (
        f"`{port}` is called {meant} here"
        if meant
        else f"the ports are {ports} (elsewhere also written {spellings})"
    )
    return Problem(path, "unknown-port", f"{node} has no port {port} (ports are {ports})", hint, key=key)


def _ends(inventory: Inventory, roles: Hardwares) -> Iterator[Problem]:
    names = [node.name for node in inventory.nodes]
    taken: dict[str, str] = {}
    for base, label, segment in segments(inventory):
        nodes_here: list[str] = []
        for j, end in enumerate(segment.ends):
            path: Path = (*base, "ends", j)
            node, port = split_end(end)
            if node not in names:
                close = suggest(node, names)
                hint = (
                    f"did you mean `{close}`?"
                    if close
                    else "every end is a node of nodes: and one of its ports"
                )
                yield Problem(
                    path,
                    "unknown-node",
                    f"{label} names node {node}, which is not in nodes ({', '.join(names)})",
                    hint,
                )
                continue
            nodes_here.append(node)
            hardware = node_hardware(inventory, roles, node)
            if hardware is not None and port not in hardware.ports:
                yield _no_port(path, node, port, hardware)
                continue
            if end in taken:
                yield Problem(
                    path,
                    "port-used-twice",
                    f"{label} plugs into {node} {port}, where {taken[end]} already is",
                    "one cable a port",
                )
            taken.setdefault(end, label)
        for node in sorted({n for n in nodes_here if nodes_here.count(n) > 1}):
            ports = " - ".join(split_end(e)[1] for e in segment.ends if split_end(e)[0] == node)
            yield Problem(
                (*base, "ends"),
                "self-cable",
                f"{label} joins {node} to itself ({ports})",
                "a cable joins two nodes; twins of one port loop on the chip",
            )


def _cabled(inventory: Inventory, roles: Hardwares) -> Iterator[Problem]:
    if not inventory.cables and not inventory.rails:
        yield Problem(
            ("cables",),
            "no-cables",
            "there are no cables",
            "list them under cables: as `ends: [node.port, node.port]`",
        )
        return
    used = {split_end(end)[0] for _, _, segment in segments(inventory) for end in segment.ends}
    for i, node in enumerate(inventory.nodes):
        if node.name not in used:
            yield Problem(
                ("nodes", i, "name"),
                "node-without-cable",
                f"node {node.name} has no cable",
                "add its cable, or take the node out",
            )


def _planes(inventory: Inventory, roles: Hardwares) -> Iterator[Problem]:
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


def _subnets(inventory: Inventory, roles: Hardwares) -> Iterator[Problem]:
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


def _pool(inventory: Inventory, roles: Hardwares) -> Iterator[Problem]:
    pool, prefix = inventory.addressing.pool, inventory.addressing.prefix
    if prefix < pool.prefixlen:
        yield Problem(
            ("addressing", "prefix"),
            "pool-too-small",
            f"the pool {pool} has no room for a /{prefix}",
            "take a longer prefix or a larger pool",
        )
    yield from _range(("addressing", "pool"), "the address pool", pool, inventory)


def _mesh(inventory: Inventory, roles: Hardwares) -> Iterator[Problem]:
    if inventory.mesh.paths is MeshPaths.OFF:
        return
    wanted = max(inventory.planes, default=1)
    used = {end for _, _, segment in segments(inventory) for end in segment.ends}
    for i, node in enumerate(inventory.nodes):
        hardware = node_hardware(inventory, roles, node.name)
        for port in hardware.ports if hardware else ():
            if f"{node.name}.{port}" not in used:
                continue
            macs = [function.mac for function in node.ports.get(port, [])]
            missing = [
                p
                for p in range(1, wanted + 1)
                if p in inventory.planes and (len(macs) < p or macs[p - 1] is None)
            ]
            if missing:
                planes = " and ".join(str(p) for p in missing)
                yield Problem(
                    ("nodes", i),
                    "mesh-needs-macs",
                    f"{node.name} {port}: the MAC of plane {planes} is missing, and a mesh rewrites MACs",
                    "`ip -br link` on the node shows it; `fabric-plan discover` fills all of them in",
                )
    marker = inventory.mesh.marker
    if marker.path and not marker.sha256:
        yield Problem(
            ("mesh", "marker"),
            "marker-without-digest",
            "mesh.marker.path needs sha256 beside it",
            "`sha256sum FILE` prints it",
        )


_CHECKS: tuple[Callable[[Inventory, Hardwares], Iterator[Problem]], ...] = (
    _hardware,
    _twice,
    _node_ports,
    _ends,
    _cabled,
    _planes,
    _subnets,
    _pool,
    _mesh,
)


def check(inventory: Inventory, roles: Hardwares) -> list[Problem]:
    """Return every problem of an inventory whose single fields are sound."""
    return [problem for one in _CHECKS for problem in one(inventory, roles)]
