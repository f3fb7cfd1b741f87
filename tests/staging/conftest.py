"""``pytest tests/staging --inventory FILE [--hosts-config FILE]``: the checks of ``verify`` as tests, against
Sparks or the lab. Without an inventory there is one visible skip.
"""

from __future__ import annotations

from functools import cache

import pytest

from tests.staging.nodes import Staging, ask

NO_INVENTORY = "no inventory: pytest tests/staging --inventory FILE [--hosts-config FILE]"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("staging")
    group.addoption("--inventory", metavar="FILE", help="the inventory of the nodes to look at")
    group.addoption("--hosts-config", metavar="FILE", help="the SSH configuration that reaches them")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a check, and one a node: what they are is known only once the nodes were asked."""
    wanted = {"check", "node"} & set(metafunc.fixturenames)
    if not wanted:
        return
    (name,) = wanted
    inventory = metafunc.config.getoption("--inventory", default=None)
    if inventory is None:
        skip = pytest.mark.skip(reason=NO_INVENTORY)
        metafunc.parametrize(name, [pytest.param(None, marks=skip, id="no-inventory")])
        return
    seen = staging(
        inventory, metafunc.config.getoption("--hosts-config"), metafunc.config.getoption("--allow-hosts")
    )
    if name == "node":
        metafunc.parametrize("node", list(seen.desired))
    else:
        checks = seen.verification.checks
        ids = [
            "-".join(w for w in (c.node, c.layer, c.id, c.interface or "", c.subject) if w) for c in checks
        ]
        metafunc.parametrize("check", checks, ids=ids)


@cache
def staging(inventory: str, hosts_config: str | None, allowed: str | None) -> Staging:
    """Ask the nodes once for the whole run."""
    return ask(inventory, hosts_config, (allowed or "127.0.0.1").split(","))


@pytest.fixture
def seen(pytestconfig: pytest.Config) -> Staging:
    """What the nodes answered."""
    return staging(
        pytestconfig.getoption("--inventory"),
        pytestconfig.getoption("--hosts-config"),
        pytestconfig.getoption("--allow-hosts"),
    )
