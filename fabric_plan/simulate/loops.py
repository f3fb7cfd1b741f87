"""No frame goes round in hardware, whatever tag and MAC it carries.

A frame moves on only where a rule matches it, a rule fixes its tag and destination MAC, and no rule touches
the source MAC. So every frame that can exist (any tag, any MACs, put in at any function) is, from its second
hop on, one of finitely many states: the rule that took it last, and its source MAC as far as any rule looks
at it. A loop is a cycle of those states.
"""

from __future__ import annotations

from collections.abc import Iterator

from fabric_plan.planner.model import Plan, Rule
from fabric_plan.simulate.proof import Failure
from fabric_plan.simulate.wire import Wire

# Stands for every source MAC that no rule names.
_ANY_OTHER = "any other"

_State = tuple[str, Rule, str]


def hairpin_loops(wire: Wire, plan: Plan) -> Iterator[Failure]:
    """Yield one failure for each cycle of rules."""
    named = {rule.src_mac for node in plan.nodes for rule in node.rules if rule.src_mac is not None}
    senders = [*sorted(named), _ANY_OTHER]
    settled: set[_State] = set()
    told: set[frozenset[tuple[str, Rule]]] = set()
    for node in plan.nodes:
        for rule in node.rules:
            for sender in senders:
                if rule.src_mac in (None, sender):
                    loop = _follow(wire, (node.name, rule, sender), settled)
                    rules = frozenset((name, passed) for name, passed, _ in loop)
                    if loop and rules not in told:
                        told.add(rules)
                        yield _failure(loop)


def _follow(wire: Wire, start: _State, settled: set[_State]) -> list[_State]:
    """Follow the frame from `start`, every state having one successor at most; return the cycle it enters."""
    walked: list[_State] = []
    place: dict[_State, int] = {}
    cycle: list[_State] = []
    state: _State | None = start
    while state is not None and state not in settled:
        if state in place:
            cycle = walked[place[state] :]
            break
        place[state] = len(walked)
        walked.append(state)
        state = _next(wire, state)
    settled.update(walked)
    return cycle


def _next(wire: Wire, state: _State) -> _State | None:
    node, rule, sender = state
    out = wire.by_netdev.get((node, rule.redirect))
    if out is None:
        return None
    # Twins that share a MAC would both take it; that is a failure of its own, and the first one stands for
    # both here.
    for nic in wire.receivers(out, rule.set_dst_mac):
        following = wire.match(nic, rule.set_type, sender, rule.set_dst_mac)
        if following is not None:
            return nic.node, following, sender
    return None


def _failure(states: list[_State]) -> Failure:
    lines = tuple(
        f"{node} {rule.dev} relays 0x{rule.ethertype:04x} as 0x{rule.set_type:04x} to {rule.set_dst_mac}"
        for node, rule, _ in states
    )
    nodes = [node for node, _, _ in states]
    first = states[0][1]
    return Failure(
        "hairpin-loop",
        f"{' to '.join([*nodes, nodes[0]])}, plane {first.plane}",
        lines,
        f"a frame with EtherType 0x{first.ethertype:04x} to {first.dst_mac} goes round without end",
    )
