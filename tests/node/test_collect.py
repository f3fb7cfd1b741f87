"""The collector against a node of files and stand-in tools: whole, crippled, hostile and slow."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import yaml

from fabric_plan.facts import Facts, effective_sysctl, load_facts
from fabric_plan.node.__main__ import collect_facts
from fabric_plan.node.tools import Tools
from fabric_plan.node.tree import Tree
from tests.node.standins import HAIRPIN, MARKER, Node, function, spark

NOTHING: Mapping[str, object] = {}
PROJECT = Path(__file__).parents[2]


def facts_of(
    node: Node,
    monkeypatch: pytest.MonkeyPatch,
    request: Mapping[str, object] = NOTHING,
    path: str = "/usr/bin:/bin",
) -> Facts:
    """Collect from a node of files, with time enough for a busy machine, and read the document back."""
    monkeypatch.setenv("PATH", f"{node.bin}:{path}")
    text = json.dumps({"tool_limit_s": 30, "all_limit_s": 60, **request})
    return load_facts(
        collect_facts(text, Tree(str(node.root)), Tools(1, own_path=True)).encode(), node="spark1"
    )


def test_whole_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.9 50000 192.0.2.62 22")
    facts = facts_of(spark(tmp_path), monkeypatch)
    assert facts.functions == ("enp1s0f0np0",)
    assert facts.host.hostname == "spark1" and facts.host.os == "DGX OS 7"
    assert (
        facts.host.uptime_s == 1741.34 and facts.host.machine_id_sha256 != "0123456789abcdef0123456789abcdef"
    )
    assert facts.tools["ip"].version == "ip utility, iproute2-6.1.0"
    assert facts.ssh is not None and facts.ssh.client == "192.0.2.9"
    assert facts.interfaces.value is not None and facts.interfaces.value.links[0].pci == "0000:01:00.0"
    assert facts.routes.complete and facts.neighbours.complete
    (rule,) = facts.tc["enp1s0f0np0"].rules.value or ()
    assert (rule.dev, rule.set_dst_mac) == ("enp1s0f0np0", "4c:bb:47:03:00:00")
    ethtool = facts.ethtool["enp1s0f0np0"]
    assert ethtool.features.value is not None and ethtool.features.value["hw-tc-offload"].active
    devlink = facts.devlink["0000:01:00.0"]
    assert devlink.params.value is not None
    assert devlink.params.value["hairpin_queue_size"].values == {"driverinit": "1024"}
    assert devlink.reloads.value is not None and devlink.reloads.value.own["driver_reinit"] == {
        "unspecified": 0
    }
    assert [hairpin.num_packets for hairpin in devlink.hairpins.value or ()] == [8192]
    assert devlink.eswitch.complete and devlink.info.complete
    qos = facts.qos["enp1s0f0np0"]
    assert qos.mlnx_qos.value is not None and qos.mlnx_qos.value.trust == "dscp" and qos.dcb.complete
    assert facts.snmp.value is not None and facts.snmp.value["Ip.ForwDatagrams"] == 0
    assert facts.sysctls["net.ipv4.conf.enp1s0f0np0.rp_filter"] == "2"
    assert facts.sysctls["net.ipv4.conf.enp1s0f0np0.arp_ignore"] is None
    assert effective_sysctl(facts, "enp1s0f0np0", "rp_filter") == 2
    assert facts.firewall.value == ("-P FORWARD DROP",)
    assert facts.lldp.value is not None and facts.lldp.value[0].dev == "eth0"
    assert facts.network_manager.devices.complete
    assert facts.units.value is not None
    assert facts.units.value["fabric-plan-mesh.service"].active_since_us == 9315204
    assert facts.units.value["docker.service"].load_state == "not-found"
    assert facts.disks["/etc"].free > 0 if "/etc" in facts.disks else True


def test_rdma_and_its_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = facts_of(spark(tmp_path), monkeypatch)
    (port,) = facts.rdma.ports.value or ()
    assert (port.device, port.netdev, port.pci, port.state) == (
        "rocep1s0f0",
        "enp1s0f0np0",
        "0000:01:00.0",
        "4: ACTIVE",
    )
    assert port.hw_counters == {"out_of_sequence": 7} and port.counters == {"port_xmit_data": 2**64 - 1}
    assert [(gid.index, gid.type, gid.address) for gid in facts.rdma.gids.value or ()] == [
        (0, "v1", None),
        (3, "v2", "10.10.0.10"),
    ]
    (marker,) = facts.rdma.markers.value or ()
    assert (marker.pid, marker.device, marker.arguments) == (77, "rocep1s0f0", MARKER[1:])
    assert [device.port["active_mtu"] for device in facts.rdma.verbs.value or ()][1] == "4096 (5)"
    assert facts.rdma.usage.reasons == ()
    assert not facts.rdma.usage.in_use


@pytest.mark.parametrize(
    ("qp", "ctx", "reason"),
    [
        (
            '[{"ifname":"rocep1s0f0","lqpn":9,"type":"RC","state":"RTS","pid":5,"comm":"engine"}]',
            "[]",
            "of engine (process 5)",
        ),
        ('[{"ifname":"rocep1s0f0","lqpn":9,"type":"RC","comm":"rpcrdma"}]', "[]", "of rpcrdma (kernel)"),
        (
            '[{"ifname":"rocep1s0f0","lqpn":1,"type":"GSI","comm":"ib_core"}]',
            '[{"ifname":"rocep1s0f0","pid":5}]',
            "open in",
        ),
        (
            '[{"ifname":"rocep1s0f0","lqpn":1,"type":"GSI","comm":"ib_core"}',
            "[]",
            "queue pairs cannot be read",
        ),
        ('[{"ifname":"rocep1s0f0","lqpn":1,"type":"GSI","comm":"ib_core"}]', "{", "contexts cannot be read"),
        ("[]", "[]", "rocep1s0f0: no queue pair is shown"),
        # The kernel's name on a process' queue pair is no proof.
        (
            '[{"ifname":"rocep1s0f0","lqpn":1,"type":"GSI","comm":"ib_core","pid":3}]',
            "[]",
            "of ib_core (process 3)",
        ),
    ],
)
def test_rdma_in_use(qp: str, ctx: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = spark(tmp_path)
    node.tool(
        "rdma", {"'-j resource show qp'": [f"echo '{qp}'"], "'-j resource show ctx'": [f"echo '{ctx}'"]}
    )
    usage = facts_of(node, monkeypatch).rdma.usage
    assert usage.in_use
    assert any(reason in words for words in usage.reasons), usage.reasons


def test_no_tools_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = spark(tmp_path)
    for path in node.bin.iterdir():
        path.unlink()
    facts = facts_of(node, monkeypatch, path="")
    assert {tool.path for tool in facts.tools.values()} == {None}
    assert facts.interfaces.value is None
    assert facts.interfaces.unread[0].reason == "ip is not there"
    assert facts.tc["enp1s0f0np0"].rules.unread[0].reason == "tc is not there"
    assert facts.rdma.usage.in_use, "what cannot be read counts as in use"


def test_a_node_without_rdma_is_not_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = facts_of(Node(tmp_path), monkeypatch)
    assert facts.functions == () and facts.rdma.ports.value == ()
    assert not facts.rdma.usage.in_use


def test_tool_that_hangs_is_killed_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = spark(tmp_path)
    pid_file = tmp_path / "pid"
    node.tool("devlink", {}, otherwise=f"sleep 600 & echo $! > {pid_file}; wait")
    facts = facts_of(node, monkeypatch, {"tool_limit_s": 2})
    devlink = facts.devlink["0000:01:00.0"]
    assert devlink.info.value is None
    assert devlink.info.unread[0].reason == "devlink took over 2 s"
    assert facts.routes.complete, "the others are not held up"
    # A killed process has its time to go: the kernel gets to it when it may.
    deadline = time.monotonic() + 30
    while not _gone(int(pid_file.read_text())):
        assert time.monotonic() < deadline, "what the tool had started still runs"
        os.sched_yield()


def _gone(pid: int) -> bool:
    try:
        stat = (Path("/proc") / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] in ("Z", "X")


def test_deadline_of_all_gives_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = spark(tmp_path)
    node.tool("lldpcli", {}, otherwise="exec sleep 600")
    facts = facts_of(node, monkeypatch, {"all_limit_s": 5})
    assert facts.lldp.unread[0].reason == "no answer within the time for all facts"
    assert facts.routes.complete


def test_broken_json_falls_back_to_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = spark(tmp_path)
    node.tool(
        "rdma",
        {
            "'-j '*": ['echo \'[{"ifname":"rocep1s0f0",}]\''],
            "'link show'": "hardware/rdma-link-1.txt",
            "'resource show qp'": "hardware/rdma-qp-2.txt",
        },
    )
    facts = facts_of(node, monkeypatch)
    assert facts.rdma.links.complete and len(facts.rdma.links.value or ()) == 4
    assert [pair.comm for pair in facts.rdma.queue_pairs.value or ()] == ["kv-poll-event"]
    assert "broken JSON" in facts.rdma.contexts.unread[0].reason


def test_who_uses_rdma_is_asked_before_a_tool_of_ours_opens_the_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = spark(tmp_path)
    asked = tmp_path / "asked"
    node.tool(
        "rdma", {f"'-j resource show {what}'": [f"echo >> {asked}; echo '[]'"] for what in ("qp", "ctx")}
    )
    node.tool("ibv_devinfo", {}, otherwise=f"test $(wc -l < {asked}) = 2 && echo 'hca_id: rocep1s0f0'")
    facts = facts_of(node, monkeypatch)
    assert [device.device for device in facts.rdma.verbs.value or ()] == ["rocep1s0f0"]


def test_a_flood_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = spark(tmp_path)
    node.tool("iptables", {}, otherwise="exec yes")
    facts = facts_of(node, monkeypatch)
    assert facts.firewall.value is None
    assert "printed more than" in facts.firewall.unread[0].reason


def test_an_answer_of_the_kernel_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = spark(tmp_path)
    node.tool("devlink", {}, otherwise="echo 'kernel answers: No such device' >&2; exit 1")
    info = facts_of(node, monkeypatch).devlink["0000:01:00.0"].info
    assert info.value is None and info.unread[0].excerpt == "kernel answers: No such device"


def test_files_of_ours_and_netplan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = spark(tmp_path)
    node.write("/etc/fabric-plan/node.json", '{"digest": "d"}', 0o640)
    node.write("/usr/local/lib/fabric-plan/mesh-up.sh", "#!/bin/bash\n", 0o755)
    node.write("/run/fabric-plan/hairpin/0000:01:00.0", b"\xff\xfe")
    node.write("/run/fabric-plan/apply.json", '{"token": "secret"}', 0o600)
    node.write("/run/fabric-plan/trial/3/list", "-")
    node.write("/etc/fabric-plan/env/nccl.env", "X=1\n")
    node.write("/etc/netplan/40-sparkring-plane1.yaml", "network: {}\n", 0o600)
    node.write("/run/netplan/40-sparkring-plane1.yaml", "network: {version: 2}\n", 0o600)
    node.write("/etc/netplan/90-NM-5b0c9d1e.yaml", b"\0" * 541)
    node.write("/lib/netplan/00-vendor.yaml", "network: {}\n")
    node.write("/etc/netplan/big.yaml", "# " * 600_000)
    node.write("/etc/other", "x")
    (node.root / "etc/systemd/system").mkdir(parents=True)
    (node.root / "etc/systemd/system/fabric-plan-mesh.service").symlink_to("/dev/null")
    os.mkfifo(node.root / "etc/fabric-plan/pipe")
    facts = facts_of(node, monkeypatch, {"paths": ["/etc/other", "/etc/gone"]})
    files = facts.files.value or {}
    assert files["/etc/fabric-plan/node.json"].mode == "0640"
    assert files["/etc/fabric-plan/node.json"].text == '{"digest": "d"}'
    assert files["/usr/local/lib/fabric-plan/mesh-up.sh"].mode == "0755"
    assert files["/etc/fabric-plan/env"].kind == "directory"
    note = files["/run/fabric-plan/hairpin/0000:01:00.0"]
    assert (note.text, note.size) == (None, 2)
    # The token of a lease is nobody else's business.
    assert not any(path.startswith(("/run/fabric-plan/apply", "/run/fabric-plan/trial")) for path in files)
    assert files["/etc/systemd/system/fabric-plan-mesh.service"].target == "/dev/null"
    assert files["/etc/fabric-plan/pipe"].kind == "other"
    assert files["/etc/other"].sha256 is not None
    assert files["/etc/gone"].kind == "unreadable"
    netplan = facts.netplan.value or {}
    assert set(netplan) == {
        "/etc/netplan/40-sparkring-plane1.yaml",
        "/etc/netplan/90-NM-5b0c9d1e.yaml",
        "/etc/netplan/big.yaml",
        "/lib/netplan/00-vendor.yaml",
        "/run/netplan/40-sparkring-plane1.yaml",
    }
    nul = netplan["/etc/netplan/90-NM-5b0c9d1e.yaml"]
    assert (nul.nul, nul.size, nul.text) == (True, 541, None)
    assert netplan["/etc/netplan/big.yaml"].error == "larger than 1048576 bytes"


def test_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path)
    # The words lie across the border of two chunks.
    head = b"x" * ((4 << 20) - 9)
    node.write("/opt/libnccl.so.2", head + b"SWITCHLESS_RING_ONLY\0NCCL version 2.28.9+cuda13.0\0")
    request = {"libraries": ["/opt/libnccl.so.2", "/opt/none"], "marks": ["SWITCHLESS_RING_ONLY", "ABSENT"]}
    libraries = facts_of(node, monkeypatch, request).libraries
    found = libraries["/opt/libnccl.so.2"]
    assert (found.marks, found.version) == (("SWITCHLESS_RING_ONLY",), "2.28.9")
    assert found.sha256 is not None and found.size == len(head) + 50
    assert libraries["/opt/none"].error == "No such file or directory"


def test_interfaces_of_the_request_limit_what_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = spark(tmp_path)
    function(node, "enp1s0f1np1", "rocep1s0f1", "0000:01:00.1")
    assert facts_of(node, monkeypatch).functions == ("enp1s0f0np0", "enp1s0f1np1")
    facts = facts_of(node, monkeypatch, {"interfaces": ["enp1s0f1np1"]})
    assert set(facts.tc) == {"enp1s0f1np1"} and set(facts.devlink) == {"0000:01:00.1"}


def run(
    arguments: Sequence[str], request: bytes, python: str = sys.executable
) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    return subprocess.run(
        [python, "-m", "fabric_plan.node", *arguments],
        input=request,
        capture_output=True,
        env=environment,
        check=False,
    )


@pytest.mark.parametrize(
    ("request_text", "words"),
    [
        (b"[", b"no JSON"),
        (b'{"interface": []}', b"an object of these keys"),
        (b'{"interfaces": "a"}', b"a list of at most"),
        (b'{"interfaces": ["a;reboot"]}', b"not allowed here"),
        (b'{"interfaces": [".."]}', b"not allowed here"),
        (b'{"paths": ["etc/x"]}', b"not allowed here"),
        (b'{"paths": ["/etc/../x"]}', b"not allowed here"),
        (b'{"units": ["-H evil"]}', b"not allowed here"),
        (b'{"all_limit_s": 0}', b"a number of seconds up to 600"),
        (b'{"tool_limit_s": true}', b"a number of seconds up to 600"),
        (b"x" * (16 << 20) + b"y", b"more than 16777216 bytes"),
    ],
)
def test_bad_requests_are_refused_in_one_line(request_text: bytes, words: bytes, tmp_path: Path) -> None:
    result = run(["collect", "--root", str(tmp_path)], request_text)
    assert (result.returncode, result.stdout) == (1, b"")
    assert words in result.stderr and result.stderr.count(b"\n") == 1


@pytest.mark.parametrize("arguments", [[], ["collect", "more"], ["explode"], ["--root"]])
def test_wrong_usage(arguments: list[str]) -> None:
    result = run(arguments, b"")
    assert (result.returncode, result.stdout) == (64, b"")
    assert b"usage: " in result.stderr


def test_program_on_this_machine_gives_one_document() -> None:
    result = run(["collect"], b'{"interfaces": ["lo"]}')
    assert result.returncode == 0 and result.stderr == b""
    facts = load_facts(result.stdout, node="here")
    assert facts.host.kernel == os.uname().release
    assert facts.snmp.complete


def test_hairpin_table_is_told_from_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = spark(tmp_path)
    table = node.root / "sys/kernel/debug/mlx5/0000:01:00.0/nic/fs/tc/hairpin_table_dump"
    assert table.read_text() == HAIRPIN
    table.write_text("")
    assert facts_of(node, monkeypatch).devlink["0000:01:00.0"].hairpins.value == ()
    table.unlink()
    assert facts_of(node, monkeypatch).devlink["0000:01:00.0"].hairpins.value is None


def test_every_path_of_the_roles_is_among_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = spark(tmp_path)
    layers = [yaml.safe_load(path.read_text()) for path in sorted((PROJECT / "roles/layers").glob("*.yaml"))]
    planned = [artefact["path"] for layer in layers for artefact in layer["artefacts"]]
    paths = {re.sub(r"{[^}]*}", "x", path.replace("{number}", "41")) for path in planned}
    assert len(paths) > 10
    for path in paths:
        node.write(path, "x")
    assert paths <= set(facts_of(node, monkeypatch).files.value or {})


def test_devlink_that_lists_nothing_is_asked_about_each_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = spark(tmp_path)
    handle = "pci/0000:01:00.0"
    node.tool(
        "devlink",
        {
            f"'-j dev param show {handle} name hairpin_queue_size'": "hardware/devlink-param-4.json",
            f"'-s dev show {handle}'": [f"printf '{handle}:\\n  stats:\\n      reload:\\n'"],
        },
        otherwise="echo 'kernel answers: No data available' >&2; exit 1",
    )
    devlink = facts_of(node, monkeypatch).devlink["0000:01:00.0"]
    assert devlink.params.value is not None and set(devlink.params.value) == {"hairpin_queue_size"}
    assert len(devlink.params.unread) == 2 and not devlink.params.complete
    assert devlink.reloads.value is not None and devlink.reloads.value.own == {}
    assert devlink.info.value is None
    assert devlink.info.unread[0].excerpt == "kernel answers: No data available"
