"""From desired states to a report: collect, compare, check, ask, carry out, look again.

`apply`, `rollback` and `remove` differ only in where the desired states come from.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fabric_plan import __version__
from fabric_plan.apply.ends import End, NodeEnd, Report
from fabric_plan.apply.observer import Observer
from fabric_plan.apply.session import Session, staged_document
from fabric_plan.apply.transaction import Identity, Transaction, Work
from fabric_plan.compare.desired import Desired
from fabric_plan.compare.diff import diff, live_changes
from fabric_plan.compare.files import interfaces_of_ours
from fabric_plan.compare.model import Change, Diff
from fabric_plan.compare.preflight import Finding, Severity, preflight
from fabric_plan.compare.steps import FabricSteps, StagedFile, files_to_stage, plan_steps
from fabric_plan.compare.takeover import move_aside, take_over
from fabric_plan.errors import FabricPlanError, NodeError, RefusalError, TransportError
from fabric_plan.facts.load import facts_of
from fabric_plan.node.document import Facts
from fabric_plan.transport.base import Target, Transport, begin_each, each
from fabric_plan.transport.collecting import question

SETTLE_S = 30.0
POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Options:
    """What the person at the terminal allows. `confirm_s` is how long a node waits for the confirmation, in
    seconds.
    """

    confirm_s: int = 180
    allow_disruption: bool = False
    take_over: bool = False


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that a person has to see before saying yes: differences, findings, steps."""

    diffs: Mapping[str, Diff]
    findings: tuple[Finding, ...]
    steps: FabricSteps


@dataclass(slots=True)
class Deployment:
    """One run over `targets` (node name to way there), which are all nodes of the fabric.

    `interfaces` has the nodes to change and the functions that each of them is asked about (none: those with
    an RDMA device). `states` makes what they have to look like, while they are asked already. `ask` sees the
    findings and says whether to go on. `leaving` are the interfaces, by node, that are ours no longer: what
    NetworkManager itself defines of them is moved aside. `paths` are files beside ours to know about.
    """

    intent: str
    fabric: str
    holder: str
    interfaces: Mapping[str, tuple[str, ...]]
    states: Callable[[], Mapping[str, Desired]]
    targets: Mapping[str, Target]
    transport: Transport
    options: Options
    observer: Observer
    ask: Callable[[Findings], bool]
    leaving: Mapping[str, frozenset[str]] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    sessions: dict[str, Session] = field(default_factory=dict)
    desired: Mapping[str, Desired] = field(default_factory=dict)

    def run(self) -> Report:
        """Run it. Raises where nothing was changed: an unreachable node, a refusal, a lock."""
        self.sessions = {
            name: Session(target, self.transport, self.options.confirm_s)
            for name, target in self.targets.items()
        }
        try:
            return self._run()
        finally:
            for session in self.sessions.values():
                session.drop()

    @property
    def _digest(self) -> str:
        return next((want.digest for want in self.desired.values() if want.digest), "") or ""

    def _run(self) -> Report:
        self.observer.stage("collecting the facts of every node")
        collecting = self._begin_to_collect()
        self.desired = self.states()
        facts = _facts(collecting())
        diffs = {name: diff(want, facts[name]) for name, want in self.desired.items()}
        aside = {
            name: move_aside(name, facts[name], interfaces)
            for name, interfaces in self.leaving.items()
            if name in facts
        }
        for name, moved in aside.items():
            diffs[name] = Diff(name, (*moved, *diffs[name].changes))
        findings = tuple(preflight(self.desired, facts, diffs, take_over=self.options.take_over))
        refuse(findings)
        steps = plan_steps(self.desired, diffs, facts)
        changing = {
            name: session
            for name, session in self.sessions.items()
            if name in steps.harmless or name in steps.closing
        }
        unchanged = tuple(NodeEnd(name, End.UNCHANGED) for name in self.desired if name not in changing)
        if not changing:
            return Report(self.intent, self._digest, unchanged, diffs)
        work = {
            name: self._work(name, diffs, facts, tuple(aside.get(name, {}).values())) for name in changing
        }
        self._rehearse(changing, work)
        if steps.disruptive and not self.options.allow_disruption:
            said = "; ".join(sorted({f"{name}: {step} ({step.disrupts})" for name, step in steps.disruptive}))
            raise RefusalError(
                f"this disrupts: {said}", hint="`--allow-disruption` permits it", id="disruption-not-allowed"
            )
        if not self.ask(Findings(diffs, findings, steps)):
            raise RefusalError("not confirmed, nothing was changed", id="declined")
        transaction = Transaction(
            sessions=changing,
            work=work,
            steps=steps,
            identity=Identity(self.holder, self.intent, self._digest, self.fabric, __version__),
            rdma_in_use=self._rdma_in_use,
            settled=self._settled,
            observer=self.observer,
        )
        by_name = {end.node: end for end in (*unchanged, *transaction.run())}
        ends = tuple(by_name[name] for name in self.targets if name in by_name)
        return Report(self.intent, self._digest, ends, diffs)

    def _begin_to_collect(self) -> Callable[[], Mapping[str, Facts | FabricPlanError]]:
        """Ask the nodes to change for their facts; the returned function waits for the answers."""
        sessions = {name: self.sessions[name] for name in self.interfaces}

        def ask(session: Session) -> Facts:
            return collect(session, self._interfaces(session.target.name), self.paths)

        return begin_each(sessions, ask)

    def _interfaces(self, name: str) -> tuple[str, ...]:
        """Return the interfaces of a node that this is about: those that are ours, and those that were."""
        ours = self.interfaces[name]
        return (*ours, *sorted(self.leaving.get(name, frozenset()) - set(ours)))

    def _work(
        self,
        name: str,
        diffs: Mapping[str, Diff],
        facts: Mapping[str, Facts],
        more: tuple[StagedFile, ...],
    ) -> Work:
        want = self.desired.get(name)
        if want is None or name not in diffs:
            return Work((), (), ())
        sysctls = tuple(f"net/ipv4/conf/{setting.scope}/{setting.name}" for setting in want.sysctls)
        ours = self._interfaces(name)
        # What was ours up to now changes too when it goes, and an undo has to know how it was.
        interfaces = (*ours, *sorted(interfaces_of_ours(facts[name]) - set(ours)))
        files = (*files_to_stage(want, diffs[name]), *more)
        if self.options.take_over:
            files = (*files, *take_over(want, diffs[name], facts[name]))
        return Work(files, sysctls, interfaces)

    def _rehearse(self, sessions: Mapping[str, Session], work: Mapping[str, Work]) -> None:
        """Have every node that gets netplan files generate them in a copy: nobody else's interface may change
        its backend file.
        """
        netplan = {
            name: session for name, session in sessions.items() if any(_netplan(f) for f in work[name].files)
        }

        def rehearse(session: Session) -> list[str]:
            name = session.target.name
            files = [staged_document(file) for file in work[name].files if _netplan(file)]
            reply = session.call("rehearse", {"files": files, "interfaces": list(work[name].interfaces)})
            if reply.get("error"):
                raise NodeError(
                    f"netplan refuses the files: {reply['error']}", where=name, id="netplan-refuses"
                )
            return [f"{c['interface']} ({c['backend']}, {c['path']})" for c in reply.get("changed", [])]

        for name, result in each(netplan, rehearse).items():
            if isinstance(result, FabricPlanError):
                raise result
            if result:
                raise NodeError(
                    f"the files would change interfaces that are not of the fabric: {', '.join(result)}",
                    where=name,
                    hint="a global renderer or a match in another netplan file does this; nothing was "
                    "changed",
                    id="backend-changes",
                )

    def _rdma_in_use(self) -> list[str]:
        """Return who uses RDMA on any node of the fabric; a node that cannot be read counts as in use."""
        users = []
        for name, reasons in each(self.sessions, lambda session: session.rdma_use()).items():
            if isinstance(reasons, FabricPlanError):
                users.append(f"{name} cannot be read ({reasons.message})")
            elif reasons:
                users.append(f"{name}: {', '.join(reasons[:3])}")
        return users

    def _settled(self) -> dict[str, str]:
        """Look until nothing live differs any more, or the deadline says that it never will."""
        patience = max(target.patience for target in self.targets.values())
        deadline = time.monotonic() + SETTLE_S * patience
        while True:
            try:
                facts = _facts(self._begin_to_collect()())
            except TransportError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_S)
                continue
            left = {name: live_changes(diff(want, facts[name])) for name, want in self.desired.items()}
            wrong = {
                name: "; ".join(_words(change) for change in found[:3])
                for name, found in left.items()
                if found
            }
            if not wrong or time.monotonic() > deadline:
                return wrong
            time.sleep(POLL_S)


def _facts(results: Mapping[str, Facts | FabricPlanError]) -> dict[str, Facts]:
    """Return the facts of all nodes; raises the first node's error, naming every other one that failed."""
    facts = {name: result for name, result in results.items() if not isinstance(result, FabricPlanError)}
    failed = [(name, result) for name, result in results.items() if isinstance(result, FabricPlanError)]
    if failed:
        name, error = failed[0]
        others = f" (and {', '.join(other for other, _ in failed[1:])})" if failed[1:] else ""
        error.where = error.where or name
        error.message += others
        raise error
    return facts


def _words(change: Change) -> str:
    return f"{change.resource} {change.name}: {change.have or 'absent'} instead of {change.want or 'absent'}"


def _netplan(file: StagedFile) -> bool:
    return file.path.startswith("/etc/netplan/")


def collect(session: Session, interfaces: Sequence[str], paths: Sequence[str] = ()) -> Facts:
    """Collect the facts of one node over its session, about `paths` too; without `interfaces` those of every
    RDMA device.
    """
    if session.connection is None:
        session.connection = session.transport.connect(session.target)
    request, limit_s = question(session.target, interfaces, paths=paths)
    try:
        document = session.connection.call("collect", request, limit_s=limit_s)
    except TransportError:
        session.drop()
        raise
    return facts_of(document, node=session.target.name)


def refuse(findings: tuple[Finding, ...]) -> None:
    """Raise `RefusalError` with every finding that stands in the way."""
    hard = [finding for finding in findings if finding.severity is Severity.REFUSE]
    if hard:
        lines = list(_finding_words(hard))
        raise RefusalError("; ".join(lines), hint=hard[0].hint, id=hard[0].id)


def _finding_words(findings: list[Finding]) -> Iterator[str]:
    for finding in findings:
        place = f"{finding.node}{f' {finding.interface}' if finding.interface else ''}"
        yield f"{place}: {finding.message}"
