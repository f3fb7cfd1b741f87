"""A rendered plan, and how it gets onto nodes of the lab without the tool's own apply."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import host
from lab.driver import Lab

MESH = "fabric-plan-mesh.service"
UNITS = ("fabric-plan-recover", "fabric-plan-hairpin", "fabric-plan-forward", "fabric-plan-mesh")
# The lab's stand-in is in the image; a node of its own would have the marker from `make marker`.
LIBRARY = "/usr/local/lib/fabric-plan"


@dataclass(frozen=True, slots=True)
class Path2:
    """An RDMA path over one relay: from `source` on `device` to `far` on `far_device`, through `relay`."""

    source: str
    device: str
    far: str
    far_device: str
    far_address: str
    relay: str
    plane: int


@dataclass(frozen=True, slots=True)
class Plan:
    """plan.json and the tree that it stands in."""

    tree: Path
    document: dict[str, Any]

    @staticmethod
    def read(tree: Path) -> Plan:
        """Read a rendered tree."""
        return Plan(tree, json.loads((tree / "plan.json").read_text()))

    @property
    def planned(self) -> str:
        """The name of the lab's kept state in which nodes have booted with the rendered files."""
        return f"planned-{self._digest()[:12]}"

    @property
    def applied(self) -> str:
        """The name of the lab's kept state in which an `apply` has brought factory nodes to the plan."""
        return f"applied-{self._digest()[:12]}"

    def keep_applied(self, lab: Lab) -> None:
        """Keep the nodes as `apply` has just left them. Ends them."""
        with host.stage("nodes settle"):
            self.wait_all_settled(lab)
        lab.save(self.applied)

    def _digest(self) -> str:
        """A hash of every rendered file."""
        h = hashlib.sha256()
        for path in sorted(self.tree.rglob("*")):
            if path.is_file():
                h.update(f"{path.relative_to(self.tree)}\0".encode() + path.read_bytes())
        return h.hexdigest()

    def node(self, name: str) -> dict[str, Any]:
        """A node's part."""
        found: dict[str, Any] = self.document["nodes"][name]
        return found

    def markers(self, name: str) -> list[str]:
        """The RDMA devices of a node that have a marker."""
        return [marker["rdma"] for marker in self.node(name)["markers"]]

    def address(self, name: str, netdev: str) -> str:
        """The address of a function, without its prefix length."""
        return next(
            str(f["address"]).partition("/")[0] for f in self.node(name)["functions"] if f["netdev"] == netdev
        )

    def paths(self) -> Iterator[Path2]:
        """Every path to a far node."""
        for name, node in self.document["nodes"].items():
            by_netdev = {f["netdev"]: f for f in node["functions"]}
            for route in node["relay_routes"]:
                to = route["to"].partition("/")[0]
                far = next(
                    f
                    for f in self.node(route["peer"])["functions"]
                    if str(f["address"]).partition("/")[0] == to
                )
                near = by_netdev[route["dev"]]
                (relay,) = route["through"]
                yield Path2(name, near["rdma"], route["peer"], far["rdma"], to, relay, near["plane"])

    def meet(self, lab: Lab, name: str) -> None:
        """Let a node resolve the far end of each of its cables: who looks at cabling wants to have heard
        them.
        """
        far = [
            self.address(theirs.name, function.netdev)
            for ours, _, theirs, function in lab.spec.links()
            if ours.name == name
        ]
        pings = [f"ping -n -q -c 1 -W 20 {address} >/dev/null" for address in far]
        lab.ssh(name, " && ".join(pings) or "true")

    def wait_all_settled(self, lab: Lab) -> None:
        """Wait until every node's mesh is up or has failed, and neighbours have heard of each other."""
        lab.each(lambda name: self.wait_settled(lab, name))
        lab.each(lambda name: self.meet(lab, name))

    def put(self, lab: Lab, name: str) -> None:
        """Put a node's files on it and enable its units, as a person would by hand."""
        lab.put_tree(name, self.tree / name)
        units = [*UNITS, *(f"fabric-plan-marker@{device}" for device in self.markers(name))]
        lab.ssh(name, f"systemctl daemon-reload && systemctl enable -q {' '.join(units)}")

    def wait_settled(self, lab: Lab, name: str) -> None:
        """Wait until the mesh and its markers came to an end of their start, good or bad."""
        units = [MESH, *(f"fabric-plan-marker@{device}.service" for device in self.markers(name))]
        ended = f"systemctl show -P ActiveState {' '.join(units)} | grep -cE '^(active|failed)$'"
        lab.wait(name, "the mesh to settle", f'test "$({ended})" = {len(units)}', seconds=600)
