"""``fabric-plan nccl``: lint a graph file, look into a library, read a log."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from fabric_plan.cli.common import chosen_nodes, read_plan
from fabric_plan.cli.console import Console
from fabric_plan.errors import ExitCode, FabricPlanError, UsageError
from fabric_plan.inventory.schema import NcclLibrary
from fabric_plan.nccl.env import nccl_env, nccl_names
from fabric_plan.nccl.graph import GraphKind
from fabric_plan.nccl.library import Library, judge, read_library
from fabric_plan.nccl.lint import lint, lint_against, meaning
from fabric_plan.nccl.log import Verdict, check_log
from fabric_plan.nccl.neighbours import devices, every_pair_joined

EXAMPLE = """fabric-plan nccl check build/ring4/spark1/etc/fabric-plan/nccl/ring.xml
  fabric-plan nccl check-library /usr/lib/aarch64-linux-gnu/libnccl.so.2 -i inventories/ring4.yaml
  fabric-plan nccl check-log serving.log"""

_SCHEMA = "fabric-plan/nccl/v1"
_MOST = 1 << 20
_STYLE = {Verdict.GOOD: "good", Verdict.BAD: "bad", Verdict.NOT_PROVEN: "bad"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this verb's arguments."""
    parser.add_argument("what", choices=tuple(_WORK), help="a graph file, a libnccl.so, or a serving log")
    parser.add_argument("file", metavar="FILE", help="the file to look at (- for stdin, except a library)")
    parser.add_argument("-i", "--inventory", metavar="FILE", help="hold it against this inventory's plan")
    parser.add_argument("--node", metavar="NAME", help="the node that a graph file is for (with -i)")
    parser.add_argument(
        "--kind",
        choices=[str(kind) for kind in GraphKind],
        help="whose communicator a graph file is for (from its name)",
    )


def run(options: argparse.Namespace, console: Console) -> ExitCode:
    """Do what was asked; 2 where something is wrong or not proven."""
    return _WORK[options.what](options, console)


def _read(name: str) -> bytes:
    return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()


def _check(options: argparse.Namespace, console: Console) -> ExitCode:
    data = _read(options.file)
    if len(data) > _MOST:
        raise FabricPlanError("this is too large to be a graph file", where=options.file)
    if options.inventory:
        plan = read_plan(options.inventory)
        if not options.node:
            raise UsageError("a graph file belongs to one node", hint="name it: --node NAME")
        (name,) = chosen_nodes(plan, [options.node])
        found = lint_against(data, plan, plan.node(name), _kind(options))
    else:
        found = lint(data)
    for finding in found:
        effect = console.style(f"NCCL {meaning(finding.effect)}", "bad")
        console.say(f"{options.file}:{finding.line}:{finding.column}: {finding.text} ({effect})")
        console.say(f"  hint: {finding.hint}")
    if not found:
        against = f" and is what {options.inventory} plans for {options.node}" if options.inventory else ""
        console.say(f"{options.file}: {console.style('good', 'good')}: NCCL reads it as it is meant{against}")
    if console.json:
        listed = [
            {"line": f.line, "column": f.column, "effect": str(f.effect), "text": f.text, "hint": f.hint}
            for f in found
        ]
        console.document({"schema": _SCHEMA, "file": options.file, "ok": not found, "findings": listed})
    return ExitCode.DIFFERENCE if found else ExitCode.OK


def _kind(options: argparse.Namespace) -> GraphKind:
    stem = options.kind or Path(options.file).stem
    try:
        return GraphKind(stem)
    except ValueError:
        raise UsageError(
            "the file's name does not say whose communicator it is for", hint="--kind ring"
        ) from None


def _check_library(options: argparse.Namespace, console: Console) -> ExitCode:
    with console.stage(f"reading {options.file}"):
        library = read_library(Path(options.file))
    mode, planned = _planned(options, library)
    found = judge(library, planned, mode)
    marker = "with" if library.marker else "without"
    console.say(
        f"{options.file}: NCCL {library.release}, CUDA {library.cuda}, {marker} the ring patch's marker"
    )
    console.say(f"  sha256 {library.sha256} (has to be the same on every node)")
    for finding in found:
        console.say(f"{console.style(str(finding.verdict), _STYLE[finding.verdict])}: {finding.text}")
        if finding.mend:
            console.say(f"  hint: {finding.mend}")
    if console.json:
        console.document(
            {
                "schema": _SCHEMA,
                "file": options.file,
                "version": library.release,
                "cuda": library.cuda,
                "marker": library.marker,
                "sha256": library.sha256,
                "knows": sorted(set(planned) & library.names),
                "ok": _exit(tuple(f.verdict for f in found)) is ExitCode.OK,
                "findings": [
                    {"id": f.id, "verdict": str(f.verdict), "text": f.text, "mend": f.mend} for f in found
                ],
            }
        )
    return _exit(tuple(finding.verdict for finding in found))


def _planned(options: argparse.Namespace, library: Library) -> tuple[NcclLibrary, tuple[str, ...]]:
    """Return the mode and the variables of the plan; without one, of the ring that this kind of library can
    run.
    """
    if not options.inventory:
        mode = NcclLibrary.PATCHED if library.marker else NcclLibrary.STOCK
        return mode, nccl_names(mode)
    plan = read_plan(options.inventory)
    names = dict.fromkeys(line.name for node in plan.nodes for line in nccl_env(plan, node))
    if not names:
        raise FabricPlanError(
            "this plan has no NCCL environment",
            where=options.inventory,
            hint="fabric-plan validate says why no prefix tells its functions apart",
        )
    return plan.fabric.nccl_library, tuple(names)


def _check_log(options: argparse.Namespace, console: Console) -> ExitCode:
    text = re.sub(r"\x1b\[[0-9;]*m", "", _read(options.file).decode("utf-8", "replace"))
    count, trees = None, False
    if options.inventory:
        plan = read_plan(options.inventory)
        count, trees = max(len(devices(node)) for node in plan.nodes), every_pair_joined(plan)
    found = check_log(text, count, trees=trees)
    for finding in found:
        at = f"{options.file}:{finding.lines[0]}" if finding.lines else options.file
        times = f" ({finding.count} times)" if finding.count > 1 else ""
        console.say(
            f"{console.style(str(finding.verdict), _STYLE[finding.verdict])}: {at}: {finding.text}{times}"
        )
        console.say(f"  {finding.means}")
        if finding.mend:
            console.say(f"  hint: {finding.mend}")
    if console.json:
        listed: list[dict[str, Any]] = [
            {
                "id": f.id,
                "verdict": str(f.verdict),
                "text": f.text,
                "means": f.means,
                "mend": f.mend,
                "lines": list(f.lines),
                "count": f.count,
            }
            for f in found
        ]
        ok = _exit(tuple(f.verdict for f in found)) is ExitCode.OK
        console.document({"schema": _SCHEMA, "file": options.file, "ok": ok, "findings": listed})
    return _exit(tuple(finding.verdict for finding in found))


def _exit(verdicts: tuple[Verdict, ...]) -> ExitCode:
    return ExitCode.OK if all(verdict is Verdict.GOOD for verdict in verdicts) else ExitCode.DIFFERENCE


_WORK = {"check": _check, "check-library": _check_library, "check-log": _check_log}
