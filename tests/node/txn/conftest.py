"""A node in a directory, for every test of the transaction."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.txn.processes import Spawner
from tests.node.txn.support import F0, F1, Driver
from tests.node.txn.world import World, install_tools


@pytest.fixture(scope="session")
def spawner() -> Iterator[Spawner]:
    """What starts the node program."""
    with tempfile.TemporaryDirectory(prefix="fp-") as home:
        server = Spawner(Path(home))
        install_tools(server.folder)
        yield server
        server.close()


@pytest.fixture
def world(spawner: Spawner) -> Iterator[World]:
    """A node with two functions and nothing of ours. Its path is short: a socket's may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="fp-") as home:
        node = World(Path(home), (F0, F1), spawner)
        yield node
        node.close()
        assert not node.broken, node.broken


@pytest.fixture
def driver(world: World) -> Driver:
    """The controller's side."""
    return Driver(world)
