"""Every fault that the lab can make, in one table: where it acts, what it takes, what then happens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from lab.errors import LabError
from lab.spec import PORTS, Node


class Scope(StrEnum):
    """What a fault is set on."""

    FUNCTION = "function"
    PORT = "port"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class Fault:
    """`off` is the value that ends it; for node faults, which are acts and not states, it is empty."""

    scope: Scope
    values: str
    off: str
    effect: str


FAULTS: Mapping[str, Fault] = {
    "rule_errno": Fault(
        Scope.FUNCTION, "errno, 0 ends it", "0", "new rules on this function are refused with that errno"
    ),
    "overflow": Fault(
        Scope.FUNCTION,
        "N, 0 ends it",
        "0",
        "every Nth frame that a rule of this function forwards is lost and counted in its rx_out_of_buffer",
    ),
    "blackhole": Fault(
        Scope.FUNCTION, "Y or N", "N", "rules of this function count their frames and forward none"
    ),
    "reload": Fault(
        Scope.FUNCTION,
        "busy, sf, lag, fail, hang, hang-hard, none",
        "none",
        "a devlink reload is refused (busy; sf and lag in mlx5's words), leaves no function behind (fail), "
        "or never returns (hang: can be killed, hang-hard: cannot)",
    ),
    "system_image_guid": Fault(
        Scope.FUNCTION,
        "64-bit number",
        "",
        "the function claims to sit on another card: redirects to and from it are refused",
    ),
    "cable": Fault(
        Scope.PORT,
        "0 pulls, 1 plugs",
        "1",
        "the port and the far end lose their link, and get it back",
    ),
    "power-cut": Fault(Scope.NODE, "", "", "the machine is reset without warning and boots again"),
    "power-off": Fault(Scope.NODE, "", "", "the machine is off until power-on"),
    "power-on": Fault(Scope.NODE, "", "", "a machine that was off boots"),
    "cable-swap": Fault(
        Scope.NODE, "", "", "what is plugged into its two ports changes places; again, and it is as before"
    ),
    "nic-swap": Fault(Scope.NODE, "", "", "power off, a card with other MACs put in, power on"),
}


def debugfs_path(node: Node, name: str, target: str) -> str:
    """Where a function's or port's fault is set, under fakecx7's directory; `target` is a netdev, a PCI
    address or a port.

    LabError for a fault that is no file there, or a target that the node does not have.
    """
    fault = FAULTS.get(name)
    if fault is None:
        raise LabError(f"no fault `{name}`", hint=f"there are {', '.join(FAULTS)}")
    if fault.scope is Scope.PORT and target in PORTS:
        return f"{target}/{name}"
    if fault.scope is Scope.FUNCTION:
        for function in node.functions:
            if target in (function.netdev, function.pci, function.rdma):
                return f"{function.pci}/{name}"
    if fault.scope is Scope.NODE:
        raise LabError(f"`{name}` is set on a node as a whole")
    raise LabError(f"`{name}` is set on a {fault.scope}, and `{target}` is none", where=node.name)
