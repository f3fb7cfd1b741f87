"""Where everything of the drawing stands: boxes for nodes, lines for cables, in pixels of the drawing.

Nodes of a ring stand round a rectangle, in the order of its walk; a line and a pair stand in a row; behind a
switch the nodes stand under their rails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from fabric_plan.inventory.schema import TopologyKind
from fabric_plan.planner.model import Plan
from fabric_plan.topology.fabric import Cable

BOX_W, BOX_H = 168, 64
STEP_X, STEP_Y = 440, 200  # from one middle to the next
MARGIN = 70
PLANE_GAP = 10  # between the two planes of one cable
CABLE_GAP = 44  # between two cables of one pair of nodes
LABEL = 13


@dataclass(frozen=True, slots=True)
class Box:
    """A node or a rail: its name and the middle of its box."""

    name: str
    x: int
    y: int
    rail: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """A short text at a place; `anchor` as SVG has it."""

    x: int
    y: int
    anchor: str
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """One plane of a cable, or of a rail's leg."""

    cable: int
    plane: int
    title: str
    x1: int
    y1: int
    x2: int
    y2: int
    labels: tuple[Text, ...]


@dataclass(frozen=True, slots=True)
class Drawing:
    """The whole drawing with its size; ports are texts inside the boxes."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    ports: tuple[Text, ...]


def layout(plan: Plan) -> Drawing:
    """Return the drawing of a plan."""
    cells = dict(_cells(plan))
    boxes = {
        name: Box(
            name,
            round(MARGIN + BOX_W / 2 + column * STEP_X),
            round(MARGIN + BOX_H / 2 + row * STEP_Y),
            rail,
        )
        for name, (column, row, rail) in cells.items()
    }
    lines: list[Line] = []
    ports: list[Text] = []
    seen: Counter[frozenset[str]] = Counter()
    total = Counter(frozenset(end.node for end in cable.ends) for cable in plan.fabric.cables)
    for cable in plan.fabric.cables:
        if cable.rail is not None:
            for end in cable.ends:
                slot = list(plan.fabric.node(end.node).hardware.ports).index(end.port)
                shift = slot * CABLE_GAP - CABLE_GAP // 2
                lines += _planes(plan, cable, boxes[end.node], boxes[_rail(cable)], shift, ports)
            continue
        pair = frozenset(end.node for end in cable.ends)
        shift = round((seen[pair] - (total[pair] - 1) / 2) * CABLE_GAP)
        seen[pair] += 1
        lines += _planes(plan, cable, boxes[cable.ends[0].node], boxes[cable.ends[1].node], shift, ports)
    width = max(box.x for box in boxes.values()) + BOX_W // 2 + MARGIN
    height = max(box.y for box in boxes.values()) + BOX_H // 2 + MARGIN
    return Drawing(width, height, tuple(boxes.values()), tuple(lines), tuple(dict.fromkeys(ports)))


def _rail(cable: Cable) -> str:
    return f"rail {cable.rail}"


def _cells(plan: Plan) -> Iterator[tuple[str, tuple[float, float, bool]]]:
    """Yield the column and row of every box, and whether it is a rail's."""
    order = plan.topology.order
    if plan.topology.kind is TopologyKind.SWITCHED:
        rails = [cable for cable in plan.fabric.cables if cable.rail is not None]
        spread = (len(order) - len(rails)) / 2
        for i, cable in enumerate(rails):
            yield _rail(cable), (spread + i, 0, True)
        for i, name in enumerate(order):
            yield name, (i, 1, False)
    elif plan.topology.closed:
        for name, (column, row) in zip(order, _perimeter(len(order)), strict=True):
            yield name, (column, row, False)
    else:
        for i, name in enumerate(order):
            yield name, (i, 0, False)


def _perimeter(count: int) -> Iterator[tuple[float, float]]:
    """Yield `count` cells clockwise round a rectangle; an odd count has one fewer in its bottom row."""
    even = count + count % 2
    rows = max(2, (even + 4) // 4)
    columns = (even + 4) // 2 - rows
    yield from ((column, 0.0) for column in range(columns))
    yield from ((columns - 1.0, row) for row in range(1, rows - 1))
    bottom = columns - count % 2
    yield from ((column + (columns - bottom) / 2, rows - 1.0) for column in reversed(range(bottom)))
    yield from ((0.0, row) for row in reversed(range(1, rows - 1)))


def _planes(plan: Plan, cable: Cable, one: Box, other: Box, shift: int, ports: list[Text]) -> Iterator[Line]:
    """Yield the lines of one cable, plane by plane, and note its two ports."""
    planes = [plane for plane in plan.fabric.planes if (cable.index, plane) in plan.subnets]
    # Legs to two rails start side by side: the labels of the second stand further out.
    out = 2 * LABEL if other.rail and shift > 0 else 0
    sockets = (_socket(one, other, out), _socket(other, one, out))
    for place, plane in enumerate(planes):
        offset = shift + round((place - (len(planes) - 1) / 2) * PLANE_GAP)
        (x1, y1), (x2, y2) = (socket.point(offset) for socket in sockets)
        labels = tuple(
            socket.label(offset, place, str(address))
            for socket in sockets
            if not socket.box.rail
            and (address := plan.node(socket.box.name).at(cable.end(socket.box.name).port, plane).address)
        )
        yield Line(cable.index, plane, f"{cable}, plane {plane}", x1, y1, x2, y2, labels)
    ports += [
        socket.port(shift, cable.end(socket.box.name).port) for socket in sockets if not socket.box.rail
    ]


@dataclass(frozen=True, slots=True)
class _Socket:
    """Where a cable leaves a box. `slant` is the direction in which it leans, 0 where it is straight;
    `out` how much further its labels stand.
    """

    box: Box
    side: str
    slant: int
    out: int

    @property
    def _out_of(self) -> int:
        return 1 if self.side in ("right", "bottom") else -1

    @property
    def _flat(self) -> bool:
        return self.side in ("left", "right")

    def point(self, offset: int) -> tuple[int, int]:
        """Return the end of a line that runs `offset` beside the middle."""
        if self._flat:
            # A slanting cable turns: what is left of it above is below it at its lower end, or above.
            turned = offset * (-self.slant or 1)
            return self.box.x + self._out_of * BOX_W // 2, self.box.y + turned
        return self.box.x + offset, self.box.y + self._out_of * BOX_H // 2

    def label(self, offset: int, place: int, text: str) -> Text:
        """Return the address of plane number `place` at this end, off the line."""
        x, y = self.point(offset)
        if self._flat:
            if self.slant:
                y = self.box.y + LABEL // 2 + LABEL * (1 + place)
            else:
                y += LABEL if place else -7
            return Text(x + 5 * self._out_of, y, "start" if self._out_of > 0 else "end", text)
        away = LABEL + 3 + self.out if self._out_of > 0 else -LABEL + 4 - self.out
        if self.slant:
            # Both on the side from which the cable leans away.
            return Text(
                self.box.x - 10 * self.slant,
                y + away + place * LABEL,
                "end" if self.slant > 0 else "start",
                text,
            )
        return Text(x + (-5 if place == 0 else 5), y + away, "end" if place == 0 else "start", text)

    def port(self, shift: int, text: str) -> Text:
        """Return the port's name, inside the box."""
        x, y = self.point(shift)
        if self._flat:
            return Text(x - 6 * self._out_of, y + 4, "end" if self._out_of > 0 else "start", text)
        return Text(x, y - 5 if self._out_of > 0 else y + LABEL, "middle", text)


def _socket(box: Box, far: Box, out: int) -> _Socket:
    """Return where a cable to `far` leaves `box`: a lower one by its side where they stand askew."""
    if box.y == far.y:
        return _Socket(box, "right" if far.x > box.x else "left", 0, out)
    straight = box.x == far.x or box.rail or far.rail
    lean = 0 if straight else 1 if far.x > box.x else -1
    if far.y > box.y:
        return _Socket(box, "bottom", lean, out)
    if straight:
        return _Socket(box, "top", 0, out)
    return _Socket(box, "right" if far.x > box.x else "left", -lean, out)
