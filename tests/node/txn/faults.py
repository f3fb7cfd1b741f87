"""The matrix of faults: where a transaction is cut, and what brings the node to an end afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fabric_plan.node.transaction.places import RECOVER
from tests.node.txn.support import F0, F1, Driver, KilledError, RefusedError, changes, tree
from tests.node.txn.world import Kernel, World

# One step of every kind, so that the cases stay short.
STEPS: tuple[dict[str, Any], ...] = (
    {"kind": "place"},
    {"kind": "daemon-reload"},
    {"kind": "sysctl"},
    {"kind": "nm-conf"},
    {"kind": "netplan", "interfaces": []},
    {"kind": "netplan", "interfaces": [F0, F1]},
    {"kind": "hairpin", "netdev": F0},
    {"kind": "forward"},
    {"kind": "mesh"},
    {"kind": "markers", "devices": ["rocep1s0f0"]},
    {"kind": "units", "start": ["fabric-plan-forward.service", "fabric-plan-mesh.service"], "stop": []},
)


@dataclass(frozen=True)
class Whole:
    """A state that a node may be left in: files, live state and kernel settings."""

    files: dict[str, str]
    live: Kernel
    sysctls: dict[str, str]

    @classmethod
    def of(cls, world: World) -> Whole:
        """Return what the node is now. The driver's values stay after an undo, which says so: they are looked
        at elsewhere.
        """
        live = world.live()
        live.hairpin.clear()
        live.offload.clear()
        return cls(world.files(), live, world.sysctls())


@dataclass
class Story:
    """What the controller was told, to hold against what the node is."""

    driver: Driver
    answers: list[str] = field(default_factory=list)
    died: bool = False

    def ask(self, name: str, act: Callable[[], Any]) -> bool:
        """Do one call; tell whether the next one makes sense."""
        try:
            act()
        except KilledError:
            self.died = True
            return False
        except RefusedError as refused:
            self.answers.append(f"{name}: {refused.id}")
            return False
        self.answers.append(f"{name}: ok")
        return True


REMOVAL: tuple[dict[str, Any], ...] = (
    {"kind": "place"},
    {"kind": "mesh-down"},
    {"kind": "forward-stop"},
    {"kind": "flush", "interfaces": [F0, F1]},
    {"kind": "nm-conf"},
)


def carry_out(world: World, version: str | None, *, undo: bool = False) -> Story:
    """Drive an apply, or for no version the removal of everything, as the controller does until a call is not
    answered; a step that fails takes it back.
    """
    wanted = tree(version) if version else {}
    driver = Driver(world)
    story = Story(driver)
    if not story.ask("begin", lambda: driver.begin("apply" if version else "remove")):
        return story
    if not story.ask("stage", lambda: driver.stage(changes(world, wanted))):
        return story
    if not story.ask("run", lambda: driver.start(STEPS if version else REMOVAL)):
        return story
    status = driver.follow()
    phase = status["phase"]
    failed = [f"{step['name']}: {step['message']}" for step in status["steps"] if step["state"] == "failed"]
    story.answers.append(f"status: {phase} {' '.join(failed)}".strip())
    if undo or phase != "trial":
        story.ask("undo", lambda: driver.ask("undo"))
        return story
    if story.ask("confirm", lambda: driver.ask("confirm")):
        story.ask("release", lambda: driver.ask("release"))
    return story


# ---- what comes after the fault ---------------------------------------------------------------------------


def timer(world: World, story: Story) -> None:
    """The node's own timer runs out, as often as it is armed."""
    for _ in range(8):
        if not world.timers:
            return
        run_out(world)
        world.fire()


def reboot(world: World, story: Story) -> None:
    """The power fails, and the node boots. Where that was while recover.sh was being put down, nothing runs
    then, and what is there waits, in nobody's way, for whoever begins next.
    """
    world.reboot()
    if (world.root / "var/lib/fabric-plan/stage").exists():
        # The link leads out of the test's root, so it is asked for itself and not for what it leads to.
        assert not (world.root / f".{RECOVER[-1]}").is_symlink()
        next_begin(world, story)


def next_begin(world: World, story: Story) -> None:
    """The lease runs out, and somebody else begins and changes their mind."""
    run_out(world)
    other = Driver(world)
    other.begin(holder="somebody else")
    other.ask("release")


def ask_again(world: World, story: Story) -> None:
    """The controller asks the question again whose answer it did not get, and then goes by the answer."""
    driver = story.driver
    if not driver.token:
        next_begin(world, story)
        return
    phase = ""
    if not story.ask("status", lambda: None):
        return
    try:
        phase = driver.ask("status")["phase"]
    except RefusedError as refused:
        story.answers.append(f"status: {refused.id}")
    if phase in ("begun", "staged", "failed", "running", "undoing", ""):
        story.ask("undo", lambda: driver.ask("undo"))
    else:
        story.ask("confirm", lambda: driver.ask("confirm"))
    story.ask("release", lambda: driver.ask("release"))


RECOVERIES: dict[str, Callable[[World, Story], None]] = {
    "timer": timer,
    "reboot": reboot,
    "next-begin": next_begin,
    "ask-again": ask_again,
}


def run_out(world: World) -> None:
    """Let lease and timer of a trial have run out, without waiting for it."""
    path = world.root / "run/fabric-plan/apply.json"
    if path.exists():
        state = json.loads(path.read_text())
        state["expires_s"] = 0.0
        if state["armed_until_s"] is not None:
            state["armed_until_s"] = 0.0
        path.write_text(json.dumps(state))


# ---- what has to be true at the end -----------------------------------------------------------------------


def judge(world: World, old: Whole, new: tuple[Whole, ...], story: Story, generation: int) -> list[str]:
    """Return what is wrong with the node: stranded between two states, or telling something untrue.

    `new` is the new state as the apply leaves it and as the next boot does: kernel settings that no file sets
    any more go with a boot alone.
    """
    wrong = []
    now = Whole.of(world)
    is_old, is_new = now == old, now in new
    if not is_old and not is_new:
        wrong.append(f"stranded: {_difference(now, old, new[0])}")
    history = Driver(world).call("generations")
    last = history["generations"][-1] if history["generations"] else None
    results = {item["number"]: item["result"] for item in history["generations"]}
    committed = results.get(generation) == "committed"
    if is_new and not is_old and not (committed and history["current"] == generation):
        wrong.append(f"false report: new, but the history says {last} and current {history['current']}")
    if is_old and not is_new and (committed or history["current"] == generation):
        wrong.append(f"false report: old, but the history says {last}")
    wrong += _told(world, story, is_new)
    for path in ("var/lib/fabric-plan/journal", "var/lib/fabric-plan/stage"):
        if (world.root / path).exists():
            wrong.append(f"{path} is left")
    # What was handed over and never tried stays until the lease has run out; it is in nobody's way.
    folders = TRIED if phase_of(story) not in ("begun", "staged") else TRIED[:-1]
    left = [path for folder in folders for path in (world.root / folder).glob("*")]
    if left:
        wrong.append(f"left of the trial: {[str(path.relative_to(world.root)) for path in left]}")
    return wrong


TRIED = (
    "run/netplan",
    "run/systemd/system.control",
    "run/sysctl.d",
    "run/NetworkManager/conf.d",
    "run/fabric-plan/markers",
    "run/fabric-plan/trial",
)


def phase_of(story: Story) -> str:
    """Return what the status says, or the id of its refusal."""
    driver = story.driver
    try:
        return str(driver.ask("status")["phase"]) if driver.token else ""
    except RefusedError as refused:
        return str(refused.id)


def _told(world: World, story: Story, is_new: bool) -> list[str]:
    """Hold every answer against the node, those that it gives when it is asked once more among them."""
    wrong = []
    ends = [word for word in story.answers if word.startswith(("confirm", "undo"))]
    said_new = any(word in ("confirm: ok", "undo: committed") for word in ends)
    said_old = any(word in ("confirm: rolled-back", "undo: ok") for word in ends)
    if said_new and not is_new:
        wrong.append(f"false report: {ends}, but the node is old")
    if said_old and is_new:
        wrong.append(f"false report: {ends}, but the node is new")
    phase = phase_of(story)
    truth = ("committed", "no-lease") if is_new else ("rolled-back", "no-lease", "begun", "staged")
    if phase and phase not in truth:
        wrong.append(f"false report: the status is {phase}, the node is {'new' if is_new else 'old'}")
    return wrong


def _difference(now: Whole, old: Whole, new: Whole) -> str:
    parts = []
    for name, then in (("old", old), ("new", new)):
        words = [
            path.rpartition("/")[2]
            for path in sorted({*now.files, *then.files})
            if now.files.get(path) != then.files.get(path)
        ]
        words += [
            f"{key} {getattr(now.live, key)} not {getattr(then.live, key)}"
            for key in vars(then.live)
            if getattr(now.live, key) != getattr(then.live, key)
        ]
        words += [f"{k}={v}" for k, v in now.sysctls.items() if then.sysctls.get(k) != v]
        parts.append(f"against {name}: {', '.join(words)}")
    return " | ".join(parts)
