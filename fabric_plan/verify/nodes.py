"""The nodes during a verification: one connection each, asked in parallel."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, TypeVar

from fabric_plan.checks.fabric import marks_for
from fabric_plan.compare.desired import Desired
from fabric_plan.errors import FabricPlanError, NodeError
from fabric_plan.facts.load import facts_of
from fabric_plan.node.document import Facts
from fabric_plan.planner.model import Plan
from fabric_plan.transport.base import Connection, Target, Transport, each
from fabric_plan.transport.collecting import question

R = TypeVar("R")

# Where the package of a distribution or of NVIDIA puts NCCL; what is on no node is no finding.
USUAL_LIBRARIES = (
    "/usr/lib/aarch64-linux-gnu/libnccl.so.2",
    "/usr/lib/x86_64-linux-gnu/libnccl.so.2",
    "/usr/local/lib/libnccl.so.2",
)


def _silent(text: str) -> AbstractContextManager[None]:
    return nullcontext()


class Nodes:
    """Connections to the nodes of a plan, opened by the first call and closed at the end of a ``with``."""

    def __init__(
        self,
        plan: Plan,
        desired: Mapping[str, Desired],
        names: Iterable[str],
        transport: Transport,
        libraries: Iterable[str] = (),
        stage: Callable[[str], AbstractContextManager[None]] = _silent,
    ) -> None:
        self.plan = plan
        self._desired = desired
        self.names = tuple(names)
        self._transport = transport
        self._libraries = tuple(libraries)
        self._stage = stage
        self._open: dict[str, Connection] = {}

    def __enter__(self) -> Nodes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def call(self, name: str, verb: str, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """Call a verb of the node program on one node.

        Raises `TransportError` where it cannot be reached, and `NodeError` where it refuses.
        """
        if name not in self._open:
            self._open[name] = self._transport.connect(Target.of(self.plan.fabric.node(name)))
        try:
            reply = self._open[name].call(verb, request, limit_s=limit_s)
        except FabricPlanError:
            self._open.pop(name).close()
            raise
        if reply.get("ok") is False:
            said = reply.get("error")
            error = said if isinstance(said, dict) else {}
            raise NodeError(
                str(error.get("message", "the node program refused without a word")),
                where=name,
                hint=error.get("hint"),
                id=str(error.get("id", "")),
            )
        return reply

    def patience(self, name: str) -> float:
        """Return by how much longer than usual this kind of host may take."""
        return self.plan.fabric.node(name).hardware.patience

    def every(self, work: Callable[[str], R], names: Iterable[str] | None = None) -> dict[str, Any]:
        """Do `work` for each node at once; its result or its `FabricPlanError` by name."""
        return each({name: name for name in names or self.names}, work)

    def collect(self, *, known: Collection[str] = ()) -> tuple[dict[str, Facts], dict[str, str]]:
        """Return the facts of the nodes that answered, and the reasons of those that did not. Libraries are
        not read again on the `known` nodes: their bytes are many.
        """

        def one(name: str) -> Facts:
            node = self.plan.fabric.node(name)
            unknown = name not in known
            request, limit_s = question(
                Target.of(node),
                (function.netdev for function in node.functions),
                paths=self.plan.pinned_files,
                libraries=(*USUAL_LIBRARIES, *self._libraries) if unknown else (),
                marks=marks_for(self._desired[name]) if unknown else (),
            )
            with self._stage(f"{name}: asked for its facts"):
                return facts_of(self.call(name, "collect", request, limit_s), node=name)

        facts: dict[str, Facts] = {}
        failed: dict[str, str] = {}
        for name, result in self.every(one).items():
            if isinstance(result, FabricPlanError):
                failed[name] = f"{result.message} ({result.hint})" if result.hint else result.message
            else:
                facts[name] = result
        return facts, failed
