"""Hardware forwarding on one node: the card's settings, rules against plan and against the peers' live MACs,
markers.
"""

from __future__ import annotations

from collections.abc import Iterator

from fabric_plan.checks.model import Check, Verdict, at
from fabric_plan.checks.scene import Place, View
from fabric_plan.compare.desired import DesiredFunction, DesiredRule
from fabric_plan.compare.model import Resource
from fabric_plan.compare.offload import words
from fabric_plan.compare.profile import ESWITCH, ONE_CARD, STEERING, TRUST, settings
from fabric_plan.facts.effect import values_in_effect

HAIRPIN_UNIT = "fabric-plan-hairpin.service"
MESH_UNIT = "fabric-plan-mesh.service"
_SCRIPTS = "/usr/local/lib/fabric-plan"
_SETTING = {ESWITCH: "eswitch", STEERING: "steering", TRUST: "trust", ONE_CARD: "one-card"}


def offload_checks(view: View) -> Iterator[Check]:
    """Yield them; nothing where nothing is relayed but what should not be there."""
    if view.want.mesh:
        yield from _driver(view)
    yield from _rules(view)
    yield from _markers(view)


def _driver(view: View) -> Iterator[Check]:
    expected = f"{view.want.queue_size} entries, {view.want.num_queues} queues in effect"
    cabled = [f for f in view.want.functions if f.address is not None]
    for function in cabled:
        name = function.netdev
        changed = view.of(Resource.DRIVER, name)
        effect = values_in_effect(view.facts, function.pci, name)
        proven = effect.values is not None or effect.pending
        verdict = Verdict.FAIL if proven else Verdict.NOT_PROVEN
        yield view.check(
            "hairpin",
            verdict if changed else Verdict.PASS,
            effect.words,
            expected,
            interface=name,
            needs=view.needs(HAIRPIN_UNIT, f"{_SCRIPTS}/hairpin.sh"),
        )
        unread = f"hw-tc-offload of {name}"
        yield view.judged(
            "offload",
            view.of(Resource.OFFLOAD, name),
            "hw-tc-offload on",
            readable=(unread,),
            interface=name,
            needs=view.needs(),
        )
    relays = {r.dev for r in view.want.rules} | {r.redirect for r in view.want.rules}
    names = {f.netdev for f in cabled}
    for setting in settings(view.want, view.facts):
        if setting.netdev not in names or (setting.id == TRUST and setting.netdev not in relays):
            continue
        verdict = Verdict.FAIL if setting.wrong else Verdict.PASS
        read = setting.have or "not readable"
        if setting.have is None:
            verdict = Verdict.NOT_PROVEN
            if setting.id == TRUST and _in_hardware(view, setting.netdev):
                verdict, read = Verdict.PASS, "its rules are in hardware, which the driver refuses under DSCP"
        yield view.check(
            _SETTING[setting.id],
            verdict,
            read,
            setting.want,
            interface=setting.netdev,
            needs=view.needs(),
            mend=setting.hint if setting.wrong else None,
        )


def _in_hardware(view: View, netdev: str) -> bool:
    """Tell whether every planned rule that uses a function stands in the card as planned."""
    using = [rule for rule in view.want.rules if netdev in (rule.dev, rule.redirect)]
    return bool(using) and not any(view.of(Resource.RULE, rule.place) for rule in using)


def _rules(view: View) -> Iterator[Check]:
    for rule in view.want.rules:
        needs = view.needs(rule.redirect, MESH_UNIT, f"{_SCRIPTS}/mesh-up.sh")
        yield view.judged(
            "rule",
            view.of(Resource.RULE, rule.place),
            words(rule),
            readable=(f"rules of {rule.dev}",),
            interface=rule.dev,
            subject=rule.place,
            needs=needs,
            read="as planned, in hardware",
        )
        yield _against_peers(view, rule)
    for function in view.want.functions:
        wanted = {rule.place for rule in view.want.rules}
        extra = [
            c
            for c in view.of(Resource.RULE)
            if c.interface == function.netdev and c.want is None and c.name not in wanted
        ]
        state = view.facts.tc.get(function.netdev)
        check = view.judged(
            "rule-extra",
            extra,
            "no other rule of ours",
            readable=(f"rules of {function.netdev}",),
            interface=function.netdev,
            needs=view.needs(f"{_SCRIPTS}/mesh-up.sh"),
        )
        if check.verdict is Verdict.PASS and (state is None or not state.rules.complete):
            yield view.check(
                "rule-extra",
                Verdict.NOT_PROVEN,
                "not every filter could be read",
                check.expected,
                interface=function.netdev,
                needs=check.needs,
            )
        else:
            yield check


def _against_peers(view: View, rule: DesiredRule) -> Check:
    """Hold the MACs of a rule against the MACs that the functions meant by them have now."""
    scene = view.scene
    meant: list[tuple[str, str, Place]] = []
    by_mac = {f.mac: (node, f.netdev) for node, functions in scene.known.items() for f in functions}
    for field, mac in (
        ("src_mac", rule.src_mac),
        ("dst_mac", rule.dst_mac),
        ("set_dst_mac", rule.set_dst_mac),
    ):
        if mac is not None and mac in by_mac:
            meant.append((field, mac, by_mac[mac]))
    faults, unknown = [], []
    for field, mac, place in meant:
        have = scene.live_mac(place)
        if have is None:
            unknown.append(f"{' '.join(place)}: MAC not known")
        elif have != mac:
            faults.append(f"{field} {mac} is meant for {' '.join(place)}, which has {have} now")
    verdict = Verdict.FAIL if faults else Verdict.NOT_PROVEN if unknown or not meant else Verdict.PASS
    things = tuple(thing for _, _, (node, netdev) in meant for thing in (node, at(node, netdev)))
    return view.check(
        "rule-peer",
        verdict,
        "; ".join((*faults, *unknown)) or "the MACs of the present functions",
        "the present MACs of sender, relay and receiver",
        interface=rule.dev,
        subject=rule.place,
        needs=(*view.needs(rule.redirect), *things),
    )


def _markers(view: View) -> Iterator[Check]:
    wanted = {marker.rdma: marker for marker in view.want.markers}
    running = view.facts.rdma.markers
    for function in view.want.functions:
        marker = wanted.get(function.rdma)
        own = [m for m in running.value or () if m.device == function.rdma]
        changes = view.of(Resource.MARKER, function.rdma)
        if marker is not None:
            unit = f"fabric-plan-marker@{function.rdma}.service"
            yield view.judged(
                "marker",
                changes,
                f"one, with {' '.join(marker.arguments)}",
                readable=("markers",),
                interface=function.netdev,
                subject=function.rdma,
                needs=view.needs(MESH_UNIT, f"/etc/fabric-plan/markers/{function.rdma}.env", unit),
                read=f"one, pid {own[0].pid}" if own else None,
            )
        elif view.want.mesh:
            yield view.judged(
                "marker-extra",
                changes,
                "none",
                readable=("markers",),
                interface=function.netdev,
                subject=function.rdma,
                needs=view.needs(),
            )


def marker_of(view: View, unit: str) -> DesiredFunction | None:
    """Return the function whose marker a unit runs."""
    for function in view.want.functions:
        if unit == f"fabric-plan-marker@{function.rdma}.service":
            return function
    return None
