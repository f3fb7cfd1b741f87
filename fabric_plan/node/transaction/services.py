"""Our units: which are active, and scripts and units together, the tried ones before the installed ones."""

from __future__ import annotations

import re

from ..collect import rdma
from ..usage import rdma_usage
from .node import Node
from .places import SCRIPTS
from .refusal import RefusalError
from .state import State

TOOL_LIMIT_S = 10.0
MESH = "fabric-plan-mesh.service"
FORWARD = "fabric-plan-forward.service"
MARKER = re.compile(r"^fabric-plan-marker@(.+)\.service$")

# The units of this program's own run and timer are no part of the fabric's state, nor is the boot's repair.
_OWN = re.compile(r"^fabric-plan-(run|undo)-|^fabric-plan-recover\.")


def active(node: Node) -> set[str]:
    """Return our units that are up or coming up. Raises `RefusalError`."""
    text = node.must(
        [
            "systemctl",
            "list-units",
            "--plain",
            "--no-legend",
            "--state=active,activating,reloading",
            "fabric-plan-*",
        ],
        TOOL_LIMIT_S,
        "systemctl",
    )
    found = {line.split()[0] for line in text.splitlines() if line.strip()}
    return {unit for unit in found if unit.endswith(".service") and not _OWN.match(unit)}


def is_active(node: Node, unit: str) -> bool:
    """Tell whether a unit is up."""
    return node.run(["systemctl", "is-active", "--quiet", unit], TOOL_LIMIT_S).status == 0


def is_up(node: Node, unit: str) -> bool:
    """Tell whether a unit is up, or on its way there or back: whether there is something to stop."""
    word = node.run(["systemctl", "is-active", unit], TOOL_LIMIT_S).stdout.strip()
    return word in ("active", "activating", "reloading", "deactivating")


def script_path(node: Node, state: State, name: str) -> str | None:
    """Return the script `name` as the trial has it, else as it is installed, else None."""
    for path in (state.trial + SCRIPTS + name, SCRIPTS + name):
        if node.tree.read_bytes(path, 1) is not None:
            return path
    return None


def unit_known(node: Node, unit: str) -> bool:
    """Tell whether a unit of ours has a file, tried or installed."""
    return any(
        node.tree.read_bytes(f"{folder}/{unit}", 1) is not None
        for folder in ("/run/systemd/system.control", "/etc/systemd/system")
    )


def use(node: Node) -> tuple[str, ...]:
    """Return who but our markers uses RDMA on this node; what cannot be read counts as a use."""
    markers = rdma.markers(node.tree, ())
    usage = rdma_usage(
        rdma.ports(node.tree),
        rdma.queue_pairs(node.tools),
        rdma.contexts(node.tools),
        {marker.pid for marker in markers.value or ()},
    )
    return usage.reasons if usage.in_use else ()


def refuse_use(node: Node, what: str) -> None:
    """Raise `RefusalError` "rdma-in-use" where anybody but our markers uses RDMA on this node, or where that
    cannot be read.
    """
    reasons = use(node)
    if reasons:
        raise RefusalError(
            "rdma-in-use",
            f"{what} refused, RDMA is in use: {'; '.join(reasons)[:400]}",
            "stop the engine on every node, then apply again",
        )
