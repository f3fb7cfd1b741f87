"""The records that parsers return and that the facts document carries: plain data, one meaning a field.

Only names, numbers and words as the tools gave them; MAC addresses in lower case, EtherTypes as ``0x88b5``,
times and sizes as the field's name says. A field is None where the tool did not say.
"""

from __future__ import annotations

from collections.abc import Mapping

from .plain import dataclass, field


@dataclass(frozen=True)
class Link:
    """A network device. `pci` is its parent's address (``0000:01:00.0``) where the parent is on that bus."""

    name: str
    ifindex: int | None = None
    mac: str | None = None
    permanent_mac: str | None = None
    mtu: int | None = None
    max_mtu: int | None = None
    state: str | None = None
    flags: tuple[str, ...] = ()
    pci: str | None = None
    phys_port_name: str | None = None
    master: str | None = None
    kind: str | None = None
    altnames: tuple[str, ...] = ()

    @property
    def carrier(self) -> bool:
        """True when the device is up and sees its cable."""
        return "LOWER_UP" in self.flags


@dataclass(frozen=True)
class Address:
    """An IP address of a device; `address` is without its prefix length, `prefix` is that length."""

    dev: str
    family: str
    address: str
    prefix: int
    scope: str | None = None
    dynamic: bool = False
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Interfaces:
    """Devices and their addresses, which one call of ``ip addr`` gives together."""

    links: tuple[Link, ...]
    addresses: tuple[Address, ...]


@dataclass(frozen=True)
class Route:
    """A route; `to` is ``default`` or a prefix, a host's too; `protocol` is iproute2's word for it."""

    to: str
    dev: str | None
    via: str | None = None
    src: str | None = None
    protocol: str | None = None
    scope: str | None = None
    type: str = "unicast"
    table: str = "main"
    metric: int | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Neighbour:
    """An entry of the ARP or neighbour table; `mac` is None while it is unresolved."""

    address: str
    dev: str
    mac: str | None
    states: tuple[str, ...]


@dataclass(frozen=True)
class Qdisc:
    """A queueing discipline; `kind` ``ingress`` or ``clsact`` is what filters hang on."""

    dev: str | None
    kind: str
    handle: str | None
    parent: str | None


@dataclass(frozen=True)
class TcRule:
    """One tc filter, reduced to what a forwarding rule of ours consists of.

    `set_type` and `set_dst_mac` are decoded from pedit words on the Ethernet header, and only when the words
    replace those fields whole. Whatever else the filter matches or does stands verbatim under `other`; when
    that is empty there is nothing more to this rule than the fields say. `packets` and `bytes` are those of
    the last action; the `hw_` ones are 0 when tc printed statistics without them (it leaves them out while
    they are zero), and all are None when it printed no statistics.
    """

    dev: str
    kind: str
    protocol: str | None
    pref: int | None
    handle: int | None
    chain: int | None
    parent: str | None = None
    src_mac: str | None = None
    dst_mac: str | None = None
    set_type: str | None = None
    set_dst_mac: str | None = None
    redirect: str | None = None
    skip_sw: bool = False
    in_hw: bool = False
    in_hw_count: int | None = None
    cookie: str | None = None
    packets: int | None = None
    bytes: int | None = None
    hw_packets: int | None = None
    hw_bytes: int | None = None
    drops: int | None = None
    other: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DevlinkParam:
    """A devlink parameter: the shown (for driverinit: pending) value in words, by configuration mode."""

    name: str
    type: str | None
    values: Mapping[str, str]


@dataclass(frozen=True)
class Reloads:
    """Reload counts since the driver's probe, by action (``driver_reinit``) and limit (``unspecified``)."""

    own: Mapping[str, Mapping[str, int]]
    remote: Mapping[str, Mapping[str, int]]
    failed: bool | None = None


@dataclass(frozen=True)
class Eswitch:
    """The embedded switch's mode; None where the driver does not say."""

    mode: str | None
    inline_mode: str | None = None
    encap_mode: str | None = None


@dataclass(frozen=True)
class DevlinkInfo:
    """Driver and versions; `versions` is by kind (fixed, running, stored) and name."""

    driver: str | None
    serial_number: str | None
    versions: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class DevlinkPort:
    """A devlink port's network device."""

    netdev: str | None
    flavour: str | None


@dataclass(frozen=True)
class Hairpin:
    """A live hairpin of the mlx5 driver, as its debugfs table shows it; the two numbers are in effect."""

    peer_vhca_id: int
    prio: int
    refcount: int
    num_channels: int | None
    num_packets: int | None


@dataclass(frozen=True)
class RdmaLink:
    """A port of an RDMA device and the network device that it belongs to."""

    device: str
    port: int
    state: str | None
    physical_state: str | None
    netdev: str | None


@dataclass(frozen=True)
class RdmaDevice:
    """An RDMA device."""

    device: str
    node_type: str | None
    protocol: str | None
    firmware: str | None
    node_guid: str | None
    sys_image_guid: str | None


@dataclass(frozen=True)
class QueuePair:
    """A queue pair; `kernel` is true when the kernel's own users hold it (then there is no pid)."""

    device: str
    port: int | None
    number: int | None
    type: str
    state: str | None
    pid: int | None
    comm: str | None
    kernel: bool


@dataclass(frozen=True)
class RdmaContext:
    """A process that has an RDMA device open."""

    device: str
    number: int | None
    pid: int | None
    comm: str | None


@dataclass(frozen=True)
class Gid:
    """A GID table entry; `type` is ``v1`` or ``v2``, `address` the IPv4 address that it carries."""

    device: str
    port: int
    index: int
    gid: str
    type: str | None
    netdev: str | None
    address: str | None = None


@dataclass(frozen=True)
class Feature:
    """An ethtool offload; `requested` differs from `active` when the driver did not follow."""

    active: bool
    fixed: bool | None = None
    requested: bool | None = None


@dataclass(frozen=True)
class DevicePort:
    """A line of ibdev2netdev."""

    device: str
    port: int
    netdev: str
    up: bool


@dataclass(frozen=True)
class VerbsDevice:
    """A device of ibv_devinfo with the first words of its fields and of its first port's fields, by name."""

    device: str
    fields: Mapping[str, str]
    port: Mapping[str, str]


@dataclass(frozen=True)
class NmDevice:
    """A device as NetworkManager sees it; `connection` is None when no profile is active on it."""

    name: str
    type: str
    state: str
    connection: str | None


@dataclass(frozen=True)
class NmConnection:
    """A NetworkManager profile; `device` is None while it is not active."""

    name: str
    type: str
    device: str | None
    uuid: str | None = None
    filename: str | None = None


@dataclass(frozen=True)
class NetplanInterface:
    """An interface of ``netplan status``: its backend (None: unmanaged) and definition."""

    name: str
    type: str | None
    state: str | None
    backend: str | None
    definition: str | None
    addresses: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LldpNeighbour:
    """What the far end of a cable says about itself over LLDP."""

    dev: str
    chassis_name: str | None
    chassis_id: str | None
    port_id: str | None
    port_id_type: str | None
    port_description: str | None
    management: tuple[str, ...] = ()


@dataclass(frozen=True)
class Qos:
    """The QoS state of a port: trust (``pcp``, ``dscp``), who runs DCBX, priorities with flow control."""

    trust: str | None
    dcbx: str | None
    pfc: tuple[int, ...]


@dataclass(frozen=True)
class Dcb:
    """Tables of the dcb tool by name: ``{"prio-pfc": {"3": "on"}}``; single values under ``""``."""

    tables: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Message:
    """A message of the kernel or of a tool: `severity` is ``error``, ``warning`` or ``note``."""

    severity: str
    source: str | None
    text: str


@dataclass(frozen=True)
class PerftestRow:
    """A result row of perftest by the header's own names, for example ``BW average[Gb/sec]``."""

    values: Mapping[str, float]


@dataclass(frozen=True)
class Perftest:
    """A run of a perftest program; `rows` is empty when it was cut short, `notes` are its other lines."""

    test: str
    settings: Mapping[str, str]
    rows: tuple[PerftestRow, ...]
    notes: tuple[str, ...] = ()
