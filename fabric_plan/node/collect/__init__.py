"""All facts of this node in one go: every question in its own thread, every tool with its own limit."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial

from ..document import (
    SCHEMA,
    EthtoolState,
    Facts,
    Library,
    NetworkManager,
    QosState,
    RdmaState,
    Tool,
)
from ..reading import Reading, unreadable
from ..records import VerbsDevice
from ..request import Request
from ..tools import Tools
from ..tree import Tree
from ..usage import rdma_usage
from . import files, host, network, offload, rdma, services
from .jobs import Jobs, results


def collect(request: Request, tree: Tree, tools: Tools) -> Facts:
    """Return the facts, complete or with the gaps named, within the request's limit."""
    began = time.monotonic()
    functions = tuple(dict.fromkeys(request.interfaces)) or rdma.function_netdevs(tree)
    places = [rdma.pci_of(tree, f"/sys/class/net/{dev}") for dev in functions]
    jobs = Jobs(request.all_limit_s)
    # Libraries first: they take longest. What is read from files alone comes last.
    libraries = jobs.start_each(
        request.libraries, lambda path: files.library(tree, path, request.marks), _no_library
    )
    rdma_state = _start_rdma(request, tree, tools, jobs)
    tc = offload.start_tc(jobs, tools, functions)
    ethtool = jobs.start_each(functions, partial(offload.ethtool_state, tools), _no_ethtool)
    qos = jobs.start_each(functions, partial(offload.qos_state, tools), _no_qos)
    tool = jobs.start_each(host.TOOLS, partial(host.tool, tools), lambda _: Tool(None))
    interfaces = jobs.start(partial(network.interfaces, tools), unreadable)
    routes = jobs.start(partial(network.routes, tools), unreadable)
    neighbours = jobs.start(partial(network.neighbours, tools), unreadable)
    units = jobs.start(partial(services.units, tools, request.units), unreadable)
    managed = jobs.start(partial(services.managed, tools, tree), _no_manager)
    lldp = jobs.start(partial(services.neighbours, tools), unreadable)
    firewall = jobs.start(partial(services.firewall, tools), unreadable)
    ours = jobs.start(partial(files.ours, tree, request.paths), unreadable)
    netplan = jobs.start(partial(files.netplan, tree), unreadable)
    # devlink last: it is the one that hangs with a card, and must not take the others' turns.
    devlink = offload.start_devlink(jobs, tools, tree, [pci for pci in places if pci])
    disks = {path: files.disk(tree, path) for path in files.DISKS}
    found = interfaces.result()
    return Facts(
        schema=SCHEMA,
        taken_unix=int(time.time()),
        functions=functions,
        host=host.host(tree),
        tools=results(tool),
        ssh=host.connection(host.ssh(tree, os.environ), found.value),
        interfaces=found,
        routes=routes.result(),
        neighbours=neighbours.result(),
        sysctls=network.sysctls(tree, functions),
        snmp=network.snmp(tree),
        tc=tc(),
        ethtool=results(ethtool),
        devlink=devlink(),
        qos=results(qos),
        rdma=rdma_state(),
        units=units.result(),
        files=ours.result(),
        netplan=netplan.result(),
        network_manager=managed.result(),
        lldp=lldp.result(),
        firewall=firewall.result(),
        libraries=results(libraries),
        disks={path: room for path, room in disks.items() if room is not None},
        nfs=files.nfs(tree),
        took_ms=int((time.monotonic() - began) * 1000),
    )


def _start_rdma(request: Request, tree: Tree, tools: Tools, jobs: Jobs) -> Callable[[], RdmaState]:
    """Start the questions about RDMA; the returned function waits for them and judges the use."""
    ports = jobs.start(partial(rdma.ports, tree), unreadable)
    links = jobs.start(partial(rdma.links, tools), unreadable)
    gids = jobs.start(partial(rdma.gids, tree), unreadable)
    pairs = jobs.start(partial(rdma.queue_pairs, tools), unreadable)
    contexts = jobs.start(partial(rdma.contexts, tools), unreadable)

    def devices() -> Reading[tuple[VerbsDevice, ...]]:
        # It opens every device: asked any earlier it would stand among those who use RDMA.
        pairs.result()
        contexts.result()
        return rdma.verbs(tools)

    verbs = jobs.start(devices, unreadable)
    markers = jobs.start(partial(rdma.markers, tree, request.markers), unreadable)

    def state() -> RdmaState:
        running = markers.result()
        pids = {marker.pid for marker in running.value or ()}
        return RdmaState(
            ports=ports.result(),
            links=links.result(),
            verbs=verbs.result(),
            gids=gids.result(),
            queue_pairs=pairs.result(),
            contexts=contexts.result(),
            markers=running,
            usage=rdma_usage(ports.result(), pairs.result(), contexts.result(), pids),
        )

    return state


def _no_ethtool(why: str) -> EthtoolState:
    return EthtoolState(unreadable(why), unreadable(why))


def _no_qos(why: str) -> QosState:
    return QosState(unreadable(why), unreadable(why))


def _no_manager(why: str) -> NetworkManager:
    return NetworkManager(*[unreadable(why)] * 3)


def _no_library(why: str) -> Library:
    return Library(None, None, error=why)
