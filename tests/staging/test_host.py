"""The same nodes through testinfra's own modules: an independent look at what the checks rest on."""

from __future__ import annotations

import pytest
from testinfra.host import Host

from tests.staging.nodes import Staging


@pytest.fixture
def reached(node: str, seen: Staging) -> Host:
    if node in seen.failed or node not in seen.hosts:
        pytest.fail(f"{node} did not answer: {seen.failed.get(node)}")
    return seen.hosts[node]


def test_files_are_as_rendered(node: str, reached: Host, seen: Staging) -> None:
    # Two questions a node and not three a file; of what is not there both say nothing.
    files = seen.desired[node].files
    paths = [file.path for file in files]
    each = " ".join(["%s"] * len(paths))
    modes = reached.run(f"stat -c '%%a %%n' -- {each}", *paths).stdout
    sums = reached.run(f"sha256sum -- {each}", *paths).stdout
    found = {path: int(mode, 8) for mode, path in map(str.split, modes.splitlines())}
    digests = {path: digest for digest, path in map(str.split, sums.splitlines())}
    wrong = {
        file.path: "differs" if file.path in digests else "is not there"
        for file in files
        if (digests.get(file.path), found.get(file.path)) != (file.sha256, int(file.mode, 8))
    }
    assert not wrong


def test_addresses_are_there(node: str, reached: Host, seen: Staging) -> None:
    for function in seen.desired[node].functions:
        if function.address is not None:
            assert function.address.partition("/")[0] in reached.interface(function.netdev).addresses


def test_units_are_enabled_and_run(node: str, reached: Host, seen: Staging) -> None:
    for path, target in seen.desired[node].links:
        if "multi-user" in path:
            service = reached.service(target.rsplit("/", 1)[-1])
            assert service.is_enabled and service.is_running, target


def test_settings_are_in_effect(node: str, reached: Host, seen: Staging) -> None:
    wanted = [s for s in seen.desired[node].sysctls if s.name in ("forwarding", "arp_ignore")]
    for setting in wanted:
        assert reached.sysctl(f"net.ipv4.conf.{setting.scope}.{setting.name}") >= setting.value, setting
