"""Take the files over: checked, with room for every copy, and with the state before them noted."""

from __future__ import annotations

import os

from . import bundle, mesh, network, services, store
from .bundle import Entry
from .faults import point
from .generations import record_path
from .node import Node
from .places import RECOVER, UNITS, Tried, tried
from .refusal import RefusalError
from .state import State

# Room that has to be left beyond the copies: other programs write meanwhile.
MARGIN_BYTES = 1 << 20
SYSCTL_BYTES = 4096


def keep(node: Node, state: State, entries: tuple[Entry, ...], record: dict[str, object]) -> None:
    """Keep the files of a trial and copies of what they replace. Raises `RefusalError`; nothing of the system
    is touched.
    """
    check_room(node, entries)
    before = tuple(bundle.live(node.tree, entry.path) for entry in entries)
    for item in plan(node, state, entries):
        if bundle.live(node.tree, item.place) != Entry(item.place):
            raise RefusalError(
                "occupied",
                f"{item.place} is there already and none of this trial",
                "look what it is; if nothing needs it, remove it",
            )
    trial, generation = node.place(state.trial), node.place(record_path(state.generation))
    try:
        store.remove_tree(trial)
        bundle.write(trial, entries)
        point("stage.trial")
        store.remove_tree(generation)
        store.ensure_dir(generation, 0o700)
        bundle.write(f"{generation}/before", before)
        store.write_json(f"{generation}/meta.json", record)
        store.sync_dir(os.path.dirname(generation))  # noqa: PTH120
        point("stage.generation")
    except OSError as error:
        store.remove_tree(trial)
        store.remove_tree(generation)
        raise no_room(error, "keeping the files") from None


def no_room(error: OSError, what: str) -> RefusalError:
    """Return the refusal of a write that failed."""
    return RefusalError("no-room", f"{what} failed: {error.strerror or error}", "make room on the disk")


def check_room(node: Node, entries: tuple[Entry, ...]) -> None:
    """Raise `RefusalError` "no-room" where the copies of a commit would not fit, or a disk is read-only."""
    need = 3 * sum(len(entry.content or b"") + 4096 for entry in entries) + MARGIN_BYTES
    for path in ("/etc", "/usr/local", "/var/lib/fabric-plan", "/run"):
        try:
            status = os.statvfs(node.place(path))
        except FileNotFoundError:
            continue
        room = status.f_bavail * status.f_frsize
        if status.f_flag & os.ST_RDONLY:
            raise RefusalError("read-only", f"{path} is mounted read-only", "see: dmesg")
        if room < need:
            raise RefusalError(
                "no-room", f"{path} has {room} bytes free, {need} are needed", "make room on the disk"
            )


def plan(node: Node, state: State, entries: tuple[Entry, ...]) -> tuple[Tried, ...]:
    """Return what stands where in the trial; the same each time it is asked before the commit."""
    installed = {
        path: text
        for path in node.tree.match(f"{UNITS}fabric-plan-*")
        if (text := node.tree.read(path)) is not None
    }
    return tried(entries, state.trial, {path: text + "\n" for path, text in installed.items()})


def note_before(node: Node, sysctls: tuple[str, ...], interfaces: tuple[str, ...]) -> dict[str, object]:
    """Return what an undo puts back: sysctl values, the active profile and the MTU of each interface, our
    active units, what stands of the mesh.
    """
    profiles = network.active(node) if interfaces else {}
    units = services.active(node)
    return {
        "sysctls": {name: node.tree.read(f"/proc/sys/{name}", SYSCTL_BYTES) for name in sysctls},
        "profiles": {
            name: network.UNKNOWN if profiles is None else profiles.get(name) for name in interfaces
        },
        "mtus": {name: node.tree.read(network.mtu_path(name)) for name in interfaces},
        "units": sorted(units),
        "mesh": mesh.standing(node) if services.MESH in units else None,
    }


def require_recover(node: Node, entries: tuple[Entry, ...]) -> None:
    """Raise `RefusalError` where no commit could be finished after a power cut: what does that is neither
    installed nor among the files.
    """
    staged = {entry.path for entry in entries if not entry.absent}
    for path in RECOVER:
        if path not in staged and bundle.live(node.tree, path).absent:
            raise RefusalError("no-recover", f"{path} is neither installed nor among the files")
