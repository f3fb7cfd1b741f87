"""A look at a fabric as Prometheus text, for node_exporter's textfile collector. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from fabric_plan.checks.counters import forwarded, overflow, sent_best, sequence
from fabric_plan.checks.drift import Look
from fabric_plan.checks.model import Verdict

_HELP = {
    "fabric_plan_node_up": ("gauge", "Whether the node answered."),
    "fabric_plan_checks": ("gauge", "Checks by layer and verdict."),
    "fabric_plan_finding": ("gauge", "1 for each root finding."),
    "fabric_plan_ok": ("gauge", "Whether every check passed."),
    "fabric_plan_rule_packets_total": ("counter", "Frames that a rule relayed in hardware."),
    "fabric_plan_forwarded_total": ("counter", "Packets that the kernel forwarded (IpForwDatagrams)."),
    "fabric_plan_overflow_total": ("counter", "rx_out_of_buffer of a function."),
    "fabric_plan_sequence_errors_total": ("counter", "Packets out of sequence at an RDMA device."),
    "fabric_plan_sent_bytes_total": ("counter", "Bytes that a function sent."),
    "fabric_plan_last_look_seconds": ("gauge", "Unix time of the last look."),
}


def prometheus(look: Look, at_unix: float) -> str:
    """Return the whole text; a counter that could not be read has no line."""
    lines: dict[str, list[str]] = defaultdict(list)
    for name, labels, value in _samples(look, at_unix):
        words = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        shown = str(int(value)) if float(value).is_integer() else f"{value:.3f}"
        lines[name].append(f"{name}{{{words}}} {shown}" if words else f"{name} {shown}")
    text = []
    for name, (kind, said) in _HELP.items():
        if lines[name]:
            text += [f"# HELP {name} {said}", f"# TYPE {name} {kind}", *lines[name]]
    return "\n".join(text) + "\n"


def _samples(look: Look, at_unix: float) -> Iterator[tuple[str, dict[str, str], float]]:
    scene, verification = look.scene, look.verification
    yield "fabric_plan_last_look_seconds", {}, at_unix
    yield "fabric_plan_ok", {}, float(verification.ok)
    counted = Counter((c.node, str(c.layer), c.verdict) for c in verification.checks)
    for node in scene.desired:
        yield "fabric_plan_node_up", {"node": node}, float(node in scene.facts)
    for node, layer in dict.fromkeys((node, layer) for node, layer, _ in counted):
        for verdict in Verdict:
            labels = {"node": node, "layer": layer, "verdict": str(verdict)}
            yield "fabric_plan_checks", labels, counted[node, layer, verdict]
    for root in verification.roots:
        check = root.check
        labels = {"node": check.node, "id": check.id, "device": check.interface or "", "what": check.subject}
        yield "fabric_plan_finding", labels, 1
    for node, facts in scene.facts.items():
        if (count := forwarded(facts)) is not None:
            yield "fabric_plan_forwarded_total", {"node": node}, count
        for rule in scene.desired[node].rules if node in scene.desired else ():
            state = facts.tc.get(rule.dev)
            for found in (state.rules.value if state else None) or ():
                if (found.pref, found.handle) == (rule.pref, rule.handle) and found.hw_packets is not None:
                    labels = {"node": node, "rule": rule.place}
                    yield "fabric_plan_rule_packets_total", labels, found.hw_packets
        for function in scene.known.get(node, ()):
            labels = {"node": node, "device": function.netdev, "plane": str(function.plane)}
            for name, value in (
                ("fabric_plan_overflow_total", overflow(facts, function.netdev)),
                ("fabric_plan_sequence_errors_total", sequence(facts, function.rdma)),
                ("fabric_plan_sent_bytes_total", sent_best(facts, function)),
            ):
                if value is not None:
                    yield name, labels, value


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
