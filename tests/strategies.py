"""Inventories for tests: one built by hand from a few words, or any that hypothesis can think of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml
from hypothesis import strategies as st

from fabric_plan.inventory.load import load
from fabric_plan.planner.model import Plan
from fabric_plan.planner.plan import plan_fabric
from fabric_plan.resources import hardware_roles

PORTS = ("f0", "f1")


@dataclass(frozen=True)
class Sketch:
    """An inventory in a few words.

    `shape` is ring, line or switched; two nodes make a pair of two cables (ring) or one (line). `flips[i]`
    says that node i has `f1` toward the next node instead of `f0`; `swaps[i]` that cable i lists its ends the
    other way round. `pins` holds the `planes:` entry of cables or rails by index.
    """

    nodes: int = 4
    shape: str = "ring"
    mesh: str = "off"
    prefix: int = 24
    planes: tuple[str, ...] = ("managed", "managed")
    flips: tuple[bool, ...] = ()
    swaps: tuple[bool, ...] = ()
    rails: int = 2
    pins: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    macs: bool = True
    marker: str = "built-in"

    def document(self) -> dict[str, Any]:
        """Return the inventory as plain data."""
        document: dict[str, Any] = {
            "fabric": "drawn",
            "planes": dict(enumerate(self.planes, start=1)),
            "addressing": {"pool": "10.10.0.0/16", "prefix": self.prefix},
            "mesh": {"paths": self.mesh, "marker": self.marker},
            "nodes": [{"name": f"n{i}", "ports": self._ports(i)} for i in range(self.nodes)],
        }
        if self.shape == "switched":
            document["rails"] = [
                self._pinned(r, {"name": f"rail{r}", "ends": self._rail(r)}) for r in range(self.rails)
            ]
        else:
            document["cables"] = [self._pinned(i, {"ends": self._ends(i)}) for i in range(self.cables)]
        return document

    def text(self) -> str:
        """Return the inventory as YAML."""
        return yaml.safe_dump(self.document(), sort_keys=False)

    def plan(self) -> Plan:
        """Load and plan it."""
        return plan_fabric(load(self.text(), "drawn.yaml", hardware_roles()).fabric)

    @property
    def cables(self) -> int:
        """How many cables (or rails) there are."""
        if self.shape == "switched":
            return self.rails
        return self.nodes if self.shape == "ring" else self.nodes - 1

    def _ports(self, i: int) -> dict[str, Any]:
        if not self.macs:
            return {}
        return {
            port: [{"mac": f"02:fa:b0:{i:02x}:{p:02x}:{q:02x}"} for q in (1, 2)]
            for p, port in enumerate(PORTS)
        }

    def _port(self, i: int, toward_next: bool) -> str:
        flipped = bool(self.flips) and self.flips[i % len(self.flips)]
        return PORTS[toward_next == flipped]

    def _ends(self, i: int) -> list[str]:
        there = (i + 1) % self.nodes
        ends = [f"n{i}.{self._port(i, True)}", f"n{there}.{self._port(there, False)}"]
        return ends[::-1] if self.swaps and self.swaps[i % len(self.swaps)] else ends

    def _rail(self, r: int) -> list[str]:
        return [f"n{i}.{PORTS[r]}" for i in range(self.nodes)]

    def _pinned(self, i: int, entry: dict[str, Any]) -> dict[str, Any]:
        return entry | {"planes": self.pins[i]} if i in self.pins else entry


ALTERNATING = (False, True)


def _pin(draw: st.DrawFn, index: int, ends: int, planes: Sequence[str]) -> list[dict[str, Any]]:
    """Pin one cable: subnets of their own, with addresses or without, or both planes in one."""
    if draw(st.booleans()) and len(planes) == 2:
        one = f"172.20.{index}.0/24"
        first = draw(st.integers(1, 40))
        return [
            {
                "subnet": one,
                "addresses": [f"172.20.{index}.{first + 100 * plane + end}" for end in range(ends)],
            }
            for plane in range(2)
        ]
    entries: list[dict[str, Any]] = []
    for plane in range(len(planes)):
        prefix = draw(st.integers(24, 27 if ends > 2 else 31))
        net = f"172.{21 + plane}.{index}.{'64' if prefix > 26 else '0'}"
        entry: dict[str, Any] = {"subnet": f"{net}/{prefix}"}
        if draw(st.booleans()):
            base, host = net.rsplit(".", 1)
            start = int(host) + (prefix < 31)
            hosts = [f"{base}.{start + end}" for end in range(ends)]
            entry["addresses"] = hosts[::-1] if draw(st.booleans()) else hosts
        entries.append(entry)
    return entries


@st.composite
def sketches(
    draw: st.DrawFn, *, meshes: Sequence[str] = ("off", "opposite", "universal", "balanced")
) -> Sketch:
    """Draw a sound inventory: 2 to 8 nodes, any shape and cabling, one plane or two, /24 to /31, pins."""
    nodes = draw(st.integers(2, 8))
    shape = draw(st.sampled_from(("ring", "ring", "line", "switched")))
    planes = draw(st.sampled_from((("managed", "managed"), ("managed",), ("managed", "unmanaged"))))
    possible = ["off", "universal"]
    if shape == "ring" and nodes == 4:
        possible += ["opposite", *(["balanced"] if planes == ("managed", "managed") else [])]
    mesh = draw(st.sampled_from([name for name in possible if name in meshes]))
    ends = nodes if shape == "switched" else 2
    markers = ["built-in", "relay-marker"]
    if mesh in ("opposite", "balanced"):
        markers.append("rewrite-probe")
    drawn = Sketch(
        nodes=nodes,
        shape=shape,
        mesh=mesh,
        prefix=draw(st.integers(24, 27 if ends > 2 else 31)),
        planes=planes,
        flips=tuple(draw(st.lists(st.booleans(), min_size=nodes, max_size=nodes))),
        swaps=tuple(draw(st.lists(st.booleans(), min_size=nodes, max_size=nodes))),
        rails=draw(st.integers(1, 2)),
        macs=mesh != "off" or draw(st.booleans()),
        marker=draw(st.sampled_from(markers)),
    )
    pinned = draw(st.lists(st.integers(0, drawn.cables - 1), unique=True, max_size=drawn.cables))
    pins = {index: _pin(draw, index, ends, planes) for index in sorted(pinned)}
    return replace(drawn, pins=pins)


def inventories(
    *, meshes: Sequence[str] = ("off", "opposite", "universal", "balanced")
) -> st.SearchStrategy[str]:
    """Draw a sound inventory as YAML text."""
    return sketches(meshes=meshes).map(Sketch.text)
