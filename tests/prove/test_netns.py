"""The plan on real kernels: pings, what breaks them, and that nothing is left behind."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import TypeVar

import pytest

from fabric_plan.cli.main import main
from fabric_plan.errors import FabricPlanError
from fabric_plan.planner.model import NodePlan, Plan
from fabric_plan.planner.sysctl import Sysctl, sysctls
from fabric_plan.prove import namespaces
from fabric_plan.prove.netns import ping_all
from tests.strategies import ALTERNATING, Sketch

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="network namespaces need Linux"),
    pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() != 0, reason="network namespaces need root"),
]

RING4 = Path(__file__).parents[2] / "inventories" / "ring4.yaml"
DEADLINE = 60.0

_T = TypeVar("_T")

_TWINS = {
    i: [
        {"subnet": f"172.20.{i}.0/24", "addresses": [f"172.20.{i}.1", f"172.20.{i}.2"]},
        {"subnet": f"172.20.{i}.0/24", "addresses": [f"172.20.{i}.101", f"172.20.{i}.102"]},
    ]
    for i in range(4)
}
_APART = {i: [{"subnet": f"172.20.{i}.0/24"}, {"subnet": f"172.21.{i}.0/24"}] for i in range(4)}


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """Whatever a test does, it ends in the namespace and with the links and files that it began with."""
    before = _state()
    yield
    assert _state() == before


def _state() -> tuple[str, list[str], int]:
    gc.collect()  # what tests before this one have let go of is not this one's doing
    return (
        str(Path("/proc/self/ns/net").readlink()),
        sorted(path.name for path in Path("/sys/class/net").iterdir()),
        len(list(Path("/proc/self/fd").iterdir())),
    )


@pytest.mark.parametrize(
    ("sketch", "asked"),
    [
        (Sketch(mesh="opposite"), 48),
        (Sketch(mesh="universal", flips=ALTERNATING, prefix=31), 48),
        (Sketch(nodes=8, mesh="universal"), 224),
        (Sketch(nodes=3, macs=False, prefix=30), 24),
        (Sketch(nodes=4, shape="line", mesh="universal"), 36),
        (Sketch(nodes=4, shape="switched"), 48),
        (Sketch(mesh="opposite", pins=_TWINS), 48),
        (Sketch(planes=("managed", "unmanaged"), pins=_APART), 24 + 8),
    ],
    ids=lambda value: f"{value.shape}{value.nodes}-{value.mesh}" if isinstance(value, Sketch) else None,
)
def test_every_address_answers_every_node_at_full_mtu(sketch: Sketch, asked: int) -> None:
    pinged = ping_all(sketch.plan())
    assert [str(failure) for failure in pinged.failures] == []
    assert (pinged.asked, pinged.answered, pinged.size) == (asked, asked, 9000)


@pytest.mark.parametrize("sketch", [Sketch(mesh="opposite"), Sketch(nodes=8)], ids=["ring4", "ring8"])
def test_one_route_taken_out_is_seen_and_named(sketch: Sketch) -> None:
    plan = sketch.plan()
    node = plan.nodes[0]
    gone, *rest = node.kernel_routes
    pinged = ping_all(_with_node(plan, replace(node, kernel_routes=tuple(rest))))
    # Others fail with it: what crosses n0 to that cable, and the answers to what was sent from there.
    assert not pinged.ok and pinged.answered > pinged.asked / 2
    assert {f.why for f in pinged.failures if f.node == "n0" and f.address in gone.to} == {
        "Network is unreachable"
    }


def _with_node(plan: Plan, changed: NodePlan) -> Plan:
    return replace(plan, nodes=tuple(changed if node.name == changed.name else node for node in plan.nodes))


def _without(name: str) -> Callable[[Plan, NodePlan], tuple[Sysctl, ...]]:
    return lambda plan, node: tuple(s for s in sysctls(plan, node) if s.name != name)


def test_without_forwarding_the_far_corner_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "sysctls", _without("forwarding"))
    pinged = ping_all(Sketch().plan())
    assert {(f.node, f.peer) for f in pinged.failures} >= {
        ("n0", "n2"),
        ("n2", "n0"),
        ("n1", "n3"),
        ("n3", "n1"),
    }


def test_without_arp_ignore_twins_answer_for_each_other_and_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "sysctls", _without("arp_ignore"))
    pinged = ping_all(Sketch(nodes=3).plan())
    assert any("learned the MAC" in failure.why for failure in pinged.failures)


def test_what_the_kernel_refuses_is_said_and_nothing_stays() -> None:
    plan = Sketch().plan()
    node = plan.nodes[2]
    wrong = replace(node.kernel_routes[0], via=IPv4Address("10.99.0.1"))
    broken = _with_node(plan, replace(node, kernel_routes=(wrong, *node.kernel_routes[1:])))
    with pytest.raises(FabricPlanError, match=r"refuses the route to .* via 10\.99\.0\.1") as caught:
        ping_all(broken)
    assert caught.value.where == "n2"


def test_the_verb_tells_and_puts_it_into_its_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", "-i", str(RING4), "--netns", "--json"]) == 0
    said = capsys.readouterr()
    assert "kernels: ok (48 of 48 pings answered, 9000 bytes each" in said.err
    assert json.loads(said.out)["netns"] == {
        "ok": True,
        "asked": 48,
        "answered": 48,
        "size": 9000,
        "failures": [],
    }


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv (util-linux) is missing")
def test_without_the_right_to_it_says_so() -> None:
    command = [sys.executable, "-m", "fabric_plan", "prove", "-i", str(RING4), "--netns"]
    powerless = ["setpriv", "--bounding-set=-sys_admin", *command]
    done = subprocess.run(powerless, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 1
    assert (
        "error: cannot make a network namespace: Operation not permitted\n  hint: run it as root\n"
        in done.stderr
    )


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
def test_an_interrupt_leaves_nothing_behind(how: signal.Signals, tmp_path: Path) -> None:
    inventory = tmp_path / "big.yaml"
    inventory.write_text(Sketch(nodes=24).text())
    # Tests that run in the background of a script inherit an ignored SIGINT; a person's terminal does not.
    listens = ["env", "--default-signal=INT"]
    process = subprocess.Popen(
        [*listens, sys.executable, "-m", "fabric_plan", "prove", "-i", str(inventory), "--netns"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        _until(lambda: len(_held_by(process.pid)) > 4)
        ours = _held_by(process.pid)
        process.send_signal(how)
        _, told = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode != 0 and b"Traceback" not in told
    _until(lambda: not ours & _everywhere())


def _held_by(pid: int) -> set[str]:
    """Return the network namespaces that a process holds beside this one's."""
    found = set()
    for entry in (*Path(f"/proc/{pid}/fd").glob("*"), Path(f"/proc/{pid}/ns/net")):
        try:
            target = str(entry.readlink())
        except OSError:
            continue
        if target.startswith("net:["):
            found.add(target)
    return found - {str(Path("/proc/self/ns/net").readlink())}


def _everywhere() -> set[str]:
    """Return every network namespace that some process holds, or that is mounted anywhere."""
    held: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        held |= _held_by(int(process.name))
    mounted = (
        line.split()[3] for line in Path("/proc/self/mountinfo").read_text().splitlines() if " nsfs " in line
    )
    return held | set(mounted)


def _until(condition: Callable[[], _T]) -> _T:
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        if found := condition():
            return found
        os.sched_yield()
    raise AssertionError("the condition did not come true in time")
