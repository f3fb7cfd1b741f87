"""``verify`` against nodes behind real SSH servers on loopback."""

from __future__ import annotations

import json

import pytest

from fabric_plan.cli.main import main
from tests.ssh.nodes import Cluster

PAIR = "mtu: 9000\n"


def command(cluster: Cluster) -> list[str]:
    """Return the words that verify the nodes, which are bare roots: nothing is there yet."""
    inventory = cluster.base / "inventory.yaml"
    inventory.write_text(cluster.inventory(PAIR))
    return ["verify", "-i", str(inventory), "--ssh-config", str(cluster.config)]


def connections(cluster: Cluster) -> list[int]:
    """Return how many clients each node let in."""
    return [node.log.read_text().count("Accepted publickey") for node in cluster.nodes]


def test_each_node_is_asked_over_one_connection_and_what_is_not_there_fails(
    two_nodes: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    words = command(two_nodes)
    assert main([*words, "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert connections(two_nodes) == [1, 1]
    assert {check["id"] for check in document["checks"] if check["verdict"] == "pass"} >= {"facts"}
    assert {finding["id"] for finding in document["findings"]} >= {"function", "file"}


def test_a_node_that_is_down_is_not_proven(two_nodes: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    words = command(two_nodes)
    two_nodes.nodes[1].kill()
    assert main([*words, "--json"]) == 2
    said = json.loads(capsys.readouterr().out)
    (facts,) = [c for c in said["findings"] if c["id"] == "facts"]
    assert (facts["node"], facts["verdict"]) == ("spark2", "not proven")
    assert not [c for c in said["checks"] if c["node"] == "spark2" and c["verdict"] == "pass"]


def test_when_no_node_answers_that_is_an_error(two_nodes: Cluster) -> None:
    words = command(two_nodes)
    for node in two_nodes.nodes:
        node.kill()
    assert main(words) == 1
