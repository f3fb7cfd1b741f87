"""From the evidence to the outcome: an inventory that plans, or every reason why not, each naming nodes,
ports and files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from fabric_plan.discover.cabling import LINK_LOCAL, Cabling, Seat, Seats, Segment, cabling
from fabric_plan.discover.compose import compose
from fabric_plan.discover.evidence import Doubt, Evidence, FoundNode, Interface, Listed, Settings
from fabric_plan.discover.heard import heard, joined
from fabric_plan.discover.identify import Identified, identify
from fabric_plan.discover.remarks import remarks, usual_mtu
from fabric_plan.discover.renumber import renumbering
from fabric_plan.discover.table import Compared, compare, table_refusal
from fabric_plan.discover.write import inventory_text
from fabric_plan.errors import FabricPlanError, InventoryError, RefusalError
from fabric_plan.findings import Notice
from fabric_plan.inventory.load import Loaded, load
from fabric_plan.inventory.schema import TopologyKind
from fabric_plan.planner.model import Plan
from fabric_plan.planner.plan import plan_fabric
from fabric_plan.roles import Hardwares
from fabric_plan.topology.detect import declared_order, shape
from fabric_plan.topology.fabric import End, Fabric
from fabric_plan.topology.shape import Topology

COMMENTS = (
    "Written from what is on the nodes: subnets and addresses are pinned as they were found there.",
    "What the hardware's role or a default already says is left out.",
)
_TELL_CABLES = "state the cabling in cables.yaml, run lldpd on the nodes, or use discover --probe-cables"


class Scope(StrEnum):
    """How far a refusal reaches: nothing may be planned, or the fabric stands and NCCL may not be set up on
    it.
    """

    FABRIC = "fabric"
    NCCL = "nccl"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came out. `segments` and `topology` are what was found, also where it was refused.

    `text` is the inventory, None after a refusal of the fabric. `refusals` is empty for a plan.
    """

    segments: tuple[Segment, ...]
    topology: Topology | None
    planes: tuple[int, ...]
    plan: Plan | None
    text: str | None
    refusals: tuple[FabricPlanError, ...]
    notices: tuple[Notice, ...]
    compared: Compared | None = None
    scope: Scope | None = None

    @property
    def order(self) -> tuple[str, ...]:
        """The walk as an inventory should list it; empty where the cables make no shape."""
        return self.topology.order if self.topology else ()


@dataclass(slots=True)
class _Findings:
    refusals: list[FabricPlanError] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    # Cables that contradict each other make no sound draft: what is wrong with it would only repeat them.
    contradictory: bool = False


def infer(evidence: Evidence, roles: Hardwares) -> Outcome:
    """Return the outcome for `evidence`. Whatever is wrong with it stands in the outcome, nothing is
    raised.
    """
    said = _Findings(notices=list(evidence.notices))
    identified = {node.name: identify(node) for node in evidence.nodes}
    for node in evidence.nodes:
        _node_findings(node, identified[node.name], said)
    seats: dict[Seat, Interface] = {
        Seat(name, port, plane): interface
        for name, found in identified.items()
        for (port, plane), interface in found.functions.items()
    }
    names = [node.name for node in evidence.nodes]
    found = joined(cabling(seats, names), heard(seats))
    said.refusals += found.refusals
    said.contradictory = bool(found.refusals)
    said.notices += found.notices
    segments, compared = _with_table(evidence, seats, found, said)
    if not segments:
        said.refusals.append(_nothing(evidence, seats))
        notices = tuple(said.notices)
        return Outcome((), None, (), None, None, tuple(said.refusals), notices, compared, Scope.FABRIC)
    if chosen := _link_local(seats, segments):
        said.refusals.append(FabricPlanError(chosen, hint=_TELL_CABLES, id="link-local-only"))
    seats, segments = _plane_2_alone(evidence, seats, segments)
    planes = tuple(sorted({plane for segment in segments for plane in segment.lanes})) or (1, 2)
    said.notices += remarks(evidence.nodes, seats, segments, planes)
    settings = replace(evidence.settings, mtu=usual_mtu(seats, segments) or evidence.settings.mtu)
    return _planned(evidence, roles, settings, seats, segments, planes, said, compared)


def _planned(
    evidence: Evidence,
    roles: Hardwares,
    settings: Settings,
    seats: Seats,
    segments: tuple[Segment, ...],
    planes: tuple[int, ...],
    said: _Findings,
    compared: Compared | None,
) -> Outcome:
    """Write the inventory, load it as anybody's, and let the planner judge it: no second set of rules."""

    def loaded(
        nodes: Sequence[FoundNode], segments: Sequence[Segment], topology: Topology | None
    ) -> tuple[str, Loaded]:
        kind = evidence.declared or (topology.kind if topology else None)
        inventory = compose(settings, nodes, seats, segments, planes, kind)
        text = inventory_text(inventory, COMMENTS)
        return text, load(text, settings.file, roles)

    def refused(topology: Topology | None) -> Outcome:
        return Outcome(
            segments, topology, planes, None, None, tuple(said.refusals), (), compared, Scope.FABRIC
        )

    nodes = list(evidence.nodes)
    before = _as_before(evidence.listed, segments)
    segments = before or _with_rails(evidence.declared, segments)
    try:
        _, first = loaded(nodes, segments, None)
        topology = shape(first.fabric)
    except InventoryError as error:
        said.refusals += [] if said.contradictory else [_without_place(one) for one in error.errors]
        return refused(None)
    except RefusalError as error:
        if said.contradictory:
            return refused(None)
        # A stated table says which of the possible rings was meant: its moves are the hint then.
        moved = compared is not None and bool(compared.moves)
        said.refusals.insert(0, RefusalError(error.message, hint=None if moved else error.hint, id=error.id))
        return refused(None)
    if not evidence.ranked:
        nodes.sort(key=lambda node: topology.order.index(node.name))
    segments = before or _in_walk_order(topology, segments)
    topology = _as_listed(first.fabric, topology)
    try:
        text, second = loaded(nodes, segments, topology)
        plan = plan_fabric(second.fabric, second.notices)
    except InventoryError as error:
        said.refusals += [_without_place(one) for one in error.errors]
        return refused(topology)
    except RefusalError as error:
        said.refusals.append(error)
        return refused(topology)
    if said.refusals:
        return refused(topology)
    notices, nccl = _nccl(plan, said.notices)
    return Outcome(
        segments, topology, planes, plan, text, nccl, notices, compared, Scope.NCCL if nccl else None
    )


def _without_place(error: FabricPlanError) -> FabricPlanError:
    """The inventory is ours and nobody has seen it, so a line in it says nothing."""
    return FabricPlanError(error.message, hint=error.hint, id=error.id)


def _node_findings(node: FoundNode, found: Identified, said: _Findings) -> None:
    said.refusals += [*node.broken, *found.refusals]
    said.notices += found.notices
    netdevs = {interface.netdev for interface in found.functions.values()}
    for doubt in node.doubts:
        if doubt.netdev in netdevs and doubt.theirs:
            said.refusals.append(_second_definition(node.name, doubt))
        elif doubt.netdev in netdevs:
            said.notices.append(_dhcp_beside(node.name, doubt))
    for interface in found.functions.values():
        if interface.master is not None:
            said.refusals.append(
                FabricPlanError(
                    f"{interface.netdev} is a member of {interface.master}",
                    where=node.name,
                    hint=f"take it out of {interface.master}: RDMA over a bond or a bridge is another "
                    "product",
                    id="function-in-bond",
                )
            )


def _second_definition(node: str, doubt: Doubt) -> FabricPlanError:
    old = "the old address" if "/90-NM-" in doubt.file else "the address"
    return FabricPlanError(
        f"{doubt.file} also claims {doubt.netdev} with {old} {', '.join(doubt.theirs)} "
        f"({doubt.other_file.rsplit('/', 1)[-1]} says {', '.join(doubt.ours)})",
        where=node,
        hint=f"move this one file away and keep it: mv {doubt.file} /root/",
        id="second-definition",
    )


def _dhcp_beside(node: str, doubt: Doubt) -> Notice:
    return Notice(
        "dhcp-beside-static",
        f"{node}: {doubt.file} asks for an address of {doubt.netdev} by DHCP, "
        f"{doubt.other_file.rsplit('/', 1)[-1]} gives it {', '.join(doubt.ours)}: "
        "which profile comes up is chance",
        hint=f"take {doubt.netdev} out of that one file",
    )


def _nothing(evidence: Evidence, seats: Seats) -> FabricPlanError:
    bare = [node.name for node in evidence.nodes if not any(seat.node == node.name for seat in seats)]
    if bare:
        return FabricPlanError(
            f"no fabric function was found on {', '.join(bare)}",
            hint="nodes/<name>/ needs etc/netplan/*.yaml or ip-addr.json (`ip -j -d addr show`)",
            id="no-functions",
        )
    chosen = _link_local(seats, ())
    why = f" ({chosen})" if chosen else ""
    return FabricPlanError(
        f"no two nodes share a subnet on their fabric ports, so no cable can be told{why}",
        hint=_TELL_CABLES,
        id="no-cables",
    )


def _link_local(seats: Seats, segments: Sequence[Segment]) -> str:
    """Name the ports that have a link-local address and are in no segment; empty where there is none."""
    known = {end for segment in segments for end in segment.ends}
    words = []
    for seat, interface in sorted(seats.items(), key=lambda item: item[0]):
        found = [str(c.address) for c in interface.claims if c.address.network.overlaps(LINK_LOCAL)]
        if (found or interface.link_local) and interface.carrier is not False and seat.end not in known:
            words.append(" ".join([seat.node, interface.netdev, *found]))
    return (
        f"{', '.join(words)}: link-local addresses, {LINK_LOCAL}, are one subnet on every port"
        if words
        else ""
    )


def _with_table(
    evidence: Evidence, seats: Seats, found: Cabling, said: _Findings
) -> tuple[tuple[Segment, ...], Compared | None]:
    """Compare with the stated table. Where neither end shows anything at all, the table's word is taken, and
    said to be just that.
    """
    if evidence.table is None:
        return found.segments, None
    taken = {end for segment in found.segments for end in segment.ends}
    dead = {seat.end for seat, interface in seats.items() if interface.carrier is False}
    believed = [
        Segment(pair, {}, "table")
        for pair in evidence.table
        if not taken & set(pair)
        and not dead & set(pair)
        and not any(seats[s].claims for s in seats if s.end in pair)
    ]
    segments = (*found.segments, *believed)
    pairs = [(s.ends[0], s.ends[1]) for s in segments if len(s.ends) == 2]
    compared = compare(evidence.table, pairs)
    if compared.missing or compared.unexpected:
        said.refusals.append(table_refusal(compared))
    said.notices += [
        Notice(
            "cable-from-table",
            f"cable {segment}: neither end has an address, so only the table says that it is there",
        )
        for segment in believed
    ]
    return segments, compared


def _plane_2_alone(
    evidence: Evidence, seats: dict[Seat, Interface], segments: tuple[Segment, ...]
) -> tuple[dict[Seat, Interface], tuple[Segment, ...]]:
    """An inventory numbers its planes from 1: where only the second functions are addressed, they are its
    plane 1, and the first ones trade places with them, names and all.
    """
    if {plane for segment in segments for plane in segment.lanes} != {2}:
        return seats, segments
    swapped = {}
    for node in evidence.nodes:
        for port, role in node.hardware.ports.items():
            for plane, known in enumerate(role.functions[:2], start=1):
                interface = seats.get(Seat(node.name, port, plane), Interface(known.netdev))
                named = replace(interface, rdma=interface.rdma or known.rdma, pci=interface.pci or known.pci)
                swapped[Seat(node.name, port, 3 - plane)] = named
    lanes = [{1: segment.lanes[2]} if segment.lanes else {} for segment in segments]
    return swapped, tuple(replace(s, lanes=one) for s, one in zip(segments, lanes, strict=True))


def _as_listed(fabric: Fabric, topology: Topology) -> Topology:
    """Return the walk from the first node toward its lower-ranked neighbour."""
    return replace(topology, order=declared_order(fabric, topology.order)) if topology.closed else topology


def _as_before(listed: Sequence[Listed] | None, segments: Sequence[Segment]) -> tuple[Segment, ...] | None:
    """Return the segments as an earlier inventory listed them, None where its cables are not these."""
    by_ends = {frozenset(segment.ends): segment for segment in segments}
    if listed is None or {frozenset(one.ends) for one in listed} != set(by_ends):
        return None
    return tuple(replace(_reordered(by_ends[frozenset(one.ends)], one.ends), rail=one.rail) for one in listed)


def _with_rails(declared: TopologyKind | None, segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Name the rails, by the port that every node plugs into one, by their place where the ports differ.

    What has more than two ends goes into a switch; with two ends only the declared topology can tell.
    """

    def name(place: int, segment: Segment) -> str | None:
        if len(segment.ends) == 2 and declared is not TopologyKind.SWITCHED:
            return None
        ports = {end.port for end in segment.ends}
        return f"rail-{min(ports)}" if len(ports) == 1 else f"rail-{place}"

    return tuple(replace(segment, rail=name(i, segment)) for i, segment in enumerate(segments, start=1))


def _in_walk_order(topology: Topology, segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Sort cables along the walk and turn each so that the walk leaves by its first end."""
    by_ends = {frozenset(segment.ends): segment for segment in segments}
    ordered = []
    for position in range(len(topology.order)):
        hop = topology.hop(position, 1) if topology.cables else None
        if hop is not None and (segment := by_ends.pop(frozenset(hop.cable.ends), None)) is not None:
            ordered.append(_reordered(segment, (hop.out, hop.into)))
    return (*ordered, *by_ends.values())


def _reordered(segment: Segment, ends: tuple[End, ...]) -> Segment:
    places = [segment.ends.index(end) for end in ends]
    lanes = {
        plane: replace(lane, addresses=tuple(lane.addresses[place] for place in places))
        for plane, lane in segment.lanes.items()
    }
    return replace(segment, ends=ends, lanes=lanes)


# What the planner says about an inventory, adopt has said better from the nodes themselves.
_SAID_BY = {"small-mtu": "mtu-default"}


def _nccl(plan: Plan, noticed: Sequence[Notice]) -> tuple[tuple[Notice, ...], tuple[FabricPlanError, ...]]:
    """Return all notices, with the one that stops NCCL turned into a refusal that says how to renumber."""
    ids = {notice.id for notice in noticed}
    notices = [*noticed, *(notice for notice in plan.notices if _SAID_BY.get(notice.id) not in ids)]
    stop = [notice for notice in notices if notice.id == "no-separating-prefix"]
    refusals = tuple(
        FabricPlanError(notice.text, hint=renumbering(plan) or notice.hint, id=notice.id) for notice in stop
    )
    return tuple(notice for notice in notices if notice not in stop), refusals
