"""The four machines, applied to once for all tests of the chain; each test begins from that state."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.apply.chain import Chain, four_machines
from tests.ssh.nodes import SSHD


@pytest.fixture(scope="session")
def chain() -> Iterator[Chain]:
    """Four machines after their first apply, which began at their factory state."""
    if SSHD is None or os.geteuid() != 0:
        pytest.skip("needs sshd and root: the node program changes what only root may")
    with four_machines() as found:
        for machine in found.machines.values():
            found.factory[machine.name] = (machine.lasting(), machine.kernel_state())
        found.first = found.change("apply", "--json")
        assert found.first.status == 0, str(found.first)
        for machine in found.machines.values():
            machine.keep()
        yield found


@pytest.fixture
def applied(chain: Chain) -> Iterator[Chain]:
    """The machines as they were after the first apply."""
    for machine in chain.machines.values():
        machine.come_back()
    chain.forget()
    yield chain
    chain.rest()
