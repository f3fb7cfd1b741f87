"""Break one thing at a time on a node that is as planned: exactly that is reported, with what mends it and
whom it disturbs.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from fabric_plan.compare.desired import Desired
from fabric_plan.compare.diff import diff
from fabric_plan.compare.model import Change, Resource, StepKind
from fabric_plan.compare.steps import plan_steps
from fabric_plan.facts.load import load_facts
from fabric_plan.node.document import Facts, File, Marker
from fabric_plan.node.reading import Reading
from fabric_plan.node.records import Address, Feature, Hairpin, Route, TcRule
from fabric_plan.node.transaction.places import trial_place
from tests.facts_builder import desired, live, read, with_file
from tests.golden_trees import ROOT
from tests.planner.test_ring4 import planned
from tests.strategies import Sketch, sketches

RING4 = (ROOT / "inventories" / "ring4.yaml").read_text()
WANT = desired(planned(RING4))["spark1"]
LIVE = live(WANT)
FILES = LIVE.files.value or {}
NETPLAN_FILES = LIVE.netplan.value or {}
NOTES = FILES["/run/fabric-plan/rules"].text or ""
F0 = "enp1s0f0np0"
F0P2 = "enP2p1s0f0np0"
NETPLAN = "/etc/netplan/41-sparkring-plane2.yaml"

Mutate = Callable[[Facts], Facts]


def link(netdev: str, **fields: Any) -> Mutate:
    def change(facts: Facts) -> Facts:
        found = facts.interfaces.value
        assert found is not None
        links = tuple(replace(x, **fields) if x.name == netdev else x for x in found.links)
        return replace(facts, interfaces=read(replace(found, links=links)))

    return change


def addresses(edit: Callable[[tuple[Address, ...]], tuple[Address, ...]]) -> Mutate:
    def change(facts: Facts) -> Facts:
        found = facts.interfaces.value
        assert found is not None
        return replace(facts, interfaces=read(replace(found, addresses=edit(found.addresses))))

    return change


def routes(edit: Callable[[tuple[Route, ...]], tuple[Route, ...]]) -> Mutate:
    return lambda facts: replace(facts, routes=read(edit(facts.routes.value or ())))


def sysctl(key: str, value: str | None) -> Mutate:
    return lambda facts: replace(facts, sysctls={**facts.sysctls, f"net.ipv4.conf.{key}": value})


def rules(edit: Callable[[tuple[TcRule, ...]], tuple[TcRule, ...]], dev: str = F0P2) -> Mutate:
    def change(facts: Facts) -> Facts:
        state = facts.tc[dev]
        return replace(facts, tc={**facts.tc, dev: replace(state, rules=read(edit(state.rules.value or ())))})

    return change


def rule(**fields: Any) -> Mutate:
    return rules(lambda found: tuple(replace(r, **fields) for r in found))


def markers(edit: Callable[[tuple[Marker, ...]], tuple[Marker, ...]]) -> Mutate:
    return lambda facts: replace(
        facts, rdma=replace(facts.rdma, markers=read(edit(facts.rdma.markers.value or ())))
    )


def devlink(**fields: Any) -> Mutate:
    pci = "0000:01:00.0"
    return lambda facts: replace(facts, devlink={**facts.devlink, pci: replace(facts.devlink[pci], **fields)})


def file(path: str, found: File | None) -> Mutate:
    return lambda facts: with_file(facts, path, found)


def hairpin(size: int, queues: int) -> Mutate:
    return devlink(hairpins=read((Hairpin(1, 0, 1, queues, size),)))


FOREIGN_RULE = TcRule(F0P2, "flower", "0x0800", 1, 1, 0, redirect="docker0")
OURS_ELSEWHERE = replace(FOREIGN_RULE, protocol="0x88b6", pref=882, cookie="fab91a40" + "0" * 24)
OLD_RULE = next(rule for rule in WANT.rules if rule.dev == F0P2)
OLD_NOTES = replace(
    FILES["/run/fabric-plan/rules"],
    text=re.sub(rf"{OLD_RULE.redirect} \d+$", f"{OLD_RULE.redirect} 9", NOTES, flags=re.MULTILINE),
)
MINE = File("file", "0600", 0, 0, 10, "0" * 64, text="network: {}")
CX7 = File("file", "0600", 0, 0, 1, "0" * 64, text=f"network: {{ethernets: {{{F0}: {{mtu: 1500}}}}}}")

M = StepKind.MESH
N = StepKind.NETPLAN

CASES: list[tuple[str, Mutate, Resource, StepKind | None, bool, str]] = [
    ("mtu", link(F0, mtu=1500), Resource.MTU, N, True, "1500"),
    ("link down", link(F0, flags=("BROADCAST",)), Resource.LINK, N, True, "down"),
    (
        "address gone",
        addresses(lambda a: tuple(x for x in a if x.dev != F0)),
        Resource.ADDRESS,
        N,
        True,
        "10.10.0.10/24",
    ),
    (
        "address more",
        addresses(lambda a: (*a, Address(F0, "inet", "192.168.140.7", 24))),
        Resource.ADDRESS,
        N,
        True,
        "192.168.140.7/24",
    ),
    (
        "kernel route gone",
        routes(lambda r: tuple(x for x in r if x.to != "10.10.2.0/24")),
        Resource.ROUTE,
        M,
        False,
        "10.10.2.0/24",
    ),
    (
        "relay route gone",
        routes(lambda r: tuple(x for x in r if x.to != "10.10.2.11/32")),
        Resource.ROUTE,
        M,
        False,
        "10.10.2.11/32",
    ),
    (
        "relay route redirected",
        routes(lambda r: (*r, Route("10.10.2.11", F0, "10.10.0.99", metric=1))),
        Resource.ROUTE,
        M,
        False,
        "10.10.0.99",
    ),
    (
        "relay route without its source",
        routes(lambda r: tuple(replace(x, src=None) if x.to == "10.10.2.11/32" else x for x in r)),
        Resource.ROUTE,
        M,
        False,
        "src 10.10.0.10",
    ),
    (
        "stale route of ours",
        routes(lambda r: (*r, Route("10.99.0.0/24", F0, "10.10.0.11", protocol="214"))),
        Resource.ROUTE,
        M,
        False,
        "10.99.0.0/24",
    ),
    (
        "foreign route",
        routes(lambda r: (*r, Route("10.77.0.0/16", F0, "10.10.0.11", protocol="static"))),
        Resource.FOREIGN,
        None,
        False,
        "10.77.0.0/16",
    ),
    ("arp_ignore", sysctl(f"{F0}.arp_ignore", "0"), Resource.SYSCTL, StepKind.SYSCTL, False, "arp_ignore"),
    ("forwarding", sysctl(f"{F0}.forwarding", "0"), Resource.SYSCTL, StepKind.SYSCTL, False, "forwarding"),
    ("rp_filter", sysctl(f"{F0}.rp_filter", "1"), Resource.SYSCTL, StepKind.SYSCTL, False, "rp_filter"),
    (
        "sysctl unread",
        sysctl(f"{F0}.arp_ignore", None),
        Resource.SYSCTL,
        StepKind.SYSCTL,
        False,
        "not readable",
    ),
    ("rule gone", rules(lambda r: ()), Resource.RULE, M, False, "pref 881"),
    ("rule protocol", rule(protocol="0x88b6"), Resource.RULE, M, False, "protocol is 0x88b6"),
    ("rule src_mac", rule(src_mac="02:00:00:00:00:01"), Resource.RULE, M, False, "src_mac"),
    ("rule dst_mac", rule(dst_mac="02:00:00:00:00:01"), Resource.RULE, M, False, "dst_mac"),
    ("rule set_type", rule(set_type="0x88b5"), Resource.RULE, M, False, "set_type"),
    ("rule set_dst_mac", rule(set_dst_mac="02:00:00:00:00:01"), Resource.RULE, M, False, "set_dst_mac"),
    ("rule redirect", rule(redirect="enp1s0f1np1"), Resource.RULE, M, False, "redirect"),
    ("rule cookie", rule(cookie="fab91a40" + "1" * 24), Resource.RULE, M, False, "cookie"),
    ("rule in software", rule(skip_sw=False), Resource.RULE, M, False, "no skip_sw"),
    ("rule not in hardware", rule(in_hw=False), Resource.RULE, M, False, "not in hardware"),
    ("rule with more", rule(other={"dst_ip": "10.0.0.1"}), Resource.RULE, M, False, "dst_ip"),
    ("rule stale", rules(lambda r: (*r, OURS_ELSEWHERE)), Resource.RULE, M, False, "pref 882"),
    ("rule foreign", rules(lambda r: (*r, FOREIGN_RULE)), Resource.FOREIGN, None, False, "pref 1"),
    (
        "egress made anew",
        file("/run/fabric-plan/rules", OLD_NOTES),
        Resource.RULE,
        M,
        False,
        "not known to be the present one",
    ),
    ("marker dead", markers(lambda m: m[1:]), Resource.MARKER, M, False, "roceP2p1s0f1"),
    (
        "marker arguments",
        markers(lambda m: (replace(m[0], arguments=("--device", "x")), m[1])),
        Resource.MARKER,
        StepKind.MARKERS,
        True,
        "--device x",
    ),
    (
        "two markers",
        markers(lambda m: (*m, replace(m[0], pid=999))),
        Resource.MARKER,
        StepKind.MARKERS,
        True,
        "pids 500, 999",
    ),
    (
        "marker too many",
        markers(lambda m: (*m, Marker(9, "x", (), "rocep1s0f1"))),
        Resource.MARKER,
        M,
        False,
        "pid 9",
    ),
    ("smaller queue in effect", hairpin(1024, 4), Resource.DRIVER, StepKind.HAIRPIN, True, "1024 entries"),
    (
        "pending value",
        file("/run/fabric-plan/hairpin/0000:01:00.0", None),
        Resource.DRIVER,
        StepKind.HAIRPIN,
        True,
        "not proven",
    ),
    (
        "file edited",
        file("/etc/sysctl.d/90-fabric-plan.conf", MINE),
        Resource.FILE,
        StepKind.SYSCTL,
        False,
        "0600",
    ),
    ("file gone", file("/usr/local/lib/fabric-plan/mesh-up.sh", None), Resource.FILE, M, False, "mesh-up.sh"),
    (
        "netplan file mode",
        file(NETPLAN, replace(NETPLAN_FILES[NETPLAN], mode="0644")),
        Resource.FILE,
        N,
        False,
        "0644",
    ),
    (
        "file of an older plan",
        file("/etc/fabric-plan/markers/mlx5_9.env", MINE),
        Resource.FILE,
        None,
        False,
        "mlx5_9",
    ),
    (
        "unit not enabled",
        file("/etc/systemd/system/multi-user.target.wants/fabric-plan-mesh.service", None),
        Resource.UNIT,
        StepKind.DAEMON_RELOAD,
        False,
        "fabric-plan-mesh",
    ),
    ("other netplan file", file("/etc/netplan/40-cx7.yaml", CX7), Resource.CONFLICT, None, False, F0),
    (
        "netplan file of NUL",
        file("/etc/netplan/90-NM-x.yaml", replace(MINE, nul=True, size=541)),
        Resource.CONFLICT,
        None,
        False,
        "541",
    ),
    (
        "routes unread",
        lambda facts: replace(facts, routes=Reading(None, ())),
        Resource.UNKNOWN,
        None,
        False,
        "routes",
    ),
    (
        "units unread",
        lambda facts: replace(facts, units=Reading(None, ())),
        Resource.UNKNOWN,
        None,
        False,
        "units",
    ),
]


def offload_off(facts: Facts) -> Facts:
    state = replace(facts.ethtool[F0], features=read({"hw-tc-offload": Feature(False)}))
    return replace(facts, ethtool={**facts.ethtool, F0: state})


CASES.append(("offload off", offload_off, Resource.OFFLOAD, StepKind.OFFLOAD, False, "off"))


def changes(want: Desired, facts: Facts) -> tuple[Change, ...]:
    return diff(want, facts).changes


def test_as_planned_is_no_difference() -> None:
    assert changes(WANT, LIVE) == ()


@pytest.mark.parametrize(
    ("mutate", "resource", "step", "disrupts", "words"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_one_difference(
    mutate: Mutate, resource: Resource, step: StepKind | None, disrupts: bool, words: str
) -> None:
    found = changes(WANT, mutate(LIVE))
    assert len(found) == 1, found
    (change,) = found
    assert (change.resource, change.step, change.disrupts is not None) == (resource, step, disrupts)
    assert words in f"{change.name} {change.have} {change.want}"


def test_nothing_of_ours_wanted_takes_everything_of_ours_away() -> None:
    nothing = replace(
        WANT, files=(), links=(), functions=(), routes=(), sysctls=(), rules=(), markers=(), queue_size=None
    )
    found = changes(nothing, LIVE)
    assert {change.want for change in found} == {None}
    rules = {rule.place for rule in WANT.rules}
    assert {c.name for c in found} == {f.path for f in WANT.files} | {path for path, _ in WANT.links} | rules
    assert {c.step for c in found if c.name in rules} == {StepKind.MESH_DOWN}


def test_order_never_matters() -> None:
    rng = random.Random(7)
    interfaces = LIVE.interfaces.value
    assert interfaces is not None

    def shuffled(values: Any) -> Any:
        return tuple(rng.sample(list(values), len(values)))

    other = replace(
        LIVE,
        interfaces=read(
            replace(interfaces, links=shuffled(interfaces.links), addresses=shuffled(interfaces.addresses))
        ),
        routes=read(shuffled(LIVE.routes.value)),
        sysctls=dict(reversed(list(LIVE.sysctls.items()))),
    )
    mutated = link(F0, mtu=1500)(rule(in_hw=False)(other))
    assert changes(WANT, mutated) == changes(WANT, link(F0, mtu=1500)(rule(in_hw=False)(LIVE)))


def test_saved_facts_give_the_same_diff() -> None:
    for _, mutate, *_ in CASES:
        facts = mutate(LIVE)
        again = load_facts(json.dumps(facts, default=vars).encode(), node="spark1")
        assert changes(WANT, again) == changes(WANT, facts)


@settings(max_examples=15, deadline=None)
@given(sketches())
def test_every_plan_matches_its_own_facts(sketch: Sketch) -> None:
    for want in desired(sketch.plan()).values():
        assert changes(want, live(want, mgmt="203.0.113.9")) == ()


def test_a_trial_starts_no_unit_whose_file_it_does_not_bring() -> None:
    """On a node that never had ours every unit is in its trial place, but what only comes with the commit."""
    none = replace(LIVE, files=read({}), netplan=read({}), units=read({}))
    steps = plan_steps({"spark1": WANT}, {"spark1": diff(WANT, none)}, {"spark1": none})
    started = {u for s in steps.closing["spark1"] if s.kind is StepKind.UNITS for u in s.parameters["start"]}
    assert started >= {"fabric-plan-mesh.service", "fabric-plan-hairpin.service"}
    assert all(trial_place(f"/etc/systemd/system/{unit}", "/run/trial") for unit in started), started
