"""Run ranks of a real NCCL on one GPU over a plan's cables, with the files that the plan renders, and tell
what happened.

``python -m tests.nccl.gpu_run OUT`` runs every case and prints the tables of docs/nccl.md; logs go to OUT.
"""

from __future__ import annotations

import ctypes.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fabric_plan.nccl.graph import GraphKind
from fabric_plan.nccl.log import Verdict, check_log
from fabric_plan.nccl.neighbours import devices
from fabric_plan.planner.model import Plan
from fabric_plan.render.tree import render
from fabric_plan.resources import layers, templates
from tests.nccl.gpu_cases import CASES, LINT_CASES, Case
from tests.nccl.namespaces import MGMT, MGMT_PORT, Wired, wire

RANK = Path(__file__).parent / "rank.py"
# All ranks of a case have this long; where one has failed the others, who wait for it, get the shorter time.
DEADLINE, AFTER_FAILURE = 90.0, 4.0

_SITE = [Path(entry) / "nvidia" / "nccl" / "lib" / "libnccl.so.2" for entry in sys.path if entry]


def libraries() -> list[Path]:
    """Return the NCCL libraries to run: FABRIC_PLAN_NCCL_LIBS (colons between), or the interpreter's."""
    named = os.environ.get("FABRIC_PLAN_NCCL_LIBS")
    if named:
        return [Path(name) for name in named.split(":")]
    found = [path for path in _SITE if path.exists()]
    system = ctypes.util.find_library("nccl")
    return found[:1] or ([Path(system)] if system else [])


def missing() -> str | None:
    """Return why these cases cannot run here, None where they can."""
    if os.geteuid():
        return "needs root, for network namespaces"
    if not Path("/proc/driver/nvidia/version").exists() and not Path("/dev/nvidiactl").exists():
        return "no NVIDIA GPU"
    if not libraries():
        return "no libnccl.so.2 (pip install nvidia-nccl-cu13, or set FABRIC_PLAN_NCCL_LIBS)"
    return None


@dataclass(frozen=True)
class Outcome:
    """What happened: the step at which each rank stopped (``done`` at the end), what was read, the logs."""

    case: Case
    version: str
    steps: tuple[str, ...]
    errors: tuple[str, ...]
    logs: Mapping[str, str]
    seconds: float

    @property
    def stopped(self) -> str | None:
        """Where the first rank stopped by itself, None where all came to the end."""
        own = [step for step in self.steps if step not in ("done", "waiting")]
        return own[0] if own else ("waiting" if "waiting" in self.steps else None)

    def wrong(self) -> list[str]:
        """Return what is not as the case has it."""
        everything = "\n".join((*self.logs.values(), *self.errors))
        found = []
        if self.case.fails != "?" and (self.stopped or "").split(" ")[0] != (self.case.fails or ""):
            found.append(f"stopped at {self.stopped}, not at {self.case.fails}: {'; '.join(self.errors)}")
        found += [f"not seen: {pattern}" for pattern in self.case.seen if not re.search(pattern, everything)]
        found += [f"seen: {pattern}" for pattern in self.case.never if re.search(pattern, everything)]
        return found


def _ranks(case: Case, plan: Plan) -> list[str]:
    names = [node.name for node in plan.nodes]
    return names if case.kind is GraphKind.RING else names[:2]


def _graph_kind(case: Case, rank: int) -> GraphKind:
    """Of a two-rank communicator the lower rank faces its next, the higher one its previous."""
    if case.kind is GraphKind.RING:
        return case.kind
    return GraphKind.LINK_NEXT if rank == 0 else GraphKind.LINK_PREV


def rendered_env(root: Path) -> dict[str, str]:
    """Return what the rendered environment file says, with its paths under `root`."""
    lines = (root / "etc/fabric-plan/env/nccl.env").read_text().splitlines()
    values = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    return {name: f"{root}{value}" if value.startswith("/") else value for name, value in values.items()}


def environment(case: Case, plan: Plan, rank: int, root: Path, log: Path) -> dict[str, str]:
    """Return a rank's environment: the rendered file, what sockets and one GPU need instead, then the case's
    own change.
    """
    node = plan.nodes[rank]
    env = rendered_env(root) | {
        # Stand-ins: sockets for RoCE on the same cables, in the order that NCCL_IB_HCA has by PCI path.
        "NCCL_NET": "Socket",
        "NCCL_SOCKET_IFNAME": "=" + ",".join(planned.function.netdev for planned in devices(node)),
        "NCCL_SOCKET_FAMILY": "AF_INET",
        "NCCL_SOCKET_RETRY_CNT": "3",
        # One GPU for all: each rank says that it is a host of its own.
        "NCCL_HOSTID": node.name,
        "NCCL_COMM_ID": f"{MGMT.format(1)}:{MGMT_PORT}",
        "CUDA_VISIBLE_DEVICES": "0",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET,GRAPH",
        "NCCL_DEBUG_FILE": str(log),
    }
    if case.kind is not GraphKind.RING:
        env["NCCL_GRAPH_FILE"] = f"{root}/etc/fabric-plan/nccl/{_graph_kind(case, rank)}.xml"
    for name, value in case.env.items():
        if case.only not in (None, rank):
            continue
        if value is None:
            env.pop(name)
        else:
            env[name] = value
    kept = {
        name: os.environ[name]
        for name in ("PATH", "HOME", "LD_LIBRARY_PATH", "NCCL_NVLS_ENABLE")
        if name in os.environ
    }
    return kept | env


def run(case: Case, library: Path, wired: Wired, root: Path) -> Outcome:
    """Run one case on the namespaces of its plan; files are rendered under `root`."""
    plan = wired.plan
    names = _ranks(case, plan)
    rendered = render(plan, layers(), templates())
    processes: list[subprocess.Popen[str]] = []
    logs = {name: root / f"{name}.log" for name in names}
    started = time.monotonic()
    for rank, name in enumerate(names):
        home = root / name
        for file in rendered.files[name]:
            target = Path(f"{home}{file.path}")
            target.parent.mkdir(parents=True, exist_ok=True)
            changed = case.damage if case.damage and target.suffix == ".xml" else str
            target.write_text(changed(file.content))
        command = [
            "nsenter",
            f"--net={wired.path(name)}",
            sys.executable,
            str(RANK),
            str(library),
            str(rank),
            str(len(names)),
        ]
        env = environment(case, plan, rank, home, logs[name])
        # stderr has its own file: a crash of the driver may say more than a pipe holds.
        with (root / f"{name}.err").open("w") as err:
            processes.append(
                subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=err, text=True)
            )
    _wait(processes)
    steps, errors, version = [], [], "?"
    for name, process in zip(names, processes, strict=True):
        killed = process.poll() is None
        if killed:
            process.kill()
        out, _ = process.communicate()
        said = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        version = next((entry["value"] for entry in said if entry["step"] == "version"), version)
        last = said[-1] if said else {"step": "start"}
        steps.append(
            "waiting"
            if killed
            else "died"
            if process.returncode < 0 or process.returncode > 128
            else last["step"]
        )
        if "error" in last:
            errors.append(f"{name}: {last['step']}: {last['error']}")
        elif not killed and process.returncode:
            errors.append(f"{name}: exit {process.returncode} after {last['step']}")
    texts = {name: path.read_text(errors="replace") if path.exists() else "" for name, path in logs.items()}
    return Outcome(case, version, tuple(steps), tuple(errors), texts, time.monotonic() - started)


def _wait(processes: list[subprocess.Popen[str]]) -> None:
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        states = [process.poll() for process in processes]
        if all(state is not None for state in states):
            return
        if any(states):  # somebody failed: the others will wait for it for ever
            end = min(end, time.monotonic() + AFTER_FAILURE)
        time.sleep(0.05)


def run_cases(cases: tuple[Case, ...], library: Path, out: Path) -> list[Outcome]:
    """Run `cases` one after the other; fabrics are wired once for cases that follow each other on the same
    one.
    """
    outcomes = []
    todo = list(cases)
    while todo:
        sketch = todo[0].sketch
        with wire(sketch.plan()) as wired:
            for case in cases:
                if case.sketch == sketch:
                    todo.remove(case)
                    name = re.sub(r"[^a-z0-9]+", "-", case.name.lower()).strip("-")
                    outcomes.append(run(case, library, wired, Path(tempfile.mkdtemp(prefix=name, dir=out))))
    return sorted(outcomes, key=lambda outcome: cases.index(outcome.case))


def _told(outcome: Outcome) -> str:
    """What ``nccl check-log`` finds bad in the logs of a run, less that there was no RDMA device."""
    found = {
        finding.id
        for log in outcome.logs.values()
        for finding in check_log(log)
        if finding.verdict is Verdict.BAD
    }
    return ", ".join(sorted(found - {"sockets", "no-device"})) or "nothing bad"


def table(outcomes: list[Outcome]) -> str:
    """Return the outcomes as the table of docs/nccl.md."""
    rows = [
        "| NCCL | ranks | case | outcome | as expected | check-log | what it shows |",
        "|---|---|---|---|---|---|---|",
    ]
    for outcome in outcomes:
        reached = outcome.stopped
        what = (
            "right results"
            if reached is None
            else "a rank dies"
            if reached == "died"
            else f"fails in {reached}"
        )
        said = re.search(r"NCCL WARN (.*)", "\n".join(outcome.logs.values()))
        if reached and reached != "died" and said:
            what += ": " + re.sub(r"<\d+>|\s+", " ", said.group(1)).strip()[:90]
        good = "yes" if not outcome.wrong() else "NO: " + "; ".join(outcome.wrong())
        cells = (
            outcome.version,
            len(outcome.steps),
            outcome.case.name,
            what,
            good,
            _told(outcome),
            outcome.case.proves,
        )
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(rows)


def main() -> int:
    reason = missing()
    if reason:
        print(f"skipped: {reason}")
        return 0
    out = Path(sys.argv[1])
    wrong = 0
    for library in libraries():
        for cases in (CASES, LINT_CASES):
            outcomes = run_cases(cases, library, out)
            print(table(outcomes), f"\n({sum(outcome.seconds for outcome in outcomes):.0f} s)\n", flush=True)
            wrong += sum(bool(outcome.wrong()) for outcome in outcomes)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
