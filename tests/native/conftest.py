"""Builds the marker and the stand-ins once a session; skips, and says why, where that is not possible."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native.harness import Home

NATIVE = Path(__file__).resolve().parents[2] / "native"
HEADER_PROBE = "#include <infiniband/mlx5dv.h>\n#include <infiniband/verbs.h>\n"


def _missing() -> str | None:
    if not shutil.which("make"):
        return "make is not installed"
    compiler = os.environ.get("CC", "cc")
    if not shutil.which(compiler):
        return f"{compiler} is not installed"
    probe = subprocess.run(
        [compiler, "-E", "-x", "c", "-", "-o", os.devnull],
        input=HEADER_PROBE,
        text=True,
        capture_output=True,
        check=False,
    )
    return None if probe.returncode == 0 else "libibverbs-dev is not installed"


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build directory, with fabric-plan-marker and standin/ in it."""
    missing = _missing()
    if missing:
        pytest.skip(f"cannot build the marker: {missing}")
    build = tmp_path_factory.mktemp("marker-build")
    sanitize = ["SANITIZE=1"] if os.environ.get("MARKER_SANITIZE") else []
    made = subprocess.run(
        ["make", "-C", str(NATIVE), f"BUILD={build}", *sanitize, "all", "standin"],
        text=True,
        capture_output=True,
        check=False,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    return build


@pytest.fixture
def home(built: Path) -> Iterator[Home]:
    """A fresh place to run the marker in; its rules need CAP_NET_RAW, so this needs root."""
    if os.geteuid() != 0:
        pytest.skip("the marker needs CAP_NET_RAW: run these tests as root")
    with tempfile.TemporaryDirectory(prefix="marker-") as root:
        yield Home(Path(root), built / "fabric-plan-marker", built / "standin")


@pytest.fixture
def plain(built: Path, tmp_path: Path) -> Home:
    """The same for what needs no privilege: arguments, and --check."""
    return Home(tmp_path, built / "fabric-plan-marker", built / "standin")
