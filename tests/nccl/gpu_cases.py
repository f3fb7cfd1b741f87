"""What is run on a GPU and what has to come of it: fabrics as rendered, one thing taken away, one file
damaged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fabric_plan.nccl.graph import GraphKind
from tests.strategies import ALTERNATING, Sketch

Damage = Callable[[str], str]


@dataclass(frozen=True)
class Case:
    """One run: a fabric, whose communicator, what is changed, and what has to come of it.

    `seen` are patterns that have to be in some rank's log (or in what a rank says), `never` ones that must
    be in none. `fails` is the step at which a rank has to stop: a step's name, ``died`` for a signal, None
    where all must go well, ``?`` where either end will do. `only` names the one rank that `env` is for.
    """

    name: str
    sketch: Sketch
    proves: str
    kind: GraphKind = GraphKind.RING
    env: Mapping[str, str | None] = field(default_factory=dict)
    damage: Damage | None = None
    only: int | None = None
    fails: str | None = None
    seen: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


_RING4 = Sketch()
_LOADED = r"Search 0 : 4 channels loaded from XML graph"
_UNREACHABLE = r"Network is unreachable"
_TREES = r"Connected all trees|Connected binomial trees"


def _both(text: str, new: str) -> Damage:
    return lambda graph: graph.replace(text, new)


CASES: tuple[Case, ...] = (
    Case(
        "ring of four, as rendered",
        _RING4,
        "the rendered graph and environment connect a ring over cables alone; results are right",
        seen=(_LOADED, r"Search 1 : 4 channels loaded from XML graph", r"Connected all rings"),
        never=(_TREES, _UNREACHABLE),
    ),
    Case(
        "the same, f1-f1 and f0-f0 cabled in turn",
        Sketch(flips=ALTERNATING),
        "the previous rank's device is found by rank and cable, not by port",
        seen=(_LOADED, r"Connected all rings"),
        never=(_TREES, _UNREACHABLE),
    ),
    Case(
        "ring of four on /31 subnets",
        Sketch(prefix=31),
        "two hosts a subnet are enough",
        seen=(_LOADED, r"Connected all rings"),
        never=(_TREES, _UNREACHABLE),
    ),
    Case(
        "triangle",
        Sketch(nodes=3),
        "three ranks the same way",
        seen=(_LOADED, r"Connected all rings"),
        never=(_TREES, _UNREACHABLE),
    ),
    Case(
        "ring of eight",
        Sketch(nodes=8),
        "eight ranks the same way",
        seen=(_LOADED, r"Connected all rings"),
        never=(_TREES, _UNREACHABLE),
    ),
    Case(
        "two neighbours of the ring, link-next and link-prev",
        _RING4,
        "a communicator of two ranks stays on its cable",
        kind=GraphKind.LINK_NEXT,
        seen=(_LOADED,),
        never=(_UNREACHABLE,),
    ),
    Case(
        "pair of two cables",
        Sketch(nodes=2),
        "both cables and both planes in one graph",
        seen=(_LOADED,),
        never=(_UNREACHABLE,),
    ),
    Case(
        "without the graph file",
        _RING4,
        "NCCL's own search listens on a port that the sender cannot reach",
        env={"NCCL_GRAPH_FILE": None},
        fails="all_reduce",
        seen=(_UNREACHABLE,),
        never=(r"loaded from XML graph",),
    ),
    Case(
        "with the second net first in each channel",
        _RING4,
        "only the first net counts, and it has to face the previous rank",
        damage=lambda graph: re.sub(
            r'<net dev="(.)"/>(\s+<gpu dev="0"/>\s+)<net dev="(.)"/>',
            r'<net dev="\3"/>\2<net dev="\1"/>',
            graph,
        ),
        fails="all_reduce",
        seen=(_LOADED, _UNREACHABLE),
    ),
    Case(
        "NCCL_CUMEM_ENABLE=0",
        _RING4,
        "without cuMem trees are connected at start, and a tree wants the far node",
        env={"NCCL_CUMEM_ENABLE": "0"},
        fails="init",
        seen=(_LOADED, r"Connected all rings", _UNREACHABLE),
    ),
    Case(
        "NCCL_CUMEM_ENABLE=0 on one rank alone",
        _RING4,
        "one rank without cuMem is enough",
        env={"NCCL_CUMEM_ENABLE": "0"},
        only=2,
        fails="init",
        seen=(_LOADED, r"Connected all rings", _UNREACHABLE),
    ),
    Case(
        "NCCL_RUNTIME_CONNECT=0",
        _RING4,
        "the same by the other switch",
        env={"NCCL_RUNTIME_CONNECT": "0"},
        fails="init",
        seen=(_LOADED, r"Connected all rings", _UNREACHABLE),
    ),
    Case(
        "without NCCL_ALGO=Ring",
        _RING4,
        "the first small operation picks a tree, and connects it then",
        env={"NCCL_ALGO": None},
        fails="all_reduce",
        seen=(_LOADED, _UNREACHABLE),
    ),
    Case(
        "triangle without NCCL_ALGO=Ring",
        Sketch(nodes=3),
        "all three share cables, and a tree fails still: it listens on the port that faces the previous rank",
        env={"NCCL_ALGO": None},
        fails="all_reduce",
        seen=(_LOADED, _UNREACHABLE),
    ),
    Case(
        "NCCL_CROSS_NIC=0",
        _RING4,
        "a graph with crossnic=1 is dropped in silence",
        env={"NCCL_CROSS_NIC": "0"},
        fails="all_reduce",
        seen=(_UNREACHABLE,),
        never=(_LOADED,),
    ),
)


def _cut(pattern: str, new: str = "") -> Damage:
    return lambda graph: re.sub(pattern, new, graph, flags=re.S)


def _lint(name: str, effect: str, damage: Damage, fails: str | None, *, loaded: bool | None = None) -> Case:
    """A damaged file on two ranks of one cable; `effect` is what the lint says NCCL makes of it."""
    seen = (_LOADED,) if loaded else ()
    never = (_LOADED,) if loaded is False else ()
    return Case(name, _RING4, effect, GraphKind.LINK_NEXT, damage=damage, fails=fails, seen=seen, never=never)


# What the lint says of damaged files, held against NCCL itself.
LINT_CASES: tuple[Case, ...] = (
    _lint("an XML declaration", "fails", lambda graph: '<?xml version="1.0"?>\n' + graph, "init"),
    _lint("a tab between tags", "fails", _both("\n  <graph ", "\n\t<graph "), "init"),
    _lint("a newline inside a tag", "fails", _both(" pattern=", "\npattern="), "init"),
    _lint("text between tags", "fails", _both("<channel>", "<channel>x"), "init"),
    _lint("a blank in a closing tag", "fails", _both("</graph>", "</graph >"), "init"),
    _lint("cut short", "fails", _both("</graphs>", ""), "init"),
    _lint("version 2", "fails", _both('graphs version="1"', 'graphs version="2"'), "init"),
    _lint("a graph without an id", "fails", _both(' id="0"', ""), "init"),
    _lint("a net without dev", "fails", _cut(r'<net dev="."/>', "<net/>"), "init"),
    _lint("a gpu that is not there", "fails", _both('gpu dev="0"', 'gpu dev="5"'), "init"),
    _lint("no typeintra", "crashes", _both(' typeintra="LOC"', ""), "died"),
    _lint("no typeinter", "crashes", _both(' typeinter="P2C"', ""), "died"),
    _lint("no graph 0", "silent", _cut(r'  <graph id="0".*?</graph>\n'), "?", loaded=False),
    _lint("an empty file", "silent", lambda graph: "", "?", loaded=False),
    _lint(
        "nchannels 8 over four channels", "silent", _both('nchannels="4"', 'nchannels="8"'), "?", loaded=True
    ),
    _lint(
        "no second net in a channel",
        "silent",
        _cut(r'(<gpu dev="0"/>)\s+<net dev="."/>', r"\1"),
        None,
        loaded=True,
    ),
    _lint("a comment", "reads", _both("<channel>", "<!-- note --><channel>"), None, loaded=True),
)
