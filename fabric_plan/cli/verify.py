"""``fabric-plan verify``: what the nodes are like now against the plan; pass only for what was seen."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from fabric_plan.checks.drift import Event, Look, What
from fabric_plan.checks.model import Check, Verification
from fabric_plan.checks.run import verify
from fabric_plan.checks.scene import Scene
from fabric_plan.cli.common import add_inventory, add_nodes, chosen_nodes, read_plan, write_whole
from fabric_plan.cli.console import Console
from fabric_plan.cli.deploying import desired_states
from fabric_plan.cli.reaching import add_reaching, saved_facts, this_node, transport_of
from fabric_plan.compare.desired import Desired
from fabric_plan.errors import ExitCode, UsageError, printable
from fabric_plan.node.document import Facts
from fabric_plan.planner.model import Plan
from fabric_plan.verify.nodes import Nodes
from fabric_plan.verify.probe import Probe, missing_tools, obstacles
from fabric_plan.verify.report import document, findings, junit, only, rows, summary
from fabric_plan.verify.watch import SCHEMA, Watch

EXAMPLE = "fabric-plan verify -i inventories/home.yaml --since-boot"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this verb's arguments."""
    add_inventory(parser)
    add_nodes(parser)
    add_reaching(parser)
    parser.add_argument(
        "--facts", metavar="FILE|DIR", help="facts saved by `collect -o`, instead of the nodes"
    )
    parser.add_argument(
        "--since-boot", action="store_true", help="say which boot, and that the units came up in it"
    )
    parser.add_argument(
        "--library",
        action="append",
        default=[],
        metavar="PATH",
        help="an NCCL library on the nodes to compare, beside the usual places (repeatable)",
    )
    parser.add_argument(
        "--probe",
        action="store_true",
        help="send bounded traffic besides: LLDP, pings, perftest between neighbours and to far nodes",
    )
    parser.add_argument("--probe-busy", action="store_true", help="probe although RDMA is in use")
    parser.add_argument("--junit", metavar="FILE", help="the checks as JUnit XML besides")
    parser.add_argument(
        "--watch", action="store_true", help="look again and again, and say what changed, until stopped"
    )
    parser.add_argument(
        "--once-per",
        type=_period,
        default=30.0,
        metavar="SECONDS",
        help="with --watch: how often (default 30)",
    )
    parser.add_argument(
        "--textfile",
        metavar="FILE",
        help="with --watch: Prometheus text for node_exporter, replaced whole at each look",
    )


def _period(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 1 to 86400")
    return value


def run(options: argparse.Namespace, console: Console) -> ExitCode:
    """Verify; nothing is changed anywhere."""
    plan = read_plan(options.inventory)
    names = chosen_nodes(plan, options.node)
    if options.local:
        names = (this_node([node.name for node in plan.nodes], options.node),)
    if options.textfile and not options.watch:
        raise UsageError("--textfile belongs to --watch")
    wants = desired_states(plan)
    if options.facts:
        for flag in ("probe", "watch"):
            if getattr(options, flag):
                raise UsageError(f"--{flag} needs the nodes, and --facts has none")
        facts = saved_facts(options.facts)
        known = {name: found for name, found in facts.items() if name in {node.name for node in plan.nodes}}
        return _finish(plan, wants, known, {}, (), names, options, console)
    # The peers' live MACs are in the checks of a node, so all are asked, whichever are reported.
    asked = names if options.local else [node.name for node in plan.nodes]
    with Nodes(plan, wants, asked, transport_of(options), options.library, console.stage) as nodes:
        if options.watch:
            return _watch(nodes, plan, wants, names, options, console)
        facts, failed = nodes.collect()
        seen: Mapping[str, Facts] = facts
        more: tuple[Check, ...] = ()
        if options.probe or options.probe_busy:
            more, seen = _probe(nodes, plan, facts, options, console)
    return _finish(plan, wants, seen, failed, more, names, options, console)


def _watch(
    nodes: Nodes,
    plan: Plan,
    wants: Mapping[str, Desired],
    names: tuple[str, ...],
    options: argparse.Namespace,
    console: Console,
) -> ExitCode:
    """Watch until interrupted; with ``--json`` each event is a line on stdout."""

    def tell(look: Look, events: tuple[Event, ...], at_unix: float) -> None:
        stamp = datetime.fromtimestamp(at_unix, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        shown = [event for event in events if event.node in names]
        if console.json:
            ok = look.verification.ok
            console.line({"schema": SCHEMA, "at": stamp, "event": "look", "ok": ok})
            for event in shown:
                console.line({"schema": SCHEMA, "at": stamp, **event.document()})
            return
        for event in shown:
            good = event.what is What.MENDED
            place = " ".join(word for word in (event.node, event.interface) if word)
            console.say(printable(f"{stamp} {event.what} {place}: {event.text}"), None if good else "bad")

    console.note(f"watching {', '.join(names)} once in {options.once_per:g} s; stop with ^C")
    textfile = Path(options.textfile) if options.textfile else None
    Watch(plan, wants, nodes, options.once_per, tell, textfile).run()
    return ExitCode.OK


def _probe(
    nodes: Nodes, plan: Plan, facts: Mapping[str, Facts], options: argparse.Namespace, console: Console
) -> tuple[tuple[Check, ...], Mapping[str, Facts]]:
    """Return the probe's checks and the facts after it, with the libraries' of before."""
    stop = tuple(obstacles(plan, facts, busy=options.probe_busy))
    if stop:
        return stop, facts
    checks, after = Probe(nodes, plan, facts, console.progress).run()
    merged = {
        name: replace(after[name], libraries=facts[name].libraries) if name in after else facts[name]
        for name in facts
    }
    return (*missing_tools(facts), *checks), merged


def _finish(
    plan: Plan,
    wants: Mapping[str, Desired],
    facts: Mapping[str, Facts],
    failed: Mapping[str, str],
    more: Iterable[Check],
    names: tuple[str, ...],
    options: argparse.Namespace,
    console: Console,
) -> ExitCode:
    """Judge, show, write, and say by the exit code what came of it."""
    scene = Scene.of(plan, wants, facts, failed)
    found = only(verify(scene, since_boot=options.since_boot, more=more), names)
    _show(found, names, facts, options, console)
    if options.junit:
        write_whole(Path(options.junit), junit(found))
    if console.json:
        digest = next((want.digest for want in wants.values()), None)
        shown = {name: facts[name] for name in names if name in facts}
        console.document(document(found, fabric=plan.fabric.name, digest=digest, facts=shown))
    if not found.checks:
        raise UsageError("nothing was checked")
    # A node that cannot be reached is an error of the run where none could be; else it is not proven.
    if not facts:
        return ExitCode.ERROR
    return ExitCode.OK if found.ok else ExitCode.DIFFERENCE


def _show(
    found: Verification,
    names: tuple[str, ...],
    facts: Mapping[str, Facts],
    options: argparse.Namespace,
    console: Console,
) -> None:
    console.table(("layer", *names), rows(found, names))
    if options.since_boot:
        for name in names:
            host = facts[name].host if name in facts else None
            if host is not None and host.boot_id and host.uptime_s is not None:
                console.say(f"  {name}: boot {host.boot_id}, up for {host.uptime_s:.0f} s")
    for line, style in findings(found, all_of_them=options.verbose):
        console.say(line, style)
    console.say(summary(found), "good" if found.ok else "bad")
