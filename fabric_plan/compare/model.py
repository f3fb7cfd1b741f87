"""The words of a comparison: changes, and the steps that bring a node from one state to the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Resource(StrEnum):
    """What a change is about, in the order in which a person should read it."""

    CONFLICT = "netplan-conflict"
    FILE = "file"
    LINK = "link"
    MTU = "mtu"
    ADDRESS = "address"
    ROUTE = "route"
    SYSCTL = "sysctl"
    NETWORKMANAGER = "networkmanager"
    DRIVER = "driver"
    OFFLOAD = "offload"
    QDISC = "qdisc"
    RULE = "rule"
    MARKER = "marker"
    UNIT = "unit"
    FOREIGN = "foreign"
    UNKNOWN = "unknown"


class StepKind(StrEnum):
    """The closed table of what the node program carries out."""

    PLACE = "place"
    DAEMON_RELOAD = "daemon-reload"
    SYSCTL = "sysctl"
    NM_CONF = "nm-conf"
    NETPLAN = "netplan"
    FLUSH = "flush"
    OFFLOAD = "offload"
    HAIRPIN = "hairpin"
    FORWARD = "forward"
    FORWARD_STOP = "forward-stop"
    MESH = "mesh"
    MESH_DOWN = "mesh-down"
    MARKERS = "markers"
    UNITS = "units"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that the node does. `disrupts` says whom it disturbs and for how long; None: nobody.

    `parameters` are as the node program takes them for this kind; `idle` marks what kills traffic of other
    nodes too (a driver reload, a stopped mesh), and is refused while RDMA is in use anywhere in the fabric.
    """

    kind: StepKind
    parameters: Mapping[str, Any] = field(default_factory=dict)
    disrupts: str | None = None
    idle: bool = False

    def __str__(self) -> str:
        details = " ".join(
            " ".join(str(v) for v in value) if isinstance(value, (list, tuple)) else str(value)
            for value in self.parameters.values()
        )
        return f"{self.kind} {details}".strip()

    def document(self) -> dict[str, Any]:
        """Return the step as the node program reads it."""
        return {"kind": str(self.kind), **self.parameters}


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. `have` and `want` are None where the thing is absent; `step` mends it, None where
    nothing of ours does.
    """

    resource: Resource
    name: str
    have: str | None
    want: str | None
    step: StepKind | None = None
    interface: str | None = None
    disrupts: str | None = None

    @property
    def counts(self) -> bool:
        """Whether this is a difference: what is foreign is named and left alone."""
        return self.resource is not Resource.FOREIGN


@dataclass(frozen=True, slots=True)
class Diff:
    """The differences of one node, in a stable order."""

    node: str
    changes: tuple[Change, ...]

    @property
    def differs(self) -> bool:
        """Whether the node has to change."""
        return any(change.counts for change in self.changes)

    @property
    def disruptive(self) -> tuple[Change, ...]:
        """The changes that disturb somebody."""
        return tuple(change for change in self.changes if change.disrupts is not None)
