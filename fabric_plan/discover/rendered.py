"""Read back what this tool rendered: a node's record (node.json) and the plan that lies beside the nodes
(plan.json).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from fabric_plan.discover.evidence import Listed, Settings
from fabric_plan.errors import FabricPlanError
from fabric_plan.inventory.schema import (
    Hairpin,
    HostName,
    MacAddress,
    MarkerDialect,
    MarkerEntry,
    Mesh,
    MeshPaths,
    Nccl,
    Netdev,
    PciAddress,
    PlaneMode,
    RdmaName,
    TopologyKind,
)
from fabric_plan.topology.fabric import End

RECORD_PATH = "/etc/fabric-plan/node.json"


def _interface(value: Any) -> Any:
    return IPv4Interface(value) if isinstance(value, str) else value


class _Read(BaseModel):
    # Later versions add fields, and never rename one.
    model_config = ConfigDict(extra="ignore", frozen=True)


class RecordedFunction(_Read):
    """A function as it was planned."""

    port: str
    plane: int
    netdev: Netdev
    rdma: RdmaName
    pci: PciAddress
    mac: MacAddress | None
    address: Annotated[IPv4Interface, BeforeValidator(_interface)] | None
    managed: bool


class _Route(_Read):
    plane: int


class _Rule(_Read):
    src_mac: str | None


class _Marker(_Read):
    source_port: int | None


class Record(_Read):
    """The part of a plan that a node carries: ``/etc/fabric-plan/node.json``."""

    fabric: str
    node: HostName
    rank: int
    mtu: int
    hairpin: Hairpin
    functions: tuple[RecordedFunction, ...]
    relay_routes: tuple[_Route, ...] = ()
    rules: tuple[_Rule, ...] = ()
    markers: tuple[_Marker, ...] = ()


class _End(_Read):
    node: str
    port: str


class _Cable(_Read):
    ends: tuple[_End, ...]
    rail: str | None = None


class _Topology(_Read):
    kind: TopologyKind


class _Mesh(_Read):
    paths: MeshPaths
    marker: MarkerDialect


class _Nccl(_Read):
    library: str
    channels: int


class _Ssh(_Read):
    user: str | None = None
    port: int | None = None


class Host(_Read):
    """How a node is reached and what it is."""

    mgmt: str | None = None
    mgmt_netdev: str | None = None
    hardware: str | None = None
    ssh: _Ssh = _Ssh()


class _Plan(_Read):
    fabric: str
    topology: _Topology
    mtu: int
    planes: dict[Literal["1", "2"], PlaneMode]
    hairpin: Hairpin
    mesh: _Mesh
    cables: tuple[_Cable, ...]
    nodes: dict[str, Host]
    nccl: _Nccl


@dataclass(frozen=True, slots=True)
class Whole:
    """What plan.json says beyond what the nodes' own files say."""

    kind: TopologyKind
    cables: tuple[Listed, ...]
    hosts: Mapping[str, Host]
    settings: Settings


def _parse(model: Any, content: bytes, name: str) -> Any:
    try:
        return model.model_validate(json.loads(content))
    except ValidationError as error:
        first = error.errors()[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    except (ValueError, RecursionError) as error:
        reason = str(error)
    raise FabricPlanError(
        f"cannot be read: {reason}",
        where=name,
        hint="render it again, or take it out",
        id="record-unreadable",
    )


def parse_record(content: bytes, name: str) -> Record:
    """Parse a node.json; `name` is for messages. Raises `FabricPlanError`."""
    record: Record = _parse(Record, content, name)
    return record


def parse_whole(content: bytes, name: str) -> Whole:
    """Parse a plan.json; `name` is for messages. Raises `FabricPlanError`."""
    plan: _Plan = _parse(_Plan, content, name)
    marker = MarkerEntry(dialect=plan.mesh.marker)
    return Whole(
        kind=plan.topology.kind,
        cables=tuple(
            Listed(tuple(End(end.node, end.port) for end in cable.ends), cable.rail) for cable in plan.cables
        ),
        hosts=plan.nodes,
        settings=Settings(
            fabric=plan.fabric,
            mtu=plan.mtu,
            extra=(
                ("planes", {int(plane): mode for plane, mode in plan.planes.items()}),
                ("hairpin", plan.hairpin),
                ("mesh", Mesh(paths=plan.mesh.paths, marker=marker)),
                ("nccl", Nccl.model_validate(plan.nccl.model_dump())),
            ),
        ),
    )


def settings_of(records: Sequence[Record]) -> Settings:
    """Return what the nodes' own records give away of the inventory, where there is no plan.json beside
    them.
    """
    if not records:
        return Settings()
    mesh = Mesh(paths=_mesh_paths(records), marker=MarkerEntry(dialect=_dialect(records)))
    return Settings(
        fabric=records[0].fabric, mtu=records[0].mtu, extra=(("hairpin", records[0].hairpin), ("mesh", mesh))
    )


def _mesh_paths(records: Sequence[Record]) -> MeshPaths:
    """Tell the path sets apart by their rules: only the four-ring's match a sender, and they differ in
    planes a node.
    """
    rules = [rule for record in records for rule in record.rules]
    if not rules:
        return MeshPaths.OFF
    if any(rule.src_mac is None for rule in rules):
        return MeshPaths.UNIVERSAL
    spread = any(len({route.plane for route in record.relay_routes}) > 1 for record in records)
    one_plane = all(function.plane == 1 for function in _addressed(records))
    return MeshPaths.OPPOSITE if spread or one_plane else MeshPaths.BALANCED


def _addressed(records: Sequence[Record]) -> Iterator[RecordedFunction]:
    for record in records:
        yield from (function for function in record.functions if function.address is not None)


def _dialect(records: Sequence[Record]) -> MarkerDialect:
    by_port = any(marker.source_port is not None for record in records for marker in record.markers)
    return MarkerDialect.REWRITE_PROBE if by_port else MarkerDialect.BUILT_IN
