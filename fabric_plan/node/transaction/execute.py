"""Carry steps out in a service of the node's own, so that a broken connection breaks nothing; and tell how
far it is.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from typing import Any

from . import generations, network, steps
from . import state as phases
from .faults import point
from .node import STATE, Node, uptime_s
from .refusal import RefusalError
from .state import State

SYSTEMD_LIMIT_S = 20.0
LOCK_WAIT_S = 30.0

# What a driver reload may take before whoever stops the service kills it.
RELOAD_GRACE_S = 100
ALIVE = ("active", "activating", "deactivating", "reloading", "refreshing")


def arm(node: Node, state: State, seconds: int) -> None:
    """Arm the node's own rollback, then take away the timer before it. Raises `RefusalError`."""
    state.timers += 1
    old, new = state.timer, f"fabric-plan-undo-{state.generation}-{state.timers}"
    node.must(
        [
            "systemd-run",
            "--quiet",
            f"--unit={new}",
            f"--on-active={seconds}",
            "--timer-property=AccuracySec=1s",
            "--collect",
            *node.verb("undo-timer"),
        ],
        SYSTEMD_LIMIT_S,
        "cannot-arm",
    )
    state.timer, state.arm_s = new, seconds
    state.armed_until_unix = int(time.time()) + seconds
    state.armed_until_s = uptime_s() + seconds
    if old:
        stop(node, f"{old}.timer", SYSTEMD_LIMIT_S)


def disarm(node: Node, state: State) -> None:
    """Take every timer of the trial away, one too that was armed for a run that never began; one that fires
    all the same finds nothing to do.
    """
    stop(node, f"fabric-plan-undo-{state.generation}-*.timer", SYSTEMD_LIMIT_S)
    state.timer, state.armed_until_unix, state.armed_until_s = "", None, None


def stop(node: Node, unit: str, limit_s: float) -> None:
    """Stop a transient unit of ours; one that is gone is stopped."""
    node.run(["systemctl", "stop", unit], limit_s)


def start(node: Node, state: State, run_id: str, todo: list[dict[str, Any]], arm_s: int | None) -> None:
    """Arm the rollback and start the service. Raises `RefusalError`; then no step was begun."""
    reloads = any(steps.KINDS[step["kind"]].reloads for step in todo)
    limit = sum(steps.KINDS[step["kind"]].limit_s for step in todo) * node.tools.patience
    if arm_s is not None:
        arm(node, state, arm_s)
        point("run.armed")
    before = (state.phase, state.run_id, state.unit, state.steps)
    state.runs += 1
    state.unit = f"fabric-plan-run-{state.generation}-{state.runs}.service"
    state.run_id, state.phase = run_id, phases.RUNNING
    state.steps = [
        {
            "do": step,
            "kind": step["kind"],
            "name": steps.name(step),
            "state": "waiting",
            "message": None,
            "seconds": None,
        }
        for step in todo
    ]
    phases.save(node, state)
    point("run.state")
    output = node.run(
        [
            "systemd-run",
            "--quiet",
            f"--unit={state.unit}",
            "--collect",
            "--property=KillMode=mixed",
            f"--property=TimeoutStopSec={RELOAD_GRACE_S if reloads else 3}",
            f"--property=RuntimeMaxSec={limit + 60:.0f}",
            *node.verb("execute"),
        ],
        SYSTEMD_LIMIT_S,
    )
    point("run.started")
    if output.status != 0 and not _alive(node, state.unit):
        fresh = phases.owned(node, state.token)
        if fresh.steps and fresh.steps[0]["state"] == "waiting":
            state.phase, state.run_id, state.unit, state.steps = before
            phases.save(node, state)
            words = output.stderr.strip() or output.reason or f"status {output.status}"
            raise RefusalError("cannot-run", f"systemd would not start the steps: {words[:300]}")


def _alive(node: Node, unit: str) -> bool:
    """Tell whether the service of a run lives; where systemd does not answer, it is taken to."""
    output = node.run(["systemctl", "is-active", unit], SYSTEMD_LIMIT_S)
    return output.reason is not None or output.stdout.strip() in ALIVE


def execute(node: Node) -> None:
    """Carry out the steps of the run that is noted in the state: what the service does."""
    stopping: list[int] = []
    with node.locked(LOCK_WAIT_S):
        state = _running(node, "")
    if any(steps.KINDS[step["kind"]].reloads for step in state.steps):
        # A driver reload that is cut leaves a function that nobody has brought back: it comes to its end.
        signal.signal(signal.SIGTERM, lambda number, frame: stopping.append(number))
    run_id = state.run_id
    point("execute.began")
    for index, record in enumerate(state.steps):
        step = record["do"]
        with node.locked(LOCK_WAIT_S):
            state = _running(node, run_id)
            _note(node, state, index, step)
            phases.save(node, state)
        point("execute.step-noted")
        began = time.monotonic()
        error = _act(node, state, step)
        with node.locked(LOCK_WAIT_S):
            notes = state.notes
            state = _running(node, run_id)
            for note in notes:
                state.note(note)
            record = state.steps[index]
            record["seconds"] = round(time.monotonic() - began, 3)
            record["state"] = "failed" if error else "done"
            record["message"] = error.message if error else None
            last = index + 1 == len(state.steps)
            if error or last:
                state.phase = phases.FAILED if error else phases.TRIAL
            if not error:
                point("execute.step-done")
            phases.save(node, state)
        if error or stopping:
            return
    point("execute.ended")


def _running(node: Node, run_id: str) -> State:
    state = phases.load(node)
    if state is None or state.phase != phases.RUNNING or run_id not in ("", state.run_id):
        raise RefusalError("superseded", f"{STATE} says that this run is over")
    return state


def _note(node: Node, state: State, index: int, step: Mapping[str, Any]) -> None:
    """Note a step before it begins: what an undo has to look after must be known if it is cut, the profile
    of an interface that nobody named before among it.
    """
    profiles = state.before.setdefault("profiles", {})
    unnoted = [interface for interface in steps.interfaces(step) if interface not in profiles]
    if unnoted:
        active = network.active(node)
        profiles.update({name: network.UNKNOWN if active is None else active.get(name) for name in unnoted})
    state.steps[index]["state"] = "running"
    if step["kind"] not in state.touched:
        state.touched.append(step["kind"])
    for interface in steps.interfaces(step):
        if interface not in state.interfaces_touched and step["kind"] != "offload":
            state.interfaces_touched.append(interface)
    if steps.KINDS[step["kind"]].reloads:
        state.reloaded += [name for name in steps.interfaces(step) if name not in state.reloaded]


def _act(node: Node, state: State, step: Mapping[str, Any]) -> RefusalError | None:
    try:
        steps.KINDS[step["kind"]].act(node, state, step)
    except RefusalError as refusal:
        return refusal
    except OSError as error:
        return RefusalError("step-failed", f"{error.filename or ''} {error.strerror or error}".strip())
    return None


def report(node: Node, state: State) -> dict[str, Any]:
    """Return the status of a trial; a run whose service died says so instead of running for ever."""
    if state.phase == phases.RUNNING and not _alive(node, state.unit):
        fresh = phases.load(node)
        if fresh is not None:
            state = fresh
        if state.phase == phases.RUNNING:
            state.phase = phases.FAILED
            for record in state.steps:
                if record["state"] == "running":
                    record["state"], record["message"] = "failed", "the service was killed in this step"
    if state.phase == phases.COMMITTING and generations.committed(node, state.generation):
        # In place, and only not tidied up yet.
        state.phase = phases.COMMITTED
    return {
        "phase": state.phase,
        "run_id": state.run_id,
        "generation": state.generation,
        "steps": [{key: value for key, value in step.items() if key != "do"} for step in state.steps],
        "armed_until_unix": state.armed_until_unix,
        "expires_unix": state.expires_unix,
        "notes": state.notes,
        "problems": state.problems,
    }
