"""One node during an apply: a lease, a trial, and a connection that may break and come back.

The node does its work in a service of its own, so a broken connection says nothing about that work: a new
connection asks for the status instead of guessing.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fabric_plan.compare.model import Step
from fabric_plan.compare.steps import StagedFile
from fabric_plan.errors import NodeError, TransportError
from fabric_plan.transport.base import Connection, Target, Transport

CALL_LIMIT_S = 30.0
STAGE_LIMIT_S = 60.0
COMMIT_LIMIT_S = 120.0
POLL_S = 0.3

# The node holds an answer back for so long while its steps run, longer with more patience: a slow node pays
# for each question with the time of the step that it asks about.
STATUS_WAIT_S = 2

# How long a function may be away while the driver makes it anew, plus NetworkManager's share.
STEP_LIMIT_S = 150.0

# A lease and a timer older than this are renewed before the next disruptive step of any node, so that none
# goes back while another one is at work; with a slow node later, but never later than this part of the time
# for a confirmation.
RENEW_AFTER_S = 10.0
RENEW_PART = 1 / 6
REACH_PART = 1 / 3


@dataclass(slots=True)
class Session:
    """A node under lease. Every method raises `NodeError` (the node refused) or `TransportError` (it cannot
    be reached).
    """

    target: Target
    transport: Transport
    confirm_s: int
    connection: Connection | None = None
    token: str = ""
    generation: int | None = None
    changed: bool = False
    notes: list[str] = field(default_factory=list)
    renewed_s: float = field(default_factory=time.monotonic)

    def call(self, verb: str, request: Mapping[str, Any], limit_s: float = CALL_LIMIT_S) -> dict[str, Any]:
        """Call a verb of the node program on the present connection, or on a new one."""
        if self.connection is None:
            self.connection = self.transport.connect(self.target)
        try:
            patience = self.target.patience
            if patience > 1:
                request = {**request, "patience": math.ceil(patience)}
            reply = self.connection.call(verb, request, limit_s=limit_s * patience)
        except TransportError:
            self.drop()
            raise
        if reply.get("ok") is not True:
            error = reply.get("error")
            said = error if isinstance(error, dict) else {}
            message = str(said.get("message", "the node program refused without a word"))
            raise NodeError(
                _held(said) or message,
                where=self.target.name,
                hint=said.get("hint"),
                id=str(said.get("id", "")),
            )
        return reply

    def _call_twice(self, verb: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Call a verb that may be repeated, once more over a fresh connection where the first one broke."""
        try:
            return self.call(verb, request)
        except TransportError:
            return self.call(verb, request)

    def _insist(
        self, verb: str, request: Mapping[str, Any], deadline: float, limit_s: float = CALL_LIMIT_S
    ) -> dict[str, Any]:
        """Call a verb that may be repeated, over fresh connections where they break, until `deadline`
        (monotonic seconds).
        """
        while True:
            try:
                return self.call(verb, request, limit_s)
            except TransportError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_S)

    def _reach(self) -> float:
        """Return until when (monotonic seconds) a node in its trial may be out of reach: all timers have
        time left then.
        """
        return time.monotonic() + self.confirm_s * REACH_PART

    def drop(self) -> None:
        """Forget the connection, so that the next call makes a fresh one."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def begin(self, holder: str, intent: str, digest: str, fabric: str, version: str) -> None:
        """Take the node's lease and a generation number."""
        request = {
            "id": secrets.token_hex(8),
            "holder": holder,
            "lease_s": self.confirm_s,
            "intent": intent,
            "digest": digest,
            "fabric": fabric,
            "node": self.target.name,
            "version": version,
        }
        try:
            reply = self._call_twice("begin", request)
        except TransportError as error:
            error.message += f"; nothing was changed, and a lease that it took ends within {self.confirm_s} s"
            raise
        self.token, self.generation = str(reply["token"]), int(reply["generation"])
        self.renewed_s = time.monotonic()

    def renew(self) -> None:
        """Let lease and timer count from now where they are not fresh: who can ask can still reach the
        node.
        """
        fresh_s = min(RENEW_AFTER_S * self.target.patience, RENEW_PART * self.confirm_s)
        if time.monotonic() - self.renewed_s <= fresh_s:
            return
        self._insist("renew", {"token": self.token, "lease_s": self.confirm_s}, self._reach())
        self.renewed_s = time.monotonic()

    def rdma_use(self) -> list[str]:
        """Return who uses RDMA on this node."""
        reasons = self._insist("rdma-use", {}, self._reach()).get("reasons")
        if not isinstance(reasons, list):
            raise NodeError("the answer makes no sense", where=self.target.name)
        return [str(reason) for reason in reasons]

    def stage(self, files: Sequence[StagedFile], sysctls: Sequence[str], interfaces: Sequence[str]) -> None:
        """Hand the new files over; they are kept where a reboot forgets them."""
        self.call(
            "stage",
            {
                "token": self.token,
                "files": [staged_document(file) for file in files],
                "sysctls": list(sysctls),
                "interfaces": list(interfaces),
            },
            STAGE_LIMIT_S,
        )

    def run(self, steps: Sequence[Step], progress: Callable[[str, str], None]) -> None:
        """Arm the node's own rollback, start the steps, and follow them to their end over however many
        connections it takes.
        """
        if not steps:
            return
        run_id = secrets.token_hex(8)
        request = {
            "token": self.token,
            "id": run_id,
            "arm_s": self.confirm_s,
            "steps": [step.document() for step in steps],
        }
        self.changed = True
        self.renewed_s = time.monotonic()
        try:
            self.call("run", request)
        except TransportError as error:
            # Taken or not? Only the node knows: the status below tells, under a deadline.
            self.notes.append(f"the connection broke while the steps were handed over ({error.message})")
        self._follow(run_id, STEP_LIMIT_S * self.target.patience * len(steps), progress)

    def _follow(self, run_id: str, limit_s: float, progress: Callable[[str, str], None]) -> None:
        deadline = time.monotonic() + min(limit_s, float(self.confirm_s))
        said: dict[int, str] = {}
        while True:
            status = self._status(deadline, STATUS_WAIT_S)
            if status.get("run_id") != run_id:
                raise NodeError(
                    "the node did not take the steps",
                    where=self.target.name,
                    hint="apply again",
                    id="run-not-taken",
                )
            for i, step in enumerate(status.get("steps", [])):
                word = f"{step.get('name')}: {step.get('state')}"
                if said.get(i) != word and step.get("state") != "waiting":
                    said[i] = word
                    progress(self.target.name, word)
            phase = status.get("phase")
            if phase == "trial":
                self._keep_notes(status)
                return
            if phase != "running":
                failed: dict[str, Any] = next(
                    (s for s in status.get("steps", []) if s.get("state") == "failed"), {}
                )
                message = failed.get("message") or f"the node is {phase}"
                raise NodeError(
                    f"step {failed.get('name', '')} failed: {message}",
                    where=self.target.name,
                    id="step-failed",
                )
            if time.monotonic() > deadline:
                raise NodeError(
                    f"the steps did not end within {limit_s:.0f} s", where=self.target.name, id="step-timeout"
                )

    def _status(self, deadline: float, wait_s: int = 0) -> dict[str, Any]:
        """Ask for the status, over a new connection where the old one broke, until `deadline` (monotonic
        seconds). The node may take `wait_s` seconds for steps that run.
        """
        return self._insist("status", {"token": self.token, "wait_s": wait_s}, deadline)

    def _keep_notes(self, status: Mapping[str, Any]) -> None:
        self.notes.extend(str(note) for note in status.get("notes", []) if str(note) not in self.notes)

    def reconnect(self) -> None:
        """Prove that the node can still be reached: a fresh connection, never judged on one look."""
        self.drop()
        self._status(self._reach())

    def confirm(self) -> None:
        """Commit the trial. Repeats the question where the answer got lost: a node that has committed says so
        again.
        """
        self._insist("confirm", {"token": self.token}, self._reach(), COMMIT_LIMIT_S)

    def undo(self) -> None:
        """Take the trial back now."""
        self._keep_notes(self._insist("undo", {"token": self.token}, self._reach(), COMMIT_LIMIT_S))

    def release(self) -> None:
        """Give the lease back and close; a node that cannot be told lets it run out."""
        try:
            if self.token:
                self.call("release", {"token": self.token})
        except (TransportError, NodeError):
            pass
        finally:
            self.drop()


def _held(error: Mapping[str, Any]) -> str | None:
    """Return who holds a node since when and until when, in words; None for any other refusal."""
    since, until = error.get("since_unix"), error.get("expires_unix")
    if error.get("id") != "locked" or not isinstance(since, int) or not isinstance(until, int):
        return None
    left_s = max(0, until - int(time.time()))
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(since))
    return (
        f"{error.get('holder')} has held this node since {began}; the lease ends in {left_s} s unless renewed"
    )


def staged_document(file: StagedFile) -> dict[str, Any]:
    """Return a staged file as the node program takes it."""
    if file.link is not None:
        return {"path": file.path, "link": file.link}
    if file.content is None:
        return {"path": file.path, "content": None}
    data = file.content.encode("utf-8", "surrogateescape")
    return {
        "path": file.path,
        "mode": file.mode,
        "sha256": hashlib.sha256(data).hexdigest(),
        "content": b64encode(data).decode(),
    }
