"""Say what NCCL would make of a graph file: what fails, what crashes, and what it swallows in silence
(docs/fabric.md 8).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fabric_plan.errors import RoleError
from fabric_plan.nccl.graph import GRAPH_IDS, GraphKind
from fabric_plan.nccl.neighbours import common_planes, devices, peer_rank, shared_cables
from fabric_plan.nccl.xml import Effect, Element, Finding, place, read
from fabric_plan.planner.model import NodePlan, Plan

_MAX_CHANNELS = 64
_LINK_TYPES = ("LOC", "NVL", "NVB", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS")

# What a graph that NCCL looks up has to say, and what becomes of one that does not.
_GRAPH_ATTRIBUTES: dict[str, Effect] = {
    "crossnic": Effect.FAILS,
    "pattern": Effect.FAILS,
    "nchannels": Effect.FAILS,
    "speedintra": Effect.FAILS,
    "speedinter": Effect.FAILS,
    "latencyinter": Effect.SILENT,
    "typeintra": Effect.CRASHES,
    "typeinter": Effect.CRASHES,
    "samechannels": Effect.FAILS,
}

_INTEGER = re.compile(r"\s*[+-]?(0[xX][0-9a-fA-F]+|[0-9]+)")
_HEX = re.compile(r"\s*[+-]?(0[xX])?[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\Z")

_WHICH = {0: "ring", 1: "tree"}


def lint(data: bytes) -> tuple[Finding, ...]:
    """Return everything wrong with a graph file, in its order. Never raises, whatever the bytes."""
    root, stopped = read(data)
    if stopped:
        return (stopped,)
    if root is None:
        hint = 'begin with <graphs version="1">'
        return (
            Finding(1, 1, Effect.SILENT, "no <graphs> in the file: NCCL searches channels of its own", hint),
        )
    found = (Finding(*place(data, at), effect, text, hint) for at, effect, text, hint in _root(root))
    return tuple(sorted(found))


_Raw = tuple[int, Effect, str, str]


def _root(root: Element) -> Iterator[_Raw]:
    if _integer(root.get("version")) != 1:
        yield root.at, Effect.FAILS, "the version of <graphs> is not 1", 'write <graphs version="1">'
    by_id: dict[int, Element] = {}
    for graph in root.children:
        yield from _repeated(graph)
        text = graph.get("id")
        if text is None:
            yield (
                graph.at,
                Effect.FAILS,
                "a graph without an id",
                'write id="0" for the ring, id="1" for the tree',
            )
            continue
        number = _integer(text)
        if number not in GRAPH_IDS:
            yield (
                graph.at,
                Effect.SILENT,
                f"graph id `{text}` is none that one GPU a node looks up",
                "0 is the ring, 1 the tree",
            )
            continue
        if number in by_id:
            yield (
                graph.at,
                Effect.SILENT,
                f"a second graph {number}: it takes the place of the first",
                "leave one of them out",
            )
        by_id[number] = graph
        yield from _graph(number, graph)
    for number in GRAPH_IDS.keys() - by_id.keys():
        text = f"no graph {number}: NCCL searches channels of its own for its {_WHICH[number]}"
        yield root.at, Effect.SILENT, text, f'add <graph id="{number}" ...>'
    if len(by_id) == len(GRAPH_IDS) and _nets(by_id[0]) != _nets(by_id[1]):
        text = "graphs 0 and 1 name different devices, while samechannels says they are the same"
        yield by_id[1].at, Effect.SILENT, text, "give both the same channels"


def _graph(number: int, graph: Element) -> Iterator[_Raw]:
    for name, effect in _GRAPH_ATTRIBUTES.items():
        if graph.get(name) is None:
            yield graph.at, effect, f"graph {number} has no {name}", f"add {name}=..."
    for name in ("crossnic", "pattern", "nchannels", "samechannels"):
        yield from _number(graph, name, _INTEGER)
    for name in ("speedintra", "speedinter", "latencyinter"):
        yield from _number(graph, name, _FLOAT)
    for name in ("typeintra", "typeinter"):
        value = graph.get(name)
        if value is not None and not value.startswith(_LINK_TYPES):
            yield (
                graph.at,
                Effect.SILENT,
                f"{name} `{value}` is no link type: NCCL takes LOC",
                f"one of {', '.join(_LINK_TYPES)}",
            )
    pattern = graph.get("pattern")
    if pattern is not None and _integer(pattern) != GRAPH_IDS[number]:
        text = f"graph {number} has pattern {pattern}, a {_WHICH[number]} is pattern {GRAPH_IDS[number]}"
        yield graph.at, Effect.SILENT, text, f'write pattern="{GRAPH_IDS[number]}"'
    yield from _count(number, graph)
    for channel in graph.children:
        yield from _channel(channel)


def _count(number: int, graph: Element) -> Iterator[_Raw]:
    text = graph.get("nchannels")
    if text is None:
        return
    said, there = _integer(text), len(graph.children)
    hint = f'write nchannels="{there}"'
    if said <= 0:
        yield (
            graph.at,
            Effect.SILENT,
            f"graph {number} has nchannels {text}: NCCL searches channels of its own",
            hint,
        )
    elif max(said, there) > _MAX_CHANNELS:
        text = f"graph {number} has more than {_MAX_CHANNELS} channels: NCCL writes past its table"
        yield graph.at, Effect.CRASHES, text, "four channels are a channel a device"
    elif said > there:
        text = f"graph {number} says {said} channels and has {there}: the others are filled with device 0"
        yield graph.at, Effect.SILENT, text, hint
    elif said < there:
        yield (
            graph.at,
            Effect.SILENT,
            f"graph {number} says {said} channels and has {there}: the last ones are ignored",
            hint,
        )


def _channel(channel: Element) -> Iterator[_Raw]:
    nets = [child for child in channel.children if child.name == "net"]
    gpus = [child for child in channel.children if child.name == "gpu"]
    if not nets:
        yield channel.at, Effect.SILENT, "a channel without a net: NCCL takes device 0", "write net, gpu, net"
    elif len(nets) == 1:
        yield (
            channel.at,
            Effect.SILENT,
            "a channel with one net: NCCL takes device 0 for the other",
            "write net, gpu, net",
        )
    elif len(nets) > 2:
        yield (
            nets[2].at,
            Effect.SILENT,
            "a third net in a channel: it overwrites the next channel's first",
            "write net, gpu, net",
        )
    if not gpus:
        yield (
            channel.at,
            Effect.SILENT,
            "a channel without a gpu: every rank but 0 takes the second net",
            "write net, gpu, net",
        )
    elif len(gpus) > 1:
        yield gpus[1].at, Effect.SILENT, "a second gpu in a channel: a node has one", "write net, gpu, net"
    for child in channel.children:
        yield from _repeated(child)
        dev = child.get("dev")
        if dev is None:
            yield child.at, Effect.FAILS, f"a {child.name} without dev", f'write <{child.name} dev="0"/>'
        elif not _HEX.match(dev):
            yield (
                child.at,
                Effect.SILENT,
                f"dev `{dev}` is not hexadecimal: NCCL reads what it can of it",
                "0 to f",
            )


def _repeated(element: Element) -> Iterator[_Raw]:
    names = [name for name, _ in element.attributes]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield (
            element.at,
            Effect.SILENT,
            f"{name} is written twice in <{element.name}>: the first counts",
            "leave one out",
        )


def _number(graph: Element, name: str, form: re.Pattern[str]) -> Iterator[_Raw]:
    value = graph.get(name)
    if value is not None and not form.match(value):
        yield (
            graph.at,
            Effect.SILENT,
            f"{name} `{value}` is not a number: NCCL reads what it can of it",
            f"write {name} as a number",
        )


def _integer(text: str | None) -> int:
    """Read as ``strtol`` with base 0 does: what is no number is 0."""
    match = _INTEGER.match(text or "")
    if not match:
        return 0
    word = match.group().strip()
    digits = word.lstrip("+-")
    base = 16 if digits[:2].lower() == "0x" else 8 if digits.startswith("0") and len(digits) > 1 else 10
    if base == 8:
        digits = re.match(r"[0-7]+", digits).group()  # type: ignore[union-attr]  # it begins with 0
    return int(digits, base) * (-1 if word.startswith("-") else 1)


def _nets(graph: Element) -> list[list[str | None]]:
    return [[net.get("dev") for net in channel.children if net.name == "net"] for channel in graph.children]


# Toward which rank the device that counts has to face, in steps from the own one.
_TOWARD = {GraphKind.RING: -1, GraphKind.LINK_PREV: -1, GraphKind.LINK_NEXT: 1}


def lint_against(data: bytes, plan: Plan, node: NodePlan, kind: GraphKind) -> tuple[Finding, ...]:
    """Return what `lint` says, and where the file is not what `plan` asks of `node` for a communicator of
    `kind`.

    Nothing of how the file was made is asked here: the devices are looked up by the cables that they sit
    on.
    """
    found = lint(data)
    root, _ = read(data)
    if root is None or found:
        return found
    raw = (raw for graph in root.children for raw in _against(graph, plan, node, kind))
    return tuple(sorted(Finding(*place(data, at), effect, text, hint) for at, effect, text, hint in raw))


def _against(graph: Element, plan: Plan, node: NodePlan, kind: GraphKind) -> Iterator[_Raw]:
    planned = plan.fabric.nccl_channels
    if len(graph.children) != planned:
        text = f"{len(graph.children)} channels where the plan has {planned}"
        yield graph.at, Effect.SILENT, text, "render again, or change nccl.channels"
    speeds = plan.fabric.node(node.name).hardware.graph
    for name, wanted in (
        ("speedintra", speeds.intra),
        ("speedinter", speeds.inter),
        ("latencyinter", speeds.latency),
    ):
        value = graph.get(name) or ""
        if float(value) != wanted:
            yield (
                graph.at,
                Effect.SILENT,
                f"{name} {value} where the hardware role has {wanted:g}",
                "render again",
            )
    rank = peer_rank(plan, node, _TOWARD[kind])
    if rank is None:
        yield (
            graph.at,
            Effect.FAILS,
            f"{node.name} has no neighbour for a {kind} graph",
            "this file is another node's",
        )
        return
    peer = plan.nodes[rank]
    facing = shared_cables(plan, node, peer)
    planes, here = common_planes(plan), devices(node)
    for k, channel in enumerate(graph.children):
        gpu = next(child for child in channel.children if child.name == "gpu").get("dev")
        if int(gpu or "0", 16) != int(speeds.gpu, 16):
            yield channel.at, Effect.FAILS, f"channel {k} is on GPU {gpu}, which is not there", "render again"
        net = next(child for child in channel.children if child.name == "net")
        index = int(net.get("dev") or "0", 16)
        if not 0 <= index < len(here):
            yield (
                net.at,
                Effect.FAILS,
                f"channel {k} names device {index}; {node.name} has {len(here)}",
                "render again",
            )
            continue
        device = here[index]
        if device.cable not in facing:
            text = f"channel {k} is on {device.function.rdma}, which does not face {peer.name} (rank {rank})"
            yield net.at, Effect.FAILS, text, "the first net faces the rank that this one receives from"
        elif device.function.plane != planes[k % len(planes)]:
            wanted = planes[k % len(planes)]
            text = f"channel {k} is on plane {device.function.plane}, and on plane {wanted} elsewhere"
            yield net.at, Effect.FAILS, text, "channel k uses plane k mod planes on every node"


def refuse_wrong(text: str, plan: Plan, node: NodePlan, kind: GraphKind) -> None:
    """Raise `RoleError` where a rendered graph file is not what NCCL and the plan want: the template was
    changed.
    """
    for finding in lint_against(text.encode(), plan, node, kind):
        raise RoleError(
            f"line {finding.line}: {finding.text} (NCCL {_MEANS[finding.effect]})",
            where=f"{node.name}: {kind}.xml",
            hint=finding.hint,
        )


_MEANS = {
    Effect.CRASHES: "crashes on it",
    Effect.FAILS: "fails on it",
    Effect.SILENT: "says nothing and does something else",
}


def meaning(effect: Effect) -> str:
    """Return what NCCL does, as a person says it."""
    return _MEANS[effect]
