"""Scoped changes of addresses: netplan's files for our interfaces alone, through NetworkManager; never
``netplan apply``, which takes every interface that netplan owns down for a moment.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping

from ..parsers import network_manager
from ..tools import Output
from .node import Node, failure
from .refusal import RefusalError

GENERATE_LIMIT_S = 60.0
ACTIVATE_LIMIT_S = 45.0
TOOL_LIMIT_S = 10.0
ADDRESS_WAIT_S = 20.0
MANAGEMENT_WAIT_S = 5.0
DISCONNECT_WAIT_S = 5.0
POLL_S = 0.2

# What a driver starts with, so what the next boot would give an interface that nothing defines.
DRIVERS_MTU = "1500"
PROFILES = "/run/NetworkManager/system-connections"
GENERATORS = ("/usr/libexec/netplan/generate", "/usr/lib/netplan/generate")

# nmcli's exit status where a profile is not there.
NO_SUCH_PROFILE = 10

# Where what was active before could not be read.
UNKNOWN = "unknown"


def generate(node: Node, *arguments: str) -> Output:
    """Let netplan write its backends' files."""
    if node.tools.find("netplan"):
        return node.run(["netplan", "generate", *arguments], GENERATE_LIMIT_S)
    for place in GENERATORS:
        if node.tools.find(node.place(place)):
            return node.run([node.place(place), *arguments], GENERATE_LIMIT_S)
    return Output(None, "", "", "netplan is not there")


def must_generate(node: Node) -> None:
    """Let netplan write its backends' files. Raises `RefusalError`."""
    output = generate(node)
    if output.status != 0:
        raise RefusalError(
            "netplan-generate",
            failure(["netplan"], output),
            "netplan get shows which file it cannot read",
        )


def active(node: Node) -> dict[str, dict[str, str]] | None:
    """Return the active profile of every device, name and UUID; None where NetworkManager does not say."""
    fields = ",".join(network_manager.CONNECTION_FIELDS)
    output = node.run(["nmcli", "-t", "-f", fields, "connection", "show", "--active"], TOOL_LIMIT_S)
    if output.status != 0:
        return None
    found = network_manager.connections(output.stdout)
    if not found.complete:
        return None
    return {
        item.device: {"name": item.name, "uuid": item.uuid or ""}
        for item in found.value or ()
        if item.device is not None
    }


def profile_path(interface: str) -> str:
    """Return where netplan writes the profile of an interface."""
    return f"{PROFILES}/netplan-{interface}.nmconnection"


def addresses(node: Node, interface: str) -> set[str]:
    """Return the addresses of an interface with their prefix lengths; none where it is not there."""
    output = node.run(["ip", "-j", "addr", "show", "dev", interface], TOOL_LIMIT_S)
    try:
        links = json.loads(output.stdout) if output.status == 0 else []
        return {
            f"{item['local']}/{item['prefixlen']}" for link in links for item in link.get("addr_info", [])
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        return set()


def management(node: Node, ours: Iterable[str]) -> dict[str, set[str]]:
    """Return the addresses of the interfaces with a default route that are not ours: the ways in."""
    output = node.run(["ip", "-j", "route", "show", "default"], TOOL_LIMIT_S)
    try:
        routes = json.loads(output.stdout or "[]") if output.status == 0 else []
        devices = {route["dev"] for route in routes if isinstance(route, dict) and "dev" in route}
    except (ValueError, TypeError):
        devices = set()
    found = {device: addresses(node, device) for device in sorted(devices - set(ours))}
    # Privacy addresses and their like come and go by themselves.
    return {device: {a for a in there if ":" not in a} for device, there in found.items()}


def await_management(node: Node, before: Mapping[str, set[str]]) -> None:
    """Wait until every management address is there again. It may be gone for a second, so one look decides
    nothing. Raises `RefusalError`.
    """

    def missing() -> str:
        gone = [
            f"{device} {address}"
            for device, there in before.items()
            for address in sorted(there - addresses(node, device))
        ]
        return ", ".join(gone)

    limit_s = MANAGEMENT_WAIT_S * node.tools.patience
    gone = await_nothing(missing, limit_s)
    if gone:
        raise RefusalError("management-lost", f"gone for {limit_s:g} s: {gone}", "the trial is taken back")


def await_nothing(missing: Callable[[], str], limit_s: float) -> str:
    """Ask until nothing is missing any more, `limit_s` seconds at most; return what still is."""
    deadline = time.monotonic() + limit_s
    while True:
        words = missing()
        if not words or time.monotonic() >= deadline:
            return words
        time.sleep(POLL_S)


def bring_up(node: Node, interface: str) -> None:
    """Load the profile that netplan wrote for an interface, activate it, wait for its addresses. Raises
    `RefusalError`.
    """
    path = profile_path(interface)
    profile = node.tree.read(path)
    if profile is None:
        raise RefusalError(
            "no-profile",
            f"{interface}: netplan wrote no profile of NetworkManager for it",
            "its definition needs `renderer: NetworkManager`",
        )
    node.must(["nmcli", "connection", "load", node.place(path)], TOOL_LIMIT_S, "nm-load")
    name = f"netplan-{interface}"
    node.must(
        ["nmcli", "--wait", "30", "connection", "up", "id", name, "ifname", interface],
        ACTIVATE_LIMIT_S,
        "nm-up",
    )
    wanted = set(re.findall(r"(?m)^address\d+=([0-9a-fA-F.:]+/\d+)", profile))

    def missing() -> str:
        return ", ".join(sorted(wanted - addresses(node, interface)))

    limit_s = ADDRESS_WAIT_S * node.tools.patience
    gone = await_nothing(missing, limit_s)
    if gone:
        raise RefusalError("no-address", f"{interface}: no {gone} within {limit_s:g} s")


def mtu_path(interface: str) -> str:
    """Return where the kernel shows the MTU of an interface, in bytes."""
    return f"/sys/class/net/{interface}/mtu"


def set_mtu(node: Node, interface: str, mtu: str) -> None:
    """Give an interface an MTU, in bytes: NetworkManager leaves that of a profile behind. Raises
    `RefusalError`.
    """
    if node.tree.read(mtu_path(interface)) not in (None, mtu):
        node.must(["ip", "link", "set", "dev", interface, "mtu", mtu], TOOL_LIMIT_S, "ip-mtu")


def flush(node: Node, interface: str) -> None:
    """Take an interface from its profile and remove its addresses and its MTU; the profile that netplan no
    longer writes is unloaded. Raises `RefusalError`.
    """
    unload_vanished(node, interface)
    disconnect(node, interface)
    node.must(["ip", "addr", "flush", "dev", interface, "scope", "global"], TOOL_LIMIT_S, "ip-flush")
    set_mtu(node, interface, DRIVERS_MTU)


def disconnect(node: Node, interface: str) -> None:
    """Take an interface from its profile. One whose profile was unloaded goes by itself, and on its way is
    refused as not active. Raises `RefusalError`.
    """

    def connected() -> str:
        now = active(node)
        return interface if now is None or interface in now else ""

    if not connected():
        return
    argv = ["nmcli", "device", "disconnect", interface]
    output = node.run(argv, ACTIVATE_LIMIT_S)
    if output.status != 0 and await_nothing(connected, DISCONNECT_WAIT_S * node.tools.patience):
        raise RefusalError("nm-disconnect", failure(argv, output))


def unload_vanished(node: Node, interface: str) -> None:
    """Let NetworkManager forget the profile of an interface that netplan no longer writes: it takes the order
    to load a missing file as one to unload it, and says so with an error.
    """
    if node.tree.read_bytes(profile_path(interface), 1) is None:
        node.run(["nmcli", "connection", "load", node.place(profile_path(interface))], TOOL_LIMIT_S)


def restore(node: Node, interface: str, before: object) -> str | None:
    """Bring an interface back to the profile that was active before: a mapping of name and uuid, None where
    there was none. Where that is `UNKNOWN` the profile that netplan writes is the best guess, and without one
    the interface is left alone. Return what a person should know of it. Raises `RefusalError`.
    """
    written = node.tree.read_bytes(profile_path(interface), 1) is not None
    if written:
        path = node.place(profile_path(interface))
        node.must(["nmcli", "connection", "load", path], TOOL_LIMIT_S, "nm-load")
    else:
        unload_vanished(node, interface)
    up = ["nmcli", "--wait", "30", "connection", "up"]
    if isinstance(before, dict):
        by_uuid = node.run([*up, "uuid", before.get("uuid", ""), "ifname", interface], ACTIVATE_LIMIT_S)
        if by_uuid.status == 0:
            return None
        argv = [*up, "id", before["name"], "ifname", interface]
        output = node.run(argv, ACTIVATE_LIMIT_S)
        if output.status == NO_SUCH_PROFILE:
            disconnect(node, interface)
            return (
                f"{interface}: {before['name']} is gone: NetworkManager had made it by itself, drops it when "
                "a driver is reloaded, and makes it again when it starts"
            )
        if output.status != 0:
            raise RefusalError("nm-up", failure(argv, output))
    elif before == UNKNOWN:
        if written:
            node.must([*up, "id", f"netplan-{interface}", "ifname", interface], ACTIVATE_LIMIT_S, "nm-up")
        return f"{interface}: its profile before could not be read, look at it: nmcli device"
    else:
        disconnect(node, interface)
    return None
