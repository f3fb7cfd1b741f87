"""Which finding is the root, and which only follow from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from fabric_plan.checks.model import Check, Root, Verdict

_ON_A_FUNCTION = (
    "identity",
    "link-up",
    "carrier",
    "mtu",
    "rdma-port",
    "roce-mtu",
    "cable",
    "address",
    "gid",
    "route",
    "route-override",
    "hairpin",
    "offload",
    "eswitch",
    "steering",
    "trust",
    "one-card",
    "rule",
    "rule-peer",
    "rule-extra",
    "unit",
    "marker",
    "marker-unit",
)
_RDMA = ("bandwidth", "latency", "far", "rule-counter", "forwarded", "plane-share")
_DROPS = ("overflow", "sequence")
_TRAFFIC = ("ping", *_RDMA, *_DROPS, "probe")

# A finding of the key explains findings of these ids on what rests on the thing in question (`Check.needs`).
# The order is the rank: what stands higher explains, what stands lower is explained.
IMPLIES: Mapping[str, tuple[str, ...]] = {
    "facts": ("carrier", "cable", "rule-peer", "library", *_TRAFFIC),
    "file": (
        *("mtu", "address", "address-extra", "route", "sysctl", "hairpin", "rule", "rule-extra", "marker"),
        *("unit-enabled", "unit", "marker-unit", "unit-boot", "unit-stale", "graph-file"),
    ),
    "netplan-conflict": ("mtu", "address", "address-extra", "gid", "route", "link-up"),
    "function": (*_ON_A_FUNCTION, "sysctl", *_TRAFFIC),
    "identity": ("identity", "rule-peer", "cable", *_TRAFFIC),
    "link-up": (
        *("carrier", "rdma-port", "roce-mtu", "cable", "address", "gid", "route", "rule", *_TRAFFIC),
    ),
    "carrier": (*("carrier", "rdma-port", "roce-mtu", "cable", "address", "gid", "route", *_TRAFFIC),),
    "address": ("gid", "route", "cable", *_TRAFFIC),
    "sysctl": ("route-override", "cable", *_TRAFFIC),
    "cable": ("cable", *_TRAFFIC),
    "rdma-port": ("gid", "roce-mtu", "marker", "marker-unit", *_RDMA),
    "mtu": ("roce-mtu", *_TRAFFIC),
    "roce-mtu": _RDMA,
    "route-override": ("route", "ping", "far", "rule-counter", "forwarded"),
    "route": ("ping", "far", "rule-counter", "forwarded"),
    "gid": _RDMA,
    "unit-enabled": ("unit", "unit-boot", "hairpin", "rule", "marker", "marker-unit"),
    "offload": ("unit", "unit-boot", "rule", *_RDMA),
    "eswitch": ("unit", "unit-boot", "hairpin", "rule", *_RDMA),
    "steering": ("unit", "unit-boot", "rule", *_RDMA),
    "one-card": ("unit", "unit-boot", "rule", *_RDMA),
    "trust": ("unit", "unit-boot", "rule", *_RDMA),
    "unit": ("unit-boot", "hairpin", "rule", "marker", "marker-unit", *_RDMA),
    "hairpin": (*_DROPS, *_RDMA),
    "rule": (*_DROPS, *_RDMA),
    "rule-peer": _RDMA,
    "rule-extra": _RDMA,
    "marker": ("marker-unit", "unit-boot", *_RDMA),
    "marker-unit": ("unit-boot",),
    "library": ("library", "library-mode"),
    "ping": ("ping", *_RDMA),
    "probe": ("ping", *_RDMA, *_DROPS),
    "plane-share": ("bandwidth", "latency", "far", "rule-counter", "forwarded"),
    "overflow": ("sequence", "bandwidth", "latency", "far"),
    "sequence": ("bandwidth", "latency", "far"),
    "bandwidth": ("bandwidth", "latency", "far", "rule-counter", "forwarded"),
    "far": ("rule-counter", "forwarded"),
    "rule-counter": ("forwarded",),
}

# Findings of one id that explain each other: the one with most of its kind on its node comes first.
_RANK = {kind: place for place, kind in enumerate(IMPLIES)}


def find_roots(checks: Iterable[Check]) -> tuple[Root, ...]:
    """Return the findings among `checks`, each under the root that explains it. What nothing explains is a
    root itself.
    """
    findings = [check for check in checks if check.verdict is not Verdict.PASS]
    alike: dict[tuple[str, str], int] = defaultdict(int)
    for check in findings:
        alike[check.id, check.node] += 1
    given = {id(check): place for place, check in enumerate(findings)}

    def order(check: Check) -> tuple[int, int, int]:
        return _RANK.get(check.id, len(_RANK)), -alike[check.id, check.node], given[id(check)]

    ordered = sorted(findings, key=order)
    by_thing: dict[str, list[Check]] = defaultdict(list)
    for check in ordered:
        by_thing[check.about].append(check)
    above: dict[int, Check] = {}
    place = {id(check): i for i, check in enumerate(ordered)}
    for check in ordered:
        # Of several explanations the highest: the list of a thing is in rank order.
        causes = [cause for cause in _causes(check, by_thing) if place[id(cause)] < place[id(check)]]
        if causes:
            above[id(check)] = min(causes, key=lambda cause: place[id(cause)])

    def root_of(check: Check) -> Check:
        while id(check) in above:
            check = above[id(check)]
        return check

    below: dict[int, list[Check]] = defaultdict(list)
    for check in findings:
        root = root_of(check)
        if root is not check:
            below[id(root)].append(check)
    roots = [check for check in ordered if id(check) not in above]
    roots.sort(key=lambda check: check.verdict is not Verdict.FAIL)
    return tuple(Root(check, tuple(below[id(check)])) for check in roots)


def _causes(check: Check, by_thing: Mapping[str, list[Check]]) -> Iterator[Check]:
    for thing in dict.fromkeys((check.about, *check.needs)):
        for cause in by_thing.get(thing, ()):
            if cause is not check and check.id in IMPLIES.get(cause.id, ()):
                yield cause
