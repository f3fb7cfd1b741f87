"""Bounded traffic between the nodes of a plan, and the counters around it.

Who hears whom over the cables, then neighbours, then an idle window, then a window of the same length with
RDMA to far nodes. One trial at a time: a floor is about one function alone. What a trial has shown to be dead
is not tried again: perftest waits long for what does not come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fabric_plan.checks.model import Check, Verdict
from fabric_plan.checks.probe import (
    PING_BYTES,
    UNANSWERED,
    Kind,
    Lane,
    ProbeRun,
    Trial,
    Window,
    backward,
    frames_of,
    key,
    lanes,
    probe_checks,
    rules_on,
)
from fabric_plan.checks.texts import TEXTS
from fabric_plan.errors import FabricPlanError
from fabric_plan.node.document import Facts
from fabric_plan.node.reading import Reading
from fabric_plan.node.records import LldpNeighbour
from fabric_plan.planner.model import Path, Plan
from fabric_plan.transport.hearing import hear
from fabric_plan.verify.nodes import Nodes

PING_COUNT = 3
BANDWIDTH = {"test": "ib_write_bw", "size": 65536}
LATENCY = {"test": "ib_write_lat", "size": 2, "iterations": 200}
FAR = {"test": "ib_write_lat", "size": 61440, "iterations": 100}

# With this label a queue pair's UDP source port is 65535, by which one of the markers' dialects knows it.
FLOW_LABEL = 16383
FIRST_PORT = 18515
PORTS = 400
TRIAL_LIMIT_S = 40
PING_LIMIT_S = 10
CALL_LIMIT_S = 90.0
LEAST_IDLE_S = 2.0

# Counters of rules settle late; this long they are asked again.
SETTLE_S = 10.0
POLL_S = 0.5

_COLUMN = {Kind.BANDWIDTH: "BW average[Gb/sec]", Kind.LATENCY: "t_typical[usec]", Kind.FAR: "t_typical[usec]"}


@dataclass(slots=True)
class Probe:
    """One probe. `say` hears what goes on; `wait` sleeps, and tests replace it."""

    nodes: Nodes
    plan: Plan
    facts: Mapping[str, Facts]
    say: Callable[[str], None] = lambda text: None
    wait: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    dead: dict[Lane, str] = field(default_factory=dict)

    def run(self) -> tuple[tuple[Check, ...], Mapping[str, Facts]]:
        """Return the probe's checks, and the facts as they were after it."""
        addresses = _control(self.plan, self.facts)
        heard = self._hear()
        direct = [path for path in self.plan.paths if path.direct and self._both(path)]
        # A trial runs both ways, so one of each mirrored pair is enough.
        far = [path for path in self.plan.paths if not path.direct and self._both(path)]
        far = [path for path in far if path.src < path.dst or backward(self.plan, path) is None]
        pings = self._pings(direct)
        start, _ = self._window(None, 0.0)
        trials = [*pings]
        timed = 0.0
        for number, path in enumerate(direct):
            for kind, options in ((Kind.BANDWIDTH, self._bandwidth(path)), (Kind.LATENCY, LATENCY)):
                began = self.clock()
                trials.append(self._trial(kind, path, options, addresses, 2 * number))
                timed = max(timed, self.clock() - began) if kind is Kind.LATENCY else timed
        before_idle, direct_window = self._window(start, 0.0)
        idle_s = max(LEAST_IDLE_S, 2 * timed * len(far))
        self.say(f"idle window of {idle_s:.0f} s")
        began = self.clock()
        self.wait(idle_s)
        before_far, idle = self._window(before_idle, self.clock() - began)
        began = self.clock()
        reached = [
            self._trial(Kind.FAR, path, {**FAR, "flow_label": FLOW_LABEL}, addresses, number)
            for number, path in enumerate(far)
        ]
        left = idle_s - (self.clock() - began)
        if left > 0:
            self.wait(left)
        spent = self.clock() - began
        after, far_window = self._settled(before_far, reached, spent)
        run = ProbeRun((*trials, *reached), direct_window, idle, far_window)
        after = {name: _with_heard(facts, heard.get(name, ())) for name, facts in after.items()}
        return tuple(probe_checks(self.plan, run)), after

    def _hear(self) -> dict[str, tuple[LldpNeighbour, ...]]:
        """Return whom each node heard over its cables; nothing of a node that could not be asked."""
        self.say("LLDP frames over each cable")
        functions = {
            node.name: [planned.function.netdev for planned in node.functions if planned.cabled]
            for node in self.plan.nodes
            if node.name in self.facts
        }
        patience = max(map(self.nodes.patience, functions), default=1.0)
        found = hear(self.nodes.call, functions, patience)
        return {name: one.heard for name, one in found.items() if not isinstance(one, FabricPlanError)}

    def _bandwidth(self, path: Path) -> dict[str, Any]:
        return {**BANDWIDTH, "seconds": self.plan.fabric.node(path.src).hardware.bandwidth_s}

    def _both(self, path: Path) -> bool:
        return path.src in self.facts and path.dst in self.facts

    def _window(self, before: Mapping[str, Facts] | None, seconds: float) -> tuple[dict[str, Facts], Window]:
        facts, _ = self.nodes.collect(known=self.nodes.names)
        return facts, Window(before or {}, facts, seconds)

    def _settled(
        self, before: Mapping[str, Facts], reached: list[Trial], seconds: float
    ) -> tuple[Mapping[str, Facts], Window]:
        """Ask until every rule on a path that worked has counted, or the deadline says that it will not."""
        deadline = self.clock() + SETTLE_S
        met = rules_on(self.plan)
        while True:
            facts, window = self._window(before, seconds)
            run = ProbeRun(tuple(reached), window, window, window)
            wanted = {place for trial in reached if trial.ran for place in met.get(key(trial.path), ())}
            late = [
                check
                for check in probe_checks(self.plan, run)
                if check.id == "rule-counter"
                and check.verdict is Verdict.FAIL
                and any((check.node, check.interface) == (node, rule.dev) for node, rule in wanted)
            ]
            if not late or self.clock() > deadline:
                return facts, window
            self.wait(POLL_S)

    def _pings(self, paths: list[Path]) -> list[Trial]:
        self.say(f"pings of {PING_BYTES} bytes over {len(paths)} directed lanes")
        by_node: dict[str, list[Path]] = {}
        for path in paths:
            by_node.setdefault(path.src, []).append(path)

        def one(name: str) -> list[Trial]:
            asked = [
                {"source": self._address(path, True), "to": self._address(path, False)}
                for path in by_node[name]
            ]
            patience = self.nodes.patience(name)
            request = {"pings": asked, "count": PING_COUNT, "size": PING_BYTES}
            request["limit_s"] = int(PING_LIMIT_S * patience)
            reply = self.nodes.call(name, "probe-ping", request, CALL_LIMIT_S * patience)
            return [
                _pinged(path, result) for path, result in zip(by_node[name], reply["results"], strict=True)
            ]

        trials: list[Trial] = []
        for name, result in self.nodes.every(one, by_node).items():
            if isinstance(result, FabricPlanError):
                trials += [_failed(Kind.PING, path, result) for path in by_node[name]]
            else:
                trials += result
        for trial in trials:
            if trial.error_id == UNANSWERED:
                self.dead.update(dict.fromkeys(lanes(trial.path), f"no ping from {trial.path} was answered"))
        return trials

    def _address(self, path: Path, source: bool) -> str:
        node, end = (path.src, path.out) if source else (path.dst, path.into)
        address = self.plan.node(node).at(end.port, path.plane).address
        assert address is not None
        return str(address.ip)

    def _trial(
        self,
        kind: Kind,
        path: Path,
        options: Mapping[str, Any],
        addresses: Mapping[str, str],
        number: int,
    ) -> Trial:
        """Try a path, unless something on it is known to be dead."""
        for lane in lanes(path):
            if lane in self.dead:
                return Trial(kind, path, error=f"not tried: {self.dead[lane]}", error_id="not-tried")
        trial = self._perftest(kind, path, options, addresses, number)
        if path.direct and trial.error_id == "perftest":
            self.dead.update(dict.fromkeys(lanes(path), f"{options['test']} from {path} failed"))
        return trial

    def _perftest(
        self,
        kind: Kind,
        path: Path,
        options: Mapping[str, Any],
        addresses: Mapping[str, str],
        number: int,
    ) -> Trial:
        peer = addresses.get(path.dst)
        if peer is None:
            words = f"{path.dst} has no management address of its own"
            return Trial(kind, path, error=words, error_id="no-control")
        for name in (path.src, path.dst):
            tool = self.facts[name].tools.get(options["test"])
            if tool is None or tool.path is None:
                words = f"{options['test']} is not installed on {name}: install perftest"
                return Trial(kind, path, error=words, error_id="no-perftest")
        self.say(f"{kind}: {path}")
        port = FIRST_PORT + number % PORTS
        source, target = self.plan.node(path.src), self.plan.node(path.dst)
        patience = max(self.nodes.patience(path.src), self.nodes.patience(path.dst))
        common = {**options, "port": port, "limit_s": int(TRIAL_LIMIT_S * patience)}
        near = source.at(path.out.port, path.plane).function.rdma
        there = target.at(path.into.port, path.plane).function.rdma
        requests = {
            path.dst: ("probe-serve", {**common, "device": there, "address": self._address(path, False)}),
            path.src: (
                "probe-run",
                {**common, "device": near, "address": self._address(path, True), "peer": peer},
            ),
        }

        def one(name: str) -> dict[str, Any]:
            verb, request = requests[name]
            return self.nodes.call(name, verb, request, CALL_LIMIT_S * patience)

        results = self.nodes.every(one, requests)
        # A server that was never there says more than the client that waited for it.
        server, result = results[path.dst], results[path.src]
        if isinstance(server, FabricPlanError) and server.id != "perftest":
            return _failed(kind, path, server)
        for found in (result, server):
            if isinstance(found, FabricPlanError):
                return _failed(kind, path, found)
        value = result.get("values", {}).get(_COLUMN[kind])
        if not isinstance(value, int | float):
            return Trial(kind, path, error="perftest gave no figure", error_id="no-figure")
        if value <= 0:
            # A test for a given time ends well when that is over, whatever arrived.
            return Trial(kind, path, error=f"{options['test']} moved nothing", error_id="perftest")
        frames = frames_of(options["size"], options["iterations"]) if kind is Kind.FAR else 0
        return Trial(kind, path, float(value), frames)


def _pinged(path: Path, result: Mapping[str, Any]) -> Trial:
    sent, received = result.get("sent"), result.get("received")
    if isinstance(sent, int) and sent > 0 and sent == received:
        return Trial(Kind.PING, path)
    words = f"{received} of {sent} came back: {result.get('words', '')}".rstrip(": ")
    return Trial(Kind.PING, path, error=words, error_id="ping" if received else UNANSWERED)


def _with_heard(facts: Facts, heard: tuple[LldpNeighbour, ...]) -> Facts:
    """Return facts with neighbours that were heard besides those that lldpd knows."""
    known = facts.lldp
    return replace(facts, lldp=Reading((*(known.value or ()), *heard), known.unread)) if heard else facts


def _failed(kind: Kind, path: Path, error: FabricPlanError) -> Trial:
    said = f"{error.message}: {error.hint}" if error.hint else error.message
    return Trial(kind, path, error=said, error_id=error.id or "unreachable")


def _control(plan: Plan, facts: Mapping[str, Facts]) -> dict[str, str]:
    """Return each node's address on its management port, where no other node has the same."""
    found: dict[str, str] = {}
    for name, node_facts in facts.items():
        netdev = plan.fabric.node(name).mgmt_netdev
        addresses = node_facts.interfaces.value.addresses if node_facts.interfaces.value else ()
        own = [a.address for a in addresses if a.dev == netdev and a.family == "inet"]
        if not own and node_facts.ssh is not None and node_facts.ssh.dev is not None:
            own = [a.address for a in addresses if a.dev == node_facts.ssh.dev and a.family == "inet"]
        if own:
            found[name] = own[0]
    values = list(found.values())
    return {name: address for name, address in found.items() if values.count(address) == 1}


def obstacles(plan: Plan, facts: Mapping[str, Facts], *, busy: bool) -> Iterator[Check]:
    """Yield why a probe may not run: RDMA in use anywhere, unless `busy` permits that."""
    for name, found in facts.items():
        if found.rdma.usage.in_use and not busy:
            said = ", ".join(found.rdma.usage.reasons[:3])
            yield _stop(name, f"RDMA is in use: {said}", "stop the engine, or add --probe-busy")
    if len(facts) < 2:
        for node in plan.nodes:
            yield _stop(node.name, "a probe needs two nodes that answer", TEXTS["probe"].mend)


def missing_tools(facts: Mapping[str, Facts]) -> Iterator[Check]:
    """Yield for each node what is missing for a probe, or that nothing is."""
    for name, found in facts.items():
        lacking = [
            package
            for tool, package in (("ping", "iputils-ping"), ("ib_write_bw", "perftest"))
            if (known := found.tools.get(tool)) is None or known.path is None
        ]
        text = TEXTS["probe"]
        verdict = Verdict.NOT_PROVEN if lacking else Verdict.PASS
        read = f"{' and '.join(lacking)} missing" if lacking else "ping and perftest are there"
        mend = f"`apt install {' '.join(lacking)}` on {name}" if lacking else text.mend
        yield Check("probe", text.layer, name, None, "", verdict, read, "ping and perftest", mend, (name,))


def _stop(node: str, read: str, mend: str) -> Check:
    text = TEXTS["probe"]
    return Check("probe", text.layer, node, None, "", Verdict.NOT_PROVEN, read, "it may run", mend, (node,))
