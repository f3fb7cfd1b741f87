"""What a probe says: trials between nodes, and counters before and after. Pure; `fabric_plan.verify.probe`
makes the traffic.

Zero traffic proves nothing, a counter that is not there proves nothing, and a noisy idle window proves
nothing: all three are *not proven*.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from fabric_plan.checks.counters import ALIASED, OVERFLOW, SENT, forwarded, overflow, sent, sequence
from fabric_plan.checks.model import Check, Verdict, at
from fabric_plan.checks.texts import TEXTS
from fabric_plan.node.document import Facts
from fabric_plan.planner.model import NodePlan, Path, Plan, Rule
from fabric_plan.simulate.prove import prove
from fabric_plan.topology.fabric import End

ROCE_MTU = 4096
PING_BYTES = 8972

# Of the probe's own frames: from here on the kernel is said to have forwarded them, or the idle window to be
# too noisy to tell.
FORWARDED_SHARE = 0.01
LEAST_OF_DUE = 0.5


class Kind(StrEnum):
    """What a trial does; the word is the id of its check."""

    PING = "ping"
    BANDWIDTH = "bandwidth"
    LATENCY = "latency"
    FAR = "far"


# A trial that ended with one of these ran, and the fabric failed it; with any other it did not run.
UNANSWERED = "unanswered"
FAILED = ("ping", UNANSWERED, "perftest")

# One plane of a cable, by the cable's index.
Lane = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial from `path.src`. `value` is in Gb/s for bandwidth, us for the latencies, None for a ping.

    `frames` are those that have to be seen each way; `error` with its id says why there is no result.
    """

    kind: Kind
    path: Path
    value: float | None = None
    frames: int = 0
    error: str | None = None
    error_id: str | None = None

    @property
    def ran(self) -> bool:
        """Whether its traffic arrived."""
        return self.error_id is None


@dataclass(frozen=True, slots=True)
class Window:
    """Facts of the nodes before and after something, and how many seconds lay between."""

    before: Mapping[str, Facts]
    after: Mapping[str, Facts]
    seconds: float


@dataclass(frozen=True, slots=True)
class ProbeRun:
    """What happened: `direct` around the trials between neighbours, `idle` before and `far` around those to
    far nodes.
    """

    trials: tuple[Trial, ...]
    direct: Window
    idle: Window
    far: Window


def frames_of(size: int, iterations: int) -> int:
    """Return how many frames carry `iterations` messages of `size` bytes, at least."""
    return iterations * math.ceil(size / ROCE_MTU)


PathKey = tuple[str, str, int, End, End]
Met = Mapping[PathKey, tuple[tuple[str, Rule], ...]]


def key(path: Path) -> PathKey:
    """Return what tells a path from every other one."""
    return path.src, path.dst, path.plane, path.out, path.into


def lanes(path: Path) -> tuple[Lane, ...]:
    """Return what a path leads over, one after another."""
    return tuple((cable.index, path.plane) for cable in path.cables)


def rules_on(plan: Plan) -> Met:
    """Return for each far path the rules of the relays that its frames meet, by the proof's own walk."""
    found = {}
    for trip in prove(plan).hops:
        met = []
        for step in trip.steps:
            if step.does != "relays":
                continue
            sender = plan.node(trip.path.src).at(trip.path.out.port, trip.path.plane).function.mac
            met += [
                (step.node, rule)
                for rule in plan.node(step.node).rules
                if (rule.dev, rule.set_dst_mac, rule.set_type) == (step.dev, step.dst_mac, step.ethertype)
                and rule.src_mac in (None, sender)
            ]
        if not trip.path.direct:
            found[key(trip.path)] = tuple(met)
    return found


def backward(plan: Plan, path: Path) -> Path | None:
    """Return the mirrored path, on which the answers come."""
    through = tuple(reversed(path.through))
    return next(
        (
            other
            for other in plan.paths
            if (other.src, other.dst, other.plane, other.through) == (path.dst, path.src, path.plane, through)
            and other.out == path.into
        ),
        None,
    )


def ends(plan: Plan, path: Path) -> tuple[str, str]:
    """Return the sending and the receiving network device of a path."""
    src, dst = plan.node(path.src), plan.node(path.dst)
    return _netdev(src, path.out.port, path.plane), _netdev(dst, path.into.port, path.plane)


def _netdev(node: NodePlan, port: str, plane: int) -> str:
    return node.at(port, plane).function.netdev


def probe_checks(plan: Plan, run: ProbeRun) -> Iterator[Check]:
    """Yield what the probe shows."""
    met = rules_on(plan)
    for trial in run.trials:
        yield _trial(plan, trial, met)
    crossing = _crossing(plan, run.trials, met)
    for node in plan.nodes:
        for rule in node.rules:
            yield _rule(plan, node.name, rule, crossing.get((node.name, rule), ()), run.far)
        if node.rules:
            frames = [
                trial.frames
                for rule in node.rules
                for trial, _ in crossing.get((node.name, rule), ())
                if trial.ran
            ]
            yield _forwarded(plan, node, sum(frames), run, crossing)
        yield from _drops(plan, node, run)
        yield from _shares(plan, node, run)


def _check(
    id: str,
    node: str,
    interface: str | None,
    subject: str,
    verdict: Verdict,
    read: str,
    expected: str,
    needs: Iterable[str],
) -> Check:
    text = TEXTS[id]
    return Check(
        id,
        text.layer,
        node,
        interface,
        subject,
        verdict,
        read,
        expected,
        text.mend,
        tuple(dict.fromkeys(needs)),
    )


def _trial(plan: Plan, trial: Trial, met: Met) -> Check:
    path = trial.path
    source, target = ends(plan, path)
    floors = plan.fabric.node(path.src).hardware.floors
    value = trial.value
    expected, good, unit = "an answer to each", True, ""
    if trial.kind is Kind.BANDWIDTH:
        expected, unit = f"{floors.bandwidth_gbps:g} Gb/s or more", "Gb/s"
        good = value is not None and value >= floors.bandwidth_gbps
    elif trial.kind is Kind.LATENCY:
        expected, unit = f"{floors.latency_us:g} us or less", "us"
        good = value is not None and value <= floors.latency_us
    elif trial.kind is Kind.FAR:
        expected, unit = "RDMA arrives", "us"
    read = trial.error or (f"{value:.2f} {unit}" if value is not None else f"{PING_BYTES} bytes arrive")
    verdict = Verdict.PASS if trial.ran and good else Verdict.FAIL
    if not trial.ran and trial.error_id not in FAILED:
        verdict = Verdict.NOT_PROVEN
    subject = f"to {path.dst} {target}" + (f" through {', '.join(path.through)}" if path.through else "")
    return _check(trial.kind, path.src, source, subject, verdict, read, expected, _needs(plan, path, met))


def _needs(plan: Plan, path: Path, met: Met) -> list[str]:
    """Return what a path rests on: both ends, their nodes, and the relays' functions there and back."""
    source, target = ends(plan, path)
    things = [path.src, path.dst, at(path.src, source), at(path.dst, target)]
    things += [at(node, plane_of(path.plane)) for node in (path.src, *path.through, path.dst)]
    back = backward(plan, path)
    for node, rule in (*met.get(key(path), ()), *(met.get(key(back), ()) if back else ())):
        things += [node, at(node, rule.dev), at(node, rule.redirect)]
    return things


def plane_of(plane: int) -> str:
    """Return the name of a plane of a node."""
    return f"plane {plane}"


_Crossing = Mapping[tuple[str, Rule], tuple[tuple[Trial, Path], ...]]


def _crossing(plan: Plan, trials: Iterable[Trial], met: Met) -> _Crossing:
    """Return for each rule the far trials whose frames cross it, there or back."""
    found: dict[tuple[str, Rule], list[tuple[Trial, Path]]] = defaultdict(list)
    for trial in trials:
        if trial.kind is Kind.FAR:
            back = backward(plan, trial.path)
            for path in (trial.path, *((back,) if back else ())):
                for place in met.get(key(path), ()):
                    found[place].append((trial, path))
    return {place: tuple(these) for place, these in found.items()}


def _rule(
    plan: Plan, node: str, rule: Rule, crossing: tuple[tuple[Trial, Path], ...], window: Window
) -> Check:
    frames = sum(trial.frames for trial, _ in crossing if trial.ran)
    counted = _delta(window, node, lambda facts: _hardware_packets(facts, rule))
    verdict = Verdict.PASS if counted is not None and frames and counted >= frames else Verdict.FAIL
    read = f"{counted} frames in hardware"
    if counted is None:
        verdict, read = Verdict.NOT_PROVEN, "no hardware counter"
    elif not frames:
        verdict, read = Verdict.NOT_PROVEN, "no traffic crossed it"
    needs = [node, at(node, rule.dev), at(node, rule.redirect)]
    for _, path in crossing:
        needs += _needs(plan, path, {})
    subject = f"{rule.dev} pref {rule.pref} handle {rule.handle:#x}"
    return _check("rule-counter", node, rule.dev, subject, verdict, read, f"{frames} or more", needs)


def _hardware_packets(facts: Facts, rule: Rule) -> int | None:
    state = facts.tc.get(rule.dev)
    for found in (state.rules.value if state else None) or ():
        if (found.pref, found.handle) == (rule.pref, rule.handle):
            return found.hw_packets
    return None


def _forwarded(plan: Plan, node: NodePlan, frames: int, run: ProbeRun, crossing: _Crossing) -> Check:
    idle = _delta(run.idle, node.name, forwarded)
    busy = _delta(run.far, node.name, forwarded)
    allowed = frames * FORWARDED_SHARE
    if idle is None or busy is None:
        verdict, read = Verdict.NOT_PROVEN, "IpForwDatagrams cannot be read"
    elif not frames:
        verdict, read = Verdict.NOT_PROVEN, "no traffic crossed this node"
    else:
        # A window that took longer than planned is held against as much more of the idle one.
        scaled = math.ceil(idle * max(1.0, run.far.seconds / max(run.idle.seconds, 0.001)))
        read = f"{busy} forwarded in {run.far.seconds:.0f} s, {scaled} in as long an idle window"
        verdict = Verdict.FAIL if busy - scaled >= allowed else Verdict.PASS
        if scaled > allowed:
            verdict = Verdict.NOT_PROVEN
            read += ": too noisy to tell"
    needs = [node.name]
    for rule in node.rules:
        needs += [at(node.name, rule.dev), at(node.name, rule.redirect)]
        for _, path in crossing.get((node.name, rule), ()):
            needs += _needs(plan, path, {})
    expected = f"under {FORWARDED_SHARE:.0%} of {frames} frames"
    return _check("forwarded", node.name, None, "", verdict, read, expected, needs)


def _drops(plan: Plan, node: NodePlan, run: ProbeRun) -> Iterator[Check]:
    anything = any(trial.ran and trial.kind is not Kind.PING for trial in run.trials)
    for planned in node.functions:
        if not planned.cabled:
            continue
        function = planned.function

        needs = [node.name, at(node.name, function.netdev)]
        for path in plan.paths:
            if path.dst == node.name and ends(plan, path)[1] == function.netdev:
                needs += [path.src, *(at(relay, f) for relay in path.through for f in _cabled(plan, relay))]
        for name, counter, words in (
            ("overflow", partial(overflow, netdev=function.netdev), OVERFLOW),
            ("sequence", partial(sequence, rdma=function.rdma), "out_of_sequence, packet_seq_err"),
        ):
            deltas = [_delta(window, node.name, counter) for window in (run.direct, run.far)]
            known = [delta for delta in deltas if delta is not None]
            rise = sum(known)
            verdict = Verdict.FAIL if rise else Verdict.PASS
            read = f"{words} rose by {rise}" if rise else f"{words} flat"
            if not rise and (len(known) < len(deltas) or not anything):
                verdict = Verdict.NOT_PROVEN
                read = "no traffic" if len(known) == len(deltas) else f"{words}: not readable"
            yield _check(name, node.name, function.netdev, "", verdict, read, "flat", needs)


def _cabled(plan: Plan, node: str) -> list[str]:
    return [p.function.netdev for p in plan.node(node).functions if p.cabled]


def _shares(plan: Plan, node: NodePlan, run: ProbeRun) -> Iterator[Check]:
    """Yield for each plane how much of what the node sent to its neighbours it carried."""
    moved: dict[int, int] = defaultdict(int)
    counters: set[str] = set()
    for planned in node.functions:
        if not planned.cabled:
            continue
        function = planned.function
        for name in SENT:
            read_of = partial(sent, netdev=function.netdev, rdma=function.rdma, name=name)
            delta = _delta(run.direct, node.name, read_of)
            if delta is not None:
                moved[function.plane] += delta
                counters.add(name)
                break
    planes = sorted({p.function.plane for p in node.functions if p.cabled})
    total = sum(moved.values())
    weights = {plane: _lanes_that_ran(plan, node.name, plane, run.trials) for plane in planes}
    for plane in planes if len(planes) > 1 else ():
        share = moved[plane] / total if total else 0.0
        due = weights[plane] / sum(weights.values())
        verdict = Verdict.PASS if share >= due * LEAST_OF_DUE else Verdict.FAIL
        read = f"{share:.1%} of {total} bytes"
        if not total:
            verdict, read = Verdict.NOT_PROVEN, "no byte was counted"
        elif counters == {ALIASED} and len(set(moved.values())) == 1:
            verdict, read = Verdict.NOT_PROVEN, "the counters of twin functions are one and the same"
        functions = [p.function.netdev for p in node.functions if p.function.plane == plane]
        needs = [node.name, *(at(node.name, f) for f in functions)]
        expected = f"near {due:.0%}, {due * LEAST_OF_DUE:.0%} at least"
        yield _check("plane-share", node.name, None, plane_of(plane), verdict, read, expected, needs)


def _lanes_that_ran(plan: Plan, node: str, plane: int, trials: Iterable[Trial]) -> int:
    """Return over how many lanes of a plane of this node RDMA went in the trials between neighbours; all that
    are planned where it went over none: a plane on which nothing works is not due less for that.
    """
    ran = {lanes(t.path) for t in trials if t.path.direct and t.ran and t.kind is not Kind.PING}
    own = (path for path in plan.paths if path.direct and node in (path.src, path.dst))
    planned = {lanes(path) for path in own if path.plane == plane}
    return len(planned & ran) or len(planned)


def _delta(window: Window, node: str, read_of: Callable[[Facts], int | None]) -> int | None:
    """Return by how much a counter rose; None where it was not there on both sides, or began anew."""
    if node not in window.before or node not in window.after:
        return None
    before, after = read_of(window.before[node]), read_of(window.after[node])
    return None if before is None or after is None or after < before else after - before
