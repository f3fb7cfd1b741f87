"""The wiring process: cables are private, the management LAN learns, slow readers lose frames."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.build import Artifacts
from lab.driver import Lab
from lab.errors import LabError
from lab.spec import ring
from lab.switch import Switch
from lab.waiting import wait_for

A, B, GW = (bytes.fromhex(f"02000000000{i}") for i in (1, 2, 3))
ALL = b"\xff" * 6
CABLES, LAN = [["f0.0", "f1.1"]], ["lan.0", "gw.0", "lan.1", "gw.1"]


def frame(to: bytes, sender: bytes, text: bytes = b"") -> bytes:
    return to + sender + b"\x08\x00" + text


def forward(switch: Switch, source: str, data: bytes) -> list[str]:
    return sorted(switch.targets(source, data))


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[Switch]:
    switch = Switch(tmp_path, CABLES, LAN)
    yield switch
    switch.close()


def test_a_cable_has_two_ends_and_no_more(switch: Switch) -> None:
    assert forward(switch, "f0.0", frame(ALL, A)) == ["f1.1"]
    assert forward(switch, "f1.1", frame(A, B)) == ["f0.0"]


def test_plugs_can_be_moved(switch: Switch) -> None:
    switch.plug([["f0.0", "f1.2"], ["f1.0", "f1.1"]])
    assert forward(switch, "f0.0", frame(ALL, A)) == ["f1.2"]
    assert forward(switch, "f1.1", frame(A, B)) == ["f1.0"]


def test_the_lan_learns(switch: Switch) -> None:
    assert forward(switch, "lan.0", frame(ALL, A)) == ["gw.0", "gw.1", "lan.1"]
    assert forward(switch, "lan.1", frame(A, B)) == ["lan.0"]
    assert forward(switch, "lan.0", frame(B, A)) == ["lan.1"]
    assert forward(switch, "lan.0", b"short") == []


def test_port_forwarding_never_sees_others_traffic(switch: Switch) -> None:
    assert forward(switch, "lan.0", frame(B, A)) == ["lan.1"]
    assert forward(switch, "gw.1", frame(ALL, GW)) == ["gw.0", "lan.0", "lan.1"]
    assert forward(switch, "lan.0", frame(GW, A)) == ["gw.1"]


def test_frames_cross_sockets_whole(tmp_path: Path) -> None:
    switch = Switch(tmp_path, CABLES, LAN)
    serving = threading.Thread(target=switch.serve, daemon=True)
    serving.start()
    ends = []
    for name in CABLES[0]:
        end = socket.socket(socket.AF_UNIX)
        end.settimeout(20)
        end.connect(str(tmp_path / name))
        ends.append(end)
    wait_for("both ends to be connected", lambda: switch.connected() == set(CABLES[0]), seconds=20)
    frames = [frame(B, A, bytes([i % 251]) * size) for i, size in enumerate((1, 1500, 9000, 60000))]
    stream = b"".join(struct.pack(">I", len(f)) + f for f in frames)
    ends[0].sendall(stream[:7])
    ends[0].sendall(stream[7:])
    got = b""
    while len(got) < len(stream):
        got += ends[1].recv(1 << 16)
    assert got == stream
    for end in ends:
        end.close()
    wait_for("both ends to be gone", lambda: not switch.connected(), seconds=20)
    switch.close()
    serving.join(timeout=20)
    assert not serving.is_alive()


def test_a_wait_says_what_for_and_shows_the_evidence() -> None:
    with pytest.raises(LabError, match=r"waited 0 s for rain in vain\nthe sky is blue"):
        wait_for("rain", lambda: False, seconds=0, evidence=lambda: "the sky is blue")


def test_a_lab_waits_for_its_own_switch_not_for_the_sockets_of_the_last(tmp_path: Path) -> None:
    nothing = tmp_path / "none"
    lab = Lab(
        spec=ring(2),
        artifacts=Artifacts(kernel=nothing, initramfs=nothing, image=nothing, release="", digest=""),
        accelerator="tcg",
        run_dir=tmp_path,
        saves=nothing,
        ports=(1, 2),
    )
    names = [name for machine in lab.machines() for name in machine.sockets().values()]
    for name in names:
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(tmp_path / name))
    lab._start_switch()
    try:
        for name in names:
            with socket.socket(socket.AF_UNIX) as end:
                end.connect(str(tmp_path / name))
    finally:
        lab.down()
