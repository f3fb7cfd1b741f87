"""Discover over real SSH connections on loopback: what the nodes' own tools print becomes an inventory."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from fabric_plan.cli.main import main
from tests.discover.test_cases import CASES, adopt
from tests.ssh.nodes import Cluster

CASE = CASES / "05-ring4-twins-share-24-n-10n"
NAMES = ("forge-a", "forge-b", "forge-c", "forge-d")


def discover(cluster: Cluster, out: Path, *more: str) -> int:
    """Let each node print the dump of one node of the case, and discover them all."""
    words = []
    for node, name in zip(cluster.nodes, NAMES, strict=True):
        dump = CASE / "nodes" / name / "ip-addr.json"
        node.tool("ip", f'case "$*" in "-j -d addr show") cat {shlex.quote(str(dump))};; *) exit 255;; esac')
        hostname = node.root / "proc/sys/kernel/hostname"
        hostname.parent.mkdir(parents=True, exist_ok=True)
        hostname.write_text(f"{name}.example\n")
        words.append(f"127.0.0.1:{node.port}")
    return main(["discover", *words, "--ssh-config", str(cluster.config), "-o", str(out), *more])


def test_live_nodes_give_what_their_dumps_give(four_nodes: Cluster, tmp_path: Path) -> None:
    out = tmp_path / "home.yaml"
    assert discover(four_nodes, out) == 0
    text = out.read_text()
    for node in four_nodes.nodes:
        assert f"ssh: {{port: {node.port}}}" in text
    folder = adopt(CASE).text
    assert folder is not None
    kept = [line for line in text.splitlines() if "mgmt" not in line and "ssh" not in line]
    assert kept == [line for line in folder.splitlines() if "mgmt" not in line]


def test_a_probe_sends_nothing_on_what_is_no_port(
    four_nodes: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The nodes' /sys is empty, so each of them refuses every device, says so, and the addresses decide."""
    assert discover(four_nodes, tmp_path / "home.yaml", "--probe-cables") == 0
    said = capsys.readouterr().err
    assert "forge-a enp1s0f0np0 was not probed: it is no Ethernet device" in said
    assert "enP7s7" not in said


def test_a_node_that_is_away_is_named_and_nothing_is_written(
    four_nodes: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    four_nodes.nodes[2].kill()
    assert discover(four_nodes, tmp_path / "home.yaml") == 1
    assert not (tmp_path / "home.yaml").exists()
    assert f"port {four_nodes.nodes[2].port}" in capsys.readouterr().err
