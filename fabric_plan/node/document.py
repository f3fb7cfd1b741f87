"""The facts document: what a node says about itself, as one tree of plain records.

`SCHEMA` names its version. Fields are only ever added, never renamed. A `Reading` whose value is None could
not be read at all, and says why; a mapping lacks what was not asked for.
"""

from __future__ import annotations

from collections.abc import Mapping

from .plain import dataclass, field
from .reading import Reading
from .records import (
    Dcb,
    DevlinkInfo,
    DevlinkParam,
    Eswitch,
    Feature,
    Gid,
    Hairpin,
    Interfaces,
    LldpNeighbour,
    Neighbour,
    NmConnection,
    NmDevice,
    Qdisc,
    Qos,
    QueuePair,
    RdmaContext,
    RdmaLink,
    Reloads,
    Route,
    TcRule,
    VerbsDevice,
)

SCHEMA = "fabric-plan/facts/v1"


@dataclass(frozen=True)
class Host:
    """Identity and software of the node; a field is None where it could not be read."""

    hostname: str | None
    os: str | None
    kernel: str | None
    arch: str | None
    machine_id_sha256: str | None
    boot_id: str | None
    uptime_s: float | None
    python: str
    euid: int


@dataclass(frozen=True)
class Tool:
    """A command that was looked for: where it is (None: missing) and its version, where asked."""

    path: str | None
    version: str | None = None


@dataclass(frozen=True)
class Ssh:
    """The connection that this program was started over, and the device with its address."""

    client: str
    server: str
    dev: str | None


@dataclass(frozen=True)
class TcState:
    """Queueing disciplines of a device and the filters on its ingress."""

    qdiscs: Reading[tuple[Qdisc, ...]]
    rules: Reading[tuple[TcRule, ...]]


@dataclass(frozen=True)
class EthtoolState:
    """Offloads and counters of a device; counters of single queues are left out."""

    features: Reading[Mapping[str, Feature]]
    counters: Reading[Mapping[str, int]]


@dataclass(frozen=True)
class DevlinkState:
    """A function as devlink sees it: pending parameters; reloads and hairpins, which show what is live."""

    params: Reading[Mapping[str, DevlinkParam]]
    reloads: Reading[Reloads]
    eswitch: Reading[Eswitch]
    info: Reading[DevlinkInfo]
    hairpins: Reading[tuple[Hairpin, ...]]


@dataclass(frozen=True)
class QosState:
    """QoS of a device by the two tools that may be there."""

    mlnx_qos: Reading[Qos]
    dcb: Reading[Dcb]


@dataclass(frozen=True)
class RdmaPort:
    """An RDMA device's first port from sysfs; words as the kernel prints them (``4: ACTIVE``)."""

    device: str
    netdev: str | None
    pci: str | None
    firmware: str | None
    node_guid: str | None
    sys_image_guid: str | None
    state: str | None
    physical_state: str | None
    rate: str | None
    link_layer: str | None
    counters: Mapping[str, int] = field(default_factory=dict)
    hw_counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Marker:
    """A running marker process, its arguments without the program, and the RDMA device in them."""

    pid: int
    program: str
    arguments: tuple[str, ...]
    device: str | None


@dataclass(frozen=True)
class Usage:
    """Whether RDMA is in use on this node, and by what; what cannot be read counts as in use."""

    in_use: bool
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class RdmaState:
    """RDMA devices, their GIDs, who uses them, and the markers that run."""

    ports: Reading[tuple[RdmaPort, ...]]
    links: Reading[tuple[RdmaLink, ...]]
    verbs: Reading[tuple[VerbsDevice, ...]]
    gids: Reading[tuple[Gid, ...]]
    queue_pairs: Reading[tuple[QueuePair, ...]]
    contexts: Reading[tuple[RdmaContext, ...]]
    markers: Reading[tuple[Marker, ...]]
    usage: Usage


@dataclass(frozen=True)
class Unit:
    """A systemd unit; times are microseconds since boot, 0 when it never was active in this boot."""

    load_state: str
    active_state: str
    sub_state: str
    file_state: str
    result: str
    main_pid: int
    restarts: int
    exit_status: int
    active_since_us: int
    fragment: str
    needs_reload: bool


@dataclass(frozen=True)
class File:
    """A file under one of our paths, or a netplan definition.

    `kind` is ``file``, ``directory``, ``link``, ``other`` or ``unreadable`` (then `error` says why); `mode`
    is four octal digits. `text` is there when the file is UTF-8 without NUL and within the bound; `nul` is
    true when it holds a NUL byte, `redacted` when secrets were taken out of `text` (digest and size are those
    of the file as it is).
    """

    kind: str
    mode: str | None = None
    uid: int | None = None
    gid: int | None = None
    size: int | None = None
    sha256: str | None = None
    target: str | None = None
    text: str | None = None
    nul: bool = False
    redacted: bool = False
    error: str | None = None


@dataclass(frozen=True)
class NetworkManager:
    """What NetworkManager manages, and the names (never the contents) of its profile files."""

    devices: Reading[tuple[NmDevice, ...]]
    connections: Reading[tuple[NmConnection, ...]]
    profiles: Reading[tuple[str, ...]]


@dataclass(frozen=True)
class Library:
    """A shared library: its digest, and the version and the asked-for marks found in its bytes."""

    sha256: str | None
    size: int | None
    version: str | None = None
    marks: tuple[str, ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class Disk:
    """Room on the file system that holds a path, for root, in bytes."""

    free: int
    total: int
    read_only: bool


@dataclass(frozen=True)
class NfsMount:
    """A mounted NFS export: the server's address as the kernel uses it, and where it is mounted."""

    server: str
    mountpoint: str


@dataclass(frozen=True)
class Facts:
    """The whole document. Keys of the mappings: device name, PCI address, path, unit, sysctl, tool."""

    schema: str
    taken_unix: int
    took_ms: int
    functions: tuple[str, ...]
    host: Host
    tools: Mapping[str, Tool]
    ssh: Ssh | None
    interfaces: Reading[Interfaces]
    routes: Reading[tuple[Route, ...]]
    neighbours: Reading[tuple[Neighbour, ...]]
    sysctls: Mapping[str, str | None]
    snmp: Reading[Mapping[str, int]]
    tc: Mapping[str, TcState]
    ethtool: Mapping[str, EthtoolState]
    devlink: Mapping[str, DevlinkState]
    qos: Mapping[str, QosState]
    rdma: RdmaState
    units: Reading[Mapping[str, Unit]]
    files: Reading[Mapping[str, File]]
    netplan: Reading[Mapping[str, File]]
    network_manager: NetworkManager
    lldp: Reading[tuple[LldpNeighbour, ...]]
    firewall: Reading[tuple[str, ...]]
    libraries: Mapping[str, Library]
    disks: Mapping[str, Disk]
    nfs: Reading[tuple[NfsMount, ...]] = field(default_factory=lambda: Reading(None))
