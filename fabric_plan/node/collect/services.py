"""What runs beside us: systemd units, NetworkManager, LLDP, the packet filter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..document import NetworkManager, Unit
from ..parsers import lldp, network_manager, systemd
from ..reading import Reading, each_line
from ..records import LldpNeighbour
from ..tools import Tools
from ..tree import Tree

UNITS = (
    "NetworkManager.service",
    "cloud-init.service",
    "docker.service",
    "fabric-plan-forward.service",
    "fabric-plan-hairpin.service",
    "fabric-plan-mesh.service",
    "fabric-plan-recover.service",
    "network-pre.target",
    "systemd-networkd.service",
)
PROFILE_FOLDERS = ("/etc/NetworkManager/system-connections", "/run/NetworkManager/system-connections")


def units(tools: Tools, more: Iterable[str]) -> Reading[Mapping[str, Unit]]:
    """Return our units, those that stand in order with them, and `more`; one may be ``not-found``."""
    names = [*UNITS, *(unit for unit in more if unit not in UNITS), "fabric-plan-*"]
    return tools.ask(
        systemd.units, ["systemctl", "show", f"--property={','.join(systemd.PROPERTIES)}", "--", *names]
    )


def managed(tools: Tools, tree: Tree) -> NetworkManager:
    """Return NetworkManager's devices and profiles; of profile files, which hold secrets, only the names."""
    profiles = tuple(f"{folder}/{name}" for folder in PROFILE_FOLDERS for name in tree.names(folder))
    fields = ",".join
    return NetworkManager(
        devices=tools.ask(
            network_manager.devices,
            ["nmcli", "-t", "-f", fields(network_manager.DEVICE_FIELDS), "device", "status"],
        ),
        connections=tools.ask(
            network_manager.connections,
            ["nmcli", "-t", "-f", fields(network_manager.CONNECTION_FIELDS), "connection", "show"],
        ),
        profiles=Reading(profiles),
    )


def neighbours(tools: Tools) -> Reading[tuple[LldpNeighbour, ...]]:
    """Return what lldpd heard."""
    return tools.ask(lldp.neighbours, ["lldpcli", "-f", "json", "show", "neighbors", "details"])


def firewall(tools: Tools) -> Reading[tuple[str, ...]]:
    """Return the filter table's rules as iptables prints them; Docker's DROP on forwarding stands there."""
    return tools.ask(lambda text: each_line(text, str), ["iptables", "-w", "1", "-S"])
