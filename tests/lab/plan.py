"""A rendered plan, and how it gets onto nodes of the lab without the tool's own apply."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fabric_plan
from lab import host
from lab.driver import Lab

MESH = "fabric-plan-mesh.service"
HAIRPIN = "fabric-plan-hairpin.service"
# Has nothing to do, and so is not active, unless an apply was cut off.
RECOVER = "fabric-plan-recover.service"
# The lab's stand-in is in the image; a node of its own would have the marker from `make marker`.
LIBRARY = "/usr/local/lib/fabric-plan"
# What has a part in how an apply goes.
PRODUCT = Path(fabric_plan.__file__).parent


def _digest(*trees: Path) -> str:
    """A short hash of every file in some directories."""
    h = hashlib.sha256()
    for tree in trees:
        for path in sorted(tree.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                h.update(f"{path.relative_to(tree)}\0".encode() + path.read_bytes())
    return h.hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class RdmaPath:
    """An RDMA path: from `source` on `device` to `far` on `far_device`, through `relays` or none."""

    source: str
    device: str
    far: str
    far_device: str
    far_address: str
    relays: tuple[str, ...]
    plane: int

    @property
    def relay(self) -> str:
        """The relay of a path that has just one."""
        (relay,) = self.relays
        return relay


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
        return f"planned-{_digest(self.tree)}"

    @property
    def applied(self) -> str:
        """The name of the lab's kept state in which an `apply` has brought factory nodes to the plan."""
        return f"applied-{_digest(self.tree, PRODUCT)}"

    def keep_applied(self, lab: Lab) -> None:
        """Keep the nodes as `apply` has just left them. Ends them."""
        with host.stage("nodes settle"):
            self.wait_all_settled(lab)
        self.keep(lab, self.applied)

    def keep(self, lab: Lab, state: str) -> None:
        """Keep the nodes once no neighbour entry waits for a timer: every test that starts from there sees it
        run out at the same moment, and a kernel that then asks a broken node finds one fault more. Ends them.
        """
        with host.stage("neighbour entries at rest"):
            lab.each(lambda name: self.wait_at_rest(lab, name))
        lab.save(state)

    def node(self, name: str) -> dict[str, Any]:
        """A node's part."""
        found: dict[str, Any] = self.document["nodes"][name]
        return found

    def functions(self, name: str) -> list[dict[str, Any]]:
        """The functions of a node that the plan gives an address: those with a cable."""
        return [function for function in self.node(name)["functions"] if function["address"]]

    def units(self, name: str) -> list[str]:
        """The units that a node has enabled: what the fabric does not need is not rendered."""
        rendered = sorted((self.tree / name / "etc/systemd/system").glob("*.service"))
        single = [path.name for path in rendered if not path.stem.endswith("@")]
        return [*single, *(f"fabric-plan-marker@{device}.service" for device in self.markers(name))]

    def markers(self, name: str) -> list[str]:
        """The RDMA devices of a node that have a marker."""
        return [marker["rdma"] for marker in self.node(name)["markers"]]

    def address(self, name: str, netdev: str) -> str:
        """The address of a function, without its prefix length."""
        return next(
            str(f["address"]).partition("/")[0] for f in self.node(name)["functions"] if f["netdev"] == netdev
        )

    def paths(self) -> Iterator[RdmaPath]:
        """Every path to a far node."""
        for name, node in self.document["nodes"].items():
            by_netdev = {f["netdev"]: f for f in node["functions"]}
            for route in node["relay_routes"]:
                to = route["to"].partition("/")[0]
                far = next(
                    f for f in self.functions(route["peer"]) if str(f["address"]).partition("/")[0] == to
                )
                near = by_netdev[route["dev"]]
                relays = tuple(route["through"])
                yield RdmaPath(name, near["rdma"], route["peer"], far["rdma"], to, relays, near["plane"])

    def cables(self, lab: Lab) -> Iterator[RdmaPath]:
        """Every plane of every cable, in one direction."""
        for ours, near, theirs, far in lab.spec.links():
            to = self.address(theirs.name, far.netdev)
            yield RdmaPath(ours.name, near.rdma, theirs.name, far.rdma, to, (), near.plane)

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
        """Wait until every node's mesh is up or has failed, its addresses are there, and neighbours have
        heard of each other.
        """
        lab.each(lambda name: self.wait_settled(lab, name))
        lab.each(lambda name: self.wait_addresses(lab, name))
        lab.each(lambda name: self.meet(lab, name))

    def put(self, lab: Lab, name: str) -> None:
        """Put a node's files on it and enable its units, as a person would by hand."""
        lab.put_tree(name, self.tree / name)
        lab.ssh(name, f"systemctl daemon-reload && systemctl enable -q {' '.join(self.units(name))}")

    def wait_settled(self, lab: Lab, name: str) -> None:
        """Wait until the mesh and its markers came to an end of their start, good or bad."""
        units = [unit for unit in self.units(name) if unit == MESH or "-marker@" in unit]
        if not units:
            return  # a fabric without relays
        ended = f"systemctl show -P ActiveState {' '.join(units)} | grep -cE '^(active|failed)$'"
        lab.wait(name, "the mesh to settle", f'test "$({ended})" = {len(units)}', seconds=600)

    def wait_addresses(self, lab: Lab, name: str) -> None:
        """Wait until a node's functions have their addresses."""
        there = [
            f"ip -4 -o address show dev {f['netdev']} | grep -qF ' {f['address']} '"
            for f in self.functions(name)
        ]
        lab.wait(name, "the planned addresses", " && ".join(there))

    def wait_at_rest(self, lab: Lab, name: str) -> None:
        """Wait until a node's entries for its neighbours are stale: a reachable one becomes so within 45 s,
        and stays that as long as nobody uses it.
        """
        devices = "|".join(function["netdev"] for function in self.functions(name))
        states = "for state in reachable delay probe incomplete; do ip -4 neigh show nud $state; done"
        lab.wait(name, "neighbour entries at rest", f"! {{ {states}; }} | grep -qE 'dev ({devices}) '")
