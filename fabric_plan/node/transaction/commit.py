"""Bring a trial to stay: everything on the disk first, then one rename that decides, then recover.sh, which
alone carries a journal out, now or after a power cut.
"""

from __future__ import annotations

import os

from . import bundle, execute, generations, network, staging, steps, store
from . import state as phases
from .bundle import Entry
from .faults import point
from .generations import COMMITTED_WORD, record_path
from .node import COMMIT_LOCK, CURRENT, GENERATIONS, JOURNAL, STAGE, VAR, Node, failure
from .places import RECOVER, TRIAL_UNITS
from .refusal import RefusalError
from .state import State
from .undo import recover_back, take_away, undo

LOCK_WAIT_S = 30.0
REPLAY_LIMIT_S = 75.0
REPLAY_LOCK_WAIT_S = 20


def commit(node: Node, state: State) -> None:
    """Decide for the trial and carry that out; the lock is held. Raises `RefusalError`: before the decision
    the trial is what it was; "commit-unfinished" is after it.
    """
    entries = bundle.read(node.place(state.trial))
    journal = tuple(entry for entry in entries if entry.path not in RECOVER)
    staging.require_recover(node, entries)
    state.phase = phases.COMMITTING
    phases.save(node, state)
    point("confirm.decided")
    try:
        _decide(node, state, entries, journal)
    except (OSError, RefusalError) as error:
        recover_back(node, state)
        store.remove_tree(node.place(STAGE))
        state.phase = phases.TRIAL
        phases.save(node, state)
        if isinstance(error, OSError):
            raise staging.no_room(error, "writing the commit") from None
        raise
    point("commit.pointed")
    if journal:
        replay(node)
    point("commit.replayed")
    if not generations.committed(node, state.generation):
        undo(node, state)
        raise RefusalError("rolled-back", "the commit could not be carried out and was undone", "apply again")
    try:
        finish(node, state)
    except OSError as error:
        # Decided and in place: what is left to tidy is tidied by whoever begins next.
        state.note(f"after the commit: {error.filename or ''} {error.strerror or error}")


def _decide(node: Node, state: State, entries: tuple[Entry, ...], journal: tuple[Entry, ...]) -> None:
    # Once more: what fits now is decided, and what is decided should not have to wait for room.
    staging.check_room(node, journal)
    record = node.place(record_path(state.generation))
    store.remove_tree(f"{record}/after")
    bundle.write(f"{record}/after", generations.overlay(generations.own_files(node), entries))
    point("commit.after")
    with store.locked(node.place(COMMIT_LOCK), LOCK_WAIT_S, "a repair of an earlier commit is at work"):
        if os.path.lexists(node.place(JOURNAL)):
            raise RefusalError("journal", f"{JOURNAL} is there already", "start fabric-plan-recover.service")
        stage = node.place(STAGE)
        store.remove_tree(stage)
        if not journal:
            # No file differs, so there is nothing to carry out: the result alone decides.
            _install_recover(node, entries)
            point("commit.point")
            store.write_file(f"{record}/result", f"{COMMITTED_WORD}\n".encode(), 0o600)
            store.write_file(node.place(CURRENT), f"{state.generation}\n".encode(), 0o600)
            return
        # Who finds it knows whose it is, and so what recover.sh was before, from the first moment on.
        store.ensure_dir(stage, 0o700)
        store.write_file(f"{stage}/generation", f"{state.generation}\n".encode(), 0o600)
        store.sync_dir(node.place(VAR))
        _install_recover(node, entries)
        bundle.write(stage, journal, fault="commit.file")
        point("commit.list")
        store.sync_dir(stage)
        store.sync_dir(node.place(GENERATIONS))
        point("commit.point")
        os.rename(stage, node.place(JOURNAL))  # noqa: PTH104
        store.sync_dir(node.place(VAR))


def _install_recover(node: Node, entries: tuple[Entry, ...]) -> None:
    """Install what finishes or undoes a cut commit, before there is one."""
    for path in RECOVER:
        for entry in entries:
            if entry.path == path and not entry.absent:
                steps.put_back(node, entry)
                point("commit.recover")


def replay(node: Node) -> None:
    """Let recover.sh finish or undo whatever commit there is. Raises `RefusalError` "commit-unfinished"."""
    os.environ["FABRIC_PLAN_LOCK_WAIT"] = str(REPLAY_LOCK_WAIT_S)
    argv = node.script(RECOVER[0])
    output = node.run(argv, REPLAY_LIMIT_S)
    if os.path.lexists(node.place(JOURNAL)):
        raise RefusalError(
            "commit-unfinished",
            f"the commit is decided but not finished: {failure(argv, output)}",
            "mend that and start fabric-plan-recover.service, or restart the node: both finish it",
        )


def open_commit(node: Node) -> bool:
    """Tell whether a commit is under way or was cut."""
    return os.path.lexists(node.place(JOURNAL)) or os.path.lexists(node.place(STAGE))


def repair(node: Node) -> None:
    """Bring a commit that was cut to an end. Raises `RefusalError`."""
    if not open_commit(node):
        return
    if bundle.live(node.tree, RECOVER[0]).absent:
        if os.path.lexists(node.place(JOURNAL)):
            raise RefusalError(
                "commit-unfinished", f"{JOURNAL} is there, but {RECOVER[0]} is not", "restore it from a copy"
            )
        store.remove_tree(node.place(STAGE))
        return
    replay(node)
    if open_commit(node):
        store.remove_tree(node.place(STAGE))


def finish(node: Node, state: State) -> None:
    """After the decision: the trial's files leave their places, which shows the same content in /etc. Can be
    repeated. What goes wrong here is noted; the decision stands.
    """
    take_away(node, state)
    point("finish.taken-away")
    entries = _entries(node, state)
    for folder, act in (
        ("/etc/systemd/", steps.daemon_reload),
        ("/etc/NetworkManager/conf.d/", steps.nm_conf),
    ):
        # Whoever read nothing of this trial is told nothing.
        tried = folder == "/etc/systemd/" and any(place.startswith(TRIAL_UNITS) for place in state.places)
        if entries is not None and not tried and not any(path.startswith(folder) for path in entries):
            continue
        try:
            act(node, state, {})
        except RefusalError as refusal:
            state.note(f"after the commit: {refusal.message}")
    _netplan(node, state)
    point("finish.told")
    _note_settings(node, state)
    _remove_recover(node, state)
    point("finish.recover-removed")
    try:
        generations.prune(node)
    except OSError as error:
        state.note(f"old generations could not be removed: {error.strerror}")
    store.remove_tree(node.place(state.trial))
    point("finish.pruned")
    execute.disarm(node, state)
    point("finish.disarmed")
    state.phase = phases.COMMITTED
    phases.save(node, state)


def _netplan(node: Node, state: State) -> None:
    if any(place.startswith("/run/netplan/") for place in state.places):
        output = network.generate(node)
        if output.status != 0:
            state.note(f"after the commit: {failure(['netplan'], output)}")


def _entries(node: Node, state: State) -> dict[str, Entry] | None:
    """Return the trial's files by path; None where an earlier run of this has removed them."""
    try:
        return {entry.path: entry for entry in bundle.read(node.place(state.trial))}
    except RefusalError:
        return None


def _note_settings(node: Node, state: State) -> None:
    """Say which kernel settings outlive their file: what they were before it came is known to nobody."""
    entries = _entries(node, state) or {}
    if any(entry.path.startswith("/etc/sysctl.d/") and entry.absent for entry in entries.values()):
        state.note("kernel settings that no file sets any more keep their values until the next boot")


def _remove_recover(node: Node, state: State) -> None:
    """Remove what finishes a cut commit where all of ours goes: last, when nothing is left to finish."""
    entries = _entries(node, state)
    if entries is None:
        return
    gone = [path for path in reversed(RECOVER) if path in entries and entries[path].absent]
    for path in gone:
        steps.put_back(node, entries[path])
    if gone:
        node.run(["systemctl", "daemon-reload"], 60)
