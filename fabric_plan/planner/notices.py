"""What a plan that works still has to say: half the bandwidth, an open line, a tag that belongs to somebody
else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fabric_plan.findings import Notice
from fabric_plan.inventory.schema import MarkerDialect, PlaneMode, TopologyKind
from fabric_plan.nccl.renumber import renumbering
from fabric_plan.planner.model import Plan
from fabric_plan.planner.tags import LOCAL_EXPERIMENTS, RESEARCH_RELAYS, tag
from fabric_plan.topology.detect import line_ends

PUBLISHED_NODES = 8
JUMBO = 4200  # an RDMA path MTU of 4096 and its headers


def _half_bandwidth(plan: Plan) -> Iterator[Notice]:
    if len(plan.fabric.planes) > 1:
        return
    unused = sorted(
        {
            f.function.netdev
            for node in plan.nodes
            for f in node.functions
            if f.function.plane not in plan.fabric.planes
        }
    )
    if unused:
        text = (
            f"plane 2 ({', '.join(unused)}) has no IPv4 address on any node: every cable runs on one of "
            "its two functions, about half its bandwidth"
        )
        yield Notice("half-bandwidth", text, hint="write `planes: {1: managed, 2: managed}`")


def _twins(plan: Plan) -> Iterator[Notice]:
    shared = []
    for cable in plan.fabric.cables:
        subnets = [
            plan.subnets[cable.index, plane]
            for plane in plan.fabric.planes
            if (cable.index, plane) in plan.subnets
        ]
        if len(subnets) > 1 and len(set(subnets)) == 1:
            shared.append(str(subnets[0]))
    if not shared:
        return
    places = ", ".join(shared)
    if plan.nccl_prefix is not None:
        text = (
            f"both functions of one port are in one subnet ({places}); NCCL separates them only with "
            f"NCCL_IB_SUBNET_PREFIX_LEN={plan.nccl_prefix}"
        )
    else:
        text = f"both functions of one port are in one subnet ({places}) and no prefix length separates them"
    yield Notice("twins-share-subnet", text, hint="give plane 2 subnets of its own")


def _no_prefix(plan: Plan) -> Iterator[Notice]:
    if plan.nccl_prefix is None:
        nets = ", ".join(sorted({str(net) for net in plan.subnets.values()}))
        text = (
            "no prefix length up to 31 makes each function match exactly one function of its peer "
            f"({nets}): NCCL would put all traffic on one function, so no NCCL environment is written"
        )
        offered = renumbering(plan)
        example = f", for example {offered.example}" if offered else ""
        yield Notice(
            "no-separating-prefix",
            text,
            hint=f"renumber plane 2 into subnets of its own, or to hosts .10N beside .N (then 26){example}",
        )


def _mtu(plan: Plan) -> Iterator[Notice]:
    if plan.fabric.mtu < JUMBO:
        text = f"the MTU is {plan.fabric.mtu}: RoCE needs {JUMBO} or more for its path MTU of 4096 bytes"
        yield Notice("small-mtu", text, hint="write `mtu: 9000`")


def _line(plan: Plan) -> Iterator[Notice]:
    if plan.topology.kind is TopologyKind.LINE:
        a, b = line_ends(plan.fabric, plan.topology)
        text = (
            f"the nodes form a line, not a ring: a cable between {a} and {b} would close it (until then "
            f"there is no NCCL ring over all {len(plan.nodes)})"
        )
        yield Notice("line-open", text)


def _size(plan: Plan) -> Iterator[Notice]:
    if len(plan.nodes) > PUBLISHED_NODES and plan.topology.kind is not TopologyKind.SWITCHED:
        yield Notice(
            "large-ring",
            f"{len(plan.nodes)} nodes without a switch: nothing over {PUBLISHED_NODES} has been published",
        )


def _mesh(plan: Plan) -> Iterator[Notice]:
    if not plan.mesh:
        return
    yield Notice("mesh-research-only", "hardware forwarding is research-only, as its origin labels it")
    longest = max(len(path.through) for path in plan.paths)
    if longest > RESEARCH_RELAYS:
        yield Notice(
            "over-3-relays",
            f"the longest path crosses {longest} relays; over {RESEARCH_RELAYS} is research-only "
            "even for its origin",
        )
    foreign = [f"0x{tag(k):04x}" for k in range(1, longest + 1) if tag(k) not in LOCAL_EXPERIMENTS]
    if foreign:
        yield Notice(
            "foreign-ethertype",
            f"paths over {longest} relays use {', '.join(foreign)}, which are registered to others",
            hint="keep such frames inside the fabric: no switch, no bridge",
        )
    if plan.fabric.marker.dialect is MarkerDialect.REWRITE_PROBE:
        yield Notice(
            "marker-by-source-port",
            "the rewrite probe tags every RDMA packet with UDP source port 65535, to any "
            "destination: one ordinary queue pair in 16,384 uses it by chance and is then lost",
            hint="`marker: built-in` tags by destination",
        )


def _unmanaged(plan: Plan) -> Iterator[Notice]:
    for plane, mode in plan.fabric.planes.items():
        if mode is PlaneMode.UNMANAGED:
            yield Notice(
                "plane-unmanaged",
                f"plane {plane} is unmanaged: known and checked, never written; nothing is relayed on it",
                hint="whoever manages it has to set arp_ignore=1 on its functions: they hear every ARP "
                "request on the cable, and by default answer for the other plane with their own MAC",
            )


_NOTICES: tuple[Callable[[Plan], Iterator[Notice]], ...] = (
    _half_bandwidth,
    _twins,
    _no_prefix,
    _mtu,
    _line,
    _size,
    _unmanaged,
    _mesh,
)


def notices(plan: Plan) -> tuple[Notice, ...]:
    """Return every notice of a plan, in a fixed order."""
    return tuple(notice for one in _NOTICES for notice in one(plan))
