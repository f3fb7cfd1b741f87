"""The verbs of the transaction. Each takes a request, holds the one lock while it decides, and answers with
one object; a question that is asked again because its answer got lost gets the same answer.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..tools import Tools
from ..tree import Tree
from . import commit, execute, fields, generations, rehearse, services, staging, steps, store, undo
from . import state as phases
from .faults import point
from .node import JOURNAL, RUN, STATE, Node, uptime_s
from .refusal import RefusalError
from .state import State

SCHEMA = "fabric-plan/reply/v1"
LOCK_WAIT_S = 10.0
UNDO_WAIT_S = 100.0
TIMER_WAIT_S = 150.0

MAX_STATUS_WAIT_S = 20
STATUS_POLL_S = 0.03

# The timer of an undo that could not finish comes again, so often and after so many seconds.
RETRIES = 5
RETRY_S = 30

# A timer may fire a little early by its accuracy; one that was armed anew fires a good deal early.
EARLY_S = 2.0

Reply = dict[str, Any]


def begin(node: Node, request: Mapping[str, Any]) -> Reply:
    """Take the lease. A trial that somebody left behind is brought to its end first. The same `id` again,
    from whoever did not get the answer, is told the same.
    """
    begin_id = fields.token(request, "id")
    holder = fields.text(request, "holder")
    lease_s = fields.number(request, "lease_s", 1, fields.MAX_LEASE_S)
    intent, node_name = request.get("intent"), fields.text(request, "node")
    digest, fabric, version = (fields.text(request, key) for key in ("digest", "fabric", "version"))
    if intent not in fields.INTENTS:
        raise fields.bad("intent", intent)
    with node.locked(LOCK_WAIT_S):
        state = phases.load(node)
        if state is not None and state.phase == phases.BEGUN and state.begin_id == begin_id:
            state.extend()
            phases.save(node, state)
            return _begun(node, state)
        if state is not None and state.phase not in phases.ENDED and not state.expired:
            raise RefusalError(
                "locked",
                f"{state.holder} holds this node",
                "wait for that apply; a lease whose holder died runs out by itself",
                holder=state.holder,
                since_unix=state.since_unix,
                expires_unix=state.expires_unix,
            )
        notes = [] if state is None else end(node, state)
        commit.repair(node)
        now = int(time.time())
        fresh = State(
            token=store.unguessable(16),
            begin_id=begin_id,
            holder=holder,
            lease_s=lease_s,
            since_unix=now,
            expires_unix=now,
            expires_s=0.0,
            intent=str(intent),
            generation=generations.next_number(node),
            notes=notes,
            digest=digest,
            fabric=fabric,
            node=node_name,
            version=version,
        )
        fresh.extend()
        phases.reserve(node)
        phases.save(node, fresh)
        point("begin.lease")
        return _begun(node, fresh)


def _begun(node: Node, state: State) -> Reply:
    return {
        "token": state.token,
        "generation": state.generation,
        "current": generations.current(node),
        "notes": state.notes,
    }


def end(node: Node, state: State) -> list[str]:
    """Bring whatever trial there is to its end, finished or undone, and return what has to be known of it."""
    if state.phase == phases.COMMITTING:
        commit.repair(node)
        if generations.committed(node, state.generation):
            commit.finish(node, state)
            return [f"the commit of generation {state.generation} had been cut; it is finished"]
    if state.phase in (*phases.LIVE, phases.COMMITTING):
        undo.undo(node, state)
        return [f"a trial that {state.holder} left behind was taken back", *state.notes]
    if state.phase in phases.IDLE:
        _forget(node, state)
    return []


def _forget(node: Node, state: State) -> None:
    """Drop a trial that never began."""
    execute.disarm(node, state)
    store.remove_tree(node.place(state.trial))
    store.remove_tree(node.place(generations.record_path(state.generation)))


def renew(node: Node, request: Mapping[str, Any]) -> Reply:
    """Let the lease, and a rollback that is armed, count from now: whoever asks can still reach the node."""
    token = fields.token(request)
    lease_s = fields.number(request, "lease_s", 1, fields.MAX_LEASE_S)
    with node.locked(LOCK_WAIT_S):
        state = phases.owned(node, token)
        state.extend(lease_s)
        if state.armed_until_s is not None and state.phase in (phases.RUNNING, phases.TRIAL):
            execute.arm(node, state, state.arm_s or lease_s)
        phases.save(node, state)
        return {"expires_unix": state.expires_unix, "armed_until_unix": state.armed_until_unix}


def stage(node: Node, request: Mapping[str, Any]) -> Reply:
    """Take the files of the trial over. Asked again before the first run, the later files count."""
    token = fields.token(request)
    entries = fields.entries(request.get("files", []))
    sysctls = fields.sysctls(request.get("sysctls", []))
    interfaces = fields.names(request.get("interfaces", []), "interfaces", fields.NETDEV)
    with node.locked(LOCK_WAIT_S):
        state = phases.owned(node, token)
        if state.phase not in phases.IDLE:
            raise RefusalError("wrong-phase", f"the trial is {state.phase}, files come before its first step")
        if state.intent != "remove" or entries:
            staging.require_recover(node, entries)
        state.places = [item.place for item in staging.plan(node, state, entries)]
        state.before = staging.note_before(node, sysctls, interfaces)
        staging.keep(node, state, entries, _record(node, state))
        state.phase = phases.STAGED
        state.extend()
        point("stage.state")
        phases.save(node, state)
        return {}


def _record(node: Node, state: State) -> dict[str, object]:
    return {
        "schema": "fabric-plan/generation/v1",
        "number": state.generation,
        "previous": generations.current(node),
        "when_unix": int(time.time()),
        "digest": state.digest,
        "fabric": state.fabric,
        "node": state.node,
        "who": state.holder,
        "intent": state.intent,
        "version": state.version,
        "token_sha256": generations.token_digest(state.token),
    }


def run(node: Node, request: Mapping[str, Any]) -> Reply:
    """Arm the node's own rollback and start steps in a service. The same `id` again starts nothing anew."""
    token = fields.token(request)
    run_id = fields.token(request, "id")
    todo = steps.parse(request.get("steps"))
    arm_s = None if request.get("arm_s") is None else fields.number(request, "arm_s", 1, fields.MAX_LEASE_S)
    with node.locked(LOCK_WAIT_S):
        state = phases.owned(node, token)
        if state.run_id == run_id:
            return {"unit": state.unit}
        if state.phase not in (phases.STAGED, phases.TRIAL):
            raise RefusalError("wrong-phase", f"the trial is {state.phase}, so no step is taken")
        state.extend()
        execute.start(node, state, run_id, todo, arm_s)
        return {"unit": state.unit}


def status(node: Node, request: Mapping[str, Any]) -> Reply:
    """Tell how far the trial is; without a lock, so that it answers while everything else waits.

    With `wait_s` the answer may come so many seconds later, times the patience: as soon as no step runs any
    more.
    """
    token = fields.token(request)
    wait_s = fields.number(request, "wait_s", 0, MAX_STATUS_WAIT_S) if "wait_s" in request else 0
    deadline = time.monotonic() + wait_s * node.tools.patience
    try:
        state = phases.owned(node, token)
        while state.phase == phases.RUNNING and time.monotonic() < deadline:
            time.sleep(STATUS_POLL_S * node.tools.patience)
            state = phases.owned(node, token)
    except RefusalError:
        number = generations.of_token(node, token)
        if number is None:
            raise
        word = phases.COMMITTED if generations.committed(node, number) else phases.ROLLED_BACK
        if os.path.lexists(node.place(JOURNAL)) and word != phases.COMMITTED:
            word = phases.COMMITTING
        return {
            "phase": word,
            "run_id": "",
            "generation": number,
            "steps": [],
            "armed_until_unix": None,
            "notes": [],
        }
    return execute.report(node, state)


def rdma_use(node: Node, request: Mapping[str, Any]) -> Reply:
    """Tell who but our markers uses RDMA on this node; what cannot be read counts."""
    return {"reasons": list(services.use(node))}


def confirm(node: Node, request: Mapping[str, Any]) -> Reply:
    """Commit the trial, or say truthfully that it is committed already or that the timer was first."""
    token = fields.token(request)
    with node.locked(LOCK_WAIT_S):
        try:
            state = phases.owned(node, token)
        except RefusalError:
            return _confirm_forgotten(node, token)
        if state.phase == phases.COMMITTING:
            # Cut before the decision the trial still is whole, and this asks for it once more.
            commit.repair(node)
            if generations.committed(node, state.generation):
                commit.finish(node, state)
            elif generations.result(node, state.generation) is None:
                state.phase = phases.TRIAL
        if state.phase == phases.COMMITTED:
            return {"generation": state.generation, "notes": state.notes}
        if state.phase in (phases.ROLLED_BACK, phases.UNDOING):
            raise _rolled_back("the trial was taken back before it was confirmed")
        if state.phase != phases.TRIAL:
            raise RefusalError("wrong-phase", f"the trial is {state.phase}, so it cannot be confirmed")
        commit.commit(node, state)
        return {"generation": state.generation, "notes": state.notes}


def _rolled_back(words: str) -> RefusalError:
    return RefusalError("rolled-back", words, "apply again")


def _confirm_forgotten(node: Node, token: str) -> Reply:
    """Answer for a lease that is gone: the history still knows who began which generation."""
    number = generations.of_token(node, token)
    if number is None:
        raise RefusalError("no-lease", "this apply holds no lease on the node any more", "apply again")
    commit.repair(node)
    if generations.committed(node, number):
        return {"generation": number, "notes": []}
    raise _rolled_back("the node restarted before it was confirmed, so it is what it was before")


def take_back(node: Node, request: Mapping[str, Any]) -> Reply:
    """Take the trial back now, or say again that it was."""
    token = fields.token(request)
    with node.locked(UNDO_WAIT_S):
        try:
            state = phases.owned(node, token)
        except RefusalError:
            return _undo_forgotten(node, token)
        if state.phase == phases.COMMITTING:
            end(node, state)
        if state.phase == phases.COMMITTED:
            raise RefusalError(
                "committed", f"generation {state.generation} is committed", "use rollback to go back"
            )
        if state.phase != phases.ROLLED_BACK:
            undo.undo(node, state)
        return {"notes": state.notes}


def _undo_forgotten(node: Node, token: str) -> Reply:
    number = generations.of_token(node, token)
    if number is None:
        return {"notes": ["nothing of this apply is left on the node"]}
    commit.repair(node)
    if generations.committed(node, number):
        raise RefusalError("committed", f"generation {number} is committed", "use rollback to go back")
    return {"notes": ["the trial ended before: the node is what it was before it"]}


def undo_timer(node: Node, request: Mapping[str, Any]) -> Reply:
    """What the node's own timer runs: take the trial back unless it was confirmed, ended or armed anew."""
    state = phases.load(node)
    if state is None or _early(state):
        return {"notes": []}
    with node.locked(TIMER_WAIT_S):
        state = phases.load(node)
        # Whoever had the lock may have confirmed, or armed a later timer.
        if state is None or state.phase not in (*phases.LIVE, phases.COMMITTING) or _early(state):
            return {"notes": []}
        try:
            return {"notes": end(node, state)}
        except RefusalError:
            if state.phase == phases.UNDOING and state.retries < RETRIES:
                state.retries += 1
                execute.arm(node, state, RETRY_S)
                phases.save(node, state)
            raise


def _early(state: State) -> bool:
    return state.armed_until_s is None or uptime_s() < state.armed_until_s - EARLY_S


def release(node: Node, request: Mapping[str, Any]) -> Reply:
    """Give the lease back. A trial that has not ended stays under its timer; whoever begins next ends it."""
    token = fields.token(request)
    with node.locked(LOCK_WAIT_S):
        try:
            state = phases.owned(node, token)
        except RefusalError:
            return {}
        if state.phase in (*phases.LIVE, phases.COMMITTING):
            state.expires_s, state.expires_unix = 0.0, int(time.time())
            phases.save(node, state)
            return {}
        if state.phase in phases.IDLE:
            _forget(node, state)
        point("release.forgotten")
        store.remove_file(node.place(STATE))
        store.remove_file(node.place(phases.RESERVE))
        for name in node.tree.names(RUN):
            if name.startswith("program-"):
                store.remove_file(node.place(f"{RUN}/{name}"))
        return {}


def history(node: Node, request: Mapping[str, Any]) -> Reply:
    """List the generations."""
    return generations.list_all(node, phases.load(node))


def generation(node: Node, request: Mapping[str, Any]) -> Reply:
    """Return the files that were in place after a generation."""
    number = fields.number(request, "number", 0, 1 << 31)
    return {"files": generations.files_after(node, number)}


def execute_run(node: Node, request: Mapping[str, Any]) -> Reply:
    """What the service of a run does."""
    execute.execute(node)
    return {}


# Any verb takes it: by how much longer than usual this machine may take.
PATIENCE = "patience"
MAX_PATIENCE = 50

Act = Callable[[Node, Mapping[str, Any]], Reply]
KEYS: Mapping[str, tuple[Act, tuple[str, ...]]] = {
    "rehearse": (rehearse.rehearse, ("files", "interfaces")),
    "begin": (begin, ("id", "holder", "lease_s", "intent", "digest", "fabric", "node", "version")),
    "renew": (renew, ("token", "lease_s")),
    "stage": (stage, ("token", "files", "sysctls", "interfaces")),
    "run": (run, ("token", "id", "steps", "arm_s")),
    "status": (status, ("token", "wait_s")),
    "rdma-use": (rdma_use, ()),
    "confirm": (confirm, ("token",)),
    "undo": (take_back, ("token",)),
    "undo-timer": (undo_timer, ()),
    "release": (release, ("token",)),
    "generations": (history, ()),
    "generation": (generation, ("number",)),
    "execute": (execute_run, ()),
}


def answer(verb: str, request: str, tree: Tree, tools: Tools) -> str:
    """Carry a verb out and return its reply as JSON; a refusal is a reply too."""
    act, known = KEYS[verb]
    # A connection that breaks is no reason to stop in the middle.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        asked = fields.load(request, (*known, PATIENCE))
        if PATIENCE in asked:
            patience = fields.number(asked, PATIENCE, 1, MAX_PATIENCE)
            tools = Tools(tools.limit_s, tools.own_path, patience)
        body = {"ok": True, **act(Node(tree, tools), asked)}
    except RefusalError as refusal:
        body = {"ok": False, "error": refusal.document()}
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        words = f"{error.filename or ''} {error.strerror or error}".strip()
        body = {"ok": False, "error": {"id": "no-room" if full else "system", "message": words, "hint": None}}
    return json.dumps({"schema": SCHEMA, **body}, sort_keys=True)
