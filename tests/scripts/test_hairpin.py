"""hairpin.sh: driver values in effect, not only set; one function at a time; never under traffic."""

from __future__ import annotations

import pytest

from tests.scripts.support import BOOT_ID, MESH_UNIT, Host

FIRST = "0000:01:00.0"
FIRST_DEV = "enp1s0f0np0"


def reloads(host: Host) -> list[str]:
    return [call[3].removeprefix("pci/") for call in host.calls() if call[:3] == ["devlink", "dev", "reload"]]


def all_functions(host: Host) -> list[str]:
    return [planned.function.pci for planned in host.node.functions]


def effective(host: Host, pci: str = FIRST) -> tuple[int, int]:
    params = host.state["devlink"][pci]["params"]
    return params["hairpin_queue_size"][1], params["hairpin_num_queues"][1]


def done(host: Host) -> Host:
    result = host.run("hairpin.sh")
    assert result.returncode == 0, result.stdout
    host.calls()
    return host


def pending(host: Host, size: int = 8192, queues: int = 4) -> None:
    for device in host.state["devlink"].values():
        device["params"]["hairpin_queue_size"][0] = size
        device["params"]["hairpin_num_queues"][0] = queues


def test_first_run_sets_and_reloads_each_function_once_in_order(host: Host) -> None:
    result = host.run("hairpin.sh")
    assert result.returncode == 0, result.stdout
    assert all(effective(host, pci) == (8192, 4) for pci in all_functions(host))
    calls = host.calls()
    assert [call[3] for call in calls if call[2] == "reload"] == [f"pci/{pci}" for pci in all_functions(host)]
    # Set, set, reload, then the next function.
    assert [call[2] for call in calls] == ["param", "param", "reload"] * 4
    assert all(call[-2:] == ["action", "driver_reinit"] for call in calls if call[2] == "reload")


def test_second_run_changes_nothing(host: Host) -> None:
    done(host)
    result = host.run("hairpin.sh")
    assert (result.returncode, result.stdout) == (0, "")
    assert host.calls() == []


def test_only_what_differs_is_set(host: Host) -> None:
    for device in host.state["devlink"].values():
        device["params"]["hairpin_num_queues"] = [4, 4]
    host.run("hairpin.sh")
    assert {call[6] for call in host.calls() if call[2] == "param"} == {"hairpin_queue_size"}


def test_a_pending_value_is_brought_into_effect(host: Host) -> None:
    """The parameter reads as planned, and nothing was ever reloaded: it is not in effect."""
    pending(host)
    assert effective(host) == (1024, 2)
    result = host.run("hairpin.sh")
    assert result.returncode == 0, result.stdout
    assert effective(host) == (8192, 4)
    calls = host.calls()
    assert {call[2] for call in calls} == {"reload"}
    assert host.run("hairpin.sh").stdout == ""


def test_a_value_set_after_somebody_elses_reload_is_pending_whatever_the_count_says(host: Host) -> None:
    for device in host.state["devlink"].values():
        device["reloads"] = 3
    pending(host)
    assert host.run("hairpin.sh").returncode == 0
    assert reloads(host) == all_functions(host)
    assert effective(host) == (8192, 4)


def test_a_run_cut_between_set_and_reload_is_made_good(host: Host) -> None:
    host.state["die_after"] = 1  # after the second value of the first function
    assert host.run("hairpin.sh").returncode == -9
    host.state["die_after"] = None
    assert effective(host) == (1024, 2)
    host.calls()
    assert host.run("hairpin.sh").returncode == 0
    assert reloads(host) == all_functions(host)
    assert all(effective(host, pci) == (8192, 4) for pci in all_functions(host))


def test_a_note_of_another_boot_proves_nothing(host: Host) -> None:
    done(host)
    for path in (host.run_dir / "hairpin").iterdir():
        path.write_text(path.read_text().replace(BOOT_ID, "11111111-2222-3333-4444-555555555555"))
    assert host.run("hairpin.sh").returncode == 0
    assert reloads(host) == all_functions(host)


def test_a_function_that_was_probed_again_is_set_again(host: Host) -> None:
    done(host)
    with host.edit() as state:
        device = state["devlink"][FIRST]
        device["reloads"] = 0
        device["params"] = {"hairpin_num_queues": [2, 2], "hairpin_queue_size": [1024, 1024]}
        state["links"][FIRST_DEV]["index"] = 91
    assert host.run("hairpin.sh").returncode == 0
    assert reloads(host) == [FIRST]
    assert effective(host) == (8192, 4)


def test_a_count_that_did_not_rise_proves_nothing_though_the_device_has_its_number(host: Host) -> None:
    done(host)
    with host.edit() as state:
        device = state["devlink"][FIRST]
        device["reloads"] = 0
        device["params"] = {"hairpin_num_queues": [4, 2], "hairpin_queue_size": [8192, 1024]}
    assert host.run("hairpin.sh").returncode == 0
    assert reloads(host) == [FIRST]
    assert effective(host) == (8192, 4)


def test_hairpins_that_live_with_the_planned_values_are_proof_enough(host: Host) -> None:
    pending(host)
    for pci in all_functions(host):
        host.put(
            f"/sys/kernel/debug/mlx5/{pci}/nic/fs/tc/hairpin_table_dump",
            "Hairpin peer_vhca_id 1 prio 0 refcnt 2 num_channels 4 num_packets 8192\n",
        )
    assert host.run("hairpin.sh").returncode == 0
    assert reloads(host) == []


# ---- things go wrong with one function -----------------------------------------------------------


def test_a_function_that_does_not_return_is_named_and_the_others_are_done(host: Host) -> None:
    host.fault("does_not_return", FIRST)
    result = host.run("hairpin.sh")
    assert result.returncode == 1
    assert f"error: {FIRST_DEV}: did not come back within 0 s of its reload" in result.stdout
    assert reloads(host) == all_functions(host)
    assert all(effective(host, pci) == (8192, 4) for pci in all_functions(host)[1:])


def test_a_reload_that_never_returns_is_left_behind(host: Host) -> None:
    host.fault("reload_hangs", FIRST)
    result = host.run("hairpin.sh", FABRIC_PLAN_CALL_LIMIT="1")
    assert result.returncode == 1
    assert f"error: {FIRST_DEV}: the reload failed: no answer within 1 s" in result.stdout
    assert all(effective(host, pci) == (8192, 4) for pci in all_functions(host)[1:])


def test_a_call_that_cannot_even_be_killed_is_left_behind(host: Host) -> None:
    """A call that hangs in the kernel survives SIGKILL, so `timeout` does not come back either."""
    stub = host.tools.bin / "timeout"
    stub.write_text(
        f'#!/bin/bash\ncase "$*" in *reload*{FIRST}*) exec sleep 20 ;; esac\nshift 3\nexec "$@"\n'
    )
    stub.chmod(0o755)
    result = host.run("hairpin.sh", FABRIC_PLAN_CALL_LIMIT="1")
    assert result.returncode == 1
    assert f"error: {FIRST_DEV}: the reload failed: no answer within 1 s" in result.stdout
    assert all(effective(host, pci) == (8192, 4) for pci in all_functions(host)[1:])


def test_a_question_that_is_never_answered_does_not_hold_up_the_others(host: Host) -> None:
    host.fault("devlink_hangs", FIRST)
    result = host.run("hairpin.sh", FABRIC_PLAN_CALL_LIMIT="1")
    assert result.returncode == 1
    assert f"error: {FIRST_DEV} ({FIRST}): not there after 0 s" in result.stdout
    assert reloads(host) == all_functions(host)[1:]


def test_an_answer_about_rdma_that_never_comes_counts_as_in_use(host: Host) -> None:
    host.fault("rdma_hangs", "qp", 1)
    result = host.run("hairpin.sh", FABRIC_PLAN_CALL_LIMIT="1")
    assert result.returncode == 1
    assert (
        f"{FIRST_DEV}: not reloaded, RDMA is in use (queue pairs cannot be read: no answer" in result.stdout
    )
    assert reloads(host) == all_functions(host)[1:]


def test_a_reload_that_fails_is_named(host: Host) -> None:
    host.fault("reload_fails", FIRST)
    result = host.run("hairpin.sh")
    assert result.returncode == 1
    assert f"{FIRST_DEV}: the reload failed: Error: mlx5_core: reload failed." in result.stdout
    assert all(effective(host, pci) == (8192, 4) for pci in all_functions(host)[1:])


def test_a_reload_that_is_not_counted_proves_nothing(host: Host) -> None:
    host.fault("reload_without_count", FIRST)
    result = host.run("hairpin.sh")
    assert result.returncode == 1
    assert f"{FIRST_DEV}: devlink counts no reload that was good" in result.stdout


def test_a_refused_value_is_named_and_nothing_is_reloaded_for_it(host: Host) -> None:
    host.fault("refuse_param", FIRST)
    result = host.run("hairpin.sh")
    assert result.returncode == 1
    assert f"{FIRST_DEV}: hairpin_num_queues 4 refused: Error: mlx5_core" in result.stdout
    assert reloads(host) == all_functions(host)[1:]


def test_a_driver_that_does_not_know_the_parameter(host: Host) -> None:
    del host.state["devlink"][FIRST]["params"]["hairpin_queue_size"]
    result = host.run("hairpin.sh")
    assert result.returncode == 1
    assert f"{FIRST_DEV}: the driver does not know hairpin_queue_size" in result.stdout
    assert FIRST not in reloads(host)


def test_a_function_that_is_not_there_does_not_hold_up_the_others(host: Host) -> None:
    with host.edit() as state:
        state["links"][FIRST_DEV]["present"] = False
    result = host.run("hairpin.sh")
    assert result.returncode == 1
    assert f"{FIRST_DEV} ({FIRST}): not there after 0 s" in result.stdout
    assert reloads(host) == all_functions(host)[1:]


def test_the_run_as_a_whole_has_a_limit(host: Host) -> None:
    result = host.run("hairpin.sh", FABRIC_PLAN_RUN_LIMIT="0")
    assert result.returncode == 1
    assert result.stdout.count("not looked at") == 4
    assert host.calls() == []


# ---- RDMA in use ---------------------------------------------------------------------------------

USERS = {
    "an engine's queue pair": (
        "qp",
        "link rocep1s0f1/1 lqpn 30278 rqpn 39296 type RC state RTS rq-psn 1 sq-psn 2 "
        "path-mig-state MIGRATED pdn 128 pid 61655 comm kv-poll-event",
    ),
    "NFS over RDMA, which has no process": (
        "qp",
        "link rocep1s0f1/1 lqpn 77 rqpn 78 type RC state RTS rq-psn 1 sq-psn 2 comm [rpcrdma]",
    ),
    "a queue pair of the driver that is no GSI": (
        "qp",
        "link rocep1s0f1/1 lqpn 7 type UD state RTS sq-psn 0 comm [mlx5_ib]",
    ),
    "a GSI queue pair of another kernel user": (
        "qp",
        "link rocep1s0f1/1 lqpn 1 type GSI state RTS sq-psn 0 comm [other]",
    ),
    "a GSI queue pair of a process": (
        "qp",
        "link rocep1s0f1/1 lqpn 1 type GSI state RTS sq-psn 0 pid 9 comm ib_core",
    ),
    "an open context": ("ctx", "dev rocep1s0f1 ctxn 0 pid 4242 comm python3 "),
    "a context of nobody": ("ctx", "dev rocep1s0f1 ctxn 0 comm [some_ulp] "),
}


@pytest.mark.parametrize("user", list(USERS))
def test_nothing_is_reloaded_while_rdma_is_in_use(host: Host, user: str) -> None:
    kind, line = USERS[user]
    host.state["rdma"][kind].append(line)
    result = host.run("hairpin.sh")
    assert result.returncode == 1
    assert result.stdout.count("not reloaded, RDMA is in use") == 4
    assert line.strip() in result.stdout
    assert reloads(host) == []
    # The values wait, and are brought into effect when nobody is left.
    host.state["rdma"][kind].remove(line)
    assert host.run("hairpin.sh").returncode == 0
    assert reloads(host) == all_functions(host)


@pytest.mark.parametrize("what", ["qp", "ctx"])
def test_what_cannot_be_read_counts_as_in_use(host: Host, what: str) -> None:
    host.fault("rdma_unreadable", what)
    result = host.run("hairpin.sh")
    assert result.returncode == 1
    assert "cannot be read: Failed to open NETLINK_RDMA socket" in result.stdout
    assert reloads(host) == []


def test_a_user_that_comes_between_two_functions_stops_the_rest(host: Host) -> None:
    host.state["rdma_after_reloads"] = {"count": 2, "line": USERS["an open context"][1]}
    result = host.run("hairpin.sh")
    assert result.returncode == 1
    assert reloads(host) == all_functions(host)[:2]


def test_our_own_marker_is_no_traffic(host: Host) -> None:
    unit = "fabric-plan-marker@rocep1s0f0.service"
    host.state["units"][unit] = "active"
    host.state["pids"][unit] = 777
    host.state["rdma"]["ctx"].append("dev rocep1s0f0 ctxn 3 pid 777 comm fabric-plan-mar ")
    assert host.run("hairpin.sh").returncode == 0
    assert reloads(host) == all_functions(host)


def test_a_marker_that_its_unit_does_not_know_is_traffic(host: Host) -> None:
    unit = "fabric-plan-marker@rocep1s0f0.service"
    host.state["units"][unit] = "active"
    host.state["pids"][unit] = 777
    host.state["rdma"]["ctx"].append("dev rocep1s0f0 ctxn 3 pid 7770 comm fabric-plan-mar ")
    assert host.run("hairpin.sh").returncode == 1
    assert reloads(host) == []


def test_before_the_rdma_driver_is_loaded_nothing_can_be_in_use(host: Host) -> None:
    with host.edit() as state:
        for link in state["links"].values():
            link["rdma"] = ""
        state["faults"]["rdma_unreadable"] = {"qp": True, "ctx": True}
    assert host.run("hairpin.sh").returncode == 0
    assert reloads(host) == all_functions(host)


# ---- what else has to know -----------------------------------------------------------------------


def test_a_live_mesh_gets_its_rules_back(host: Host) -> None:
    host.up()
    host.state["units"][MESH_UNIT] = "active"
    assert host.run("hairpin.sh").returncode == 0
    assert ["systemctl", "--no-block", "reload", MESH_UNIT] in host.calls()
    assert host.up().returncode == 0
    assert sorted(f["cookie"] for f in host.state["filters"]) == sorted(r.cookie for r in host.node.rules)


def test_at_boot_no_unit_is_touched(host: Host) -> None:
    host.run("hairpin.sh")
    assert not [call for call in host.calls() if call[0] == "systemctl"]


def test_the_function_that_carries_the_default_route_comes_last(host: Host) -> None:
    host.state["routes"].append(
        {"to": "default", "via": "10.10.0.1", "dev": FIRST_DEV, "src": None, "proto": "boot", "metric": "0"}
    )
    assert host.run("hairpin.sh").returncode == 0
    assert reloads(host) == [*all_functions(host)[1:], FIRST]


def test_names_of_functions_limit_it_to_these(host: Host) -> None:
    result = host.run("hairpin.sh", FIRST_DEV)
    assert result.returncode == 0, result.stdout
    assert reloads(host) == [FIRST]


def test_a_name_that_is_not_planned_changes_nothing(host: Host) -> None:
    result = host.run("hairpin.sh", FIRST_DEV, "eth0")
    assert result.returncode == 1 and "eth0 is no function" in result.stdout
    assert host.calls() == []
