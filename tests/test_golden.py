"""What is rendered is what was reviewed: byte for byte, on every run, from any directory, by any user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden_trees import GOLDEN, ROOT, examples, rendered


@pytest.mark.parametrize("name", list(examples()))
def test_golden(name: str) -> None:
    kept = {
        str(p.relative_to(GOLDEN / name)): p.read_text() for p in (GOLDEN / name).rglob("*") if p.is_file()
    }
    made = dict(rendered(examples()[name]))
    assert sorted(kept) == sorted(made)
    for relative, content in made.items():
        assert content == kept[relative], (
            f"{name}/{relative} changed: `make golden` after a change that is meant"
        )


def test_no_golden_without_an_example() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == set(examples())


def test_same_bytes_elsewhere(tmp_path: Path) -> None:
    """Another directory, another home, another time zone, locale, hash seed and umask: the same tree."""
    trees = []
    for place, extra, umask in (
        ("one", {}, 0o022),
        (
            "two",
            {
                "HOME": "/nonexistent",
                "USER": "someone",
                "TZ": "Asia/Tokyo",
                "LC_ALL": "C",
                "PYTHONHASHSEED": "7",
            },
            0o077,
        ),
    ):
        out = tmp_path / place / "build"
        out.parent.mkdir()
        command = [
            sys.executable,
            "-m",
            "fabric_plan",
            "render",
            "-i",
            str(ROOT / "inventories/ring4.yaml"),
            "-o",
            str(out),
        ]
        env = {**os.environ, "PYTHONPATH": str(ROOT), **extra}
        subprocess.run(command, check=True, cwd=out.parent, env=env, umask=umask, capture_output=True)
        trees.append(
            {
                str(p.relative_to(out)): (p.read_bytes(), p.stat().st_mode & 0o777)
                for p in out.rglob("*")
                if p.is_file()
            }
        )
    assert trees[0] == trees[1]
    modes = {name: mode for name, (_, mode) in trees[0].items()}
    assert {mode for name, mode in modes.items() if "/etc/netplan/" in name} == {0o600}
    assert not any(mode & 0o022 for mode in modes.values())
