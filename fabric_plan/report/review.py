"""The review page: a plan as one self-contained HTML file, drawn, told in words, and with every file.

Pure, and the same bytes for the same plan: what is compared with comes in as text. Jinja2 escapes everything
that a plan says; the script gets its data as JSON and writes it as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import unified_diff
from typing import TYPE_CHECKING, Any

from fabric_plan.planner.model import NodePlan, Path, Plan
from fabric_plan.render.templates import Templates
from fabric_plan.render.tree import Rendered, RenderedFile
from fabric_plan.report.layout import BOX_H, BOX_W, layout
from fabric_plan.report.summary import proof_lines
from fabric_plan.report.words import marker_words, path_words, route_of, route_words, rule_of, rule_words
from fabric_plan.roles import Layer
from fabric_plan.simulate.proof import Proof

if TYPE_CHECKING:
    from fabric_plan.report.live import Live

TEMPLATE = "review/page.html.j2"
HEATS = 4
LONGEST_NAME = 20

# Scripts carry a node's data on top; what follows this line is the same on every node and is stored once.
SAME_BELOW = "# ---- nothing below is data ----"


@dataclass(frozen=True, slots=True)
class Against:
    """What the files are compared with: its name, and the contents by node and path; None where a file is
    there and its content is not known.
    """

    name: str
    files: Mapping[str, Mapping[str, str | None]]


def review(
    plan: Plan,
    rendered: Rendered,
    proof: Proof,
    layers: Iterable[Layer],
    templates: Templates,
    *,
    against: Against | None = None,
    live: Live | None = None,
) -> str:
    """Return the page. `against` gives each changed file its difference; `live` does so in its place,
    and adds what apply would do.
    """
    if live is not None:
        against = Against("the live state", live.files)
    pieces = _Pieces()
    paths = [_path(plan, i, path) for i, path in enumerate(plan.paths)]
    nodes = [_node(plan, node, rendered.files[node.name], pieces, against) for node in plan.nodes]
    return (
        templates.environment(autoescape=True)
        .get_template(TEMPLATE)
        .render(
            plan=plan,
            digest=rendered.digest,
            drawing=_drawing(plan),
            verdict=list(proof_lines(plan, proof)),
            proof=proof,
            paths=[(node.name, [p for p in paths if p["src"] == node.name]) for node in plan.nodes],
            heat=_heat(plan),
            queues=_queues(plan),
            disrupts=list(_disrupts(layers, rendered, against)),
            nodes=nodes,
            against=against.name if against else None,
            live=live.view() if live is not None else None,
            differences=live.differences() if live is not None else {},
            unknown=[node.name for node in plan.nodes if live is not None and node.name not in live.diffs],
            pieces=pieces.texts,
        )
    )


class _Pieces:
    """Texts, each kept once, by number."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._at: dict[str, int] = {}

    def add(self, content: str) -> list[int]:
        """Return the numbers of the pieces that make up `content`."""
        head, mark, tail = content.partition(SAME_BELOW)
        return [self._number(piece) for piece in (head, mark + tail) if piece]

    def _number(self, text: str) -> int:
        if text not in self._at:
            self._at[text] = len(self.texts)
            self.texts.append(text)
        return self._at[text]


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"


def _drawing(plan: Plan) -> dict[str, Any]:
    drawing = layout(plan)
    index = {node.name: i for i, node in enumerate(plan.nodes)}
    boxes = [
        {
            "x": box.x - BOX_W // 2,
            "y": box.y - BOX_H // 2,
            "middle": box.x,
            "text_y": box.y - 2,
            "name": box.name,
            "short": _short(box.name),
            "below": "" if box.rail else _below(plan.node(box.name)),
            "id": f"n{index[box.name]}" if box.name in index else "",
        }
        for box in drawing.boxes
    ]
    return {
        "width": drawing.width,
        "height": drawing.height,
        "box_w": BOX_W,
        "box_h": BOX_H,
        "boxes": boxes,
        "lines": drawing.lines,
        "ports": drawing.ports,
    }


def _below(node: NodePlan) -> str:
    return f"rank {node.rank}, position {node.position}"


def _path(plan: Plan, number: int, path: Path) -> dict[str, Any]:
    """Return a path with the ids of everything that it uses."""
    index = {node.name: i for i, node in enumerate(plan.nodes)}
    lights = [f"c{cable.index}-{path.plane}" for cable in path.cables]
    lights += [f"n{index[name]}" for name in (path.src, *path.through, path.dst)]
    route = route_of(plan, path)
    if route is not None:
        lights.append(f"t{index[path.src]}-{plan.node(path.src).relay_routes.index(route)}")
    for i, name in enumerate(path.through):
        rule = rule_of(plan, path, i)
        if rule is not None:
            lights.append(f"r{index[name]}-{plan.node(name).rules.index(rule)}")
    return {
        "id": f"p{number}",
        "src": path.src,
        "title": str(path),
        "lights": " ".join(lights),
        "words": list(path_words(plan, path)),
    }


def _level(value: int, most: int) -> int:
    return 0 if not value else max(1, round(HEATS * value / most))


def _heat(plan: Plan) -> list[dict[str, Any]]:
    """Return, cable by cable, the relayed paths in each plane with a level from 0 to `HEATS`."""
    loads = {(load.cable.index, load.plane): load.paths for load in plan.load.cables}
    most = max(loads.values(), default=0)
    return [
        {
            "cable": str(cable),
            "planes": [
                {
                    "paths": loads.get((cable.index, plane), 0),
                    "level": _level(loads.get((cable.index, plane), 0), most),
                }
                for plane in plan.fabric.planes
            ],
        }
        for cable in plan.fabric.cables
    ]


def _queues(plan: Plan) -> list[dict[str, Any]]:
    most = max((load.paths for load in plan.load.queues), default=0)
    return [{"load": load, "level": _level(load.paths, most)} for load in plan.load.queues]


def _node(
    plan: Plan, node: NodePlan, files: tuple[RenderedFile, ...], pieces: _Pieces, against: Against | None
) -> dict[str, Any]:
    before = against.files.get(node.name, {}) if against else {}
    return {
        "plan": node,
        "mgmt": plan.fabric.node(node.name).mgmt,
        "routes": [route_words(route) for route in node.relay_routes],
        "rules": [(rule, rule_words(node, rule)) for rule in node.rules],
        "markers": [(marker, marker_words(marker)) for marker in node.markers],
        "files": [
            _file(file, pieces, before, compared=node.name in against.files if against else False)
            for file in files
        ],
        "gone": sorted(set(before) - {file.path for file in files}),
    }


def _file(
    file: RenderedFile, pieces: _Pieces, before: Mapping[str, str | None], *, compared: bool
) -> dict[str, Any]:
    old = before.get(file.path)
    change = ""
    if compared and file.path not in before:
        change = "new"
    elif compared and old != file.content:
        change = "changed"
    return {
        "path": file.path,
        "mode": file.mode,
        "lines": file.content.count("\n"),
        "pieces": pieces.add(file.content),
        "change": change,
        "diff": list(_lines(old, file.content)) if change == "changed" and old is not None else [],
    }


def _lines(old: str, new: str) -> Iterator[tuple[str, str]]:
    """Yield each line of a difference with what it is: add, del, at or nothing."""
    kinds = {"+": "add", "-": "del", "@": "at"}
    for number, line in enumerate(unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=2)):
        if number > 1:  # the two file names say nothing here
            yield kinds.get(line[:1], ""), line


def _disrupts(
    layers: Iterable[Layer], rendered: Rendered, against: Against | None
) -> Iterator[dict[str, Any]]:
    """Yield what a change of a group of files disturbs, and the nodes on which one of them changed."""
    for layer in layers:
        words = sorted({artefact.disrupts for artefact in layer.artefacts if artefact.disrupts})
        if not words:
            continue
        has = [
            (name, file)
            for name, files in rendered.files.items()
            for file in files
            if file.layer == layer.layer and file.artefact.disrupts
        ]
        changed = {
            name
            for name, file in has
            if against and name in against.files and against.files[name].get(file.path) != file.content
        }
        if has:
            yield {"title": layer.title, "words": words, "nodes": [n for n in rendered.files if n in changed]}
