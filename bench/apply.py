"""Apply against its peers: OpenSSH alone, Ansible and pyinfra, on the same four loopback servers in one run.

The nodes are stand-ins with a state (`tests.apply.machine`), so no figure says how long a card takes; what is
compared is what each tool needs to find that nothing differs, over real SSH. Rounds are taken in turns, so
that a busy machine is as busy for one as for the other.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench.peers import MissingError, Peer, ansible, install, pyinfra, said_by
from fabric_plan.errors import ExitCode
from tests.apply.chain import Chain, four_machines
from tests.scripts.support import plan_of, rendered

ROUNDS = 5

# The peers take many times as long and were run twice before: every second round is enough.
PEERS_EVERY = 2
ALLOWED_OF_SSH = 1.5
ALLOWED_MORE_S = 1.0
ALLOWED_S = 2.0
TARGETS = {"pyinfra": 5.0, "ansible-core": 15.0}

FLOOR = "slowest of four parallel `ssh NODE true` (OpenSSH)"
NO_CHANGE = "fabric-plan apply, no change"
VERIFY = "fabric-plan verify of four nodes, no probe"
VERIFY_BEYOND_S = 3.0


def seconds(work: Callable[[], object]) -> float:
    """Return how long `work` took."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def slowest_ssh(chain: Chain) -> float:
    """Return how long the slowest of four parallel ``ssh NODE true`` of OpenSSH took."""
    times: list[float] = []

    def one(port: int) -> None:
        command = ["ssh", "-F", str(chain.cluster.config), "-p", str(port), "127.0.0.1", "true"]
        times.append(seconds(lambda: said_by(command)))

    threads = [threading.Thread(target=one, args=(node.port,)) for node in chain.cluster.nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(times)


def ours(chain: Chain, verb: str, *words: str) -> None:
    """Run our command line."""
    result = chain.run(verb, *words)
    if result.status != 0:
        raise SystemExit(str(result))


def judged(chain: Chain) -> None:
    """Run ``verify``. Stand-ins have no neighbours: it may find things, and has to come to verdicts."""
    result = chain.run("verify")
    if result.status not in (ExitCode.OK, ExitCode.DIFFERENCE):
        raise SystemExit(str(result))


def write_trees(chain: Chain, folder: Path) -> dict[str, list[str]]:
    """Write each node's files below `folder`; return their paths by node."""
    plan = plan_of(chain.inventory.read_text(), "mesh.yaml")
    paths = {}
    for name in chain.machines:
        files = rendered(plan, name)
        paths[name] = sorted(files)
        for path, file in files.items():
            target = folder / name / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(file.content)
            target.chmod(int(file.mode, 8))
    return paths


def peers_of(chain: Chain, folder: Path) -> list[Peer]:
    """Return the peers, each after the run that copies everything; one that cannot be had is named and left
    out.
    """
    paths = write_trees(chain, folder / "trees")
    found: list[Peer] = []
    try:
        programs = install()
        candidates = (
            ansible(chain, programs, folder / "trees", folder / "ansible"),
            pyinfra(chain, programs, folder / "trees", folder / "pyinfra", paths),
        )
    except MissingError as error:
        print(f"without the peers, which could not be installed: {error}\n", file=sys.stderr)
        return []
    for peer in candidates:
        try:
            peer.run()
            said = peer.run()
        except MissingError as error:
            print(f"without {peer.name}: {error}\n", file=sys.stderr)
            continue
        if peer.unchanged not in said:
            raise SystemExit(f"{peer.name} changes something in its second run:\n{said}")
        found.append(peer)
    return found


def main() -> None:
    """Print the table."""
    load = os.getloadavg()[0]
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # nobody's start compiles everything anew
    with tempfile.TemporaryDirectory(prefix="fpb-") as scratch, four_machines() as chain:
        first = seconds(lambda: ours(chain, "apply", "--yes", "--allow-disruption"))
        chain.rest()
        peers = peers_of(chain, Path(scratch))
        works: dict[str, Callable[[], float]] = {
            FLOOR: lambda: slowest_ssh(chain),
            "fabric-plan collect: the facts of four nodes": lambda: seconds(lambda: ours(chain, "collect")),
            VERIFY: lambda: seconds(lambda: judged(chain)),
            NO_CHANGE: lambda: seconds(lambda: ours(chain, "apply")),
        }
        theirs = {f"{peer.name}, no change": peer.run for peer in peers}
        for work in works.values():
            work()  # warms caches
        times: dict[str, list[float]] = {label: [] for label in (*works, *theirs)}
        for number in range(ROUNDS):
            for label, work in works.items():
                times[label].append(work())
            for label, run in theirs.items() if number % PEERS_EVERY == 0 else ():
                times[label].append(seconds(run))
    rows = {label: statistics.median(found) for label, found in times.items()}
    no_change = rows[NO_CHANGE]
    print(f"{'':52} {'median':>7}     slowest   to the no-change apply")
    for label, found in rows.items():
        print(f"{label:52} {found:7.2f} s {max(times[label]):7.2f} s   {found / no_change:5.1f} x")
    print(f"{'fabric-plan apply, the first (once)':52} {first:7.2f} s")
    bound = min(ALLOWED_OF_SSH * rows[FLOOR] + ALLOWED_MORE_S, ALLOWED_S)
    said = "held" if no_change <= bound else "NOT held"
    print(f"budget of the no-change apply: 1.5 x slowest ssh + 1 s, at most 2 s: {bound:.2f} s: {said}")
    beyond = rows[VERIFY] - rows[FLOOR]
    said = "held" if beyond < VERIFY_BEYOND_S else "NOT held"
    print(f"budget of verify: {VERIFY_BEYOND_S:.0f} s beyond the slowest ssh: {beyond:.2f} s: {said}")
    for peer in peers:
        ratio, target = rows[f"{peer.name}, no change"] / no_change, TARGETS[peer.name]
        said = "held" if ratio >= target else "NOT held"
        print(f"target: {target:.0f} x faster than {peer.name} or better: {ratio:.1f} x: {said}")
    cores = len(os.sched_getaffinity(0))
    print(f"{ROUNDS} rounds in turns, the peers in every second; {cores} cores", end="; ")
    print(f"load {load:.1f} before, {os.getloadavg()[0]:.1f} after")
