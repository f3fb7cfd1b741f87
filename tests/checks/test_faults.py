"""One fault at a time on a sound fabric: its root finding on that node and interface, its necessary
consequences under it, nothing unrelated. The table is printed and stands in docs/verify.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fabric_plan.checks.model import Verdict, Verification
from fabric_plan.checks.roots import IMPLIES
from fabric_plan.checks.run import verify
from fabric_plan.checks.scene import Scene
from fabric_plan.checks.texts import TEXTS
from fabric_plan.node.document import Facts, File, Marker, TcState, Unit
from fabric_plan.node.reading import unreadable
from fabric_plan.node.records import (
    Address,
    DevlinkParam,
    Eswitch,
    Feature,
    Gid,
    LldpNeighbour,
    Neighbour,
    Qos,
    Reloads,
    Route,
    TcRule,
)
from tests.checks.sound import LIBRARY, Mutate, broken, sound
from tests.compare.test_diff import addresses, devlink, file, hairpin, link, markers, rule, rules, sysctl
from tests.facts_builder import read
from tests.golden_trees import ROOT
from tests.planner.test_ring4 import RING4, planned

SCENE = sound(planned(RING4))
DOCUMENT = ROOT / "docs" / "verify.md"
F0, F1, G0, G1 = "enp1s0f0np0", "enp1s0f1np1", "enP2p1s0f0np0", "enP2p1s0f1np1"
PCI = "0000:01:00.0"
WANT = SCENE.desired["spark1"]
RULE = next(r for r in WANT.rules if r.dev == G0)


def rdma(**fields: Any) -> Mutate:
    return lambda facts: replace(facts, rdma=replace(facts.rdma, **fields))


def gids(edit: Callable[[Gid], Gid | None]) -> Mutate:
    def change(facts: Facts) -> Facts:
        kept = tuple(gid for g in facts.rdma.gids.value or () if (gid := edit(g)) is not None)
        return rdma(gids=read(kept))(facts)

    return change


def routes(edit: Callable[[Route], Route | None], *more: Route) -> Mutate:
    def change(facts: Facts) -> Facts:
        kept = tuple(route for r in facts.routes.value or () if (route := edit(r)) is not None)
        return replace(facts, routes=read((*kept, *more)))

    return change


def unit(name: str, **fields: Any) -> Mutate:
    def change(facts: Facts) -> Facts:
        units = facts.units.value or {}
        return replace(facts, units=read({**units, name: replace(units[name], **fields)}))

    return change


def neighbours(edit: Callable[[Neighbour], Neighbour | None], lldp: tuple[LldpNeighbour, ...] = ()) -> Mutate:
    def change(facts: Facts) -> Facts:
        kept = tuple(n for old in facts.neighbours.value or () if (n := edit(old)) is not None)
        return replace(facts, neighbours=read(kept), lldp=read(lldp))

    return change


def heard(ports: Mapping[str, tuple[str, str]]) -> Mutate:
    """Nothing answers on these devices any more, and LLDP names somebody else."""
    lldp = tuple(LldpNeighbour(dev, who, None, port, "ifname", port) for dev, (who, port) in ports.items())
    return neighbours(lambda n: None if n.dev in ports else n, lldp)


def function_gone(netdev: str, rdma_device: str, pci: str) -> Mutate:
    """What a function takes with it."""

    def change(facts: Facts) -> Facts:
        found = facts.interfaces.value
        assert found is not None
        kept = replace(
            found,
            links=tuple(x for x in found.links if x.name != netdev),
            addresses=tuple(a for a in found.addresses if a.dev != netdev),
        )
        facts = replace(
            facts,
            interfaces=read(kept),
            devlink={k: v for k, v in facts.devlink.items() if k != pci},
            ethtool={k: v for k, v in facts.ethtool.items() if k != netdev},
            tc={**facts.tc, netdev: TcState(read(()), unreadable("Cannot find device"))},
            qos={k: v for k, v in facts.qos.items() if k != netdev},
            sysctls={k: None if f".{netdev}." in k else v for k, v in facts.sysctls.items()},
            rdma=replace(
                facts.rdma,
                ports=read(tuple(p for p in facts.rdma.ports.value or () if p.device != rdma_device)),
                markers=read(tuple(m for m in facts.rdma.markers.value or () if m.device != rdma_device)),
            ),
        )
        facts = gids(lambda g: None if g.netdev == netdev else g)(facts)
        facts = routes(lambda r: None if r.dev == netdev else r)(facts)
        return neighbours(lambda n: None if n.dev == netdev else n)(facts)

    return change


def all_of(*changes: Mutate) -> Mutate:
    def change(facts: Facts) -> Facts:
        for one in changes:
            facts = one(facts)
        return facts

    return change


def edited(path: str) -> Mutate:
    return file(path, File("file", "0644", 0, 0, 9, "f" * 64, text="# edited\n"))


def library(**fields: Any) -> Mutate:
    return lambda facts: replace(facts, libraries={LIBRARY: replace(facts.libraries[LIBRARY], **fields)})


def carrier_lost(*netdevs: str) -> Mutate:
    gone = [link(netdev, flags=("BROADCAST", "UP")) for netdev in netdevs]
    return all_of(*gone, neighbours(lambda n: None if n.dev in netdevs else n))


def address_gone(netdev: str) -> Mutate:
    return all_of(
        addresses(lambda found: tuple(a for a in found if a.dev != netdev)),
        gids(lambda g: None if g.netdev == netdev else g),
        routes(lambda r: None if r.dev == netdev and r.via else r),
    )


def marker_dead(device: str = "rocep1s0f0") -> Mutate:
    return all_of(
        markers(lambda found: tuple(m for m in found if m.device != device)),
        unit(f"fabric-plan-marker@{device}.service", active_state="failed", result="signal"),
    )


def marker_with(device: str = "rocep1s0f0", **fields: Any) -> Mutate:
    return markers(lambda found: tuple(replace(m, **fields) if m.device == device else m for m in found))


def rules_gone(device: str) -> Mutate:
    return rules(lambda found: (), device)


NEW_MAC = "4c:bb:47:ff:00:09"
NOT_LOADED: dict[str, Any] = {"active_state": "inactive", "active_since_us": 0}
MESH_DOWN = all_of(
    *(rules_gone(netdev) for netdev in (G0, G1)),
    markers(lambda found: ()),
    *(unit(f"fabric-plan-marker@{m.rdma}.service", **NOT_LOADED) for m in WANT.markers),
)


@dataclass(frozen=True)
class Fault:
    """A fault, and what has to be said: the root's place and id, and the ids that may stand under it."""

    name: str
    changes: Mapping[str, Mutate]
    node: str
    interface: str | None
    root: str
    under: frozenset[str] = frozenset()
    verdict: Verdict = Verdict.FAIL


def fault(
    name: str,
    change: Mutate | Mapping[str, Mutate],
    root: str,
    interface: str | None = None,
    under: tuple[str, ...] = (),
    *,
    node: str = "spark1",
    verdict: Verdict = Verdict.FAIL,
) -> Fault:
    changes = change if isinstance(change, Mapping) else {node: change}
    return Fault(name, changes, node, interface, root, frozenset(under), verdict)


FILES = "/etc/fabric-plan"
SET_ONLY = Reloads({"driver_reinit": {"unspecified": 0}}, {}, False)

FAULTS = [
    fault("rule: tag", rule(protocol="0x88b6"), "rule", G0),
    fault("rule: source MAC", rule(src_mac="4c:bb:47:02:00:07"), "rule", G0),
    fault("rule: destination MAC", rule(dst_mac="4c:bb:47:02:00:07"), "rule", G0),
    fault("rule: EtherType rewrite", rule(set_type="0x0801"), "rule", G0),
    fault("rule: MAC rewrite", rule(set_dst_mac="4c:bb:47:02:00:07"), "rule", G0),
    fault("rule: redirect", rule(redirect=F1), "rule", G0),
    fault("rule: cookie", rule(cookie="fab91a40" + "1" * 24), "rule", G0),
    fault("rule: no skip_sw", rule(skip_sw=False), "rule", G0),
    fault("rule: matches more", rule(other={"vlan_id": "4"}), "rule", G0),
    fault("rule not in hardware", rule(in_hw=False), "rule", G0),
    fault("rule: at another priority", rule(pref=882), "rule", G0),
    fault("rule gone", rules_gone(G0), "rule", G0),
    fault(
        "rule of ours that is not planned",
        rules(
            lambda found: (
                *found,
                TcRule(G0, "flower", "0x88b6", 882, 9, 0, redirect=G1, cookie="fab91a40" + "0" * 24),
            ),
            G0,
        ),
        "rule-extra",
        G0,
    ),
    fault(
        "hairpin values pending",
        devlink(reloads=read(SET_ONLY)),
        "hairpin",
        F0,
    ),
    fault("hairpin smaller in effect", hairpin(1024, 4), "hairpin", F0),
    fault(
        "hairpin reloads not readable",
        devlink(reloads=unreadable("devlink says nothing")),
        "hairpin",
        F0,
        verdict=Verdict.NOT_PROVEN,
    ),
    fault(
        "offload off",
        all_of(
            lambda f: replace(
                f,
                ethtool={
                    **f.ethtool,
                    G0: replace(f.ethtool[G0], features=read({"hw-tc-offload": Feature(False)})),
                },
            ),
            rule(in_hw=False),
        ),
        "offload",
        G0,
        ("rule",),
    ),
    fault(
        "wrong steering",
        lambda f: devlink(
            params=read(
                {
                    **(f.devlink[PCI].params.value or {}),
                    "flow_steering_mode": DevlinkParam("flow_steering_mode", None, {"runtime": "dmfs"}),
                }
            )
        )(f),
        "steering",
        F0,
    ),
    fault("eswitch in switchdev mode", devlink(eswitch=read(Eswitch("switchdev"))), "eswitch", F0),
    fault(
        "DSCP trust",
        lambda f: replace(f, qos={**f.qos, G0: replace(f.qos[G0], mlnx_qos=read(Qos("dscp", "os", ())))}),
        "trust",
        G0,
    ),
    fault("MTU on one end", link(F0, mtu=1500), "mtu", F0),
    fault("device down", link(F0, flags=("BROADCAST",), state="DOWN"), "link-up", F0, ("carrier",)),
    fault(
        "cable pulled",
        {"spark1": carrier_lost(F0, G0), "spark2": carrier_lost(F1, G1)},
        "carrier",
        F0,
        ("carrier", "cable"),
    ),
    fault("address gone", address_gone(F0), "address", F0, ("gid", "route")),
    fault(
        "second address",
        addresses(lambda found: (*found, Address(F0, "inet", "10.10.9.9", 24))),
        "address-extra",
        F0,
    ),
    fault("GID missing", gids(lambda g: None if g.netdev == F0 else g), "gid", F0),
    fault(
        "route replaced by a redirect",
        routes(lambda r: replace(r, via="10.10.0.99", protocol="redirect") if r.to == "10.10.2.11/32" else r),
        "route",
        F0,
    ),
    fault(
        "host route over a planned one",
        routes(lambda r: r, Route("10.10.4.11", F1, "10.10.6.10", None, "redirect")),
        "route-override",
        F1,
    ),
    fault("sysctl at its default", sysctl(f"{F0}.arp_ignore", "0"), "sysctl", F0),
    fault(
        "sysctl at its default, and the wrong plane answered",
        {
            "spark2": sysctl(f"{F1}.arp_ignore", "0"),
            "spark1": neighbours(lambda n: replace(n, mac="4c:bb:47:02:00:06") if n.dev == F0 else n),
        },
        "sysctl",
        F1,
        ("cable",),
        node="spark2",
    ),
    fault("marker dead", marker_dead(), "marker", F0, ("marker-unit", "unit-boot")),
    fault(
        "marker with wrong arguments",
        marker_with(arguments=("--device", "rocep1s0f0")),
        "marker",
        F0,
    ),
    fault(
        "two markers",
        markers(lambda found: (*found, replace(found[-1], pid=999))),
        "marker",
        F0,
    ),
    fault(
        "marker where none is planned",
        markers(lambda found: (*found, Marker(999, "fabric-plan-marker", (), "rocep1s0f1"))),
        "marker-extra",
        F1,
    ),
    fault(
        "unit disabled, and the node booted",
        all_of(
            file("/etc/systemd/system/multi-user.target.wants/fabric-plan-mesh.service", None),
            unit("fabric-plan-mesh.service", **NOT_LOADED),
            MESH_DOWN,
        ),
        "unit-enabled",
        None,
        ("unit", "unit-boot", "rule", "marker", "marker-unit"),
    ),
    fault(
        "unit failed in this boot",
        all_of(unit("fabric-plan-mesh.service", active_state="failed", result="exit-code"), MESH_DOWN),
        "unit",
        None,
        ("unit-boot", "rule", "marker", "marker-unit"),
    ),
    fault(
        "hairpin unit failed in this boot",
        all_of(
            unit("fabric-plan-hairpin.service", active_state="failed", result="timeout"), hairpin(1024, 4)
        ),
        "unit",
        None,
        ("unit-boot", "hairpin"),
    ),
    fault("file edited", edited(f"{FILES}/env/nccl.env"), "file"),
    fault("graph file edited", edited(f"{FILES}/nccl/ring.xml"), "file", None, ("graph-file",)),
    fault(
        "unit file edited",
        all_of(
            edited("/etc/systemd/system/fabric-plan-mesh.service"),
            unit("fabric-plan-mesh.service", needs_reload=True),
        ),
        "file",
        None,
        ("unit-stale",),
    ),
    fault(
        "marker's file edited, and the marker restarted",
        all_of(
            edited(f"{FILES}/markers/rocep1s0f0.env"),
            marker_with(arguments=("--device", "rocep1s0f0")),
        ),
        "file",
        None,
        ("marker",),
    ),
    fault(
        "another netplan file",
        all_of(
            file(
                "/etc/netplan/99-vendor.yaml",
                File("file", "0600", 0, 0, 1, "", text=f"network: {{ethernets: {{{F0}: {{mtu: 1500}}}}}}"),
            ),
            link(F0, mtu=1500),
            addresses(lambda found: (*found, Address(F0, "inet", "192.168.50.1", 24))),
        ),
        "netplan-conflict",
        F0,
        ("mtu", "address-extra"),
    ),
    fault(
        "another tool's mesh",
        lambda f: replace(
            f,
            units=read(
                {
                    **(f.units.value or {}),
                    "sparkring-mesh.service": Unit(
                        "loaded", "active", "exited", "enabled", "success", 0, 0, 0, 9, "", False
                    ),
                }
            ),
        ),
        "other-mesh",
    ),
    fault(
        "peer NIC swapped",
        {
            "spark2": link(F0, mac=NEW_MAC, permanent_mac=NEW_MAC),
            "spark3": neighbours(lambda n: replace(n, mac=NEW_MAC) if n.dev == F1 else n),
        },
        "identity",
        F0,
        ("rule-peer",),
        node="spark2",
    ),
    fault(
        "cable swapped",
        {
            "spark1": heard({F0: ("spark4", F0), G0: ("spark4", G0), F1: ("spark2", F1), G1: ("spark2", G1)}),
            "spark2": heard({F1: ("spark1", F1), G1: ("spark1", G1)}),
            "spark4": heard({F0: ("spark1", F0), G0: ("spark1", G0)}),
        },
        "cable",
        F0,
        ("cable",),
    ),
    fault(
        "the other plane's MAC learned",
        neighbours(lambda n: replace(n, mac="4c:bb:47:02:00:06") if n.dev == F0 else n),
        "cable",
        F0,
    ),
    fault(
        "function gone",
        {
            "spark1": function_gone(G0, "roceP2p1s0f0", "0002:01:00.0"),
            "spark2": carrier_lost(G1),
        },
        "function",
        G0,
        (
            *("carrier", "cable", "route", "sysctl", "hairpin", "offload", "eswitch", "steering", "trust"),
            *("one-card", "rule", "rule-peer", "rule-extra"),
        ),
    ),
    fault("library differs", library(sha256="cd" * 32), "library", None),
    fault("library ignores the environment", library(version="2.21.5", marks=()), "library-mode", None),
    fault(
        "library missing",
        library(sha256=None, error="No such file or directory"),
        "library",
        None,
    ),
]


def found(scene: Scene) -> Verification:
    return verify(scene, since_boot=True)


@cache
def verified(name: str) -> Verification:
    return found(broken(SCENE, next(case.changes for case in FAULTS if case.name == name)))


def test_the_sound_fabric_passes_in_every_layer_but_the_probe() -> None:
    sound_one = found(SCENE)
    assert sound_one.ok and not sound_one.roots
    assert {check.id for check in sound_one.checks} >= set(IMPLIES) - {
        text for text, said in TEXTS.items() if said.layer == "probe"
    }


@pytest.mark.parametrize("case", FAULTS, ids=lambda case: case.name)
def test_one_fault_one_root(case: Fault) -> None:
    verification = verified(case.name)
    assert len(verification.roots) == 1, [str(root.check) for root in verification.roots]
    (root,) = verification.roots
    assert (root.check.id, root.check.node, root.check.interface) == (case.root, case.node, case.interface)
    assert root.check.verdict is case.verdict
    assert {check.id for check in root.consequences} == case.under
    assert root.check.mend and root.check.read != root.check.expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("MTU on one end", "marker with wrong arguments"),
        ("sysctl at its default", "GID missing"),
        ("hairpin smaller in effect", "MTU on one end"),
        ("file edited", "unit file edited"),
    ],
)
def test_two_faults_on_one_thing_stay_two_roots(one: str, other: str) -> None:
    cases = [next(case for case in FAULTS if case.name == name) for name in (one, other)]
    change = all_of(*(case.changes["spark1"] for case in cases))
    roots = sorted(root.check.id for root in found(broken(SCENE, {"spark1": change})).roots)
    assert roots == sorted(case.root for case in cases)


def test_every_id_has_its_text_and_every_implication_an_id() -> None:
    assert set(IMPLIES) <= set(TEXTS)
    assert {effect for effects in IMPLIES.values() for effect in effects} <= set(TEXTS)


@pytest.mark.parametrize(
    "reading",
    ["interfaces", "routes", "files", "netplan", "units", "lldp_and_neighbours", "rdma", "tc", "sysctls"],
)
def test_what_cannot_be_read_is_never_a_pass(reading: str) -> None:
    none = unreadable("nothing was said")

    def blind(facts: Facts) -> Facts:
        if reading == "rdma":
            return rdma(ports=none, gids=none, markers=none, verbs=none)(facts)
        if reading == "tc":
            return replace(facts, tc={dev: replace(state, rules=none) for dev, state in facts.tc.items()})
        if reading == "lldp_and_neighbours":
            return replace(facts, lldp=none, neighbours=none)
        if reading == "sysctls":
            return replace(facts, sysctls=dict.fromkeys(facts.sysctls))
        fields: dict[str, Any] = {reading: none}
        return replace(facts, **fields)

    about = {
        "interfaces": {"function", "sysctl", "subnet-taken", "route"},
        "routes": {"route", "route-override", "management"},
        "files": {"file", "file-extra", "unit-enabled", "netplan-conflict", "graph-file"},
        "netplan": {"file", "file-extra", "unit-enabled", "netplan-conflict"},
        "units": {"unit", "marker-unit", "other-mesh"},
        "lldp_and_neighbours": {"cable"},
        "rdma": {"rdma-port", "gid", "marker", "marker-extra", "one-card", "roce-mtu"},
        "tc": {"rule", "rule-extra"},
        "sysctls": {"sysctl"},
    }[reading]
    verification = found(broken(SCENE, {"spark1": blind}))
    said = {check.id for check in verification.checks if check.node == "spark1"}
    passed = [
        check
        for check in verification.checks
        if check.node == "spark1" and check.id in about and check.verdict is Verdict.PASS
    ]
    assert about <= said
    assert not passed, passed[:3]
    assert not verification.ok


def test_a_node_that_does_not_answer_is_not_proven_and_nothing_of_it_passes() -> None:
    facts = {name: facts for name, facts in SCENE.facts.items() if name != "spark2"}
    verification = found(replace(SCENE, facts=facts, failed={"spark2": "no answer within 20 s"}))
    assert [(root.check.id, root.check.node) for root in verification.roots] == [("facts", "spark2")]
    assert {check.id for check in verification.roots[0].consequences} == {"cable", "rule-peer", "library"}
    assert not [c for c in verification.checks if c.node == "spark2" and c.verdict is Verdict.PASS]


def test_an_empty_scene_is_not_ok() -> None:
    assert not verify(Scene({}, {})).ok


def table() -> str:
    """Return the table of faults and findings, as docs/verify.md keeps it."""
    lines = ["| fault | root finding | on | consequences |", "|---|---|---|---|"]
    for case in FAULTS:
        (root,) = verified(case.name).roots
        where = root.check.place
        verdict = "" if root.check.verdict is Verdict.FAIL else " (not proven)"
        under: dict[str, int] = {}
        for check in root.consequences:
            under[check.id] = under.get(check.id, 0) + 1
        words = ", ".join(f"{kind} x{n}" if n > 1 else kind for kind, n in sorted(under.items()))
        lines.append(f"| {case.name} | {root.check.id}{verdict} | {where} | {words or 'none'} |")
    return "\n".join(lines)


def test_the_table_stands_in_the_documentation() -> None:
    text = table()
    print(f"\n{text}")
    kept = re.search(r"<!-- faults -->\n(.*?)\n<!-- end -->", Path(DOCUMENT).read_text(), re.DOTALL)
    assert kept is not None and kept[1] == text, "python -m tests.checks.test_faults prints the present one"


def test_there_are_enough() -> None:
    assert len(FAULTS) >= 25 and len({case.name for case in FAULTS}) == len(FAULTS)


if __name__ == "__main__":
    print(table())
