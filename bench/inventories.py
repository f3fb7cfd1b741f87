"""Inventories of any size, for benchmarks."""

from __future__ import annotations

from typing import Any


def ring(nodes: int, mesh: str) -> dict[str, Any]:
    """Return an inventory of a ring of `nodes`, every f0 to the next node's f1."""

    def mac(node: int, function: int) -> dict[str, str]:
        return {"mac": f"4c:bb:47:{node:02x}:00:{function:02x}"}

    names = [f"spark{i + 1}" for i in range(nodes)]
    return {
        "topology": "ring",
        "mesh": {"paths": mesh},
        "nodes": [
            {
                "name": name,
                "mgmt": f"192.168.1.{i + 10}",
                "ports": {"f0": [mac(i, 1), mac(i, 5)], "f1": [mac(i, 2), mac(i, 6)]},
            }
            for i, name in enumerate(names)
        ],
        "cables": [{"ends": [f"{name}.f0", f"{names[(i + 1) % nodes]}.f1"]} for i, name in enumerate(names)],
    }
