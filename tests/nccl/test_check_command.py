"""``fabric-plan nccl check`` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fabric_plan.cli.main import main

RING4 = Path(__file__).parents[2] / "inventories" / "ring4.yaml"


@pytest.fixture
def ring(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["render", "-i", str(RING4), "-o", str(tmp_path / "build")]) == 0
    capsys.readouterr()
    return tmp_path / "build/spark2/etc/fabric-plan/nccl/ring.xml"


def test_a_rendered_file_is_good(ring: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nccl", "check", str(ring)]) == 0
    assert main(["nccl", "check", str(ring), "-i", str(RING4), "--node", "spark2"]) == 0
    assert "is what" in capsys.readouterr().out


def test_a_damaged_one_is_told_with_its_place(ring: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ring.write_text('<?xml version="1.0"?>\n' + ring.read_text())
    assert main(["nccl", "check", str(ring)]) == 2
    assert f"{ring}:1:20: an XML declaration or other `?` inside the tag <?xml>" in capsys.readouterr().out
    assert main(["nccl", "check", str(ring), "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    assert document["findings"][0]["effect"] == "fails"


def test_against_another_communicator(ring: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["nccl", "check", str(ring), "-i", str(RING4), "--node", "spark2", "--kind", "link-next"]
    assert main(arguments) == 2
    assert "does not face spark3 (rank 2)" in capsys.readouterr().out


def test_what_is_missing_is_said(ring: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nccl", "check", str(ring), "-i", str(RING4)]) == 64
    assert "--node NAME" in capsys.readouterr().err
    renamed = ring.rename(tmp_path / "mine.xml")
    assert main(["nccl", "check", str(renamed), "-i", str(RING4), "--node", "spark1"]) == 64
    assert "--kind" in capsys.readouterr().err
    assert main(["nccl", "check", str(tmp_path / "none.xml")]) == 1
    (tmp_path / "large.xml").write_bytes(bytes(2 << 20))
    assert main(["nccl", "check", str(tmp_path / "large.xml")]) == 1
    assert "too large" in capsys.readouterr().err
