"""Kill the controller at random moments, again and again: ``python -m tests.apply.kills [ROUNDS [SEED]]``.

Not a test of every run: a round takes half a minute, and no two runs kill at the same moments. Each round
begins at the factory state or at an applied one, kills the process group of the command line, lets every
lease and timer run out, looks at each machine, and applies again. Printed are the moments and what the
machines were after them; anything that is neither old nor new ends the program with an error.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.apply.chain import Chain, four_machines

State = dict[str, tuple[Any, Any]]


# What an undo leaves as it is: a driver's values, which need a reload, and what the kernel counts on its own.
LEFT_OUT = ("links", "devlink", "nm_conf")


def states(chain: Chain) -> State:
    """What lasts and what lives on every machine."""
    found = {}
    for name, machine in chain.machines.items():
        lives = {key: value for key, value in machine.kernel_state().items() if key not in LEFT_OUT}
        lives["routes"] = sorted(str({**route, "metric": None}) for route in lives["routes"])
        found[name] = (machine.lasting(), {**lives, "addresses": machine.kernel.addresses.copy()})
    return found


def come_back(chain: Chain, to: str) -> None:
    """Let every machine be as it was kept under a name."""
    for machine in chain.machines.values():
        machine.come_back(to)


def applied(chain: Chain, inventory: Path) -> float:
    """Apply to the end and return how long it took. Raises where it does not end well."""
    began = time.monotonic()
    result = chain.change("apply", "--json", inventory=inventory)
    assert result.status == 0, str(result)
    return time.monotonic() - began


def killed(chain: Chain, inventory: Path, after_s: float) -> bool:
    """Apply and kill it after some seconds; tell whether it was still at work."""
    process = chain.begin("apply", "--yes", "--allow-disruption", "--json", inventory=inventory)
    try:
        process.communicate(timeout=after_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return True
    return False


def main(rounds: int, seed: int) -> None:
    """Do all rounds, by turns a first apply and a small change."""
    chance, told = random.Random(seed), Counter[str]()
    print(f"{rounds} rounds, seed {seed}", flush=True)
    with four_machines() as chain:
        changed = chain.write_inventory(
            "channels", chain.cluster.inventory("mesh: {paths: opposite}\nnccl: {channels: 8}\n")
        )
        stories = []
        for name, inventory in (("a first apply", chain.inventory), ("a small change", changed)):
            for machine in chain.machines.values():
                machine.keep(name)
            old, took_s = states(chain), applied(chain, inventory)
            stories.append((name, inventory, old, states(chain), took_s))
            print(f"{name} takes {took_s:.1f} s", flush=True)
        for number in range(rounds):
            name, inventory, old, new, took_s = stories[number % 2]
            come_back(chain, name)
            moment_s = chance.uniform(0.0, took_s)
            at_work = killed(chain, inventory, moment_s)
            chain.rest()
            for machine in chain.machines.values():
                machine.pass_time()
            ends = []
            for node, now in states(chain).items():
                assert now in (old[node], new[node]), (
                    f"{name}, {moment_s:.2f} s: {node} is neither old nor new"
                )
                ends.append("old" if now == old[node] else "new")
            applied(chain, inventory)
            assert states(chain) == new, f"{name}, {moment_s:.2f} s: the next apply does not bring the plan"
            word = f"{'killed' if at_work else 'ended'}, {Counter(ends)['new']} of {len(ends)} new"
            told[f"{name}: {word}"] += 1
            print(f"{number + 1:3} {name} after {moment_s:6.2f} s: {word}", flush=True)
    for word, times in sorted(told.items()):
        print(f"{times:4} x {word}")
    print(f"{rounds} kills, 0 stranded, every next apply reached the plan")


if __name__ == "__main__":
    words = [int(word) for word in sys.argv[1:]]
    main(words[0] if words else 10, words[1] if len(words) > 1 else time.time_ns() % 10_000)
