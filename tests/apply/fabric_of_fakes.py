"""A fabric whose nodes are state machines: what the node program promises, without a node.

Each node holds what lives and what is committed, arms a timer like a real one, and can be made to fail at any
call: before its effect, after it, for good, by refusing, or by the controller dying at that very moment.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fabric_plan.compare.desired import Desired
from fabric_plan.errors import TransportError
from fabric_plan.node.document import Facts
from fabric_plan.node.reading import Reading
from fabric_plan.transport.base import Connection, Target
from tests.facts_builder import MARKER, MARKER_PROGRAM, live


class KilledError(Exception):
    """The controller is gone: nothing that it does afterwards reaches a node."""


@dataclass(frozen=True)
class Fault:
    """At the `nth` call (from 1) of `verb` on `node`: what happens."""

    node: str
    verb: str
    nth: int
    kind: str  # before | after | dead | refuse | step | killed | killed-after


@dataclass
class FakeNode:
    """One node: `lives` and `committed` are ``old`` or ``new``."""

    want: Desired
    old: Facts
    lives: str = "old"
    committed: str = "old"
    armed: bool = False
    phase: str = "idle"
    run_id: str = ""
    steps: list[dict[str, Any]] = field(default_factory=list)
    holder: str | None = None
    done: list[str] = field(default_factory=list)
    generation: int = 1
    documents: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def facts(self) -> Facts:
        """What the node says of itself now: files show what is committed, everything else what lives."""
        new = live(self.want)
        shown = new if self.lives == "new" else self.old
        files = new if self.committed == "new" else self.old
        kept = {
            path: file for path, file in (files.files.value or {}).items() if not path.startswith("/run/")
        }
        kept |= {path: file for path, file in (shown.files.value or {}).items() if path.startswith("/run/")}
        return replace(shown, files=Reading(kept, ()), netplan=files.netplan, units=files.units)

    def document(self) -> dict[str, Any]:
        """The same as JSON carries it, kept as long as nothing changes."""
        state = (self.lives, self.committed)
        if state not in self.documents:
            self.documents[state] = json.loads(json.dumps(self.facts(), default=vars))
        return self.documents[state]

    def fire(self) -> None:
        """The timer: whoever is armed goes back."""
        if self.armed:
            self.lives, self.phase, self.armed = "old", "rolled-back", False

    def answer(self, verb: str, request: dict[str, Any]) -> dict[str, Any]:
        """Do what the node program does."""
        return {"ok": True, **getattr(self, f"do_{verb}")(request)}

    def do_rehearse(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"changed": [], "conflicts": [], "error": None}

    def do_begin(self, request: dict[str, Any]) -> dict[str, Any]:
        self.holder, self.phase = request["holder"], "staged"
        return {"token": "t", "generation": self.generation + 1, "current": self.generation}

    def do_stage(self, request: dict[str, Any]) -> dict[str, Any]:
        return {}

    def do_renew(self, request: dict[str, Any]) -> dict[str, Any]:
        self.done.append("renew")
        return {}

    def do_run(self, request: dict[str, Any]) -> dict[str, Any]:
        self.armed = request["arm_s"] is not None
        self.run_id = request["id"]
        self.steps = [
            {"kind": s["kind"], "name": s["kind"], "state": "done", "message": ""} for s in request["steps"]
        ]
        self.done += [s["kind"] for s in request["steps"]]
        self.lives, self.phase = "new", "trial"
        return {"unit": "x"}

    def do_status(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"phase": self.phase, "steps": self.steps, "run_id": self.run_id, "notes": []}

    def do_confirm(self, request: dict[str, Any]) -> dict[str, Any]:
        if self.phase == "rolled-back":
            return {
                "ok": False,
                "error": {"id": "rolled-back", "message": "the timer was first", "hint": None},
            }
        self.armed, self.committed, self.phase = False, "new", "committed"
        return {"generation": self.generation + 1}

    def do_undo(self, request: dict[str, Any]) -> dict[str, Any]:
        if self.phase == "committed":
            return {"ok": False, "error": {"id": "committed", "message": "already committed", "hint": None}}
        self.lives, self.armed, self.phase = "old", False, "rolled-back"
        return {"notes": []}

    def do_release(self, request: dict[str, Any]) -> dict[str, Any]:
        self.holder = None
        return {}


@dataclass
class FakeConnection:
    """A way to one node of a `FakeFabric`."""

    target: Target
    fabric: FakeFabric

    def call(self, verb: str, request: Mapping[str, Any], *, limit_s: float) -> dict[str, Any]:
        """Ask the node; requests travel as JSON would carry them."""
        return self.fabric.answer(self.target.name, verb, json.loads(json.dumps(request)))

    def close(self) -> None:
        """Nothing stays open."""


class FakeFabric:
    """All nodes and at most one fault."""

    def __init__(self, wants: dict[str, Desired], fault: Fault | None = None) -> None:
        self.nodes = {name: FakeNode(want, factory_fresh(want)) for name, want in wants.items()}
        self.fault = fault
        self.hit = False
        self.counts: Counter[tuple[str, str]] = Counter()
        self.dead: set[str] = set()
        self.killed = False
        self.unreachable: set[str] = set()
        self.calls: list[tuple[str, str]] = []

    def connect(self, target: Target) -> Connection:
        """Return a connection, as a transport does."""
        if target.name in self.unreachable:
            raise TransportError("cannot be reached", where=target.name)
        return FakeConnection(target, self)

    def answer(self, name: str, verb: str, request: dict[str, Any]) -> dict[str, Any]:
        if self.killed:
            raise KilledError
        if name in self.dead:
            raise TransportError("no sign of life", where=name)
        self.counts[name, verb] += 1
        self.calls.append((name, verb))
        node, kind = self.nodes[name], self._due(name, verb)
        if kind in ("before", "dead"):
            if kind == "dead":
                self.dead.add(name)
            raise TransportError("the connection broke", where=name)
        if kind == "killed":
            self.killed = True
            raise KilledError
        if kind == "refuse" and verb != "collect":
            return {"ok": False, "error": {"id": "no", "message": f"refused {verb}", "hint": None}}
        if verb == "rdma-use":
            reply = {"ok": True, "reasons": node.document()["rdma"]["usage"]["reasons"]}
        else:
            reply = self._collect(node) if verb == "collect" else node.answer(verb, request)
        if kind == "step":
            node.phase = "failed"
            node.steps[-1] |= {"state": "failed", "message": "the tool said no"}
        if kind == "killed-after":
            self.killed = True
            raise KilledError
        if kind == "after":
            raise TransportError("the answer got lost", where=name)
        return reply

    def _collect(self, node: FakeNode) -> dict[str, Any]:
        return node.document()

    def _due(self, name: str, verb: str) -> str | None:
        fault = self.fault
        if (
            fault
            and not self.hit
            and (fault.node, fault.verb, fault.nth) == (name, verb, self.counts[name, verb])
        ):
            self.hit = True
            return fault.kind
        return None

    def later(self) -> None:
        """Time passes without a controller: every armed timer fires."""
        for node in self.nodes.values():
            node.fire()


def factory_fresh(want: Desired) -> Facts:
    """Return the facts of a node that never saw us: no files, addresses or rules, the driver's defaults."""
    full = live(want)
    interfaces = full.interfaces.value
    assert interfaces is not None
    ours = {function.netdev for function in want.functions}
    nothing: Reading[Any] = Reading((), ())
    return replace(
        full,
        files=Reading({MARKER_PROGRAM: MARKER}, ()),
        netplan=Reading({}, ()),
        units=Reading({}, ()),
        interfaces=Reading(
            replace(interfaces, addresses=tuple(a for a in interfaces.addresses if a.dev not in ours)), ()
        ),
        routes=Reading(tuple(r for r in full.routes.value or () if r.dev not in ours), ()),
        sysctls={key: "0" if value is not None else None for key, value in full.sysctls.items()},
        tc={netdev: replace(state, rules=nothing) for netdev, state in full.tc.items()},
        rdma=replace(full.rdma, markers=nothing),
    )
