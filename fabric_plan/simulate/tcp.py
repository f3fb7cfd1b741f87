"""Follow TCP from every node to every fabric address through the kernels' routes.

Where a packet goes depends on the node that holds it and on its destination alone, never on its source, so
all flows to one address form one graph of next hops: a node is good when every way its table allows leads to
a good node. That settles all pairs in one pass over the nodes for each address. Answers come back as flows of
their own, and since every node has to reach every source address, the loose `rp_filter` of the plan is
satisfied with them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address

from fabric_plan.planner.model import Plan
from fabric_plan.simulate.proof import Failure
from fabric_plan.simulate.wire import Nic, Route, Wire

TTL = 64  # what Linux sends with: one less at each kernel that forwards


@dataclass(frozen=True, slots=True)
class _Move:
    """One way on from a node: out by one function and in by another, or the reason why not."""

    out: Nic | None
    into: Nic | None
    kind: str = ""
    fault: str = ""


def walk_flows(wire: Wire, plan: Plan) -> tuple[int, tuple[Failure, ...]]:
    """Return how many flows (source and destination address) arrive, and one failure for each cause."""
    arrived = 0
    broken: dict[tuple[str, ...], list[tuple[str, Nic, _Fault]]] = defaultdict(list)
    distances = {cable.index: _distances(wire, cable.index) for cable in wire.cables}
    moves = _Moves(wire)
    for target in wire.nics:
        if target.address is None or target.segment is None:
            continue
        goal = _Goal(wire, moves, target, distances[target.segment])
        for source in plan.nodes:
            if source.name == target.node or not goal.concerns(source.name):
                continue
            fault = goal.fault(source.name)
            if fault is None:
                arrived += goal.sources(source.name)
            else:
                broken[fault.key].append((source.name, target, fault))
    return arrived, tuple(_failure(flows) for flows in broken.values())


def _failure(flows: list[tuple[str, Nic, _Fault]]) -> Failure:
    """Tell of one cause by the flow that meets it first: one from the node where it lies, if there is any."""
    source, target, fault = next((flow for flow in flows if flow[0] == flow[2].node), flows[0])
    more = f" ({len(flows) - 1} more flows break there)" if len(flows) > 1 else ""
    path = f"{source} to {target.node} {IPv4Address(target.ip)}, TCP"
    return Failure(fault.kind, path, fault.trace, fault.message + more)


def _distances(wire: Wire, segment: int) -> dict[str, int]:
    """Return how many cables lie between each node and `segment`, 0 for those that sit on it."""
    joined: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for cable in wire.cables:
        names = tuple(end.node for end in cable.ends)
        for name in names:
            joined[name].append(names)
    distance = {end.node: 0 for cable in wire.cables if cable.index == segment for end in cable.ends}
    todo = deque(distance)
    while todo:
        here = todo.popleft()
        for names in joined[here]:
            for name in names:
                if name not in distance:
                    distance[name] = distance[here] + 1
                    todo.append(name)
    return distance


class _Moves:
    """The ways on from a node toward an address, remembered by gateway."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._known: dict[tuple[str, str, int], _Move] = {}

    def of(self, node: str, ip: int) -> list[_Move]:
        """Return every move that the routes of `node` allow for a packet to `ip`."""
        routes = self._wire.tables[node].lookup(ip)
        if not routes:
            return [_Move(None, None, "no-route", f"{node} has no route to {IPv4Address(ip)}")]
        return [self._move(node, route, ip if route.via is None else route.via) for route in routes]

    def _move(self, node: str, route: Route, gateway: int) -> _Move:
        key = node, route.dev, gateway
        move = self._known.get(key)
        if move is None:
            move = self._known[key] = self._resolve(node, route, gateway)
        return move

    def _resolve(self, node: str, route: Route, gateway: int) -> _Move:
        out = self._wire.by_netdev.get((node, route.dev))
        if out is None:
            return _Move(None, None, "no-device", f"{node} has no function {route.dev} (route {route})")
        answers = self._wire.resolve(out, gateway)
        if len(answers) != 1:
            who = " and ".join(str(nic) for nic in answers) if answers else "nobody"
            return _Move(
                out,
                None,
                "arp",
                f"{who} on the cable of {out} answers for {IPv4Address(gateway)} (route {route})",
            )
        into = answers[0]
        if not self._wire.same_plane(out, into):
            return _Move(
                out, into, "plane-crossed", f"{out} (plane {out.plane}) sends to {into} (plane {into.plane})"
            )
        return _Move(out, into)


@dataclass(frozen=True, slots=True)
class _Fault:
    """Why packets do not arrive: `node` is where the cause lies, `where` the target's cable and plane."""

    kind: str
    node: str
    where: str
    trace: tuple[str, ...]
    message: str

    @property
    def key(self) -> tuple[str, ...]:
        """What makes two faults one cause."""
        return self.kind, self.node, self.where


class _Goal:
    """All flows to one address."""

    def __init__(self, wire: Wire, moves: _Moves, target: Nic, distance: Mapping[str, int]) -> None:
        self._wire = wire
        self._target = target
        self._distance = distance
        self._moves = {node: moves.of(node, target.ip) for node in wire.on_node if node != target.node}
        self._hops = self._settle()

    def concerns(self, node: str) -> bool:
        """Tell whether `node` has to reach it: an unmanaged plane has no routes beyond its own cables."""
        return self._target.managed or self._distance.get(node) == 0

    def sources(self, node: str) -> int:
        """Return from how many addresses of `node` flows start: all routed ones, or the one on the cable."""
        if not self._target.managed:
            return 1
        return sum(nic.address is not None and nic.managed for nic in self._wire.on_node[node])

    def _settle(self) -> dict[str, int]:
        """Return the cables crossed from each node whose every way arrives."""
        waits = {node: len(found) for node, found in self._moves.items()}
        back: dict[str, list[str]] = defaultdict(list)
        for node, found in self._moves.items():
            for move in found:
                if move.into is not None and self._fault_here(move) is None:
                    back[move.into.node].append(node)
        hops = {self._target.node: 0}
        todo = deque([self._target.node])
        while todo:
            here = todo.popleft()
            for node in back[here]:
                waits[node] -= 1
                if not waits[node]:
                    hops[node] = 1 + max(
                        hops[move.into.node] for move in self._moves[node] if move.into is not None
                    )
                    todo.append(node)
        return hops

    def _fault_here(self, move: _Move) -> tuple[str, str] | None:
        """Say what is wrong with one move; None where the packet may go on from the next node."""
        if move.fault:
            return move.kind, move.fault
        into = move.into
        assert into is not None
        if into.node == self._target.node:
            if not self._stays(into, self._target):
                where = f"{into} (plane {into.plane})"
                return (
                    "plane-crossed",
                    f"it arrives at {where}, and the address is on plane {self._target.plane}",
                )
            return None
        for following in self._moves.get(into.node, ()):
            out = following.out
            if out is not None and not self._stays(into, out):
                planes = f"in on plane {into.plane} and out on plane {out.plane}"
                return "plane-crossed", f"{into.node} takes it {planes}, by {out.netdev}"
            if out is not None and not self._wire.forwards(into, out):
                way = f"what comes in by {into.netdev} and leaves by {out.netdev}"
                return "not-forwarding", f"nothing makes {into.node} forward {way}"
        return None

    def _stays(self, a: Nic, b: Nic) -> bool:
        """Tell whether a packet keeps its plane inside a node; one to a shared subnet has none of its own."""
        return a.plane == b.plane or self._target.segment in self._wire.shared

    def fault(self, node: str) -> _Fault | None:
        """Return why packets from `node` do not arrive as they should, None where they do."""
        bound = self._distance.get(node, len(self._distance)) + 1
        hops = self._hops.get(node)
        if hops is None:
            return self._follow(node)
        if hops - 1 >= TTL:
            message = f"{hops - 1} kernels would have to forward it, and Linux sends with a TTL of {TTL}"
            return self._named("ttl", node, [], message)
        if hops > bound:
            return self._detour(node, hops, bound)
        return None

    def _follow(self, node: str) -> _Fault:
        """Walk from `node` into the fault, wherever it lies."""
        trace: list[str] = []
        visited: list[str] = []
        while node not in visited:
            visited.append(node)
            for move in self._moves[node]:
                fault = self._fault_here(move)
                if fault is not None:
                    trace += [_line(move)] if move.into is not None else [node]
                    return self._named(fault[0], node, trace, fault[1])
            move = next(m for m in self._moves[node] if m.into is not None and m.into.node not in self._hops)
            assert move.into is not None
            trace.append(_line(move))
            node = move.into.node
        loop = visited[visited.index(node) :]
        first = min(loop)
        start = loop.index(first)
        message = f"it goes round {', '.join(loop[start:] + loop[:start])} until its TTL is used up"
        return self._named("tcp-loop", first, trace, message)

    def _detour(self, node: str, hops: int, bound: int) -> _Fault:
        trace = []
        guilty = node
        while node != self._target.node:
            move = self._moves[node][0]
            assert move.into is not None
            trace.append(_line(move))
            following = move.into.node
            if following != self._target.node and self._distance[following] >= self._distance[node]:
                guilty = node
            node = following
        message = (
            f"it crosses {hops} cables where {bound} are the most: {guilty} sends it away from its cable"
        )
        return self._named("detour", guilty, trace, message)

    def _named(self, kind: str, node: str, trace: list[str], message: str) -> _Fault:
        return _Fault(kind, node, f"{self._target.segment} {self._target.plane}", tuple(trace), message)


def _line(move: _Move) -> str:
    assert move.out is not None and move.into is not None
    return f"{move.out} sends to {move.into}"
