"""The rendered unit of the marker keeps its restrictions."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = (
    Path(__file__).resolve().parents[1] / "golden/ring4/spark1/etc/systemd/system/fabric-plan-marker@.service"
)
WORST = 25  # tenths; 1.9 with systemd 252


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_exposure_of_the_unit(tmp_path: Path) -> None:
    # Offline it reads what lies at the path, so that nothing of this host matters.
    unit = tmp_path / UNIT.name
    shutil.copy(UNIT, unit)
    command = [
        "systemd-analyze",
        "security",
        "--no-pager",
        "--offline=true",
        f"--threshold={WORST}",
        str(unit),
    ]
    done = subprocess.run(command, text=True, capture_output=True, timeout=60, check=False)
    if "unrecognized option" in done.stderr:
        pytest.skip("systemd-analyze is too old for --offline")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Overall exposure level" in done.stdout
