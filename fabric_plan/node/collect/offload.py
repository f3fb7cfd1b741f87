"""What the driver and the card do for a device: tc, ethtool, devlink, QoS."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ..document import DevlinkState, EthtoolState, QosState, TcState
from ..parsers import devlink, ethtool, qos, tc
from ..reading import Reading, Unreadable, unreadable
from ..records import DevlinkParam, Hairpin, Qdisc, TcRule
from ..tools import Tools
from ..tree import Tree
from .jobs import Job, Jobs

R = TypeVar("R")

if TYPE_CHECKING:
    Parse = Callable[[str], Reading[Mapping[str, R]]]

# mlx5 has some dozens of counters for each of its queues; nothing is decided by them.
_QUEUE_COUNTER = re.compile(r"^((rx|tx|ch)_?\d+_|.*\[\d+\])")
PARAMS = ("hairpin_num_queues", "hairpin_queue_size", "flow_steering_mode")


def start_tc(jobs: Jobs, tools: Tools, devices: Sequence[str]) -> Callable[[], dict[str, TcState]]:
    """Start the questions for queueing disciplines and, where filters can hang, for ingress filters."""
    qdiscs = jobs.start(
        partial(tools.ask, tc.qdiscs, ["tc", "-j", "qdisc", "show"], ["tc", "qdisc", "show"]), unreadable
    )

    def of(dev: str) -> Reading[tuple[Qdisc, ...]]:
        read = qdiscs.result()
        if read.value is None:
            return read
        return Reading(tuple(qdisc for qdisc in read.value if qdisc.dev == dev), read.unread)

    def rules_of(dev: str) -> Reading[tuple[TcRule, ...]]:
        read = of(dev)
        if read.complete and not any(qdisc.kind in ("ingress", "clsact") for qdisc in read.value or ()):
            return Reading(())
        words = ["-s", "filter", "show", "dev", dev, "ingress"]
        return tools.ask(partial(tc.filters, dev=dev), ["tc", "-j", *words], ["tc", *words])

    rules = jobs.start_each(devices, rules_of, unreadable)
    return lambda: {dev: TcState(of(dev), rules[dev].result()) for dev in devices}


def ethtool_state(tools: Tools, dev: str) -> EthtoolState:
    """Return a device's offloads and its counters without those of single queues."""
    features = tools.ask(ethtool.features, ["ethtool", "--json", "-k", dev], ["ethtool", "-k", dev])
    counters = tools.ask(ethtool.counters, ["ethtool", "-S", dev])
    if counters.value is not None:
        kept = {name: count for name, count in counters.value.items() if not _QUEUE_COUNTER.match(name)}
        counters = Reading(kept, counters.unread)
    return EthtoolState(features, counters)


def start_devlink(
    jobs: Jobs, tools: Tools, tree: Tree, places: Sequence[str]
) -> Callable[[], dict[str, DevlinkState]]:
    """Start the questions to devlink and to the driver's debugfs about functions, by their PCI addresses.

    One listing of all devices answers most of it. A listing fails as a whole on one device that refuses, so
    what is missing from it is asked for itself.
    """

    def listing(parse: Parse[R], words: Sequence[str]) -> Job[Reading[Mapping[str, R]]]:
        return jobs.start(
            partial(tools.ask, parse, ["devlink", "-j", *words], ["devlink", *words]), unreadable
        )

    def one(parse: Parse[R], handle: str, *words: str) -> Reading[R]:
        return tools.ask(_one(parse, handle), ["devlink", "-j", *words], ["devlink", *words])

    def start(parse: Parse[R], *words: str) -> dict[str, Job[Reading[R]]]:
        all_of = listing(parse, words)

        def of(pci: str) -> Reading[R]:
            found = (all_of.result().value or {}).get(f"pci/{pci}")
            return one(parse, f"pci/{pci}", *words, f"pci/{pci}") if found is None else Reading(found)

        return jobs.start_each(places, of, unreadable)

    all_params = listing(devlink.params, ["dev", "param", "show"])

    def params_of(pci: str) -> Reading[Mapping[str, DevlinkParam]]:
        handle = f"pci/{pci}"
        found = {param.name: param for param in (all_params.result().value or {}).get(handle, ())}
        gaps: list[Unreadable] = []
        for name in PARAMS:
            if name not in found:
                read = one(devlink.params, handle, "dev", "param", "show", handle, "name", name)
                found.update((param.name, param) for param in read.value or ())
                gaps += read.unread
        return Reading(found if found or not gaps else None, tuple(gaps))

    params = jobs.start_each(places, params_of, unreadable)
    reloads = start(devlink.reloads, "-s", "dev", "show")
    info = start(devlink.info, "dev", "info")
    eswitch = jobs.start_each(
        places,
        lambda pci: one(devlink.eswitch, f"pci/{pci}", "dev", "eswitch", "show", f"pci/{pci}"),
        unreadable,
    )

    def state(pci: str) -> DevlinkState:
        return DevlinkState(
            params=params[pci].result(),
            reloads=reloads[pci].result(),
            eswitch=eswitch[pci].result(),
            info=info[pci].result(),
            hairpins=hairpins(tree, pci),
        )

    return lambda: {pci: state(pci) for pci in places}


def hairpins(tree: Tree, pci: str) -> Reading[tuple[Hairpin, ...]]:
    """Return the live hairpins of an mlx5 function from its debugfs table."""
    table = f"/sys/kernel/debug/mlx5/{pci}/nic/fs/tc/hairpin_table_dump"
    text = tree.read(table)
    return unreadable(f"{table} cannot be read") if text is None else devlink.hairpins(text)


def _one(parse: Parse[R], handle: str) -> Callable[[str], Reading[R]]:
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
