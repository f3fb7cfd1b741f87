"""The closed table of steps: what each kind may be told, what it does, and how long it may take.

A step raises `RefusalError` when it fails. Every step can be repeated, and none changes a file that outlives
a reboot.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..plain import dataclass
from . import bundle, fields, network, services, staging, store
from .faults import point
from .node import Node
from .places import SCRIPTS
from .refusal import RefusalError
from .state import State

MAX_STEPS = 64
Parameters = Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """One row: the parameters with the form of their names, the action, and its limit in seconds.

    `mesh` marks what may change the hardware forwarding, so that an undo looks after it.
    """

    act: Callable[[Node, State, Parameters], None]
    limit_s: float
    parameters: Mapping[str, re.Pattern[str]]
    mesh: bool = False
    reloads: bool = False


def place(node: Node, state: State, parameters: Parameters) -> None:
    """Put the trial's files where they are tried."""
    entries = bundle.read(node.place(state.trial))
    for item in staging.plan(node, state, entries):
        target = node.place(item.place)
        store.ensure_dir(target.rpartition("/")[0], 0o755)
        store.write_file(target, item.content, int(item.mode, 8), durable=False)
        point("place.file")


def put_back(node: Node, entry: bundle.Entry) -> None:
    """Bring a path into a state, in one step and synced."""
    if bundle.live(node.tree, entry.path) == entry:
        return
    target = node.place(entry.path)
    folder = target.rpartition("/")[0]
    if entry.absent:
        if store.remove_file(target):
            store.sync_dir(folder)
        return
    store.ensure_dir(folder, 0o755)
    if entry.content is not None:
        store.write_file(target, entry.content, int(entry.mode or "0600", 8))
    else:
        store.write_link(target, entry.target or "")


def daemon_reload(node: Node, state: State, parameters: Parameters) -> None:
    """Let systemd read its units again."""
    node.must(["systemctl", "daemon-reload"], 60, "systemctl")


def sysctl(node: Node, state: State, parameters: Parameters) -> None:
    """Write the kernel settings of every sysctl file of ours that is tried, else of the installed ones."""
    tried = [
        entry
        for entry in bundle.read(node.place(state.trial))
        if entry.path.startswith("/etc/sysctl.d/") and entry.content is not None
    ]
    texts = [(entry.content or b"").decode("utf-8", "replace") for entry in tried]
    if not texts:
        texts = [node.tree.read("/etc/sysctl.d/90-fabric-plan.conf") or ""]
    for name, value in (pair for text in texts for pair in settings(text)):
        write_sysctl(node, name, value)


def settings(text: str) -> list[tuple[str, str]]:
    """Return the settings of a sysctl.d file, by their paths below /proc/sys."""
    found = []
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith(("#", ";")):
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise RefusalError("sysctl", f"no setting: {line.strip()[:80]}")
        found.append((fields.sysctl_path(name.strip().lstrip("-")), value.strip()))
    return found


def write_sysctl(node: Node, name: str, value: str) -> None:
    """Write one kernel setting unless it has that value. Raises `RefusalError`."""
    if node.tree.read(f"/proc/sys/{name}") == value:
        return
    try:
        descriptor = os.open(node.place(f"/proc/sys/{name}"), os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        with open(descriptor, "wb", buffering=0) as file:  # noqa: PTH123 - of a descriptor
            file.write(value.encode() + b"\n")
    except OSError as error:
        raise RefusalError("sysctl", f"{name} = {value}: {error.strerror}") from None


def nm_conf(node: Node, state: State, parameters: Parameters) -> None:
    """Let NetworkManager read its configuration again."""
    node.must(["nmcli", "general", "reload", "conf"], 15, "nm-reload")


def netplan(node: Node, state: State, parameters: Parameters) -> None:
    """Bring interfaces to what netplan wrote for them, one after the other; the ways in are looked after.
    Without interfaces: let netplan write that, for all of them.
    """
    interfaces = parameters["interfaces"]
    ways = network.management(node, interfaces)
    if not interfaces:
        network.must_generate(node)
    for interface in interfaces:
        network.bring_up(node, interface)
    network.await_management(node, ways)


def flush(node: Node, state: State, parameters: Parameters) -> None:
    """Take the addresses off interfaces whose definitions are gone."""
    interfaces = parameters["interfaces"]
    ways = network.management(node, interfaces)
    for interface in interfaces:
        network.flush(node, interface)
    network.await_management(node, ways)


def offload(node: Node, state: State, parameters: Parameters) -> None:
    """Let functions take rules into their hardware; what was off is noted for an undo."""
    services.refuse_use(node, "turning hw-tc-offload on")
    for interface in parameters["interfaces"]:
        node.must(["ethtool", "-K", interface, "hw-tc-offload", "on"], 15, "ethtool")
        state.note(f"{interface}: hw-tc-offload was turned on and stays on")


def hairpin(node: Node, state: State, parameters: Parameters) -> None:
    """Bring one function's hairpin queues into effect, which reloads its driver: the script refuses that
    while RDMA is in use, and so does this step. Then wait for what was connected.
    """
    interface = parameters["netdev"]
    services.refuse_use(node, f"{interface}: a driver reload")
    connected = (network.active(node) or {}).get(interface)
    ways = network.management(node, (interface,))
    had = network.addresses(node, interface)
    _script(node, state, "hairpin.sh", 110, interface)

    def missing() -> str:
        if connected is None:
            return ""
        v4 = {address for address in had if ":" not in address}
        return ", ".join(sorted(v4 - network.addresses(node, interface)))

    gone = network.await_nothing(missing, network.ADDRESS_WAIT_S * node.tools.patience)
    if gone and connected is not None:
        words = ["nmcli", "--wait", "30", "connection", "up", "id", connected["name"], "ifname", interface]
        node.must(words, network.ACTIVATE_LIMIT_S, "nm-up")
    network.await_management(node, ways)


def _script(node: Node, state: State, name: str, limit_s: float, *arguments: str) -> None:
    path = services.script_path(node, state, name)
    if path is None:
        raise RefusalError("no-script", f"{name} is neither tried nor installed")
    node.must(node.script(path, *arguments), limit_s, name)


def _up(node: Node, unit: str) -> None:
    """Let a unit be up once its script has done its part; the script converges, so it may run twice."""
    if services.unit_known(node, unit) and not services.is_active(node, unit):
        node.must(["systemctl", "start", unit], 120, "systemctl")


def forward(node: Node, state: State, parameters: Parameters) -> None:
    """Let TCP cross this node."""
    _script(node, state, "forward.sh", 60, "start")
    _up(node, services.FORWARD)


def forward_stop(node: Node, state: State, parameters: Parameters) -> None:
    """Take the way for TCP away again."""
    _stop(node, services.FORWARD)
    if services.script_path(node, state, "forward.sh"):
        _script(node, state, "forward.sh", 60, "stop")


def _stop(node: Node, *units: str) -> None:
    for unit in units:
        if services.is_up(node, unit):
            node.must(["systemctl", "stop", unit], 130, "systemctl")


def mesh(node: Node, state: State, parameters: Parameters) -> None:
    """Bring rules, routes and markers to the plan; what is right stays untouched."""
    _script(node, state, "mesh-up.sh", 120)
    _up(node, services.MESH)


def mesh_down(node: Node, state: State, parameters: Parameters) -> None:
    """Take rules, routes and markers away, unless somebody uses RDMA."""
    services.refuse_use(node, "taking the mesh down")
    _stop(node, services.MESH)
    # The script in place knows the functions of the state that goes; the one that is tried may know fewer.
    installed = f"{SCRIPTS}mesh-down.sh"
    if node.tree.read_bytes(installed, 1) is not None:
        node.must(node.script(installed), 110, "mesh-down.sh")
    elif services.script_path(node, state, "mesh-down.sh"):
        _script(node, state, "mesh-down.sh", 110)


def markers(node: Node, state: State, parameters: Parameters) -> None:
    """Start the markers of devices anew, with the arguments that they have now."""
    units = [f"fabric-plan-marker@{device}.service" for device in parameters["devices"]]
    if any(services.is_up(node, unit) for unit in units):
        services.refuse_use(node, "restarting a marker")
    for unit in units:
        node.must(["systemctl", "restart", unit], 60, "systemctl")


def units(node: Node, state: State, parameters: Parameters) -> None:
    """Stop and start units of ours."""
    stop, start = parameters["stop"], parameters["start"]
    if services.MESH in stop or any(services.MARKER.match(unit) for unit in stop):
        services.refuse_use(node, "stopping the mesh or a marker")
    _stop(node, *stop)
    for unit in start:
        node.must(["systemctl", "start", unit], 130, "systemctl")


_INTERFACES = {"interfaces": fields.NETDEV}
KINDS: Mapping[str, Kind] = {
    "place": Kind(place, 30, {}),
    "daemon-reload": Kind(daemon_reload, 60, {}),
    "sysctl": Kind(sysctl, 10, {}),
    "nm-conf": Kind(nm_conf, 15, {}),
    "netplan": Kind(netplan, 150, _INTERFACES, mesh=True),
    "flush": Kind(flush, 150, _INTERFACES, mesh=True),
    "offload": Kind(offload, 30, _INTERFACES),
    "hairpin": Kind(hairpin, 150, {"netdev": fields.NETDEV}, mesh=True, reloads=True),
    "forward": Kind(forward, 120, {}),
    "forward-stop": Kind(forward_stop, 120, {}),
    "mesh": Kind(mesh, 150, {}, mesh=True),
    "mesh-down": Kind(mesh_down, 150, {}, mesh=True),
    "markers": Kind(markers, 120, {"devices": fields.RDMA}, mesh=True),
    "units": Kind(units, 150, {"start": fields.UNIT, "stop": fields.UNIT}, mesh=True),
}


def parse(value: object) -> list[dict[str, Any]]:
    """Return the steps of a request, every name in its form. Raises `RefusalError`."""
    if not isinstance(value, list) or not 0 < len(value) <= MAX_STEPS:
        raise RefusalError("bad-request", f"steps is a list of 1 to {MAX_STEPS}")
    return [_step(item) for item in value]


def _step(item: object) -> dict[str, Any]:
    if not isinstance(item, dict) or item.get("kind") not in KINDS:
        kind = item.get("kind") if isinstance(item, dict) else item
        raise RefusalError(
            "unknown-step", f"no such step: {str(kind)[:60]!r}", "apply with one version on all nodes"
        )
    known = KINDS[item["kind"]].parameters
    if not item.keys() <= {"kind", *known}:
        raise fields.bad(f"step {item['kind']}", sorted(item))
    step: dict[str, Any] = {"kind": item["kind"]}
    for key, form in known.items():
        plural = key not in ("netdev",)
        names = fields.names(item.get(key, []) if plural else [item.get(key)], key, form)
        step[key] = list(names) if plural else names[0]
    return step


def name(step: Mapping[str, Any]) -> str:
    """Return a step as people read it."""
    words = [str(step["kind"])]
    for key in KINDS[step["kind"]].parameters:
        value = step.get(key, [])
        words += value if isinstance(value, list) else [value]
    return " ".join(words)


def interfaces(step: Mapping[str, Any]) -> Sequence[str]:
    """Return the network devices that a step is about."""
    return [*step.get("interfaces", []), *([step["netdev"]] if "netdev" in step else [])]
