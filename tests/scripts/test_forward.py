"""forward.sh: TCP may cross from fabric function to fabric function, and nothing more."""

from __future__ import annotations

import pytest

from tests.scripts.support import Host


def accepted(host: Host) -> set[tuple[str, str]]:
    pairs = set()
    for rule in host.state["docker_user"]:
        words = rule.split()
        if words[-1] == "ACCEPT":
            pairs.add((words[words.index("-i") + 1], words[words.index("-o") + 1]))
    return pairs


def with_docker(host: Host) -> Host:
    host.state["docker_user"] = ["-j RETURN"]
    return host


def test_each_plane_crosses_between_its_own_two_functions(host: Host) -> None:
    with_docker(host)
    result = host.run("forward.sh")
    assert result.returncode == 0, result.stdout
    assert accepted(host) == {
        ("enp1s0f0np0", "enp1s0f1np1"),
        ("enp1s0f1np1", "enp1s0f0np0"),
        ("enP2p1s0f0np0", "enP2p1s0f1np1"),
        ("enP2p1s0f1np1", "enP2p1s0f0np0"),
    }
    # In front of whatever else stands there, and every rule says whose it is.
    assert host.state["docker_user"][-1] == "-j RETURN"
    assert all("--comment fabric-plan" in rule for rule in host.state["docker_user"][:-1])


def test_second_run_changes_nothing(host: Host) -> None:
    with_docker(host).run("forward.sh", "start")
    host.calls()
    result = host.run("forward.sh", "start")
    assert (result.returncode, result.stdout) == (0, "")
    assert host.calls() == []


def test_one_missing_rule_is_put_back_alone(host: Host) -> None:
    with_docker(host).run("forward.sh")
    host.calls()
    del host.state["docker_user"][2]
    assert host.run("forward.sh").returncode == 0
    assert len(host.calls()) == 1
    assert len(accepted(host)) == 4


def test_stop_leaves_the_chain_as_it_was(host: Host) -> None:
    with_docker(host).run("forward.sh")
    assert host.run("forward.sh", "stop").returncode == 0
    assert host.state["docker_user"] == ["-j RETURN"]
    host.calls()
    assert host.run("forward.sh", "stop").returncode == 0
    assert host.calls() == []


def test_without_docker_there_is_nothing_to_do(host: Host) -> None:
    result = host.run("forward.sh")
    assert result.returncode == 0
    assert "nothing has to be let through" in result.stdout
    assert host.run("forward.sh", "stop").returncode == 0
    assert host.calls() == []


@pytest.mark.parametrize("docker", [True, False])
def test_a_policy_that_drops_without_dockers_chain_is_explained(host: Host, docker: bool) -> None:
    host.state["docker_nftables"] = docker
    host.state["forward_policy"] = "DROP"
    result = host.run("forward.sh")
    assert result.returncode == 0
    assert ("Docker writes nftables here" in result.stdout) == docker
    assert "iptables -I FORWARD -i enp1s0f0np0 -o enp1s0f1np1 -j ACCEPT" in result.stdout
    assert host.calls() == []


def test_docker_with_nftables_alone_drops_nothing_of_ours(host: Host) -> None:
    host.state["docker_nftables"] = True
    result = host.run("forward.sh")
    assert (result.returncode, host.calls()) == (0, [])
    assert "nothing has to be let through" in result.stdout


def test_what_iptables_refuses_is_named(host: Host) -> None:
    with_docker(host)
    host.fault("refuse_iptables", "-I", 1)
    result = host.run("forward.sh")
    assert result.returncode == 1
    assert "iptables refused: iptables: Resource temporarily unavailable." in result.stdout
    assert len(accepted(host)) == 3


def test_an_unknown_argument(host: Host) -> None:
    result = with_docker(host).run("forward.sh", "restart")
    assert result.returncode == 1 and "unknown argument restart" in result.stdout
    assert host.calls() == []
