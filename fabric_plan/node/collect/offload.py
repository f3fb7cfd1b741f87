"""What the driver and the card do for a device: tc, ethtool, devlink, QoS."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from ..document import DevlinkState, EthtoolState, QosState, TcState
from ..parsers import devlink, ethtool, qos, tc
from ..reading import Reading, unreadable
from ..records import Hairpin
from ..tools import Tools
from ..tree import Tree
from .jobs import Job, Jobs

R = TypeVar("R")

# mlx5 has some dozens of counters for each of its queues; nothing is decided by them.
_QUEUE_COUNTER = re.compile(r"^((rx|tx|ch)_?\d+_|.*\[\d+\])")
PARAMS = ("hairpin_num_queues", "hairpin_queue_size", "flow_steering_mode")


def tc_state(tools: Tools, dev: str) -> TcState:
    """Return the queueing disciplines of a device and, where filters can hang, its ingress filters."""
    qdiscs = tools.ask(
        lambda text: tc.qdiscs(text, dev),
        ["tc", "-j", "qdisc", "show", "dev", dev],
        ["tc", "qdisc", "show", "dev", dev],
    )
    if qdiscs.value is not None and not any(qdisc.kind in ("ingress", "clsact") for qdisc in qdiscs.value):
        return TcState(qdiscs, Reading(()))
    rules = tools.ask(
        lambda text: tc.filters(text, dev),
        ["tc", "-j", "-s", "filter", "show", "dev", dev, "ingress"],
        ["tc", "-s", "filter", "show", "dev", dev, "ingress"],
    )
    return TcState(qdiscs, rules)


def ethtool_state(tools: Tools, dev: str) -> EthtoolState:
    """Return a device's offloads and its counters without those of single queues."""
    features = tools.ask(ethtool.features, ["ethtool", "--json", "-k", dev], ["ethtool", "-k", dev])
    counters = tools.ask(ethtool.counters, ["ethtool", "-S", dev])
    if counters.value is not None:
        kept = {name: count for name, count in counters.value.items() if not _QUEUE_COUNTER.match(name)}
        counters = Reading(kept, counters.unread)
    return EthtoolState(features, counters)


def start_devlink(jobs: Jobs, tools: Tools, tree: Tree, pci: str) -> Callable[[], DevlinkState]:
    """Start the questions to devlink and the driver's debugfs about a function; the result waits for them.

    Each is asked for itself, parameters too: one that hangs or is refused must not hide the others.
    """
    handle = f"pci/{pci}"

    def start(parse: Callable[[str], Reading[Mapping[str, R]]], *words: str) -> Job[Reading[R]]:
        commands = ["devlink", "-j", *words], ["devlink", *words]
        return jobs.start(partial(tools.ask, _one(parse, handle), *commands), unreadable)

    params = [start(devlink.params, "dev", "param", "show", handle, "name", name) for name in PARAMS]
    reloads = start(devlink.reloads, "-s", "dev", "show", handle)
    eswitch = start(devlink.eswitch, "dev", "eswitch", "show", handle)
    info = start(devlink.info, "dev", "info", handle)

    def state() -> DevlinkState:
        read = [job.result() for job in params]
        found = {param.name: param for reading in read for param in reading.value or ()}
        gaps = tuple(gap for reading in read for gap in reading.unread)
        return DevlinkState(
            params=Reading(found if found or not gaps else None, gaps),
            reloads=reloads.result(),
            eswitch=eswitch.result(),
            info=info.result(),
            hairpins=hairpins(tree, pci),
        )

    return state


def hairpins(tree: Tree, pci: str) -> Reading[tuple[Hairpin, ...]]:
    """Return the live hairpins of an mlx5 function from its debugfs table."""
    table = f"/sys/kernel/debug/mlx5/{pci}/tc/hairpin_table_dump"
    text = tree.read(table)
    return unreadable(f"{table} cannot be read") if text is None else devlink.hairpins(text)


def _one(parse: Callable[[str], Reading[Mapping[str, R]]], handle: str) -> Callable[[str], Reading[R]]:
    """Return a parser of one device's entry."""

    def read(text: str) -> Reading[R]:
        found = parse(text)
        if found.value is not None and handle in found.value:
            return Reading(found.value[handle], found.unread)
        return (
            unreadable(f"nothing about {handle}", text)
            if found.value is not None
            else Reading(None, found.unread)
        )

    return read


def qos_state(tools: Tools, dev: str) -> QosState:
    """Return a device's QoS by the vendor's tool and by dcb."""
    commands: Sequence[str] = ["dcb", "-N", "app", "show", "dev", dev]
    return QosState(tools.ask(qos.mlnx_qos, ["mlnx_qos", "-i", dev]), tools.ask(qos.dcb, commands))
