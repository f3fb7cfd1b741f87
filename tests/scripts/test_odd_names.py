"""Every name that an inventory may hold goes through the scripts unharmed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache

import pytest

from fabric_plan.inventory.schema import NETDEV
from fabric_plan.planner.model import Plan
from tests.scripts.support import MESH_UNIT, Host, plan_of

# Names that the kernel takes and that a shell, a regular expression or a list would trip over.
NETDEVS = (
    "a@b.c+d-e_f",
    "eth0.100",
    "a",
    "veryverylong-15",
    "0",
    "in",
    "dev",
    "_",
    "v+",
    "a.b",
    "via",
    "A@",
    "src",
    "do",
    "done",
    "10.0.0.1",
)


@cache
def odd_names() -> Plan:
    """A ring of four whose nodes, netdevs and RDMA devices have every odd character that is legal."""
    assert all(NETDEV.fullmatch(name) for name in NETDEVS)
    names = iter(NETDEVS)
    nodes = []
    for index, node in enumerate(("a-1", "9", "if", "X-y-Z")):
        functions = []
        for port, plane in itertools.product((0, 1), (0, 1)):
            functions.append(
                f"{{mac: '02:00:00:0{index}:0{port}:0{plane}', netdev: '{next(names)}', "
                f"rdma: 'mlx5_{index}.x-y_{port}{plane}', pci: '0000:0{index}:0{plane}.{port}'}}"
            )
        f0, f1 = ", ".join(functions[:2]), ", ".join(functions[2:])
        nodes.append(
            f"  - {{name: '{node}', mgmt: 192.0.2.{index + 1}, ports: {{f0: [{f0}], f1: [{f1}]}}}}\n"
        )
    ends = ("a-1", "9", "if", "X-y-Z", "a-1")
    cables = "".join(f"  - ends: ['{a}.f0', '{b}.f1']\n" for a, b in itertools.pairwise(ends))
    return plan_of(f"fabric: odd\nmesh: {{paths: opposite}}\nnodes:\n{''.join(nodes)}cables:\n{cables}")


@pytest.mark.parametrize("node", ["a-1", "9", "if", "X-y-Z"])
def test_a_whole_life(make_host: Callable[..., Host], node: str) -> None:
    host = make_host(odd_names(), node)
    before = host.kernel()
    for script in ("hairpin.sh", "mesh-up.sh"):
        result = host.run(script)
        assert result.returncode == 0, result.stdout
    assert sorted(f["cookie"] for f in host.state["filters"]) == sorted(r.cookie for r in host.node.rules)
    started = {unit for unit, state in host.state["units"].items() if state == "active"}
    assert started == {f"fabric-plan-marker@{marker.rdma}.service" for marker in host.node.markers}
    host.calls()
    for script in ("hairpin.sh", "mesh-up.sh"):
        result = host.run(script)
        assert (result.returncode, result.stdout, host.calls()) == (0, "", [])
    assert not [route for route in host.state["routes"] if route["proto"] == "boot"]
    assert host.run("mesh-down.sh").returncode == 0
    after = host.kernel()
    assert (after["filters"], after["qdiscs"]) == (before["filters"], before["qdiscs"])


def test_a_name_that_another_begins_with_is_not_mistaken_for_it(make_host: Callable[..., Host]) -> None:
    host = make_host(odd_names(), "a-1")
    assert {"a", "a@b.c+d-e_f"} < set(host.state["links"])
    with host.edit() as state:
        state["links"]["a"]["present"] = False
    result = host.up()
    assert result.returncode == 1
    assert "waited 0 s for a: the function itself" in result.stdout


def test_the_dispatcher_knows_each_name_and_no_part_of_one(make_host: Callable[..., Host]) -> None:
    host = make_host(odd_names(), "a-1")
    host.state["units"][MESH_UNIT] = "active"
    script = host.root / "etc/NetworkManager/dispatcher.d/90-fabric-plan"
    for planned in host.node.functions:
        host.run(script, planned.function.netdev, "up")
        assert len(host.calls()) == 1, planned.function.netdev
    for other in ("a@b.c+d-e_", "a@bXc+d-e_f", "eth0x100", "*", "xx"):
        host.run(script, other, "up")
        assert host.calls() == [], other


def test_the_firewall_gets_each_name_whole(make_host: Callable[..., Host]) -> None:
    host = make_host(odd_names(), "a-1")
    host.state["docker_user"] = []
    assert host.run("forward.sh").returncode == 0
    found = {(rule.split()[1], rule.split()[3]) for rule in host.state["docker_user"]}
    assert found == {
        ("a@b.c+d-e_f", "a"),
        ("a", "a@b.c+d-e_f"),
        ("eth0.100", "veryverylong-15"),
        ("veryverylong-15", "eth0.100"),
    }
