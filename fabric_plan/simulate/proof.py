"""What a proof says: the paths that were confirmed, and each frame that did not do what was planned."""

from __future__ import annotations

from dataclasses import dataclass

from fabric_plan.planner.model import Load, Path
from fabric_plan.planner.tags import ETHERTYPE_IPV4


@dataclass(frozen=True, slots=True)
class Step:
    """What one function does with a frame: `does` is sends, relays, receives, drops or forwards.

    `ethertype` and `dst_mac` are those with which the frame leaves it, or lies there where it goes no
    further.
    """

    node: str
    dev: str
    does: str
    ethertype: int
    dst_mac: str

    def __str__(self) -> str:
        tag = "IPv4" if self.ethertype == ETHERTYPE_IPV4 else f"0x{self.ethertype:04x}"
        return f"{self.node} {self.dev} {self.does} {tag} to {self.dst_mac}"


@dataclass(frozen=True, slots=True)
class Trip:
    """A planned path and what its frame did at each function."""

    path: Path
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """One thing that is wrong with a plan.

    `kind` is a short stable word, `path` names the planned path or the flow that breaks, `trace` is what the
    frame did, hop by hop, up to where it went wrong (empty where no frame had to be walked to see it).
    """

    kind: str
    path: str
    trace: tuple[str, ...]
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of walking a plan. `rdma_paths` and `tcp_flows` count what arrived as planned.

    `kernel_forwarded` counts RDMA frames that a kernel would have had to forward; `queue_bound_per_peer` and
    `size_cap` are bytes, None without a mesh.
    """

    rdma_paths: int
    tcp_flows: int
    kernel_forwarded: int
    failures: tuple[Failure, ...]
    hops: tuple[Trip, ...]
    load: Load

    @property
    def ok(self) -> bool:
        """True where everything that was walked arrived as planned, and nothing else moves."""
        return not self.failures

    @property
    def queue_bound_per_peer(self) -> int | None:
        """How many bytes a peer may send at once so that the fullest hairpin queue stays within its share."""
        return self.load.bound

    @property
    def size_cap(self) -> int | None:
        """The largest RoCE message in bytes."""
        return self.load.cap
