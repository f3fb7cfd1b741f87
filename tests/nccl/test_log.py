"""What a log says: on logs of real runs (NCCL 2.28.9 over sockets), and on lines quoted of RoCE."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric_plan.cli.main import main
from fabric_plan.nccl.log import Verdict, check_log

LOGS = Path(__file__).parent / "logs"


def _verdicts(text: str, devices: int | None = None) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for finding in check_log(text, devices):
        assert finding.means
        assert finding.mend or finding.verdict is Verdict.GOOD
        found.setdefault(str(finding.verdict), set()).add(finding.id)
    return found


@pytest.mark.parametrize(
    ("name", "bad", "good"),
    [
        ("planned", {"sockets"}, {"graph-loaded", "rings-connected"}),
        ("cumem-off", {"sockets", "tree-channels", "unreachable"}, {"graph-loaded", "rings-connected"}),
        ("no-algo", {"sockets", "tree-channels", "unreachable", "rings-missing"}, {"graph-loaded"}),
        ("cross-nic-0", {"sockets", "cross-nic-off", "graph-ignored", "unreachable", "rings-missing"}, None),
        ("no-graph", {"sockets", "unreachable", "rings-missing"}, None),
    ],
)
def test_logs_of_real_runs(name: str, bad: set[str], good: set[str] | None) -> None:
    found = _verdicts((LOGS / f"{name}.log").read_text())
    assert found["bad"] == bad
    assert found.get("good") == good


HEAD = """\
spark1:1:1 [0] NCCL INFO NCCL version 2.30.7+cuda13.0
spark1:1:1 [0] NCCL INFO NET/IB : Using [0]rocep1s0f0:1/RoCE [1]rocep1s0f1:1/RoCE [2]roceP2p1s0f0:1/RoCE \
[3]roceP2p1s0f1:1/RoCE [RO]; OOB enP7s7:192.168.1.11<0>
spark1:1:1 [0] NCCL INFO Using network IB
spark1:1:1 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 0
"""


@pytest.mark.parametrize(
    ("lines", "verdict", "id_"),
    [
        ("NET/IB ListenerRouting format=ipv4-v1 advertised=4 observed=4", "good", "advertised"),
        ("NET/IB ListenerRouting format=ipv4-v1 advertised=2 observed=4", "bad", "advertised"),
        ("NET/IB: Subnet-aware routing: overriding dev 3 with dev 0", "bad", "collapsed"),
        ("NET/IB: Subnet-aware routing: overriding dev 1 with dev 0", "good", "same-plane"),
        (
            "NET/IB: Subnet-aware routing: overriding dev 3 with dev 2 preserving PCI root pci0002:00",
            "good",
            "same-plane",
        ),
        ("Tree transport setup disabled by NCCL_SWITCHLESS_RING_ONLY", "good", "trees-disabled"),
        ("Connected all trees", "bad", "trees-connected"),
        ("Connected binomial trees", "bad", "trees-connected"),
        ("ncclTransportTreeConnect: unhandled system error", "bad", "tree-connect"),
        (
            "Call to ibv_modify_qp failed with 110 Connection timed out, on dev rocep1s0f0:1, curr state "
            "INIT, next RTR, local GID index 3, local GID ::ffff:10.10.0.1, remote GID ::ffff:10.10.2.1",
            "bad",
            "queue-pair",
        ),
        (
            "HINT: To confirm, you can set NCCL_CROSS_NIC=0 to disable cross-rail communication.",
            "bad",
            "bad-advice",
        ),
        (
            "Call to ibv_modify_qp failed with 22 Invalid argument, on dev rocep1s0f0:1, curr state INIT, "
            "next state RTR, local GID index 3, local GID ::, remote GID ::ffff:10.10.2.11",
            "bad",
            "wrong-gid",
        ),
        ("local GID index 1, local GID fe80::1, remote GID ::ffff:10.10.2.11", "bad", "wrong-gid"),
        ("NET/IB : rocep1s0f0:1 GID table changed", "bad", "gid-table"),
        ("NET/IB : No device found.", "bad", "no-device"),
        ("NET/IB : Made virtual device [4] name=rocep1s0f0+rocep1s0f1 speed=400000 ndevs=2", "bad", "merged"),
        (
            "NET/IB : Made virtual device [0] name=rocep1s0f0 speed=200000 ndevs=1 rail=0 plane=0",
            "",
            "merged",
        ),
        ("XML Parse : expected >, got '?'", "bad", "graph-unreadable"),
        ("Search 0 : 4 channels loaded from XML graph", "good", "graph-loaded"),
        ("Search 0 : -1 channels loaded from XML graph", "bad", "graph-ignored"),
        ("NCCL_GRAPH_FILE set by environment to /etc/x.xml", "not proven", "graph-not-proven"),
        ("Got completion from peer 10.10.0.11 with status=12", "bad", "completion"),
    ],
)
def test_line(lines: str, verdict: str, id_: str) -> None:
    found = _verdicts(HEAD + f"spark1:1:1 [0] NCCL INFO {lines}\n")
    assert [name for name, ids in found.items() if id_ in ids] == ([verdict] if verdict else [])


def test_a_disabled_tree_is_no_failed_one() -> None:
    found = _verdicts(HEAD + "x NCCL INFO Tree transport setup disabled by NCCL_SWITCHLESS_RING_ONLY\n")
    assert "tree-connect" not in found.get("bad", set())


def test_planes_come_from_pci_roots_where_names_say_nothing() -> None:
    paths = ("pci0000:00", "pci0000:00", "pci0002:00", "pci0002:00")
    text = "".join(
        f"h NCCL INFO NET/IB: [{i}] mlx5_{i}:u{i}:1/RoCE speed=200000 pciPath=/sys/devices/{path}/x\n"
        for i, path in enumerate(paths)
    )
    text += "h NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_2:1/RoCE [2]mlx5_1:1/RoCE [RO]\n"
    collapsed = _verdicts(text + "h NCCL INFO NET/IB: Subnet-aware routing: overriding dev 1 with dev 0\n")
    assert "collapsed" in collapsed["bad"]
    same = _verdicts(text + "h NCCL INFO NET/IB: Subnet-aware routing: overriding dev 2 with dev 0\n")
    assert "same-plane" in same["good"]


def test_trees_are_right_where_everybody_is_joined() -> None:
    text = (LOGS / "cumem-off.log").read_text() + "h NCCL INFO Connected all trees\n"
    ids = {finding.id for finding in check_log(text, trees=True)}
    assert not ids & {"trees-connected", "tree-channels"}
    assert {"trees-connected", "tree-channels"} <= {finding.id for finding in check_log(text)}


def test_what_is_not_logged_is_not_proven() -> None:
    assert _verdicts("") == {"not proven": {"nothing-logged"}}
    assert _verdicts("INFO: engine ready\n") == {"not proven": {"nothing-logged"}}
    assert _verdicts(HEAD)["not proven"] == {"routing-not-logged"}
    started = "h NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 4 - Init COMPLETE\n"
    assert _verdicts(started)["not proven"] == {"rings-missing"}
    (died,) = check_log(started.replace("COMPLETE", "START"))
    assert "a graph without typeintra" in died.means


def test_the_plan_says_how_many_devices_there_are() -> None:
    line = HEAD + "h NCCL INFO NET/IB ListenerRouting format=ipv4-v1 advertised=2\n"
    assert "advertised" in _verdicts(line, 4)["bad"]
    assert "advertised" in _verdicts(line, 2)["good"]


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nccl", "check-log", str(LOGS / "cross-nic-0.log")]) == 2
    out = capsys.readouterr().out
    assert "with 0 NCCL drops the graph file and says nothing" in out
    assert main(["nccl", "check-log", str(LOGS / "planned.log"), "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert {finding["id"] for finding in document["findings"]} == {
        "sockets",
        "graph-loaded",
        "rings-connected",
    }


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=400))
def test_no_text_brings_it_down(text: str) -> None:
    check_log(text)
    check_log(HEAD + text)
