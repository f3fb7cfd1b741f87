"""What needs two facts of an inventory at once: cables that name no node, subnets that overlap, names used
twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from ipaddress import ip_address

from fabric_plan.inventory.parts import Problem, node_hardware, segments, split_end, suggest
from fabric_plan.inventory.schema import (
    Inventory,
    MeshPaths,
    NodeEntry,
)
from fabric_plan.inventory.source import Path
from fabric_plan.inventory.subnets import check_planes, check_pool, check_subnets
from fabric_plan.roles import Hardware, Hardwares


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
    check_planes,
    check_subnets,
    check_pool,
    _mesh,
)


def check(inventory: Inventory, roles: Hardwares) -> list[Problem]:
    """Return every problem of an inventory whose single fields are sound."""
    return [problem for one in _CHECKS for problem in one(inventory, roles)]
