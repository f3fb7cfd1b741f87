"""The probe's verbs: what they refuse, and what they make of ping and perftest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fabric_plan.node.probe import answer
from fabric_plan.node.tools import Tools
from fabric_plan.node.tree import Tree
from tests.node.standins import Node, function

ADDRESSES = json.dumps(
    [
        {
            "ifindex": index,
            "ifname": dev,
            "flags": ["UP", "LOWER_UP"],
            "mtu": 9000,
            "address": mac,
            "addr_info": [{"family": "inet", "local": address, "prefixlen": 24, "scope": "global"}],
        }
        for index, dev, mac, address in (
            (2, "enP7s7", "4c:bb:47:00:00:01", "192.168.1.11"),
            (3, "enp1s0f0np0", "4c:bb:47:01:00:01", "10.10.0.10"),
        )
    ]
)
RUN: dict[str, Any] = {
    "test": "ib_write_bw",
    "device": "rocep1s0f0",
    "address": "10.10.0.10",
    "port": 18515,
    "size": 65536,
    "seconds": 2,
    "limit_s": 10,
    "peer": "192.168.1.12",
}
SERVE = {key: value for key, value in RUN.items() if key != "peer"}


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    made = Node(tmp_path)
    function(made, "enp1s0f0np0", "rocep1s0f0", "0000:01:00.0", address="10.10.0.10")
    made.write("/addresses.json", ADDRESSES)
    made.tool("ip", {"*": [f"exec cat {made.root}/addresses.json"]})
    log = tmp_path / "argv"
    for name in ("ib_write_bw", "ib_write_lat"):
        made.tool(name, {"*": [f'echo "{name} $*" >> {log}', "exec cat " + str(sample("ib_write_bw-1.txt"))]})
    made.tool(
        "ping",
        {
            "*10.10.0.11": ["echo '3 packets transmitted, 3 received, 0% packet loss, time 402ms'"],
            "*": ["echo '3 packets transmitted, 1 received, 66% packet loss, time 402ms'", "exit 1"],
        },
    )
    monkeypatch.setenv("PATH", f"{made.bin}:/usr/bin:/bin")
    return made


def sample(name: str) -> Path:
    return Path(__file__).parents[1] / "samples" / "hardware" / name


def call(node: Node, verb: str, request: dict[str, Any]) -> dict[str, Any]:
    reply = json.loads(answer(verb, json.dumps(request), Tree(str(node.root)), Tools(5.0, own_path=True)))
    assert isinstance(reply, dict)
    return reply


def test_a_client_measures_and_the_gid_is_found_by_address(node: Node, tmp_path: Path) -> None:
    reply = call(node, "probe-run", {**RUN, "flow_label": 16383})
    assert reply["ok"] and reply["values"]["BW average[Gb/sec]"] == 92.57
    assert (tmp_path / "argv").read_text() == (
        "ib_write_bw -d rocep1s0f0 -x 3 -F -p 18515 -s 65536 --report_gbits -D 2 --flow_label=16383 "
        "192.168.1.12\n"
    )


def test_a_server_takes_one_client(node: Node, tmp_path: Path) -> None:
    assert call(node, "probe-serve", SERVE)["ok"]
    assert "192.168.1.12" not in (tmp_path / "argv").read_text()


def test_a_client_waits_for_a_server_that_comes_late(node: Node, tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    late = f'echo x >> {tries}; [ $(wc -l < {tries}) -lt 3 ] && echo "Couldn\'t connect to peer" && exit 1'
    node.tool("ib_write_bw", {"*": [late, "exec cat " + str(sample("ib_write_bw-1.txt"))]})
    assert call(node, "probe-run", RUN)["ok"]
    assert len(tries.read_text().split()) == 3


def test_a_run_that_fails_says_its_last_words(node: Node) -> None:
    node.tool("ib_write_bw", {"*": ["echo Completion with error at client", "exit 1"]})
    error = call(node, "probe-run", RUN)["error"]
    assert error["id"] == "perftest" and "Completion with error" in error["message"]


def test_a_report_without_a_result_is_no_result(node: Node) -> None:
    node.tool("ib_write_bw", {"*": ["exec cat " + str(sample("ib_write_bw-5.txt"))]})
    assert call(node, "probe-run", RUN)["error"]["id"] == "perftest"


def test_a_server_ends_at_its_limit(node: Node) -> None:
    node.tool("ib_write_bw", {"*": ["exec sleep 60"]})
    error = call(node, "probe-serve", {**SERVE, "limit_s": 1})["error"]
    assert error["id"] == "perftest" and "took over 1 s" in error["message"]


def test_without_perftest_it_says_what_to_install(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(node.bin))
    (node.bin / "ib_write_bw").unlink()
    node.tool("ip", {"*": [f"exec /bin/cat {node.root}/addresses.json"]})
    error = call(node, "probe-run", RUN)["error"]
    assert (error["id"], error["hint"]) == ("no-perftest", "install perftest")


def test_pings_count_what_came_back(node: Node) -> None:
    asked = [{"source": "10.10.0.10", "to": to} for to in ("10.10.0.11", "10.10.0.12")]
    reply = call(node, "probe-ping", {"pings": asked, "count": 3, "size": 8972, "limit_s": 5})
    assert [result["received"] for result in reply["results"]] == [3, 1]


@pytest.mark.parametrize(
    ("verb", "change", "id"),
    [
        ("probe-run", {"peer": "10.10.0.11"}, "control-on-fabric"),
        ("probe-run", {"peer": "spark2"}, "bad-request"),
        ("probe-run", {"peer": "-x"}, "bad-request"),
        ("probe-run", {"address": "192.168.1.11"}, "not-ours"),
        ("probe-run", {"address": "10.10.0.11"}, "not-ours"),
        ("probe-run", {"device": "mlx5_0"}, "no-gid"),
        ("probe-run", {"device": "../x"}, "bad-request"),
        ("probe-run", {"device": "-d"}, "bad-request"),
        ("probe-run", {"test": "sh"}, "bad-request"),
        ("probe-run", {"port": 22}, "bad-request"),
        ("probe-run", {"size": 1 << 40}, "bad-request"),
        ("probe-run", {"seconds": 3600}, "bad-request"),
        ("probe-run", {"limit_s": 3600}, "bad-request"),
        ("probe-run", {"flow_label": 1 << 20}, "bad-request"),
        ("probe-run", {"command": "id"}, "bad-request"),
        ("probe-serve", {"peer": "192.168.1.12"}, "bad-request"),
        ("probe-ping", {"pings": [{"source": "192.168.1.11", "to": "192.168.1.1"}]}, "not-ours"),
        ("probe-ping", {"pings": [{"source": "10.10.0.10", "to": "8.8.8.8"}]}, "not-ours"),
        ("probe-ping", {"pings": [{"source": "10.10.0.10", "to": "10.10.0.10"}]}, "not-ours"),
        ("probe-ping", {"pings": [{"source": "10.10.0.10", "to": "10.10.0.11", "x": 1}]}, "bad-request"),
        ("probe-ping", {"pings": [], "count": 3}, "bad-request"),
        ("probe-ping", {"count": 1000}, "bad-request"),
    ],
)
def test_what_is_not_ours_is_refused(node: Node, tmp_path: Path, verb: str, change: Any, id: str) -> None:
    whole = {
        "probe-run": RUN,
        "probe-serve": SERVE,
        "probe-ping": {
            "pings": [{"source": "10.10.0.10", "to": "10.10.0.11"}],
            "count": 3,
            "size": 8972,
            "limit_s": 5,
        },
    }[verb]
    reply = call(node, verb, {**whole, **change})
    assert reply["ok"] is False and reply["error"]["id"] == id
    assert not (tmp_path / "argv").exists()
