"""Hardware forwarding: driver values in effect, offload, rules byte by byte, markers, units."""

from __future__ import annotations

from collections.abc import Iterator

from fabric_plan.compare.desired import Desired, DesiredFunction, DesiredRule
from fabric_plan.compare.model import Change, Resource, StepKind
from fabric_plan.facts.effect import rule_notes, values_in_effect
from fabric_plan.facts.questions import link_of
from fabric_plan.node.document import Facts
from fabric_plan.node.records import TcRule
from fabric_plan.planner.model import COOKIE_PREFIX

RELOAD_SECONDS = (4, 8)  # docs/fabric.md 6
RELOAD = (
    f"reloads the driver of this function: {RELOAD_SECONDS[0]} to {RELOAD_SECONDS[1]} s without link, "
    "addresses, RDMA device and rules"
)
MESH_STOPS = "stops RDMA to far nodes that this node sends or relays"
MARKER_RESTART = "restarts the marker: RDMA from this device to far nodes stops for a moment"

_RULE_FIELDS = ("protocol", "src_mac", "dst_mac", "set_type", "set_dst_mac", "redirect", "cookie")


def offload_changes(desired: Desired, facts: Facts) -> Iterator[Change]:
    """Yield what differs in the card and in what steers it; nothing is looked at where nothing is relayed."""
    for function in desired.functions:
        if desired.mesh and function.address is not None:
            yield from _driver(desired, function, facts)
            yield from _offload(function, facts)
        yield from _rules(desired, function, facts)
    yield from _left_behind(desired, facts)
    if desired.mesh:
        yield from _markers(desired, facts)
        yield from _units(desired, facts)


def _driver(desired: Desired, function: DesiredFunction, facts: Facts) -> Iterator[Change]:
    want = f"hairpin_queue_size {desired.queue_size}, hairpin_num_queues {desired.num_queues} in effect"
    effect = values_in_effect(facts, function.pci, function.netdev)
    if effect.values == (desired.queue_size, desired.num_queues):
        return
    yield Change(
        Resource.DRIVER, function.netdev, effect.words, want, StepKind.HAIRPIN, function.netdev, RELOAD
    )


def _offload(function: DesiredFunction, facts: Facts) -> Iterator[Change]:
    state = facts.ethtool.get(function.netdev)
    feature = state.features.value.get("hw-tc-offload") if state and state.features.value else None
    if feature is None:
        yield Change(
            Resource.UNKNOWN,
            f"hw-tc-offload of {function.netdev}",
            "not readable",
            "on",
            interface=function.netdev,
        )
    elif not feature.active:
        yield Change(
            Resource.OFFLOAD,
            function.netdev,
            "hw-tc-offload off",
            "hw-tc-offload on",
            StepKind.OFFLOAD,
            function.netdev,
        )


def _rules(desired: Desired, function: DesiredFunction, facts: Facts) -> Iterator[Change]:
    wanted = [rule for rule in desired.rules if rule.dev == function.netdev]
    state = facts.tc.get(function.netdev)
    if state is None or state.rules.value is None:
        if wanted:
            yield Change(
                Resource.UNKNOWN,
                f"rules of {function.netdev}",
                "not readable",
                "readable",
                interface=function.netdev,
            )
        return
    left = [rule for rule in state.rules.value if rule.handle is not None]
    for rule in wanted:
        found = next((r for r in left if r.pref == rule.pref and r.handle == rule.handle), None)
        if found is None:
            # One that stands elsewhere is the same fault, not a second one.
            moved = next((r for r in left if r.cookie == rule.cookie), None)
            have = None
            if moved is not None:
                left.remove(moved)
                have = f"at pref {moved.pref} handle {moved.handle:#x}"
            yield Change(Resource.RULE, rule.place, have, words(rule), StepKind.MESH, rule.dev)
            continue
        left.remove(found)
        faults = list(rule_faults(rule, found, facts))
        if faults:
            yield Change(Resource.RULE, rule.place, "; ".join(faults), words(rule), StepKind.MESH, rule.dev)
    for found in left:
        place = f"{function.netdev} pref {found.pref} handle {found.handle or 0:#x}"
        if (found.cookie or "").startswith(COOKIE_PREFIX):
            yield Change(
                Resource.RULE, place, f"our rule {found.cookie}", None, StepKind.MESH, function.netdev
            )
        elif desired.functions:
            what = f"{found.kind} {found.protocol or ''}".strip()
            yield Change(Resource.FOREIGN, f"filter {place}", what, None, interface=function.netdev)


def _left_behind(desired: Desired, facts: Facts) -> Iterator[Change]:
    """Yield our rules on functions that are not ours any more: no script of the new state looks at those."""
    ours = {function.netdev for function in desired.functions}
    for dev, state in sorted(facts.tc.items()):
        for found in (state.rules.value or ()) if dev not in ours else ():
            if (found.cookie or "").startswith(COOKIE_PREFIX):
                place = f"{dev} pref {found.pref} handle {found.handle or 0:#x}"
                words_ = f"our rule {found.cookie}"
                yield Change(Resource.RULE, place, words_, None, StepKind.MESH_DOWN, dev, MESH_STOPS)


def words(rule: DesiredRule) -> str:
    """Return a rule in one line."""
    sender = f" from {rule.src_mac}" if rule.src_mac else ""
    return (
        f"{rule.protocol}{sender} to {rule.dst_mac}: type {rule.set_type}, dst {rule.set_dst_mac}, out "
        f"{rule.redirect}"
    )


def rule_faults(rule: DesiredRule, found: TcRule, facts: Facts) -> Iterator[str]:
    """Yield everything in which a live rule is not the planned one."""
    for name in _RULE_FIELDS:
        have, want = getattr(found, name), getattr(rule, name)
        if have != want:
            yield f"{name} is {have}, not {want}"
    if not found.skip_sw:
        yield "may fall back to software (no skip_sw)"
    if not found.in_hw:
        yield "is not in hardware"
    for key, value in sorted(found.other.items()):
        yield f"has {key} {value} besides"
    egress, note = (
        link_of(facts, name=rule.redirect),
        rule_notes(facts).get((rule.dev, rule.pref, rule.handle)),
    )
    if egress is None:
        yield f"sends to {rule.redirect}, which is not there"
    elif note is None or (note.cookie, note.redirect, note.ifindex) != (
        rule.cookie,
        rule.redirect,
        egress.ifindex,
    ):
        # A function that the driver made anew leaves rules that look right and lead nowhere.
        yield f"leads to a {rule.redirect} that is not known to be the present one"


def _markers(desired: Desired, facts: Facts) -> Iterator[Change]:
    running = facts.rdma.markers.value
    if running is None:
        if desired.markers:
            yield Change(Resource.UNKNOWN, "markers", "not readable", "readable")
        return
    wanted = {marker.rdma: marker.arguments for marker in desired.markers}
    for device, arguments in sorted(wanted.items()):
        own = [marker for marker in running if marker.device == device]
        want = " ".join(arguments)
        if not own:
            yield Change(Resource.MARKER, device, None, want, StepKind.MESH)
        elif len(own) > 1:
            have = f"{len(own)} markers: pids {', '.join(str(marker.pid) for marker in own)}"
            yield Change(Resource.MARKER, device, have, want, StepKind.MARKERS, disrupts=MARKER_RESTART)
        elif own[0].arguments != arguments:
            have = " ".join(own[0].arguments)
            yield Change(Resource.MARKER, device, have, want, StepKind.MARKERS, disrupts=MARKER_RESTART)
    ours = {function.rdma for function in desired.functions}
    for marker in running:
        if marker.device in ours and marker.device not in wanted:
            yield Change(Resource.MARKER, str(marker.device), f"pid {marker.pid}", None, StepKind.MESH)


def _units(desired: Desired, facts: Facts) -> Iterator[Change]:
    if facts.units.value is None:
        yield Change(Resource.UNKNOWN, "units", "not readable", "readable")
        return
    for unit in desired.units:
        state = facts.units.value.get(unit)
        if state is None or state.active_state != "active":
            have = "not known" if state is None else f"{state.active_state} ({state.result})"
            yield Change(Resource.UNIT, unit, have, "active", StepKind.UNITS)
