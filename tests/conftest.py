"""Fixtures for more than one folder of tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.ssh.nodes import SSHD, Cluster, start


@pytest.fixture
def four_nodes(tmp_path: Path) -> Iterator[Cluster]:
    """Four nodes behind real SSH servers on loopback."""
    with _nodes(tmp_path, 4) as cluster:
        yield cluster


@pytest.fixture
def two_nodes(tmp_path: Path) -> Iterator[Cluster]:
    """Two nodes behind real SSH servers on loopback."""
    with _nodes(tmp_path, 2) as cluster:
        yield cluster


def _nodes(folder: Path, count: int) -> AbstractContextManager[Cluster]:
    if SSHD is None:
        pytest.skip("no sshd here: install openssh-server")
    base = folder / "nodes"
    base.mkdir()
    return start(base, count)
