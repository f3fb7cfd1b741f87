"""What every way to a node offers, and the fan-out over several nodes.

The libraries of one way are imported by its own module, and there only when a connection is made.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from fabric_plan.errors import FabricPlanError
from fabric_plan.topology.fabric import Node

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Target:
    """A node to reach: `host` as ``ssh`` would take it; `user` and `port` None leave them to its
    configuration. `patience` multiplies the time limits of what is asked of it.
    """

    name: str
    host: str
    user: str | None = None
    port: int | None = None
    patience: float = 1.0

    @classmethod
    def of(cls, node: Node) -> Target:
        """Return where the inventory says that `node` is."""
        return cls(node.name, node.mgmt, node.ssh_user, node.ssh_port, node.hardware.patience)


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds that may pass: for each part of connecting (``ConnectTimeout`` wins over it); of silence before
    the node is asked for a sign of life; and without such a sign before the connection counts as dead.
    """

    connect_s: float = 10.0
    pulse_s: float = 5.0
    dead_s: float = 15.0


class Connection(Protocol):
    """An open way to one node."""

    @property
    def target(self) -> Target:
        """The node at the other end."""

    def call(self, verb: str, request: Mapping[str, Any], *, limit_s: float) -> dict[str, Any]:
        """Run a verb of the node program and return the JSON object that it answered.

        The program travels along where the node does not have it. Raises `TransportError` when no answer came
        within `limit_s` seconds or none will come; the connection is then of no more use. Raises `NodeError`
        when the program itself refused the request. A reply that says ``"ok": false`` is returned as it is.
        """

    def close(self) -> None:
        """Let go of the connection; never raises, and may be called twice."""


class Transport(Protocol):
    """A way to nodes."""

    def connect(self, target: Target) -> Connection:
        """Return an open connection; raises `TransportError`, in bounded time."""


def each(items: Mapping[str, T], work: Callable[[T], R]) -> dict[str, R | FabricPlanError]:
    """Do `work` on every item at once and return each one's result, or the error that the user can act on.

    Any other exception is a fault of ours, and is raised once all have ended.
    """
    return begin_each(items, work)()


def begin_each(
    items: Mapping[str, T], work: Callable[[T], R]
) -> Callable[[], dict[str, R | FabricPlanError]]:
    """Begin `work` on every item at once; the returned function waits for the results, as `each` has them.

    Threads are daemons: an interrupt does not wait for a node that hangs.
    """
    results: dict[str, R | FabricPlanError] = {}
    faults: list[Exception] = []

    def one(name: str, item: T) -> None:
        try:
            results[name] = work(item)
        except FabricPlanError as error:
            results[name] = error
        except Exception as error:  # raised again below, in the caller's thread
            faults.append(error)

    threads = [
        threading.Thread(target=one, args=item, daemon=True, name=f"node {item[0]}") for item in items.items()
    ]
    for thread in threads:
        thread.start()

    def wait() -> dict[str, R | FabricPlanError]:
        for thread in threads:
            thread.join()
        if faults:
            raise faults[0]
        return {name: results[name] for name in items}

    return wait
