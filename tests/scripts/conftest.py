"""A node in a directory, for every test of its scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fabric_plan.planner.model import Plan
from tests.scripts.support import Host, ring4


@pytest.fixture
def make_host(tmp_path: Path) -> Iterator[Callable[..., Host]]:
    """A maker of nodes, each in a directory of its own."""
    hosts: list[Host] = []

    def make(plan: Plan, name: str) -> Host:
        directory = tmp_path / str(len(hosts))
        directory.mkdir()
        hosts.append(Host(directory, plan, name))
        return hosts[-1]

    yield make
    for host in hosts:
        host.tools.close()


@pytest.fixture
def host(make_host: Callable[..., Host]) -> Host:
    """spark1 of the example ring after a boot, before any script ran."""
    return make_host(ring4(), "spark1")
