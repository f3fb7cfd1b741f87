"""What an inventory may say: the schema, and the meaning of each field on its own.

Only single fields are judged here. What needs two of them at once (a cable that names a node, two subnets
that overlap) is in `checks`; positions in the file are added by `load`.
"""

from __future__ import annotations

import re
from enum import StrEnum
from ipaddress import AddressValueError, IPv4Address, IPv4Network, NetmaskValueError
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

HOST_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
FULL_HOST_NAME = re.compile(rf"{HOST_NAME.pattern}(?:\.{HOST_NAME.pattern})*\.?")
# What the kernel accepts as a name (dev_valid_name), less what udev never makes and no shell should have to
# see.
NETDEV = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,14}")
RDMA = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
MAC = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}")
USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}\$?")
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
ROLE = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
END = re.compile(r"(?P<node>[^.\s]+)\.(?P<port>[^.\s]+)")

MAX_PREFIX = 31
MAX_QUEUE_SIZE = 8192


class PlaneMode(StrEnum):
    """Who writes a plane's configuration: this tool, or somebody else (then it is known and checked, never
    written).
    """

    MANAGED = "managed"
    UNMANAGED = "unmanaged"


class TopologyKind(StrEnum):
    """The shapes of docs/fabric.md 2."""

    PAIR = "pair"
    LINE = "line"
    TRIANGLE = "triangle"
    RING = "ring"
    SWITCHED = "switched"


class MeshPaths(StrEnum):
    """Which paths to nodes that share no cable are carried by the neighbours' hardware."""

    OFF = "off"
    OPPOSITE = "opposite"
    UNIVERSAL = "universal"
    BALANCED = "balanced"


class MarkerDialect(StrEnum):
    """Whose command line the marker unit speaks."""

    BUILT_IN = "built-in"
    REWRITE_PROBE = "rewrite-probe"
    RELAY_MARKER = "relay-marker"


class NcclLibrary(StrEnum):
    """Whether NCCL is the stock library or one that carries the switchless ring patch."""

    STOCK = "stock"
    PATCHED = "patched"


def _text(what: str, pattern: re.Pattern[str], rule: str) -> BeforeValidator:
    """A validator for text that has to match `pattern` as a whole."""

    def check(value: Any) -> Any:
        if not isinstance(value, str):
            return value  # the strict string check that follows names the type
        if not pattern.fullmatch(value):
            raise PydanticCustomError(
                "text_pattern", "{what} `{value}` is not {rule}", {"what": what, "value": value, "rule": rule}
            )
        return value

    return BeforeValidator(check)


def _lowered(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _mac(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    mac = value.lower().replace("-", ":")
    if not MAC.fullmatch(mac):
        raise PydanticCustomError(
            "mac", "`{value}` is not a MAC address (six pairs of hex digits)", {"value": value}
        )
    if int(mac[:2], 16) & 1 or mac == "00:00:00:00:00:00":
        raise PydanticCustomError(
            "mac", "`{value}` is not the address of one interface (multicast or zero)", {"value": value}
        )
    return mac


def _network(value: Any) -> Any:
    if isinstance(value, IPv4Network):
        return value
    if not isinstance(value, str):
        raise PydanticCustomError("string_type", "must be text")
    if "/" not in value:
        raise PydanticCustomError(
            "subnet", "`{value}` has no prefix length (write 10.10.0.0/24)", {"value": value}
        )
    try:
        network = IPv4Network(value)
    except (AddressValueError, NetmaskValueError):
        raise PydanticCustomError("subnet", "`{value}` is not an IPv4 subnet", {"value": value}) from None
    except ValueError:
        right = IPv4Network(value, strict=False)
        raise PydanticCustomError(
            "subnet",
            "`{value}` has host bits set; the subnet is {right}",
            {"value": value, "right": str(right)},
        ) from None
    if network.prefixlen > MAX_PREFIX:
        raise PydanticCustomError(
            "subnet_too_small",
            "{value} has room for one host; a cable needs two (/31 is the longest)",
            {"value": value},
        )
    return network


def _address(value: Any) -> Any:
    if isinstance(value, IPv4Address):
        return value
    if not isinstance(value, str):
        raise PydanticCustomError("string_type", "must be text")
    try:
        return IPv4Address(value)
    except ValueError:
        raise PydanticCustomError(
            "address", "`{value}` is not an IPv4 address (write it without a prefix)", {"value": value}
        ) from None


def _mgmt(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if re.fullmatch(r"[0-9.]+", value):
        return str(_address(value))
    if ":" in value:
        from ipaddress import IPv6Address

        try:
            return str(IPv6Address(value))
        except ValueError:
            pass
    if len(value) > 253 or not FULL_HOST_NAME.fullmatch(value):
        raise PydanticCustomError("mgmt", "`{value}` is neither an address nor a host name", {"value": value})
    return value


def _power_of_two(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 1 or value & (value - 1):
            below = 1 << max(0, value.bit_length() - 1) if value > 0 else 1
            nearest = below if value - below <= 2 * below - value else 2 * below
            raise PydanticCustomError(
                "power_of_two",
                "must be a power of two (got {value}; {nearest} is nearest)",
                {"value": value, "nearest": min(nearest, MAX_QUEUE_SIZE)},
            )
        if value > MAX_QUEUE_SIZE:
            raise PydanticCustomError(
                "queue_size",
                "{value} is above the driver's maximum of {most}",
                {"value": value, "most": MAX_QUEUE_SIZE},
            )
    return value


def _end(value: Any) -> Any:
    if isinstance(value, str) and not END.fullmatch(value):
        raise PydanticCustomError(
            "cable_end", "`{value}` is not `node.port` (for example spark1.f0)", {"value": value}
        )
    return value


def _plane_1_alone(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


HostName = Annotated[str, _text("node name", HOST_NAME, "a host name (letters, digits, hyphen; at most 63)")]
Netdev = Annotated[
    str, _text("netdev", NETDEV, "an interface name (at most 15 of letters, digits, _ . @ + -)")
]
RdmaName = Annotated[str, _text("rdma", RDMA, "an RDMA device name (letters, digits, _ . -)")]
PciAddress = Annotated[str, BeforeValidator(_lowered), _text("pci", PCI, "a PCI address like 0000:01:00.0")]
MacAddress = Annotated[str, BeforeValidator(_mac)]
Subnet = Annotated[IPv4Network, BeforeValidator(_network)]
Address = Annotated[IPv4Address, BeforeValidator(_address)]
ManagementAddress = Annotated[str, BeforeValidator(_mgmt)]
UserName = Annotated[str, _text("user", USER, "a user name")]
CableEnd = Annotated[str, BeforeValidator(_end)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


class FunctionEntry(_Strict):
    """One PCIe function of a port. What the hardware role knows need not be written."""

    mac: MacAddress | None = None
    netdev: Netdev | None = None
    rdma: RdmaName | None = None
    pci: PciAddress | None = None


class SshEntry(_Strict):
    """How the controller logs in; everything else comes from ``~/.ssh/config``."""

    user: UserName | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = None


class NodeEntry(_Strict):
    """One host. Nodes stand in rank order."""

    name: HostName
    mgmt: ManagementAddress | None = None
    mgmt_netdev: Netdev | None = None
    ssh: SshEntry = SshEntry()
    hardware: Annotated[str, _text("hardware", ROLE, "the name of a file under roles/hardware")] | None = None
    ports: dict[str, Annotated[list[FunctionEntry], BeforeValidator(_plane_1_alone)]] = Field(
        default_factory=dict
    )


class PlaneEntry(_Strict):
    """The subnet of one plane on a cable; `addresses` pins the ends in the order of `ends`."""

    subnet: Subnet | None = None
    addresses: list[Address] | None = None


class CableEntry(_Strict):
    """A cable: two ends, and optionally what each plane is called on it."""

    ends: Annotated[list[CableEnd], Field(min_length=2, max_length=2)]
    planes: list[PlaneEntry] | None = None


class RailEntry(_Strict):
    """Ports that meet in a switch: one Ethernet segment with two ends or more."""

    name: Annotated[str, _text("rail name", LABEL, "a name (letters, digits, _ -)")]
    ends: Annotated[list[CableEnd], Field(min_length=2)]
    planes: list[PlaneEntry] | None = None


class Addressing(_Strict):
    """Where cables that name no subnet get theirs."""

    pool: Subnet = IPv4Network("10.10.0.0/16")
    prefix: Annotated[int, Field(ge=8, le=MAX_PREFIX)] = 24


class Hairpin(_Strict):
    """The driver's hairpin queues: entries (64 bytes each) a queue, and queues."""

    queue_size: Annotated[int, BeforeValidator(_power_of_two)] = MAX_QUEUE_SIZE
    num_queues: Annotated[int, Field(ge=1, le=64)] = 4


class MarkerEntry(_Strict):
    """A marker that is already on the nodes: its dialect, path and digest."""

    dialect: Annotated[MarkerDialect, Field(strict=False)] = MarkerDialect.BUILT_IN
    path: (
        Annotated[str, _text("path", re.compile(r"/[A-Za-z0-9._/+-]{1,200}"), "an absolute path")] | None
    ) = None
    sha256: Annotated[str, _text("sha256", re.compile(r"[0-9a-f]{64}"), "64 hex digits")] | None = None


def _marker(value: Any) -> Any:
    return {"dialect": value} if isinstance(value, str) else value


def _off(value: Any) -> Any:
    # YAML 1.1 reads an unquoted `off` as false; nothing else is meant by it here.
    return "off" if value is False else value


class Mesh(_Strict):
    """Hardware forwarding to nodes that share no cable."""

    paths: Annotated[MeshPaths, Field(strict=False), BeforeValidator(_off)] = MeshPaths.OFF
    marker: Annotated[MarkerEntry, BeforeValidator(_marker)] = MarkerEntry()


class Nccl(_Strict):
    """Which NCCL the nodes run and how many channels it uses."""

    library: Annotated[NcclLibrary, Field(strict=False)] = NcclLibrary.STOCK
    channels: Annotated[int, Field(ge=1, le=32)] = 4


def _mesh(value: Any) -> Any:
    return {"paths": value} if value is False or isinstance(value, str) else value


class Inventory(_Strict):
    """The whole file, field by field as it was written, defaults filled in."""

    fabric: Annotated[str, _text("fabric", LABEL, "a name (letters, digits, _ -)")] | None = None
    topology: Annotated[TopologyKind, Field(strict=False)] | None = None
    hardware: Annotated[str, _text("hardware", ROLE, "the name of a file under roles/hardware")] = "dgx-spark"
    mtu: Annotated[int, Field(ge=1280, le=9978)] = 9000
    planes: dict[Literal[1, 2], Annotated[PlaneMode, Field(strict=False)]] = Field(
        default={1: PlaneMode.MANAGED, 2: PlaneMode.MANAGED}
    )
    addressing: Addressing = Addressing()
    hairpin: Hairpin = Hairpin()
    mesh: Annotated[Mesh, BeforeValidator(_mesh)] = Mesh()
    nccl: Nccl = Nccl()
    nodes: Annotated[list[NodeEntry], Field(min_length=2)]
    cables: list[CableEntry] = Field(default_factory=list)
    rails: list[RailEntry] = Field(default_factory=list)
