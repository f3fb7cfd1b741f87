"""The lease and the trial in one document, replaced in one step: what every verb looks at first."""

from __future__ import annotations

import hmac
import time
from typing import Any

from ..plain import dataclass, field, names
from . import store
from .node import RUN, STATE, TRIALS, Node, uptime_s
from .refusal import RefusalError

SCHEMA = "fabric-plan/trial/v1"
RESERVE = f"{RUN}/reserve"
RESERVE_BYTES = 128 << 10

# Phases: nothing done yet; at work; done, for now; and how it ended.
BEGUN, STAGED = "begun", "staged"
RUNNING, TRIAL, FAILED = "running", "trial", "failed"
COMMITTING, UNDOING = "committing", "undoing"
COMMITTED, ROLLED_BACK = "committed", "rolled-back"
IDLE = (BEGUN, STAGED)
LIVE = (RUNNING, TRIAL, FAILED, UNDOING)
ENDED = (COMMITTED, ROLLED_BACK)


@dataclass
class State:
    """The lease (`token` to `version`) and the trial of generation `generation`.

    Times ending in ``_unix`` are for people; `expires_s` and `armed_until_s` are seconds since boot and what
    decides. `places` are where the trial's files stand. `touched` names every kind of step that was begun in
    this trial, `interfaces_touched` the network devices that such steps were about: what an undo puts back.
    """

    token: str
    begin_id: str
    holder: str
    lease_s: int
    since_unix: int
    expires_unix: int
    expires_s: float
    intent: str
    digest: str
    fabric: str
    node: str
    version: str
    generation: int
    phase: str = BEGUN
    run_id: str = ""
    runs: int = 0
    unit: str = ""
    steps: list[dict[str, Any]] = field(default_factory=list)
    arm_s: int | None = None
    armed_until_unix: int | None = None
    armed_until_s: float | None = None
    timer: str = ""
    timers: int = 0
    retries: int = 0
    touched: list[str] = field(default_factory=list)
    interfaces_touched: list[str] = field(default_factory=list)
    reloaded: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    before: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def trial(self) -> str:
        """The folder of the trial, as a path of the node."""
        return f"{TRIALS}/{self.generation}"

    @property
    def expired(self) -> bool:
        """Whether the lease has run out."""
        return uptime_s() >= self.expires_s

    def extend(self, lease_s: int | None = None) -> None:
        """Let the lease count from now."""
        self.lease_s = self.lease_s if lease_s is None else lease_s
        self.expires_s = uptime_s() + self.lease_s
        self.expires_unix = int(time.time()) + self.lease_s

    def note(self, words: str) -> None:
        """Keep something that the person has to know."""
        if words not in self.notes:
            self.notes.append(words)


def load(node: Node) -> State | None:
    """Return the state, None where no lease is held. Raises `RefusalError` where it cannot be understood."""
    path = node.place(STATE)
    document = store.read_json(path)
    if document is None:
        if node.tree.link(STATE) is None and node.tree.read_bytes(STATE, 1) is None:
            return None
        raise RefusalError(
            "damaged", f"{STATE} cannot be read", "a restart of the node forgets it and any trial with it"
        )
    known = set(names(State))
    if document.pop("schema", None) != SCHEMA or not document.keys() <= known:
        raise RefusalError(
            "other-version",
            f"another version of this program holds {STATE}",
            "end that apply with the version that began it, or restart the node",
        )
    return State(**document)


def save(node: Node, state: State) -> None:
    """Replace the state. /run needs no sync: it does not outlive a power cut anyway.

    What is kept in reserve lets a trial be taken back when /run is full.
    """
    document = {"schema": SCHEMA, **vars(state)}
    try:
        store.write_json(node.place(STATE), document, durable=False)
    except OSError:
        if not store.remove_file(node.place(RESERVE)):
            raise
        store.write_json(node.place(STATE), document, durable=False)


def reserve(node: Node) -> None:
    """Take room in /run for saving the state later, come what may."""
    store.write_file(node.place(RESERVE), b"\0" * RESERVE_BYTES, 0o600, durable=False)


def owned(node: Node, token: str) -> State:
    """Return the state when `token` holds its lease. Raises `RefusalError` "no-lease"."""
    state = load(node)
    if state is None or not hmac.compare_digest(state.token, token):
        raise RefusalError("no-lease", "this apply holds no lease on the node any more", "apply again")
    return state
