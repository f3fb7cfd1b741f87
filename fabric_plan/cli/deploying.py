"""What apply, rollback and remove share on the terminal: who asks, what is shown, how it is reported."""

from __future__ import annotations

import argparse
import getpass
import socket
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from fabric_plan import resources
from fabric_plan.apply.deploy import Deployment, Findings, Options
from fabric_plan.apply.ends import GOOD, Report
from fabric_plan.apply.observer import Observer
from fabric_plan.cli.beside import beside
from fabric_plan.cli.console import Console
from fabric_plan.cli.reaching import transport_of
from fabric_plan.compare.desired import Desired, desired_of
from fabric_plan.compare.preflight import Severity
from fabric_plan.compare.show import document, lines
from fabric_plan.errors import ExitCode, FabricPlanError, UsageError
from fabric_plan.planner.model import Plan
from fabric_plan.transport.base import Connection, Target, each

T = TypeVar("T")


def add_deploying(parser: argparse.ArgumentParser) -> None:
    """Add the options of everything that changes nodes."""
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument(
        "--allow-disruption",
        action="store_true",
        help="permit address changes and driver reloads; never a reload while RDMA is in use",
    )
    parser.add_argument(
        "--confirm-timeout",
        type=_seconds,
        default=180,
        metavar="SECONDS",
        help="how long a node waits for the confirmation before it takes everything back (default 180)",
    )


def _seconds(text: str) -> int:
    if not text.isdigit() or not 30 <= int(text) <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 30 to 3600")
    return int(text)


def options_of(options: argparse.Namespace) -> Options:
    """Return what the person allows."""
    take_over = getattr(options, "take_over", False)
    return Options(options.confirm_timeout, options.allow_disruption, take_over)


def holder() -> str:
    """Return who holds the lease on the nodes, as others read it."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def observer(console: Console) -> Observer:
    """Return an observer that says stages and steps on stderr where a person watches; silent otherwise."""
    if not console.watched:
        return Observer()
    lock = threading.Lock()

    def stage(text: str) -> None:
        with lock:
            console.note(f"· {text}")

    def progress(node: str, word: str) -> None:
        with lock:
            console.note(f"  {node}: {word}")

    return Observer(stage, progress)


def asker(options: argparse.Namespace, console: Console) -> Callable[[Findings], bool]:
    """Return what shows the findings and asks; without a terminal and without ``--yes`` it refuses."""

    def ask(findings: Findings) -> bool:
        for line, style in lines(findings.diffs):
            console.say(line, style)
        for finding in findings.findings:
            place = f"{finding.node}{f' {finding.interface}' if finding.interface else ''}"
            word = "not proven" if finding.severity is Severity.NOT_PROVEN else "warning"
            console.say(f"{console.style(f'{word}:', 'bad')} {place}: {finding.message} [{finding.id}]")
        if options.yes:
            return True
        if console.json or not sys.stdin.isatty():
            raise UsageError(
                "there is no terminal to ask on", hint="`--yes` goes on without asking; nothing was changed"
            )
        sys.stderr.write("go on? [y/N] ")
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    return ask


def report(found: Report, console: Console) -> ExitCode:
    """Say every node's end; what is not good is an error."""
    for end in found.ends:
        style = "good" if end.end in GOOD else "bad"
        generation = f" (generation {end.generation})" if end.generation is not None else ""
        console.say(f"{end.node}: {console.style(str(end.end), style)}{generation}")
        if end.message:
            console.say(f"  {end.message}")
        for note in end.notes:
            console.say(f"  note: {note}")
    if console.json:
        console.document({**found.document(), "diff": document(found.diffs)})
    return ExitCode.OK if found.ok else ExitCode.ERROR


def desired_states(plan: Plan, names: Collection[str] | None = None) -> dict[str, Desired]:
    """Return what the nodes `names` of `plan` have to look like; None means all of them."""
    from fabric_plan.render.tree import render  # the nodes are asked already while this is loaded

    rendered = render(plan, resources.layers(), resources.templates())
    return {
        name: desired_of(name, {file.path: (file.mode, file.content) for file in files}, resources.layers())
        for name, files in rendered.files.items()
        if names is None or name in names
    }


def ours_on(plan: Plan, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return by node the functions that the plan manages."""
    return {
        name: tuple(planned.function.netdev for planned in plan.node(name).functions if planned.managed)
        for name in names
    }


def on_nodes(
    plan: Plan,
    names: tuple[str, ...],
    options: argparse.Namespace,
    console: Console,
    work: Callable[[Connection], T],
) -> dict[str, T]:
    """Do `work` over one connection to each node, in parallel. Raises the first node's error."""
    transport = transport_of(options)

    def one(name: str) -> T:
        with console.stage(f"{name}: asked"):
            connection = transport.connect(Target.of(plan.fabric.node(name)))
            try:
                return work(connection)
            finally:
                connection.close()

    found = {}
    for name, result in each({name: name for name in names}, one).items():
        if isinstance(result, FabricPlanError):
            result.where = result.where or name
            raise result
        found[name] = result
    return found


def deploy(
    intent: str,
    plan: Plan,
    interfaces: Mapping[str, tuple[str, ...]],
    states: Callable[[], Mapping[str, Desired]],
    options: argparse.Namespace,
    console: Console,
    leaving: Mapping[str, frozenset[str]] | None = None,
) -> ExitCode:
    """Bring the nodes in `interfaces` to the `states` of them, and report; see `Deployment`. With ``--local``
    the others cannot be asked.
    """
    names = tuple(interfaces) if options.local else tuple(node.name for node in plan.nodes)
    deployment = Deployment(
        intent=intent,
        fabric=plan.fabric.name,
        holder=holder(),
        interfaces=interfaces,
        states=beside(states),
        targets={name: Target.of(plan.fabric.node(name)) for name in names},
        transport=transport_of(options),
        options=options_of(options),
        observer=observer(console),
        ask=asker(options, console),
        leaving=leaving or {},
        paths=plan.pinned_files,
    )
    return report(deployment.run(), console)
