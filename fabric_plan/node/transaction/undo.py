"""Take a trial back. Every part can be repeated and none insists on the part before it, so an undo that was
cut is run again from its beginning; it never reloads a driver.
"""

from __future__ import annotations

from collections.abc import Callable

from . import bundle, execute, generations, mesh, network, services, steps, store
from . import state as phases
from .faults import point
from .node import Node
from .places import MARKERS, RECOVER
from .refusal import RefusalError
from .state import State

STOP_LIMIT_S = 110.0


class _Problems:
    """Does each part whatever became of the others, and keeps what went wrong."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def attempt(self, what: str, act: Callable[[], object]) -> None:
        try:
            act()
        except RefusalError as refusal:
            self.found.append(f"{what}: {refusal.message}")
        except OSError as error:
            self.found.append(f"{what}: {error.filename or ''} {error.strerror or error}")


def undo(node: Node, state: State) -> None:
    """Bring the node back to what it was before the trial; the lock is held. Raises `RefusalError`
    "undo-incomplete" with everything that would not go back; then asking again goes on with it.
    """
    if state.phase != phases.UNDOING:
        state.phase = phases.UNDOING
        phases.save(node, state)
    point("undo.decided")
    if state.unit:
        execute.stop(node, state.unit, STOP_LIMIT_S)
    point("undo.stopped")
    problems = _Problems()
    entries = _entries(node, state)
    meshed = any(steps.KINDS[kind].mesh for kind in state.touched)
    forward = bool({"forward", "forward-stop"} & set(state.touched))
    before = set(state.before.get("units", []))
    # The units of the trial go while its own scripts still are there to take its rules away.
    if meshed or forward:
        problems.attempt("stopping units", lambda: _stop_units(node, state, before, meshed, forward))
    point("undo.units-stopped")
    problems.attempt("taking the trial's files away", lambda: take_away(node, state))
    point("undo.taken-away")
    if state.touched:
        problems.attempt("systemd", lambda: steps.daemon_reload(node, state, {}))
        if "nm-conf" in state.touched:
            problems.attempt("NetworkManager", lambda: steps.nm_conf(node, state, {}))
    point("undo.told")
    if "sysctl" in state.touched:
        _sysctls(node, state, problems)
    point("undo.sysctl")
    if {"netplan", "flush"} & set(state.touched):
        problems.attempt("netplan", lambda: network.must_generate(node))
    profiles, mtus = state.before.get("profiles", {}), state.before.get("mtus", {})
    for interface in state.interfaces_touched:
        before_it = profiles.get(interface, network.UNKNOWN)

        def profile(interface: str = interface, before_it: object = before_it) -> None:
            if said := network.restore(node, interface, before_it):
                state.note(said)

        problems.attempt(interface, profile)
        if mtu := mtus.get(interface):
            problems.attempt(interface, lambda i=interface, m=mtu: network.set_mtu(node, i, m))  # type: ignore[misc]
    point("undo.interfaces")
    if forward and services.FORWARD in before:
        problems.attempt("forwarding", lambda: _again(node, services.FORWARD, "forward.sh", "start"))
    if meshed:
        problems.attempt("the mesh", lambda: _mesh_again(node, state, before, {e.path for e in entries}))
    point("undo.mesh")
    for interface in state.reloaded:
        state.note(
            f"{interface}: the hairpin values of its driver stay as they are; a rollback reloads no driver"
        )
    problems.attempt("recover.sh", lambda: recover_back(node, state))
    point("undo.recover")
    state.problems = problems.found
    if problems.found:
        phases.save(node, state)
        raise RefusalError(
            "undo-incomplete",
            f"not everything went back: {'; '.join(problems.found)[:800]}",
            "mend that and ask again, or restart the node: it comes up in the state before",
            notes=state.notes,
        )
    _close(node, state)


def _entries(node: Node, state: State) -> tuple[bundle.Entry, ...]:
    try:
        return bundle.read(node.place(state.trial))
    except RefusalError:
        # Never wholly there, so nothing was put in place from it.
        return ()


def _stop_units(node: Node, state: State, before: set[str], meshed: bool, forward: bool) -> None:
    extra = services.active(node) - before
    order = [*sorted(unit for unit in extra if services.MARKER.match(unit)), services.MESH, services.FORWARD]
    for unit in order:
        if unit in extra:
            node.must(["systemctl", "stop", unit], 130, "systemctl")
    if meshed and services.MESH not in before and services.script_path(node, state, "mesh-down.sh"):
        path = services.script_path(node, state, "mesh-down.sh") or ""
        # The mesh is the trial's own, and whoever uses RDMA now does so without it once it is gone.
        node.must(node.script(path, "--force"), 110, "mesh-down.sh")
    if forward and services.script_path(node, state, "forward.sh"):
        path = services.script_path(node, state, "forward.sh") or ""
        node.must(node.script(path, "stop"), 60, "forward.sh")


def take_away(node: Node, state: State) -> None:
    """Remove every file of the trial from the place where it was tried; the trial's own folder stays."""
    for place in state.places:
        if not place.startswith(state.trial):
            store.remove_file(node.place(place))


def _sysctls(node: Node, state: State, problems: _Problems) -> None:
    for name, value in state.before.get("sysctls", {}).items():
        if value is None:
            state.note(f"{name} could not be read before, so it stays")
        elif node.tree.read(f"/proc/sys/{name}") is None:
            state.note(f"{name} is not there any more")
        else:
            problems.attempt(name, lambda n=name, v=value: steps.write_sysctl(node, n, v))  # type: ignore[misc]


def _again(node: Node, unit: str, script: str, *arguments: str) -> None:
    """Bring a unit of the generation before into effect again: its own script, then the unit."""
    path = f"/usr/local/lib/fabric-plan/{script}"
    if node.tree.read_bytes(path, 1) is not None:
        node.must(node.script(path, *arguments), 120, script)
    if not services.is_active(node, unit):
        node.must(["systemctl", "start", unit], 130, "systemctl")


def _mesh_again(node: Node, state: State, before: set[str], tried: set[str]) -> None:
    if services.MESH in before:
        try:
            _again(node, services.MESH, "mesh-up.sh")
        except RefusalError as refusal:
            # What was broken before the trial, and still will not come up, is no fault of the undo.
            up = services.is_active(node, services.MESH)
            if not (up and mesh.kept(state.before.get("mesh"), mesh.standing(node))):
                raise
            state.note(f"the mesh is what it was before, which was not whole: {refusal.message}")
    for unit in sorted(before):
        match = services.MARKER.match(unit)
        if match and f"{MARKERS}{match[1]}.env" in tried:
            node.must(["systemctl", "restart", unit], 60, "systemctl")
        elif match and not services.is_active(node, unit):
            node.must(["systemctl", "start", unit], 60, "systemctl")


def recover_back(node: Node, state: State) -> None:
    """Put what finishes a cut commit back as it was: a commit that came to nothing may have installed it."""
    record = node.place(f"{generations.record_path(state.generation)}/before")
    try:
        before = {entry.path: entry for entry in bundle.read(record)}
    except RefusalError:
        return
    for path in reversed(RECOVER):
        if path in before:
            steps.put_back(node, before[path])


def _close(node: Node, state: State) -> None:
    record = node.place(generations.record_path(state.generation))
    try:
        store.write_file(f"{record}/result", f"{generations.ROLLED_BACK_WORD}\n".encode(), 0o600)
    except OSError as error:
        # The node is back; a history that cannot be written is no reason to say otherwise.
        state.note(f"the history does not say so: {error.strerror}")
    point("undo.result")
    execute.disarm(node, state)
    store.remove_tree(node.place(state.trial))
    state.phase = phases.ROLLED_BACK
    phases.save(node, state)
    point("undo.ended")
