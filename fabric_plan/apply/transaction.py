"""The transaction over all nodes (docs/safety.md): nothing before everybody passed, harmless steps together,
disruptive ones one at a time, and everybody back where one node fails.

The pure parts (what differs, which steps) are decided before this module runs; here is the order of events
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fabric_plan.apply.ends import End, NodeEnd
from fabric_plan.apply.observer import Observer
from fabric_plan.apply.session import Session
from fabric_plan.compare.model import Step, StepKind
from fabric_plan.compare.steps import FabricSteps, StagedFile
from fabric_plan.errors import FabricPlanError, NodeError, TransportError
from fabric_plan.transport.base import each


@dataclass(frozen=True, slots=True)
class Work:
    """What one node needs: files to hand over, and what to note before anything changes."""

    files: tuple[StagedFile, ...]
    sysctls: tuple[str, ...]
    interfaces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Identity:
    """Who applies what: it stands in the lease and in the generation."""

    holder: str
    intent: str
    digest: str
    fabric: str
    version: str


class StoppedError(Exception):
    """A node failed: the others go back. Carries the error that began it."""

    def __init__(self, node: str, error: FabricPlanError) -> None:
        super().__init__(error.message)
        self.node = node
        self.error = error


@dataclass(frozen=True, slots=True)
class Transaction:
    """One apply over the nodes that differ. `sessions` are by node name, in rank order.

    `rdma_in_use` reads every node of the fabric and returns who uses RDMA; it is asked right before each
    driver reload. `settled` reads the nodes again after the steps and returns what still differs, by node;
    empty is green.
    """

    sessions: Mapping[str, Session]
    work: Mapping[str, Work]
    steps: FabricSteps
    identity: Identity
    rdma_in_use: Callable[[], Sequence[str]]
    settled: Callable[[], Mapping[str, str]]
    observer: Observer

    def run(self) -> tuple[NodeEnd, ...]:
        """Carry the transaction out and return every node's end. Raises what `begin` raised, when nothing was
        changed yet.
        """
        self._begin()
        try:
            self._trial()
            self._look()
        except StoppedError as stop:
            return self._back(stop)
        except BaseException:
            # An interrupt, or a fault of our own: the nodes go back just the same, then it goes on its way.
            self._back(StoppedError("", FabricPlanError("interrupted")))
            raise
        else:
            return self._confirm()
        finally:
            each(self.sessions, lambda session: session.release())

    def _begin(self) -> None:
        identity = self.identity
        results = each(
            self.sessions,
            lambda session: session.begin(
                identity.holder, identity.intent, identity.digest, identity.fabric, identity.version
            ),
        )
        refused = [error for error in results.values() if isinstance(error, FabricPlanError)]
        if refused:
            each(self.sessions, lambda session: session.release())
            raise refused[0]

    def _together(self, text: str, work: Callable[[Session], None]) -> None:
        """Do `work` on all nodes at once; each comes to its end before a failure is acted upon."""
        self.observer.stage(text)
        results = each(self.sessions, work)
        for name, result in results.items():
            if isinstance(result, FabricPlanError):
                raise StoppedError(name, result)

    def _trial(self) -> None:
        self._together("handing the files over", self._stage)
        self._together("harmless steps, all nodes together", self._harmless)
        for name, step in self.steps.disruptive:
            session = self.sessions[name]
            self._renew()
            self.observer.stage(f"{name}: {step}: disrupts {step.disrupts}")
            try:
                if step.idle:
                    self._idle()
                session.run([step], self.observer.progress)
                session.reconnect()
            except (NodeError, TransportError) as error:
                raise StoppedError(name, error) from None
        self._renew()
        self._together("rules and forwarding, all nodes together", self._closing)
        self._renew()

    def _renew(self) -> None:
        """Keep every node's lease and timer fresh while another node is at work."""
        for name, result in each(self.sessions, lambda session: session.renew()).items():
            if isinstance(result, FabricPlanError):
                raise StoppedError(name, result)

    def _stage(self, session: Session) -> None:
        work = self.work[session.target.name]
        session.stage(work.files, work.sysctls, work.interfaces)

    def _harmless(self, session: Session) -> None:
        steps = (Step(StepKind.PLACE), *self.steps.harmless.get(session.target.name, ()))
        session.run(steps, self.observer.progress)

    def _closing(self, session: Session) -> None:
        session.run(self.steps.closing.get(session.target.name, ()), self.observer.progress)

    def _idle(self) -> None:
        """Refuse what kills others' traffic while anybody in the fabric uses RDMA."""
        users = self.rdma_in_use()
        if users:
            raise NodeError(
                f"RDMA is in use, so this is not done: {'; '.join(users)}",
                hint="stop the engine on every node, then apply again",
                id="rdma-in-use",
            )

    def _look(self) -> None:
        self.observer.stage("looking at every node again")
        try:
            wrong = self.settled()
        except (NodeError, TransportError) as error:
            raise StoppedError(error.where or "", error) from None
        for name, text in wrong.items():
            raise StoppedError(
                name, NodeError(f"after the steps it still differs: {text}", where=name, id="not-settled")
            )

    def _confirm(self) -> tuple[NodeEnd, ...]:
        """Commit node after node: every one of them is green, so each goes on even where another's answer is
        lost.
        """
        self.observer.stage("confirming")
        ends = []
        for name, session in self.sessions.items():
            try:
                session.confirm()
                ends.append(NodeEnd(name, End.APPLIED, session.generation, notes=tuple(session.notes)))
            except NodeError as error:
                end = End.ROLLED_BACK if error.id == "rolled-back" else End.ROLLBACK_FAILED
                ends.append(NodeEnd(name, end, None, error.message, tuple(session.notes)))
            except TransportError as error:
                text = (
                    f"{error.message}; its own timer takes it back unless the confirmation arrived: "
                    "apply again to see"
                )
                ends.append(NodeEnd(name, End.UNREACHABLE, None, text, tuple(session.notes)))
        return tuple(ends)

    def _back(self, stop: StoppedError) -> tuple[NodeEnd, ...]:
        """Take every changed node back, all at once: each has its own undo, and none depends on another's."""
        self.observer.stage("taking every node back")

        def back(session: Session) -> None:
            if session.changed:
                session.undo()

        results = each(self.sessions, back)
        ends = []
        for name, session in self.sessions.items():
            why = stop.error.message if name == stop.node else None
            result, notes = results[name], tuple(session.notes)
            if isinstance(result, TransportError):
                text = f"{result.message}; its own timer takes it back within {session.confirm_s} s"
                ends.append(NodeEnd(name, End.UNREACHABLE, None, _both(why, text), notes))
            elif isinstance(result, FabricPlanError):
                ends.append(NodeEnd(name, End.ROLLBACK_FAILED, None, _both(why, result.message), notes))
            else:
                end = End.ROLLED_BACK if session.changed else End.UNTOUCHED
                ends.append(NodeEnd(name, end, None, why, notes))
        return tuple(ends)


def _both(first: str | None, second: str) -> str:
    return f"{first}; {second}" if first else second
