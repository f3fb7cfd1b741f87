"""Cable probing: frames that say what they should, damage that is survived, and two namespaces that hear
each other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_plan.node.lldp import Heard, Probe, frame, parse_frame, parse_probe, refused
from fabric_plan.node.request import RequestError
from fabric_plan.node.tree import Tree

PROJECT = Path(__file__).parents[2]
TOKEN = "0123456789abcdef"
LEFT = Probe("left", TOKEN, ("fa",), 1.0)
RIGHT = Probe("right", TOKEN, ("fb",), 1.0)
MAC = bytes.fromhex("020000000001")
GOOD = {"system": "left", "token": TOKEN, "interfaces": ["fa"], "seconds": 1}


def test_a_frame_tells_who_sent_it() -> None:
    sent = frame(MAC, LEFT, "fa")
    assert sent[:6].hex() == "0180c200000e", "no bridge forwards this address"
    assert sent[6:12] == MAC
    assert sent[12:14].hex() == "88cc", "none of the tags that are forwarded in hardware"
    assert len(sent) >= 60
    assert parse_frame(sent, "fb", RIGHT) == Heard("fb", "left", "fa")


def test_only_frames_of_this_run_and_of_others_count() -> None:
    sent = frame(MAC, LEFT, "fa")
    assert parse_frame(sent, "fa", LEFT) is None, "our own"
    assert parse_frame(sent, "fb", Probe("right", "f" * 16, ("fb",), 1.0)) is None, "another run's"
    daemon = frame(MAC, LEFT, "fa").replace(b"fabric-plan cable probe", b"Spectacular GNU/Linux  ")
    assert parse_frame(daemon, "fb", RIGHT) is None


@given(
    data=st.binary(max_size=200), cut=st.integers(0, 120), at=st.integers(0, 90), value=st.integers(0, 255)
)
def test_damaged_frames_are_survived(data: bytes, cut: int, at: int, value: int) -> None:
    parse_frame(data, "fb", RIGHT)
    sent = bytearray(frame(MAC, LEFT, "fa"))
    sent[at % len(sent)] = value
    parse_frame(bytes(sent[:cut]), "fb", RIGHT)
    found = parse_frame(bytes(sent), "fb", RIGHT)
    assert found is None or found.dev == "fb"


@pytest.mark.parametrize(
    "change",
    [
        {"interfaces": []},
        {"interfaces": ["../etc"]},
        {"interfaces": ["a; reboot"]},
        {"interfaces": ["x"] * 17},
        {"seconds": 0},
        {"seconds": 3600},
        {"token": "short"},
        {"system": "a b"},
        {"system": 3},
    ],
)
def test_unbounded_and_odd_requests_are_refused(change: dict[str, object]) -> None:
    assert parse_probe(json.dumps(GOOD)) == LEFT
    with pytest.raises(RequestError):
        parse_probe(json.dumps({**GOOD, **change}))


def test_the_management_port_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "fd00::9 40000 fd00::1 22")
    sys_net, proc = tmp_path / "sys/class/net", tmp_path / "proc/net"
    proc.mkdir(parents=True)
    for dev in ("enP7s7", "wlP9s9", "enp1s0f0np0", "six", "way", "tun0"):
        (sys_net / dev).mkdir(parents=True)
        (sys_net / dev / "type").write_text("65534\n" if dev == "tun0" else "1\n")
    (sys_net / "wlP9s9/wireless").mkdir()
    (sys_net / "wlP9s9/wireless/link").write_text("")
    zero = "0" * 8
    (proc / "route").write_text(f"Iface\tDestination\nenP7s7\t{zero}\t0101A8C0\t0003\t0\t0\t100\t{zero}\n")
    (proc / "ipv6_route").write_text(f"{'0' * 32} 00 {'0' * 32} 00 fe80 00000064 1 0 00000003      six\n")
    (proc / "if_inet6").write_text("fd000000000000000000000000000001 02 40 00 80      way\n")
    tree = Tree(str(tmp_path))
    assert refused("enp1s0f0np0", tree) is None
    for dev, word in {
        "enP7s7": "default route",
        "six": "default route",
        "wlP9s9": "wireless",
        "tun0": "no Ethernet",
        "absent": "no Ethernet",
        "way": "reached over",
    }.items():
        assert word in (refused(dev, tree) or "")


NAMESPACES = r"""
set -e
mount --make-rprivate /; mkdir -p /run/netns; mount -t tmpfs none /run/netns
ip netns add near; ip netns add far
ip link add fa netns near type veth peer name fb netns far
ip -n near link add idle type veth peer name other
ip -n near link add mgmt type veth peer name lan
ip -n near link set fa up; ip -n far link set fb up; ip -n near link set lan up; ip -n near link set mgmt up
ip -n near addr add 192.0.2.1/24 dev mgmt; ip -n near route add default dev mgmt
ip netns exec near "$PYTHON" -m fabric_plan.node probe-cables <<<"$LEFT" >"$OUT/left" &
ip netns exec far "$PYTHON" -m fabric_plan.node probe-cables <<<"$RIGHT" >"$OUT/right"
wait $!
"""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_two_namespaces_hear_each_other(tmp_path: Path) -> None:
    left = {**GOOD, "interfaces": ["fa", "mgmt", "idle"], "seconds": 4}
    right = {**GOOD, "system": "right", "interfaces": ["fb"], "seconds": 4}
    environment = {
        **{key: value for key, value in os.environ.items() if key != "SSH_CONNECTION"},
        "PYTHONPATH": str(PROJECT),
        "PYTHON": sys.executable,
        "OUT": str(tmp_path),
        "LEFT": json.dumps(left),
        "RIGHT": json.dumps(right),
    }
    result = subprocess.run(
        ["unshare", "--net", "--mount", "bash", "-c", NAMESPACES],
        capture_output=True,
        env=environment,
        check=False,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr.decode()
    said = {name: json.loads((tmp_path / name).read_text()) for name in ("left", "right")}
    assert said["left"]["heard"] == [{"dev": "fa", "system": "right", "port": "fb"}]
    assert said["right"]["heard"] == [{"dev": "fb", "system": "left", "port": "fa"}]
    assert set(said["left"]["skipped"]) == {"mgmt", "idle"}
    assert "default route" in said["left"]["skipped"]["mgmt"]
    assert "cannot send" in said["left"]["skipped"]["idle"]
