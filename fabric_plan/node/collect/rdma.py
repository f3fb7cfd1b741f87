"""RDMA devices and their GIDs from sysfs, who uses them, and the markers that run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..document import Marker, RdmaPort
from ..parsers import names, rdma
from ..reading import Reading, unreadable
from ..records import Gid, QueuePair, RdmaContext, RdmaLink, VerbsDevice
from ..tools import Tools
from ..tree import Tree, last_name

CLASS = "/sys/class/infiniband"
MAX_DEVICES = 64
MAX_GIDS = 1024
EMPTY_STRETCH = 64
MARKERS = ("fabric-plan-marker", "mlx5-rdma-tx-rewrite-probe", "sparkring-relay-marker")
_GID_TYPES = {"IB/RoCE v1": "v1", "RoCE v2": "v2"}


def function_netdevs(tree: Tree) -> tuple[str, ...]:
    """Return the network devices that have an RDMA device, sorted."""
    found = {_netdev(tree, device) for device in tree.names(CLASS)[:MAX_DEVICES]}
    return tuple(sorted(name for name in found if name))


def _netdev(tree: Tree, device: str) -> str | None:
    """Return the network device of an RDMA device: of its GIDs (any will do), else of its PCI function."""
    attributes = f"{CLASS}/{device}/ports/1/gid_attrs/ndevs"
    for index in range(16):
        name = tree.attribute(f"{attributes}/{index}")
        if name:
            return name
    siblings = tree.names(f"{CLASS}/{device}/device/net")
    return siblings[0] if len(siblings) == 1 else None


def pci_of(tree: Tree, path: str) -> str | None:
    """Return the PCI address of a sysfs device, None when its parent is on another bus."""
    name = last_name(tree.link(f"{path}/device") or "")
    words = name.replace(".", ":").split(":")
    return name if len(words) == 4 and all(words) else None


def ports(tree: Tree) -> Reading[tuple[RdmaPort, ...]]:
    """Return every RDMA device with its first port's state and counters."""
    return Reading(tuple(_port(tree, device) for device in tree.names(CLASS)[:MAX_DEVICES]))


def _port(tree: Tree, device: str) -> RdmaPort:
    base = f"{CLASS}/{device}"
    netdev = _netdev(tree, device)
    return RdmaPort(
        device=device,
        netdev=netdev,
        pci=pci_of(tree, base) or (pci_of(tree, f"/sys/class/net/{netdev}") if netdev else None),
        firmware=tree.attribute(f"{base}/fw_ver") or None,
        node_guid=tree.attribute(f"{base}/node_guid"),
        sys_image_guid=tree.attribute(f"{base}/sys_image_guid"),
        state=tree.attribute(f"{base}/ports/1/state"),
        physical_state=tree.attribute(f"{base}/ports/1/phys_state"),
        rate=tree.attribute(f"{base}/ports/1/rate"),
        link_layer=tree.attribute(f"{base}/ports/1/link_layer"),
        counters=_counters(tree, f"{base}/ports/1/counters"),
        hw_counters=_counters(tree, f"{base}/ports/1/hw_counters"),
    )


def _counters(tree: Tree, path: str) -> Mapping[str, int]:
    """Return the counters of a folder; one that the card does not have reads as an error and is left out."""
    values = {name: tree.attribute(f"{path}/{name}") for name in tree.names(path)[:256]}
    return {
        name: int(value) for name, value in values.items() if value and value.isascii() and value.isdigit()
    }


def gids(tree: Tree) -> Reading[tuple[Gid, ...]]:
    """Return the GID tables without their empty slots."""
    found = [gid for device in tree.names(CLASS)[:MAX_DEVICES] for gid in _table(tree, device)]
    return Reading(tuple(found))


def _table(tree: Tree, device: str) -> Iterator[Gid]:
    """Yield a device's GIDs. The kernel fills the lowest empty slot, so a long empty stretch is the end."""
    base = f"{CLASS}/{device}/ports/1"
    empty = 0
    for index in range(MAX_GIDS):
        gid = tree.attribute(f"{base}/gids/{index}")
        if gid is None or empty >= EMPTY_STRETCH:
            return
        if not gid.strip("0:"):
            empty += 1
            continue
        empty = 0
        kind = tree.attribute(f"{base}/gid_attrs/types/{index}")
        netdev = tree.attribute(f"{base}/gid_attrs/ndevs/{index}")
        yield Gid(device, 1, index, gid, _GID_TYPES.get(kind or "", kind), netdev, names.mapped_address(gid))


def markers(tree: Tree, more: Iterable[str]) -> Reading[tuple[Marker, ...]]:
    """Return the marker processes: those whose program is one of ours or one of `more`."""
    wanted = {*MARKERS, *more}
    pids = [name for name in tree.names("/proc") if name.isdigit()]
    if not pids:
        return unreadable("/proc cannot be listed")
    found = (_marker(tree, pid, wanted) for pid in pids)
    return Reading(tuple(marker for marker in found if marker is not None))


def _marker(tree: Tree, pid: str, wanted: set[str]) -> Marker | None:
    line = tree.read_bytes(f"/proc/{pid}/cmdline")
    if not line:
        return None
    words = line.rstrip(b"\0").decode("utf-8", "replace").split("\0")
    program = (tree.link(f"/proc/{pid}/exe") or words[0]).removesuffix(" (deleted)")
    if not {last_name(program), last_name(words[0])} & wanted:
        return None
    return Marker(int(pid), program, tuple(words[1:]), _device_of(words))


def _device_of(words: list[str]) -> str | None:
    """Return the RDMA device that a marker's arguments name; both known dialects write ``--device``."""
    for at, word in enumerate(words):
        if word == "--device" and at + 1 < len(words):
            return words[at + 1]
        if word.startswith("--device="):
            return word.partition("=")[2]
    return None


def links(tools: Tools) -> Reading[tuple[RdmaLink, ...]]:
    """Return RDMA ports and their network devices as the rdma tool pairs them."""
    return tools.ask(rdma.links, ["rdma", "-j", "link", "show"], ["rdma", "link", "show"])


def verbs(tools: Tools) -> Reading[tuple[VerbsDevice, ...]]:
    """Return what ibv_devinfo tells, the RoCE MTU among it, which sysfs does not have."""
    return tools.ask(names.ibv_devinfo, ["ibv_devinfo"])


def queue_pairs(tools: Tools) -> Reading[tuple[QueuePair, ...]]:
    """Return all queue pairs."""
    return tools.ask(
        rdma.queue_pairs, ["rdma", "-j", "resource", "show", "qp"], ["rdma", "resource", "show", "qp"]
    )


def contexts(tools: Tools) -> Reading[tuple[RdmaContext, ...]]:
    """Return the processes that have an RDMA device open."""
    return tools.ask(
        rdma.contexts, ["rdma", "-j", "resource", "show", "ctx"], ["rdma", "resource", "show", "ctx"]
    )
