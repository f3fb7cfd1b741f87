"""A transport without nodes, for tests: a function answers in their place."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fabric_plan.errors import TransportError
from fabric_plan.transport.base import Connection, Target

Answer = Callable[[str, str, dict[str, Any]], dict[str, Any]]


@dataclass(slots=True)
class Fake:
    """`answer` gets node, verb and request, and returns the reply or raises; `calls` keeps node and verb of
    every call, in their order. Nodes in `unreachable` cannot be connected to.
    """

    answer: Answer
    unreachable: set[str] = field(default_factory=set)
    calls: list[tuple[str, str]] = field(default_factory=list)

    def connect(self, target: Target) -> Connection:
        """Return a connection that asks `answer`."""
        if target.name in self.unreachable:
            raise TransportError("cannot be reached", where=target.name)
        return _FakeConnection(target, self)


@dataclass(slots=True)
class _FakeConnection:
    target: Target
    fake: Fake
    closed: bool = False

    def call(self, verb: str, request: Mapping[str, Any], *, limit_s: float) -> dict[str, Any]:
        """Return what the fake answers; both ways go through JSON, as with a node."""
        if self.closed or self.target.name in self.fake.unreachable:
            raise TransportError("the connection broke", where=self.target.name)
        self.fake.calls.append((self.target.name, verb))
        reply = self.fake.answer(self.target.name, verb, json.loads(json.dumps(request)))
        answered: dict[str, Any] = json.loads(json.dumps(reply))
        return answered

    def close(self) -> None:
        """Forget the connection."""
        self.closed = True
