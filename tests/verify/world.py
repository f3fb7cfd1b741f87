"""Four nodes that answer a probe as a fabric would: frames are counted by rules, or by the kernel of a relay
where nobody tags them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from fabric_plan.checks.probe import backward, frames_of, key, rules_on
from fabric_plan.checks.scene import Scene
from fabric_plan.node.document import Facts, Tool
from fabric_plan.planner.model import Path, Plan
from fabric_plan.topology.fabric import End
from fabric_plan.transport.fake import Fake
from fabric_plan.verify.nodes import Nodes
from fabric_plan.verify.probe import Probe
from tests.checks.sound import Mutate, broken, sound
from tests.facts_builder import forwards, read

TOOLS = ("ping", "ib_write_bw", "ib_write_lat")
SPEED = {"ib_write_bw": {"BW average[Gb/sec]": 108.6}, "ib_write_lat": {"t_typical[usec]": 2.1}}


@dataclass
class World:
    """The fabric. `counted` are what rose, by (node, counter); `noise` is forwarded by others in each second
    waited; `untagged` are functions whose marker is dead; `slow` gives other figures by (node, device); RDMA
    from or to a `mute` device never arrives; the two cables of the `swapped` node are in each other's port.
    What was `asked` of perftest's client is kept.
    """

    plan: Plan
    scene: Scene
    counted: Counter[tuple[str, str]] = field(default_factory=Counter)
    untagged: set[tuple[str, str]] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    noise: int = 0
    overflow: tuple[str, str] | None = None
    slow: dict[tuple[str, str], float] = field(default_factory=dict)
    lost_pings: set[tuple[str, str]] = field(default_factory=set)
    mute: set[tuple[str, str]] = field(default_factory=set)
    swapped: str | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    late: int = 0
    now: float = 0.0

    def facts(self, node: str) -> Facts:
        """What the node says now."""
        base, count = self.scene.facts[node], self.counted
        tools = {**base.tools, **{name: base.tools.get(name, Tool(f"/usr/bin/{name}")) for name in TOOLS}}
        tc = {
            dev: replace(
                state,
                rules=read(
                    tuple(
                        replace(r, hw_packets=count[node, f"{dev} {r.pref} {r.handle}"])
                        for r in state.rules.value or ()
                    )
                ),
            )
            for dev, state in base.tc.items()
        }
        ethtool = {
            dev: replace(state, counters=read({"rx_out_of_buffer": count[node, f"{dev} overflow"]}))
            for dev, state in base.ethtool.items()
        }
        ports = tuple(
            replace(
                port,
                counters={"port_xmit_data": count[node, f"{port.device} sent"]},
                hw_counters={
                    "out_of_sequence": count[node, f"{port.device} sequence"],
                    "packet_seq_err": 0,
                },
            )
            for port in base.rdma.ports.value or ()
        )
        return replace(
            base,
            tools=tools,
            tc=tc,
            ethtool=ethtool,
            rdma=replace(base.rdma, ports=read(ports)),
            snmp=forwards(count[node, "forwarded"]),
        )

    def wait(self, seconds: float) -> None:
        """Time goes by, and others have their traffic forwarded."""
        self.now += seconds
        for node in self.scene.facts:
            self.counted[node, "forwarded"] += int(self.noise * seconds)

    def clock(self) -> float:
        """Every look at the clock takes a moment."""
        self.now += 0.01
        return self.now

    def answer(self, node: str, verb: str, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a verb of the node program."""
        if verb == "collect":
            document: dict[str, Any] = json.loads(json.dumps(self.facts(node), default=vars))
            return document
        return {"ok": True, **getattr(self, verb.replace("-", "_"))(node, request)}

    def probe_ping(self, node: str, request: dict[str, Any]) -> dict[str, Any]:
        """Every ping comes back, but those lost."""
        return {
            "results": [
                {**pair, "sent": 3, "received": 0 if (node, pair["to"]) in self.lost_pings else 3}
                for pair in request["pings"]
            ]
        }

    def probe_cables(self, node: str, request: dict[str, Any]) -> dict[str, Any]:
        """Each function hears both functions of the port at the far end, and its own twin."""
        heard = []
        for planned in self.plan.node(node).functions:
            if planned.function.netdev not in request["interfaces"]:
                continue
            here = End(node, planned.function.port)
            for end in (here, self.far(here)):
                heard += [
                    {"dev": planned.function.netdev, "system": end.node, "port": other.function.netdev}
                    for other in self.plan.node(end.node).functions
                    if other.function.port == end.port and other is not planned
                ]
        return {"heard": heard, "skipped": {}}

    def far(self, end: End) -> End:
        """Where the cable in a port leads to, as it is plugged in."""

        def plugged(one: End) -> End:
            ports = {"f0": "f1", "f1": "f0"}
            return End(one.node, ports[one.port]) if one.node == self.swapped else one

        for cable in self.plan.fabric.cables:
            near, far = map(plugged, cable.ends)
            if end in (near, far):
                return far if end == near else near
        raise AssertionError(end)

    def probe_serve(self, node: str, request: dict[str, Any]) -> dict[str, Any]:
        """The server ends with its client."""
        return {}

    def probe_run(self, node: str, request: dict[str, Any]) -> dict[str, Any]:
        """Send frames there and back, and count them where they pass."""
        self.now += 0.2
        path = self._path(node, request)
        self.asked.append(request)
        target = self.plan.node(path.dst).at(path.into.port, path.plane).function
        if {(path.src, request["device"]), (path.dst, target.rdma)} & self.mute:
            error = {"id": "perftest", "message": "Completion with error at client"}
            return {"ok": False, "error": error}
        values = dict(SPEED[request["test"]])
        if (node, request["device"]) in self.slow:
            values = dict.fromkeys(values, self.slow[node, request["device"]])
        back = next(p for p in self.plan.paths if (p.src, p.dst, p.out) == (path.dst, path.src, path.into))
        for way in (path, back):
            planned = self.plan.node(way.src).at(way.out.port, way.plane).function
            if planned.netdev not in self.silent:
                self.counted[way.src, f"{planned.rdma} sent"] += 1_000_000
        if not path.direct:
            self._relayed(path, frames_of(request["size"], request["iterations"]))
        return {"values": values, "settings": {}}

    def _relayed(self, path: Path, frames: int) -> None:
        met = rules_on(self.plan)
        back = backward(self.plan, path)
        for way in (path, *((back,) if back else ())):
            sender = self.plan.node(way.src).at(way.out.port, way.plane).function.netdev
            for relay, rule in met[key(way)]:
                if (way.src, sender) in self.untagged:
                    self.counted[relay, "forwarded"] += frames
                else:
                    self.counted[relay, f"{rule.dev} {rule.pref} {rule.handle}"] += frames + 7
                if self.overflow == (relay, rule.dev):
                    self.counted[relay, f"{rule.dev} overflow"] += 3
                    rdma = self.plan.node(way.dst).at(way.into.port, way.plane).function.rdma
                    self.counted[way.dst, f"{rdma} sequence"] += 3

    def _path(self, node: str, request: dict[str, Any]) -> Path:
        far = request.get("flow_label") is not None
        for path in self.plan.paths:
            planned = self.plan.node(path.src).at(path.out.port, path.plane)
            if path.src == node and planned.function.rdma == request["device"] and path.direct != far:
                return path
        raise AssertionError(request)

    def probe(self) -> tuple[Probe, Fake]:
        """Return a probe of this world, and its transport."""
        fake = Fake(self.answer)
        nodes = Nodes(self.plan, self.scene.desired, [node.name for node in self.plan.nodes], fake)
        facts, _ = nodes.collect()
        return Probe(nodes, self.plan, facts, wait=self.wait, clock=self.clock), fake


def world(plan: Plan, changes: dict[str, Mutate] | None = None, **fields: Any) -> World:
    """Return a world in which all is well but what `changes` and `fields` say."""
    return World(plan, broken(sound(plan), changes or {}), **fields)


Build = Callable[..., World]
