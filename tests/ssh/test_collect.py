"""``fabric-plan collect`` over real SSH servers and on this machine."""

from __future__ import annotations

import json
import shlex
import socket
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from fabric_plan.cli.main import main
from fabric_plan.cli.reaching import saved_facts, this_node, transport_of
from fabric_plan.errors import FabricPlanError, UsageError
from tests.ssh.nodes import Cluster

Captured = pytest.CaptureFixture[str]


def collect(cluster: Cluster, folder: Path, *words: str) -> int:
    inventory = folder / "home.yaml"
    inventory.write_text(cluster.inventory())
    return main(["collect", "-i", str(inventory), "--ssh-config", str(cluster.config), *words])


def test_all_nodes_into_one_file(four_nodes: Cluster, tmp_path: Path, capsys: Captured) -> None:
    assert collect(four_nodes, tmp_path, "-o", str(tmp_path / "facts.json")) == 0
    out = capsys.readouterr().out
    facts = saved_facts(str(tmp_path / "facts.json"))
    assert list(facts) == ["spark1", "spark2", "spark3", "spark4"]
    assert all(name in out for name in facts)
    # Asked for by name, though no such device is there: the request reached the node.
    assert facts["spark1"].functions == ("enp1s0f0np0", "enp1s0f1np1", "enP2p1s0f0np0", "enP2p1s0f1np1")
    assert facts["spark1"].ssh is None or facts["spark1"].ssh.server.startswith("127.0.0.1")


def test_a_folder_and_one_node(four_nodes: Cluster, tmp_path: Path, capsys: Captured) -> None:
    assert collect(four_nodes, tmp_path, "--node", "spark3", "--json", "-o", f"{tmp_path}/facts/") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "fabric-plan/collection/v1"
    assert list(document["nodes"]) == ["spark3"] and document["failed"] == {}
    assert [path.name for path in (tmp_path / "facts").iterdir()] == ["spark3.json"]
    assert list(saved_facts(f"{tmp_path}/facts")) == ["spark3"]
    assert not (four_nodes.nodes[0].root / "var/cache/fabric-plan").exists()


def test_what_came_is_kept_where_a_node_failed(four_nodes: Cluster, tmp_path: Path, capsys: Captured) -> None:
    four_nodes.nodes[1].kill()
    (four_nodes.nodes[3].tools / "python3").write_text("#!/bin/sh\nexit 1\n")
    assert collect(four_nodes, tmp_path, "--json", "-o", str(tmp_path / "facts.json")) == 1
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert list(document["nodes"]) == ["spark1", "spark3"] == list(saved_facts(f"{tmp_path}/facts.json"))
    assert list(document["failed"]) == ["spark2", "spark4"]
    assert "error: spark2: cannot connect to 127.0.0.1" in captured.err
    assert "error: spark4: the node program was not started" in captured.err
    assert "Traceback" not in captured.err


def test_the_password_for_sudo_comes_from_standard_input(
    two_nodes: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    for node in two_nodes.nodes:
        node.tool("id", "echo 1000")
        node.tool(
            "sudo",
            'printf %s "$3" >&2; shift 4; IFS= read -r p; [ "$p" = hush ] && exec "$@"; exit 1',
        )
    monkeypatch.setattr(sys.stdin, "readline", lambda: "hush\n", raising=False)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    assert collect(two_nodes, tmp_path, "--ask-sudo-password", "--json") == 0
    captured = capsys.readouterr()
    assert "hush" not in captured.out + captured.err
    with pytest.raises(UsageError):
        transport_of(Namespace(local=False, ssh_config=None, inventory="-", ask_sudo_password=True))


def test_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    python = tools / "python3"
    root = tmp_path / "root"
    (root / "var").mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@" --root {shlex.quote(str(root))}\n')
    python.chmod(0o755)
    (tools / "id").write_text("#!/bin/sh\necho 0\n")
    (tools / "id").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    assert main(["collect", "--local", "--node", "here", "-o", str(tmp_path / "facts.json")]) == 0
    assert list(saved_facts(str(tmp_path / "facts.json"))) == ["here"]
    assert len(list((root / "var/cache/fabric-plan").glob("*.pyz"))) == 1
    python.write_text("#!/bin/sh\nexit 3\n")
    assert main(["collect", "--local"]) == 1
    assert "was not started" in capsys.readouterr().err


def test_which_node_this_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "spark2.home.arpa")
    assert this_node(["spark1", "spark2"], []) == "spark2"
    assert this_node(["spark1", "spark2"], ["spark1"]) == "spark1"
    with pytest.raises(UsageError, match="which node is this machine, called spark2"):
        this_node(["spark1", "spark3"], [])


def test_without_nodes_it_is_wrong_usage(capsys: Captured) -> None:
    assert main(["collect"]) == 64
    assert "--local means this machine" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [("[]", "no collection"), ("{", "no JSON"), ('{"schema": "fabric-plan/facts/v1"}', "make no sense")],
)
def test_what_is_no_facts_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(FabricPlanError, match=message):
        saved_facts(str(tmp_path / "x.json"))
    with pytest.raises(FabricPlanError, match="No such file"):
        saved_facts(str(tmp_path / "absent.json"))
