"""What the node program refuses, and what a step that fails, hangs or is refused leaves behind."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tests.node.txn.faults import STEPS, Whole
from tests.node.txn.support import (
    DEADLINE_S,
    F0,
    TOKEN,
    Driver,
    RefusedError,
    changes,
    document,
    tree,
)
from tests.node.txn.world import MANAGEMENT, World

FILE = document("/etc/fabric-plan/node.json", "0644", "{}\n")


def refused(driver: Driver, verb: str, request: dict[str, Any]) -> str:
    """Return the id of a refusal."""
    with pytest.raises(RefusedError) as error:
        driver.call(verb, request)
    assert error.value.error["message"]
    return str(error.value.id)


BEGIN = {
    "id": "0123456789abcdef",
    "holder": "a",
    "lease_s": 60,
    "intent": "apply",
    "digest": "",
    "fabric": "",
    "node": "",
    "version": "",
}


@pytest.mark.parametrize(
    ("verb", "request_"),
    [
        ("begin", {**BEGIN, "lease_s": 0}),
        ("begin", {**BEGIN, "lease_s": True}),
        ("begin", {**BEGIN, "lease_s": 1e9}),
        ("begin", {**BEGIN, "holder": "a\nb"}),
        ("begin", {**BEGIN, "holder": "x" * 300}),
        ("begin", {**BEGIN, "intent": "destroy"}),
        ("begin", {**BEGIN, "colour": "red"}),
        ("begin", {"holder": "a"}),
        ("stage", {"token": "../../etc"}),
        ("stage", {"token": TOKEN, "files": [{**FILE, "path": "/etc/passwd"}]}),
        ("stage", {"token": TOKEN, "files": [{**FILE, "path": "/etc/netplan/../passwd"}]}),
        ("stage", {"token": TOKEN, "files": [{**FILE, "path": "/etc/netplan/"}]}),
        ("stage", {"token": TOKEN, "files": [{**FILE, "path": "/etc/netplan/a\tb"}]}),
        ("stage", {"token": TOKEN, "files": [{**FILE, "path": "etc/netplan/a"}]}),
        ("stage", {"token": TOKEN, "files": [{**FILE, "mode": "0666"}]}),
        ("stage", {"token": TOKEN, "files": [{**FILE, "mode": "4755"}]}),
        ("stage", {"token": TOKEN, "files": [{**FILE, "content": "no base64!"}]}),
        ("stage", {"token": TOKEN, "files": [{**FILE, "owner": "me"}]}),
        ("stage", {"token": TOKEN, "files": [FILE, FILE]}),
        ("stage", {"token": TOKEN, "files": [{"path": FILE["path"], "link": "a\nb"}]}),
        ("stage", {"token": TOKEN, "files": "all"}),
        ("stage", {"token": TOKEN, "sysctls": ["kernel/panic"]}),
        ("stage", {"token": TOKEN, "sysctls": ["net/../../kernel/panic"]}),
        ("stage", {"token": TOKEN, "interfaces": ["eth0; reboot"]}),
        ("stage", {"token": TOKEN, "interfaces": ["--help"]}),
        ("run", {"token": TOKEN, "id": TOKEN, "steps": []}),
        ("run", {"token": TOKEN, "id": TOKEN, "steps": [{"kind": "place", "path": "/"}]}),
        ("run", {"token": TOKEN, "id": TOKEN, "steps": [{"kind": "hairpin", "netdev": "a b"}]}),
        ("run", {"token": TOKEN, "id": TOKEN, "steps": [{"kind": "hairpin"}]}),
        (
            "run",
            {
                "token": TOKEN,
                "id": TOKEN,
                "steps": [{"kind": "units", "start": ["sshd.service"], "stop": []}],
            },
        ),
        ("run", {"token": TOKEN, "id": "", "steps": [{"kind": "place"}]}),
        ("run", {"token": TOKEN, "id": TOKEN, "steps": [{"kind": "place"}], "arm_s": 0}),
        ("status", {}),
        ("confirm", {"token": None}),
        ("generation", {"number": -1}),
        ("rehearse", {"files": [{"path": "/etc/shadow", "content": None}]}),
    ],
)
def test_a_request_that_is_none(driver: Driver, verb: str, request_: dict[str, Any]) -> None:
    assert refused(driver, verb, request_) == "bad-request"


def test_a_step_that_is_in_no_table(driver: Driver) -> None:
    request = {"token": TOKEN, "id": TOKEN, "steps": [{"kind": "shell", "command": "reboot"}]}
    assert refused(driver, "run", request) == "unknown-step"


def test_a_file_that_arrived_damaged(driver: Driver) -> None:
    driver.begin()
    request = {"token": driver.token, "files": [{**FILE, "sha256": "0" * 64}]}
    assert refused(driver, "stage", request) == "bad-digest"


@pytest.mark.parametrize("verb", ["stage", "status", "confirm", "renew"])
def test_a_token_that_holds_nothing(driver: Driver, verb: str) -> None:
    driver.begin()
    request = {"token": TOKEN, **({"lease_s": 9} if verb == "renew" else {})}
    assert refused(driver, verb, request) == "no-lease"


def test_what_nobody_could_finish_is_not_begun(world: World, driver: Driver) -> None:
    driver.begin()
    files = [item for item in changes(world, tree("v1")) if "recover" not in item["path"]]
    assert refused(driver, "stage", {"token": driver.token, "files": files}) == "no-recover"


def test_somebody_elses_file_where_the_trial_would_stand(world: World, driver: Driver) -> None:
    world.write("/run/netplan/40-sparkring-plane1.yaml", "network: {version: 2}\n")
    driver.begin()
    request = {"token": driver.token, "files": changes(world, tree("v1"))}
    assert refused(driver, "stage", request) == "occupied"


def test_a_folder_where_a_file_of_ours_belongs(world: World, driver: Driver) -> None:
    (world.root / "etc/fabric-plan/node.json").mkdir(parents=True)
    driver.begin()
    assert (
        refused(driver, "stage", {"token": driver.token, "files": changes(world, tree("v1"))}) == "not-a-file"
    )


def test_a_folder_that_others_can_write(world: World, driver: Driver) -> None:
    (world.root / "run/fabric-plan").mkdir()
    (world.root / "run/fabric-plan").chmod(0o777)
    assert refused(driver, "begin", BEGIN) == "unsafe-directory"


def test_a_link_where_our_folder_belongs(world: World, driver: Driver) -> None:
    (world.home / "elsewhere").mkdir()
    (world.root / "run/fabric-plan").symlink_to(world.home / "elsewhere")
    assert refused(driver, "begin", BEGIN) == "unsafe-directory"


def test_a_link_where_the_state_belongs_is_not_followed(world: World, driver: Driver) -> None:
    world.write("/run/fabric-plan/x", "")
    target = world.home / "target"
    target.write_text("mine")
    (world.root / "run/fabric-plan/apply.json").symlink_to(target)
    (world.root / "run/fabric-plan/apply.lock").symlink_to(target)
    assert refused(driver, "begin", BEGIN) == "system"
    assert target.read_text() == "mine"


def test_verbs_in_the_wrong_phase(world: World, driver: Driver) -> None:
    driver.begin()
    run = {"token": driver.token, "id": TOKEN, "steps": [{"kind": "place"}], "arm_s": 60}
    assert refused(driver, "run", run) == "wrong-phase"
    assert refused(driver, "confirm", {"token": driver.token}) == "wrong-phase"
    driver.stage(changes(world, tree("v1")))
    assert refused(driver, "confirm", {"token": driver.token}) == "wrong-phase"
    driver.run(({"kind": "place"},))
    assert refused(driver, "stage", {"token": driver.token, "files": []}) == "wrong-phase"


def test_no_step_without_the_rollback_armed(world: World, driver: Driver) -> None:
    driver.begin()
    driver.stage(changes(world, tree("v1")))
    world.faults[r"^systemd-run .*--on-active"] = "Failed to connect to bus"
    run = {"token": driver.token, "id": TOKEN, "steps": [{"kind": "place"}], "arm_s": 60}
    assert refused(driver, "run", run) == "cannot-arm"
    assert world.services == {} and driver.ask("status")["phase"] == "staged"


def test_a_service_that_systemd_does_not_start(world: World, driver: Driver) -> None:
    driver.begin()
    driver.stage(changes(world, tree("v1")))
    world.faults[r"^systemd-run .*-run-"] = "Failed to start transient service unit"
    run = {"token": driver.token, "id": TOKEN, "steps": [{"kind": "place"}], "arm_s": 60}
    assert refused(driver, "run", run) == "cannot-run"
    assert driver.ask("status")["phase"] == "staged"


# ---- steps that fail -------------------------------------------------------------------------------------

INTERFACE_STEPS = ("netplan", "hairpin")
FAILING = {
    "daemon-reload": "^systemctl daemon-reload",
    "nm-conf": "^nmcli general reload",
    "netplan": "^netplan generate",
    "netplan-load": "^nmcli connection load",
    "netplan-up": "^nmcli .*connection up",
    "hairpin": "^fabric hairpin",
    "forward": "^fabric forward v2",
    "mesh": "^fabric mesh v2",
    "markers": "^systemctl restart fabric-plan-marker",
}


@pytest.mark.parametrize("fault", FAILING)
@pytest.mark.parametrize("generation", [0, 1])
def test_a_step_that_fails_is_named_and_taken_back(world: World, fault: str, generation: int) -> None:
    driver = Driver(world)
    if generation:
        driver.apply("v1")
    before = Whole.of(world)
    driver.begin()
    driver.stage(changes(world, tree("v2")))
    world.faults[FAILING[fault]] = "once Something is wrong here"
    # An interface that comes up has the mesh looked at as well, so for that fault none does.
    status = driver.run(
        tuple(step for step in STEPS if fault != "mesh" or step["kind"] not in INTERFACE_STEPS)
    )
    (failed,) = [step for step in status["steps"] if step["state"] == "failed"]
    assert status["phase"] == "failed" and failed["kind"] == fault.partition("-load")[0].partition("-up")[0]
    assert "Something is wrong here" in failed["message"]
    assert refused(driver, "confirm", {"token": driver.token}) == "wrong-phase"
    driver.ask("undo")
    assert Whole.of(world) == before


def test_a_setting_of_a_function_that_is_not_there(world: World, driver: Driver) -> None:
    driver.begin()
    driver.stage(changes(world, tree("v1")))
    (world.root / f"proc/sys/net/ipv4/conf/{F0}/forwarding").unlink()
    status = driver.run(({"kind": "place"}, {"kind": "sysctl"}))
    assert "No such file" in status["steps"][1]["message"]
    assert f"net/ipv4/conf/{F0}/forwarding is not there any more" in driver.ask("undo")["notes"]


def wait_for(driver: Driver, kind: str) -> None:
    """Wait until a step of this kind is at work."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        steps = driver.ask("status")["steps"]
        if any(step["kind"] == kind and step["state"] == "running" for step in steps):
            return
        assert time.monotonic() < deadline, steps


def test_a_step_that_hangs_is_stopped_by_an_undo(world: World, driver: Driver) -> None:
    driver.apply("v1")
    before = Whole.of(world)
    driver.begin()
    driver.stage(changes(world, tree("v2")))
    world.faults["^nmcli .*connection up"] = "hang"
    driver.start(STEPS)
    wait_for(driver, "netplan")
    world.faults.clear()
    driver.ask("undo")
    assert Whole.of(world) == before
    assert driver.ask("status")["phase"] == "rolled-back"


def test_a_service_that_was_killed_is_no_endless_run(world: World, driver: Driver) -> None:
    before = Whole.of(world)
    driver.begin()
    driver.stage(changes(world, tree("v1")))
    world.faults["^nmcli .*connection up"] = "hang"
    driver.start(STEPS)
    wait_for(driver, "netplan")
    world.faults.clear()
    next(reversed(world.services.values())).kill()
    status = driver.follow()
    assert status["phase"] == "failed"
    assert [s["message"] for s in status["steps"] if s["state"] == "failed"] == [
        "the service was killed in this step"
    ]
    driver.ask("undo")
    assert Whole.of(world) == before


def test_an_undo_that_cannot_finish_says_so_and_goes_on_when_asked_again(
    world: World, driver: Driver
) -> None:
    driver.apply("v1")
    before = Whole.of(world)
    driver.begin()
    driver.stage(changes(world, tree("v2")))
    driver.run(STEPS)
    world.faults["^nmcli .*connection up"] = "Error: Connection activation failed."
    with pytest.raises(RefusedError, match="Connection activation failed") as error:
        driver.ask("undo")
    assert error.value.id == "undo-incomplete"
    assert driver.ask("status")["phase"] == "undoing" and driver.ask("status")["problems"]
    world.faults.clear()
    driver.ask("undo")
    assert Whole.of(world) == before


# ---- what must never be done -----------------------------------------------------------------------------

ENGINE = {"ifindex": 0, "ifname": "rocep1s0f0", "ctxn": 3, "pid": 4711, "comm": "python3"}


@pytest.mark.parametrize(
    ("step", "changes_something"),
    [
        ({"kind": "hairpin", "netdev": F0}, "fabric hairpin"),
        ({"kind": "mesh-down"}, "systemctl stop fabric-plan-mesh"),
        ({"kind": "markers", "devices": ["rocep1s0f0"]}, "systemctl restart"),
        ({"kind": "offload", "interfaces": [F0]}, "ethtool -K"),
        (
            {"kind": "units", "start": [], "stop": ["fabric-plan-mesh.service"]},
            "systemctl stop fabric-plan-mesh",
        ),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_nothing_is_taken_from_an_engine_that_runs(
    world: World, driver: Driver, step: dict[str, Any], changes_something: str
) -> None:
    driver.apply("v1")
    driver.begin()
    driver.stage(changes(world, tree("v2")))
    driver.run(({"kind": "place"},))
    world.contexts.append(ENGINE)
    world.log.clear()
    status = driver.run((step,))
    assert status["phase"] == "failed" and "RDMA is in use" in status["steps"][0]["message"]
    assert not [call for call in world.log if " ".join(call).startswith(changes_something)]


def test_an_undo_reloads_no_driver(world: World, driver: Driver) -> None:
    driver.begin()
    driver.stage(changes(world, tree("v1")))
    driver.run(STEPS)
    world.contexts.append(ENGINE)
    world.log.clear()
    driver.ask("undo")
    assert [call for call in world.log if call[:2] == ["fabric", "hairpin"]] == []


def test_netplan_is_never_applied_as_a_whole(world: World, driver: Driver) -> None:
    driver.apply("v1")
    assert not [call for call in world.log if call[:2] == ["netplan", "apply"]]


def test_a_management_address_that_is_away_for_a_moment(world: World, driver: Driver) -> None:
    def away() -> None:
        kept = world.kernel.addresses[MANAGEMENT]
        world.kernel.addresses[MANAGEMENT] = []
        threading.Timer(0.5, lambda: world.kernel.addresses.update({MANAGEMENT: kept})).start()

    driver.begin()
    driver.stage(changes(world, tree("v1")))
    world.during["^nmcli .*connection up"] = away
    assert driver.run(STEPS)["phase"] == "trial"


def test_a_management_address_that_does_not_come_back(world: World, driver: Driver) -> None:
    driver.begin()
    driver.stage(changes(world, tree("v1")))
    world.during["^nmcli .*connection up"] = lambda: world.kernel.addresses.update({MANAGEMENT: []})
    status = driver.run(STEPS)
    (failed,) = [step for step in status["steps"] if step["state"] == "failed"]
    assert failed["message"] == f"gone for 5 s: {MANAGEMENT} 192.168.1.11/24"


def test_a_unit_that_is_still_starting_is_stopped_too(world: World, driver: Driver) -> None:
    driver.apply("v1")
    world.kernel.units["fabric-plan-mesh.service"] = "activating"
    driver.begin("remove")
    driver.stage([])
    assert driver.run(({"kind": "mesh-down"},))["phase"] == "trial"
    assert ["systemctl", "stop", "fabric-plan-mesh.service"] in world.log
    driver.ask("undo")
