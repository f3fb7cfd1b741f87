"""Damaged folders end in a message, never in a traceback."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from fabric_plan.cli.main import main
from tests.discover.test_cases import CASES, NAMES

ROUNDS = 6
PIECES = (
    *(
        b"\0",
        b"[",
        b"{",
        b"}",
        b"null",
        b'"',
        b"- ",
        b": ",
        b"\xff",
        b"1e9",
        b"-1",
        b"&a",
        b"*a",
        b"\t",
        b"'",
        b"\n",
    ),
    *(b"!!binary x", b"10.61.0.31/24", b"f0", b"enp1s0f0np0", b"9" * 21, b"true", b"rank: 0", b"a" * 70),
)


def garbled(rng: random.Random, content: bytes) -> bytes:
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(content) + 1)
        kind = rng.randrange(4)
        if kind == 0:
            content = content[:at] + rng.choice(PIECES) + content[at:]
        elif kind == 1:
            content = content[:at] + content[at + rng.randint(1, 30) :]
        elif kind == 2:
            content = content[:at]
        else:
            other = rng.randrange(len(content) + 1)
            content = content[:at] + content[min(at, other) : max(at, other)] + content[at:]
    return content


@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_case_is_adopted_or_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(name)
    folder = Path(shutil.copytree(CASES / name, tmp_path / "case"))
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("README.md", "expect.yaml")
    ]
    for _ in range(ROUNDS):
        chosen = rng.choice(files)
        before = chosen.read_bytes()
        chosen.write_bytes(garbled(rng, before))
        assert main(["adopt", str(folder), "-o", str(tmp_path / "out.yaml"), "--force"]) in (0, 1)
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        chosen.write_bytes(before)


@pytest.mark.parametrize(
    ("path", "content", "word"),
    [
        ("inventory.yaml", "nodes: 3\n", "nodes: must be a list"),
        ("inventory.yaml", "nodes: [{name: '../x'}]\n", "not a host name"),
        ("inventory.yaml", "nodes: [{name: left, rank: 1}, {name: right, rank: 1}]\n", "rank:"),
        ("inventory.yaml", "nodes: [{name: left}]\n", "right"),
        ("inventory.yaml", "nodes: [{name: left}, {name: right}, {name: third}]\n", "third"),
        ("inventory.yaml", "topology: star\nnodes: [{name: left}, {name: right}]\n", "star"),
        ("inventory.yaml", "nodes: [{name: left, hardware: toaster}, {name: right}]\n", "toaster"),
        ("cables.yaml", "cables: 7\n", "must be a list"),
        ("cables.yaml", "cables: [{a: left}]\n", "cables[0]"),
        ("cables.yaml", "cables: [{ends: [left.f1, middle.f1]}]\n", "middle"),
        ("cables.yaml", "cables: [{ends: [left.f1, right.f9]}]\n", "no port f9"),
        ("nodes/left/ip-addr.json", "{", "ip-addr.json cannot be read"),
        ("nodes/left/ip-addr.json", '[{"ifname": 3}]', "ip-addr.json cannot be read"),
        ("nodes/left/etc/fabric-plan/node.json", "{}", "node.json"),
        ("plan.json", "[]", "plan.json"),
    ],
)
def test_what_is_wrong_with_a_folder_is_said(
    path: str, content: str, word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(CASES / "10-pair-f1-only", tmp_path / "case"))
    place = folder / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(content)
    assert main(["adopt", str(folder)]) == 1
    said = capsys.readouterr()
    assert word in said.err
    assert said.out == ""


def test_a_port_may_be_spelled_as_people_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(shutil.copytree(CASES / "10-pair-f1-only", tmp_path / "case"))
    (folder / "cables.yaml").write_text("- {a: {node: left, port: p1}, b: {node: right, port: port1}}\n")
    assert main(["adopt", str(folder)]) == 0
    assert "ends: [left.f1, right.f1]" in capsys.readouterr().out


def test_folders_that_hold_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["adopt", str(tmp_path)]) == 1
    assert main(["adopt", str(tmp_path / "absent")]) == 1
    said = capsys.readouterr().err
    assert "has no node in it" in said
    assert "is not a directory" in said


def test_an_inventory_is_not_replaced_unasked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "home.yaml"
    out.write_text("mine\n")
    assert main(["adopt", str(CASES / "10-pair-f1-only"), "-o", str(out)]) == 1
    assert out.read_text() == "mine\n"
    assert main(["adopt", str(CASES / "10-pair-f1-only"), "-o", str(out), "--force"]) == 0
    assert "left" in out.read_text()
