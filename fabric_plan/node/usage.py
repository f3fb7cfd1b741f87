"""Whether RDMA is in use on this node: a driver reload asks here, and what is unknown counts as in use."""

from __future__ import annotations

from collections.abc import Collection

from .document import RdmaPort, Usage
from .reading import Reading
from .records import QueuePair, RdmaContext


def rdma_usage(
    ports: Reading[tuple[RdmaPort, ...]],
    queue_pairs: Reading[tuple[QueuePair, ...]],
    contexts: Reading[tuple[RdmaContext, ...]],
    marker_pids: Collection[int],
) -> Usage:
    """Return what uses RDMA: queue pairs but the kernel's own GSI and SMI ones, contexts but our markers'.

    NFS and nvme over RDMA have no process either, and do count. Every device has a GSI queue pair of the
    kernel, so a device without any queue pair was not really shown, and counts.
    """
    if ports.complete and not ports.value:
        return Usage(False, ())
    reasons: list[str] = []
    for what, gaps, value in (
        ("RDMA devices", ports.unread, ports.value),
        ("queue pairs", queue_pairs.unread, queue_pairs.value),
        ("contexts", contexts.unread, contexts.value),
    ):
        if gaps or value is None:
            reasons.append(f"{what} cannot be read: {gaps[0].reason if gaps else 'nothing was said'}")
    pairs = queue_pairs.value or ()
    if queue_pairs.complete:
        shown = {pair.device for pair in pairs}
        hidden = sorted(port.device for port in ports.value or () if port.device not in shown)
        reasons += [f"{device}: no queue pair is shown, not even the kernel's own" for device in hidden]
    for pair in pairs:
        if not (pair.kernel and pair.comm == "ib_core" and pair.type in ("GSI", "SMI")):
            reasons.append(
                f"{pair.device}: {pair.type} queue pair {pair.number} of {_user(pair.comm, pair.pid)}"
            )
    for context in contexts.value or ():
        if context.pid is None or context.pid not in marker_pids:
            reasons.append(f"{context.device}: open in {_user(context.comm, context.pid)}")
    return Usage(bool(reasons), tuple(reasons))


def _user(comm: str | None, pid: int | None) -> str:
    return f"{comm or 'an unnamed user'}" + (" (kernel)" if pid is None else f" (process {pid})")
