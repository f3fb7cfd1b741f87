"""The scripts against the real ip and tc, in a network namespace of their own.

No hardware is there to take a rule, so every rule is refused; what counts is who refuses it: the kernel, and
not tc's own reading of the words.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.scripts.support import Host, ring4

KERNEL = "We have an error talking to the kernel"


def namespaces_work() -> bool:
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        return False
    probe = ["unshare", "--net", "true"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not namespaces_work(), reason="needs root, iproute2 and network namespaces"),
]


class Namespace:
    """A namespace with the four functions of a node, each one end of a pair that leads nowhere."""

    def __init__(self, host: Host, name: str) -> None:
        self.name = name
        self.host = host
        self.ip("netns", "add", name)
        for index, planned in enumerate(host.node.functions):
            dev = planned.function.netdev
            self.inside("ip", "link", "add", dev, "type", "veth", "peer", "name", f"peer{index}")
            self.inside("ip", "link", "set", dev, "up")
            self.inside("ip", "link", "set", f"peer{index}", "up")
            self.inside("ip", "addr", "add", str(planned.address), "dev", dev)
        for tool in host.tools.bin.iterdir():
            # The real ones for the network; the rest answers without a state: nothing is in use, all is well.
            tool.unlink() if tool.name in ("ip", "tc") else tool.write_text("#!/bin/bash\n")
        shutil.rmtree(host.root / "sys/class/net")
        # In `ip netns exec` this is the namespace's own.
        (host.root / "sys/class/net").symlink_to("/sys/class/net")

    def ip(self, *words: str) -> str:
        return subprocess.run(["ip", *words], capture_output=True, text=True, check=True).stdout

    def inside(self, *words: str) -> str:
        return self.ip("netns", "exec", self.name, *words)

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["ip", "netns", "exec", self.name, "bash", str(self.host.script(script))],
            env={
                "PATH": f"{self.host.tools.bin}:{os.environ['PATH']}",
                "FABRIC_PLAN_ROOT": str(self.host.root),
                "FABRIC_PLAN_WAIT": "5",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=120,
        )

    def looks(self) -> tuple[str, str]:
        """What the kernel holds of what the scripts may change."""
        return self.inside("ip", "-4", "route", "show", "table", "all"), self.inside("tc", "qdisc", "show")


@pytest.fixture
def namespace(make_host: Callable[..., Host], tmp_path: Path) -> Iterator[Namespace]:
    name = f"fp-test-{os.getpid()}"
    try:
        yield Namespace(make_host(ring4(), "spark1"), name)
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)


def test_up_and_down_with_the_real_tools(namespace: Namespace) -> None:
    before = namespace.looks()
    result = namespace.run("mesh-up.sh")
    # Each rule reached the kernel, which has no hardware to put it into.
    assert result.returncode == 1
    refused = [line for line in result.stdout.splitlines() if "not in hardware" in line]
    assert len(refused) == len(namespace.host.node.rules)
    assert result.stdout.count(KERNEL) == len(refused), result.stdout
    assert "waited" not in result.stdout
    # Routes and qdiscs are real.
    routes, qdiscs = namespace.looks()
    for relay in namespace.host.node.relay_routes:
        target = str(relay.to.network_address)
        assert f"{target} via {relay.via} dev {relay.dev} proto 214 src {relay.src}" in routes
    for kernel in namespace.host.node.kernel_routes:
        assert f"{kernel.to} via {kernel.via} dev {kernel.dev} proto 214" in routes
    assert qdiscs.count("clsact") == len({rule.dev for rule in namespace.host.node.rules})
    # Again: nothing but the refused rules is tried.
    again = namespace.run("mesh-up.sh")
    assert "added" not in again.stdout
    assert namespace.looks() == (routes, qdiscs)
    down = namespace.run("mesh-down.sh")
    assert down.returncode == 0, down.stdout
    assert namespace.looks() == before


def test_a_route_that_networkmanager_put_there_is_left_as_it_is(namespace: Namespace) -> None:
    for relay in namespace.host.node.relay_routes:
        words = f"{relay.to} via {relay.via} dev {relay.dev} proto static src {relay.src} metric 100"
        namespace.inside("ip", "-4", "route", "add", *words.split())
    for kernel in namespace.host.node.kernel_routes:
        words = f"{kernel.to} via {kernel.via} dev {kernel.dev} proto static metric 100"
        namespace.inside("ip", "-4", "route", "add", *words.split())
    before = namespace.looks()[0]
    namespace.run("mesh-up.sh")
    assert namespace.looks()[0] == before


def test_an_ingress_qdisc_is_used_and_stays(namespace: Namespace) -> None:
    for rule in namespace.host.node.rules:
        namespace.inside("tc", "qdisc", "add", "dev", rule.dev, "ingress")
    before = namespace.looks()
    result = namespace.run("mesh-up.sh")
    assert "clsact" not in result.stdout
    assert namespace.run("mesh-down.sh").returncode == 0
    assert namespace.looks() == before


def test_tc_itself_would_have_said_so(namespace: Namespace) -> None:
    """The check above can fail: a word that tc does not know never gets as far as the kernel."""
    rule = namespace.host.rule
    namespace.inside("tc", "qdisc", "add", "dev", rule.dev, "clsact")
    words = ["tc", "filter", "add", "dev", rule.dev, "ingress", *rule.tc_words()]
    for spoilt in (words, [*words[:-1], "xyz"], [word.replace("munge", "mange") for word in words]):
        result = subprocess.run(
            ["ip", "netns", "exec", namespace.name, *spoilt], capture_output=True, text=True, check=False
        )
        assert (KERNEL in result.stderr) == (spoilt is words), result.stderr
