"""Print the benchmark table: ``python -m bench``, or that of an apply: ``python -m bench apply``."""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.inventories import ring

ROUNDS = 7
PYTHON = sys.executable


@dataclass(frozen=True, slots=True)
class Measured:
    """One command: the median of its wall time (seconds) and its peak memory (MB)."""

    label: str
    seconds: float
    megabytes: float


def measure(label: str, command: Sequence[str], rounds: int = ROUNDS) -> Measured:
    """Run `command` once to warm caches, then `rounds` times; a command that fails ends the benchmark."""
    times, peak = [], 0.0
    for number in range(rounds + 1):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if number:
            times.append(time.perf_counter() - began)
    script = (
        "import resource,subprocess,sys;subprocess.run(sys.argv[1:],check=True,stdout=subprocess.DEVNULL,"
        "stderr=subprocess.DEVNULL);print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    out = subprocess.run([PYTHON, "-c", script, *command], check=True, capture_output=True, text=True)
    peak = int(out.stdout) / 1024
    return Measured(label, statistics.median(times), peak)


def main() -> None:
    """Measure start-up and render; print a table with ratios to the floor of the same run."""
    tool = [PYTHON, "-m", "fabric_plan"]
    floor = measure("python: argparse alone", [PYTHON, "-c", "import argparse"])
    imports = measure(
        "python: pydantic, jinja2, yaml imported", [PYTHON, "-c", "import pydantic, jinja2, yaml"]
    )
    rows = [(floor, floor), (imports, imports), (measure("fabric-plan --help", [*tool, "--help"]), floor)]
    with tempfile.TemporaryDirectory() as scratch:
        for nodes, mesh in ((4, "opposite"), (8, "universal"), (16, "off"), (64, "off")):
            inventory = Path(scratch) / f"ring{nodes}.yaml"
            inventory.write_text(json.dumps(ring(nodes, mesh)))
            command = [*tool, "render", "-i", str(inventory), "-o", str(Path(scratch) / f"out{nodes}")]
            rounds = ROUNDS if nodes < 64 else 3
            rows.append((measure(f"render {nodes} nodes with proof, mesh {mesh}", command, rounds), imports))
    print(f"{'':44} {'median':>9} {'memory':>9}  ratio")
    for row, peer in rows:
        ratio = f"{row.seconds / peer.seconds:5.1f} x {peer.label}" if row is not peer else "peer"
        print(f"{row.label:44} {row.seconds * 1000:6.0f} ms {row.megabytes:6.0f} MB  {ratio}")
    print(
        f"this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB; medians of "
        f"{ROUNDS} runs"
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["apply"]:
        from bench import apply

        apply.main()
    else:
        main()
