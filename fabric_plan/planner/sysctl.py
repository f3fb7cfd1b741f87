"""The kernel settings that a fabric node needs, and why (docs/fabric.md 1, 3).

Every value is for one interface where the kernel allows it. The exceptions are the redirect switches, whose
effective value is an OR over ``all`` and the interface.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fabric_plan.planner.model import NodePlan, Plan


@dataclass(frozen=True, slots=True)
class Sysctl:
    """One setting under ``net/ipv4/conf``: `scope` is an interface, ``all`` or ``default``."""

    scope: str
    name: str
    value: int
    why: str

    @property
    def path(self) -> str:
        """The key as sysctl.d takes it: slashes, so that a dot in an interface's name stays one."""
        return f"net/ipv4/conf/{self.scope}/{self.name}"


_EVERYWHERE = (
    (
        "send_redirects",
        0,
        "a redirect from a transit node overrides host routes at the sender; effective is all OR interface",
    ),
    ("accept_redirects", 0, "and no node believes one"),
)
_FUNCTION = (
    (
        "arp_ignore",
        1,
        "both functions of a port hear every ARP request: answer only for the address asked for",
    ),
    ("arp_announce", 2, "and ask with the address of the function that asks"),
    (
        "rp_filter",
        2,
        "loose: replies may come back on the other way round; effective is the larger of all and interface",
    ),
    ("send_redirects", 0, "see above"),
    ("accept_redirects", 0, "see above"),
)
_TRANSIT = (
    "forwarding",
    1,
    "TCP to cables further on crosses this kernel; per interface, so ip_forward stays as it is",
)
# A function of a plane that the fabric does not use hears its twin's ARP requests all the same.
_QUIET = ("arp_ignore", "arp_announce", "rp_filter")


def sysctls(plan: Plan, node: NodePlan) -> tuple[Sysctl, ...]:
    """Return the settings of `node`, general ones first, then function by function in PCI order.

    Functions of an unmanaged plane get none: they are never written.
    """
    return tuple(_sysctls(plan, node))


def _sysctls(plan: Plan, node: NodePlan) -> Iterator[Sysctl]:
    for scope in ("all", "default"):
        for name, value, why in _EVERYWHERE:
            yield Sysctl(scope, name, value, why)
    cabled = [planned for planned in node.functions if planned.managed and planned.cabled]
    ports = {planned.function.port for planned in cabled}
    for planned in node.functions:
        if planned in cabled:
            # Two ports of one plane make a transit node: frames may come in on one and leave on the other.
            wanted = (*_FUNCTION, *([_TRANSIT] if len(ports) > 1 else []))
        elif planned.function.port in ports and planned.function.plane not in plan.fabric.planes:
            wanted = tuple(setting for setting in _FUNCTION if setting[0] in _QUIET)
        else:
            continue
        for name, value, why in wanted:
            yield Sysctl(planned.function.netdev, name, value, why)
