"""Every verb's good path: a first apply, an upgrade, going back, and what each of them leaves behind."""

from __future__ import annotations

import stat
from typing import Any

import pytest

from tests.node.txn.faults import STEPS, TRIED, Whole, run_out
from tests.node.txn.support import (
    F0,
    F1,
    Driver,
    KilledError,
    RefusedError,
    changes,
    document,
    expected,
    tree,
)
from tests.node.txn.world import World

PLACE: tuple[dict[str, Any], ...] = ({"kind": "place"},)
NODE_JSON = "/etc/fabric-plan/node.json"


def in_trial(world: World, version: str = "v1") -> Driver:
    """Bring a version to its trial."""
    driver = Driver(world)
    driver.begin()
    driver.stage(changes(world, tree(version)))
    status = driver.run()
    assert status["phase"] == "trial", status
    return driver


def left_of_a_trial(world: World) -> list[str]:
    """Return what stands where trials stand."""
    return [str(path) for folder in TRIED for path in (world.root / folder).glob("*")]


def test_a_first_apply_from_begin_to_release(world: World, driver: Driver) -> None:
    begun = driver.begin()
    assert (begun["generation"], begun["current"]) == (1, None)
    driver.carry_on("v1")
    assert world.files() == expected(tree("v1"))
    live = world.live()
    assert (live.rules, live.forwarding, live.hairpin) == ("v1", "v1", {F0: "v1"})
    assert live.addresses[F0] == ["10.1.0.10/24"] and live.addresses[F1] == ["10.1.1.10/24"]
    assert set(live.units) == {
        "fabric-plan-forward.service",
        "fabric-plan-marker@rocep1s0f0.service",
        "fabric-plan-mesh.service",
    }
    assert live.marker_args == {"fabric-plan-marker@rocep1s0f0.service": "MARKER_ARGS=v1"}
    assert live.nm_conf == ["[device-v1]"]
    assert world.sysctls()[f"{F0}/forwarding"] == "1"
    assert left_of_a_trial(world) == [] and world.timers == {}
    assert not (world.root / "run/fabric-plan/apply.json").exists()


def test_a_boot_after_the_commit_gives_the_same_state(world: World, driver: Driver) -> None:
    driver.apply("v1")
    before = Whole.of(world)
    world.reboot()
    assert Whole.of(world) == before


def test_the_trial_works_while_nothing_of_it_outlives_a_reboot(world: World) -> None:
    in_trial(world)
    assert world.live().rules == "v1" and world.live().addresses[F0] == ["10.1.0.10/24"]
    assert world.files() == {}
    kept = {str(p.relative_to(world.root)) for p in (world.root / "var/lib").rglob("*") if p.is_file()}
    assert all(path.startswith("var/lib/fabric-plan/generations/1/") for path in kept)


def test_the_trial_wins_over_what_is_installed(world: World, driver: Driver) -> None:
    driver.apply("v1")
    in_trial(world, "v2")
    live = world.live()
    # By name, so that NetworkManager and systemd-sysctl read it after the file in /etc.
    assert live.nm_conf == ["[device-v1]", "[device-v2]"]
    assert (world.root / "run/sysctl.d/90-fabric-plan.trial.conf").exists()
    world.systemctl(["reload", "fabric-plan-mesh.service"])
    assert world.live().rules == "v2"


def test_only_root_may_read_what_a_trial_keeps(world: World) -> None:
    in_trial(world)
    for path in ("run/fabric-plan/trial", "var/lib/fabric-plan", "var/lib/fabric-plan/generations/1"):
        assert stat.S_IMODE((world.root / path).stat().st_mode) == 0o700, path
    for path in ("run/fabric-plan/apply.json", "run/netplan/40-sparkring-plane1.yaml"):
        assert stat.S_IMODE((world.root / path).stat().st_mode) == 0o600, path


def test_an_upgrade_and_the_history(world: World, driver: Driver) -> None:
    driver.apply("v1")
    assert driver.apply("v2")["generation"] == 2
    assert world.files() == expected(tree("v2"))
    assert world.live().nm_conf == ["[device-v2]"]
    history = driver.call("generations")
    assert history["current"] == 2
    assert [(g["number"], g["result"], g["who"], g["intent"]) for g in history["generations"]] == [
        (1, "committed", "tester@here", "apply"),
        (2, "committed", "tester@here", "apply"),
    ]
    assert all(g["digest"] == "d" * 64 and g["fabric"] == "home" for g in history["generations"])


def test_the_files_of_a_generation_bring_it_back(world: World, driver: Driver) -> None:
    driver.apply("v1")
    first = world.files()
    driver.apply("v2")
    files = driver.call("generation", {"number": 1})["files"]
    assert {item["path"] for item in files} == set(tree("v1"))
    driver.begin("rollback")
    driver.stage(files)
    assert driver.run()["phase"] == "trial"
    driver.ask("confirm")
    assert world.files() == first
    assert driver.call("generations")["current"] == 3


def test_a_definition_that_was_taken_over_comes_back_with_the_generation_before(
    world: World, driver: Driver
) -> None:
    vendor = "/etc/netplan/99-vendor.yaml"
    world.write(vendor, "network: {version: 2}\n", 0o600)
    driver.begin()
    driver.stage([*changes(world, tree("v1")), {"path": vendor, "content": None}])
    assert driver.run()["phase"] == "trial"
    driver.ask("confirm")
    driver.ask("release")
    assert vendor not in world.files()
    before = {item["path"]: item for item in driver.call("generation", {"number": 0})["files"]}
    assert before[vendor] == document(vendor, "0600", "network: {version: 2}\n")
    assert all(item["content"] is None for path, item in before.items() if path != vendor)


def test_everything_can_be_removed(world: World, driver: Driver) -> None:
    driver.apply("v1")
    driver.begin("remove")
    driver.stage(changes(world, {}))
    steps = (
        *PLACE,
        {"kind": "mesh-down"},
        {"kind": "forward-stop"},
        {"kind": "flush", "interfaces": [F0, F1]},
    )
    assert driver.run(steps)["phase"] == "trial"
    assert "until the next boot" in driver.ask("confirm")["notes"][0]
    assert world.files() == {}
    live = world.live()
    assert (live.rules, live.forwarding, live.units) == ("", "", {})
    assert live.addresses[F0] == [] and F0 not in live.active
    assert left_of_a_trial(world) == []


def test_a_change_of_live_state_alone_is_a_generation_too(world: World, driver: Driver) -> None:
    driver.apply("v1")
    driver.begin()
    driver.stage([])
    assert driver.run(({"kind": "place"}, {"kind": "mesh"}))["phase"] == "trial"
    assert driver.ask("confirm")["generation"] == 2
    assert {item["path"] for item in driver.call("generation", {"number": 2})["files"]} == set(tree("v1"))


def test_five_generations_are_kept_and_attempts_push_none_out(world: World, driver: Driver) -> None:
    driver.apply("v1")
    for version in range(2, 8):
        driver.begin()
        driver.stage([document(NODE_JSON, "0644", f"{version}\n")])
        driver.run(PLACE)
        if version == 5:
            driver.ask("undo")
        else:
            driver.ask("confirm")
        driver.ask("release")
    history = driver.call("generations")["generations"]
    assert [(item["number"], item["result"]) for item in history] == [
        (2, "committed"),
        (3, "committed"),
        (4, "committed"),
        (5, "rolled-back"),
        (6, "committed"),
        (7, "committed"),
    ]
    with pytest.raises(RefusedError, match="no longer kept"):
        driver.call("generation", {"number": 0})


# ---- going back ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["v0", "v1"])
def test_undo_puts_back_what_was_there(world: World, version: str) -> None:
    if version == "v1":
        Driver(world).apply("v1")
    before = Whole.of(world)
    driver = in_trial(world, "v2")
    notes = driver.ask("undo")["notes"]
    assert Whole.of(world) == before
    assert notes == [f"{F0}: the hairpin values of its driver stay as they are; a rollback reloads no driver"]
    assert world.live().hairpin == {F0: "v2"}
    assert left_of_a_trial(world) == [] and world.timers == {}
    assert driver.call("generations")["generations"][-1]["result"] == "rolled-back"
    log = len(world.log)
    assert driver.ask("undo")["notes"] == notes
    assert world.log[log:] == []


def test_the_profile_that_was_active_comes_back(world: World, driver: Driver) -> None:
    world.kernel.profiles["factory"] = {
        "id": "Wired connection 2",
        "iface": F0,
        "addresses": ["169.254.7.7/16"],
        "file": None,
    }
    world.kernel.active[F0] = "factory"
    world.kernel.addresses[F0] = ["169.254.7.7/16"]
    driver = in_trial(world)
    assert world.live().active[F0] == f"netplan-{F0}"
    driver.ask("undo")
    assert world.live().active[F0] == "Wired connection 2"
    assert world.live().addresses[F0] == ["169.254.7.7/16"]
    assert F1 not in world.live().active


def test_a_profile_that_went_with_the_driver_is_a_note_and_no_problem(world: World, driver: Driver) -> None:
    world.kernel.profiles["auto"] = {"id": "Wired connection 2", "iface": F0, "addresses": [], "file": None}
    world.kernel.active[F0] = "auto"
    driver = in_trial(world)
    del world.kernel.profiles["auto"]  # NetworkManager's own go when the device goes for a moment
    (note,) = [note for note in driver.ask("undo")["notes"] if "Wired" in note]
    assert note.startswith(f"{F0}: Wired connection 2 is gone")
    assert F0 not in world.live().active and world.live().addresses[F0] == []


def test_an_interface_that_only_a_step_names_comes_back_too(world: World, driver: Driver) -> None:
    driver.apply("v1")
    before = Whole.of(world)
    driver.begin("remove")
    driver.call(
        "stage", {"token": driver.token, "files": changes(world, {}), "sysctls": [], "interfaces": []}
    )
    assert driver.run((*PLACE, {"kind": "flush", "interfaces": [F0, F1]}))["phase"] == "trial"
    assert world.live().addresses[F0] == []
    driver.ask("undo")
    assert Whole.of(world) == before


def test_an_undo_before_the_first_step_touches_no_interface(world: World, driver: Driver) -> None:
    driver.apply("v1")
    driver.begin()
    driver.stage(changes(world, tree("v2")))
    world.log.clear()
    driver.ask("undo")
    assert [call for call in world.log if call[0] in ("nmcli", "netplan", "fabric")] == []


def test_the_timer_takes_back_what_nobody_confirmed(world: World) -> None:
    before = Whole.of(world)
    driver = in_trial(world)
    run_out(world)
    assert world.fire() == 0
    assert Whole.of(world) == before
    assert driver.ask("status")["phase"] == "rolled-back"
    with pytest.raises(RefusedError, match="taken back") as refused:
        driver.ask("confirm")
    assert refused.value.id == "rolled-back"


def test_a_timer_that_was_armed_anew_does_nothing_when_the_old_one_fires(world: World) -> None:
    driver = in_trial(world)
    ((name, stale),) = world.timers.items()
    assert driver.run(({"kind": "daemon-reload"},))["phase"] == "trial"
    assert list(world.timers) != [name]
    assert world.fire(stale=stale) == 0
    assert driver.ask("status")["phase"] == "trial"


def test_a_timer_after_the_confirmation_does_nothing(world: World) -> None:
    driver = in_trial(world)
    (stale,) = world.timers.values()
    driver.ask("confirm")
    after = Whole.of(world)
    run_out(world)
    assert world.fire(stale=stale) == 0
    assert Whole.of(world) == after


def test_renewing_moves_lease_and_timer(world: World) -> None:
    driver = in_trial(world)
    (name,) = world.timers
    before = driver.ask("status")
    reply = driver.call("renew", {"token": driver.token, "lease_s": 600})
    assert reply["expires_unix"] > before["expires_unix"]
    assert len(world.timers) == 1 and name not in world.timers


# ---- the same question twice -----------------------------------------------------------------------------


def test_confirm_and_undo_answer_a_repeated_question_in_the_same_way(world: World) -> None:
    driver = in_trial(world)
    assert driver.ask("confirm") == driver.ask("confirm")
    with pytest.raises(RefusedError) as refused:
        driver.ask("undo")
    assert refused.value.id == "committed"
    world.reboot()
    assert driver.ask("confirm")["generation"] == 1
    assert driver.ask("status")["phase"] == "committed"


def test_after_a_restart_in_the_trial_the_answer_is_that_it_is_gone(world: World) -> None:
    driver = in_trial(world)
    world.reboot()
    with pytest.raises(RefusedError) as refused:
        driver.ask("confirm")
    assert refused.value.id == "rolled-back"
    assert driver.ask("status")["phase"] == "rolled-back"
    assert "what it was before" in driver.ask("undo")["notes"][0]
    assert driver.call("generations")["generations"][0]["result"] == "interrupted"


def test_a_run_is_taken_once_for_its_id(world: World, driver: Driver) -> None:
    driver.begin()
    driver.stage(changes(world, tree("v1")))
    driver.run(STEPS)
    request = {"token": driver.token, "id": driver.run_id, "steps": list(STEPS), "arm_s": 180}
    calls = len(world.log)
    driver.call("run", request)
    assert world.log[calls:] == []
    assert driver.ask("status")["run_id"] == driver.run_id


@pytest.mark.parametrize("end", ["undo", "release", "begin"])
def test_a_timer_armed_for_a_run_that_never_began_goes_too(world: World, driver: Driver, end: str) -> None:
    driver.begin()
    driver.stage(changes(world, tree("v1")))
    with pytest.raises(KilledError):
        driver.start(STEPS, FABRIC_PLAN_CRASH_AT="run.armed")
    assert len(world.timers) == 1
    if end == "begin":
        run_out(world)
    else:
        driver.ask(end)
        assert world.timers == {}
    if end == "undo":
        driver.ask("release")
    second = Driver(world)
    second.begin()
    assert world.timers == {}
    second.stage(changes(world, tree("v1")))
    assert second.run(STEPS)["phase"] == "trial"


# ---- leases ----------------------------------------------------------------------------------------------


def test_a_second_apply_hears_who_holds_the_node_since_when(world: World, driver: Driver) -> None:
    driver.begin(holder="anna@desk")
    with pytest.raises(RefusedError) as refused:
        Driver(world).begin(holder="ben@desk")
    error = refused.value.error
    assert error["id"] == "locked" and error["holder"] == "anna@desk"
    assert error["expires_unix"] - error["since_unix"] == 180
    driver.ask("release")
    Driver(world).begin(holder="ben@desk")


def test_whoever_did_not_get_the_lease_that_was_taken_for_him_asks_again(world: World) -> None:
    first, again = Driver(world), Driver(world)
    answer = first.begin(id="ab" * 8)
    assert again.begin(id="ab" * 8) == answer
    with pytest.raises(RefusedError, match="holds this node"):
        Driver(world).begin(id="cd" * 8)
    again.stage(changes(world, tree("v1")))
    with pytest.raises(RefusedError, match="holds this node"):
        first.begin(id="ab" * 8)


def test_a_lease_that_ran_out_is_taken_over_and_its_trial_is_taken_back(world: World) -> None:
    before = Whole.of(world)
    first = in_trial(world)
    run_out(world)
    second = Driver(world)
    begun = second.begin(holder="ben@desk")
    assert "was taken back" in begun["notes"][0] and begun["generation"] == 2
    assert Whole.of(world) == before
    for verb in ("confirm", "undo", "renew", "release"):
        request = {"token": first.token, **({"lease_s": 60} if verb == "renew" else {})}
        if verb == "release":
            assert first.call(verb, request)
        elif verb == "undo":
            assert first.call(verb, request)["notes"]
        else:
            with pytest.raises(RefusedError):
                first.call(verb, request)
    assert second.ask("status")["phase"] == "begun"


def test_a_released_trial_stays_under_its_timer(world: World) -> None:
    before = Whole.of(world)
    driver = in_trial(world)
    driver.ask("release")
    assert world.live().rules == "v1" and len(world.timers) == 1
    run_out(world)
    world.fire()
    assert Whole.of(world) == before


def test_a_lease_without_a_trial_leaves_nothing(world: World, driver: Driver) -> None:
    driver.begin()
    driver.stage(changes(world, tree("v1")))
    driver.ask("release")
    assert driver.call("generations")["generations"] == []
    assert left_of_a_trial(world) == []


def test_the_status_may_be_held_back_until_the_steps_have_ended(world: World, driver: Driver) -> None:
    driver.begin()
    driver.stage(changes(world, tree("v1")))
    driver.start(STEPS)
    status = driver.call("status", {"token": driver.token, "wait_s": 20})
    assert status["phase"] == "trial", status
    with pytest.raises(RefusedError, match="wait_s"):
        driver.call("status", {"token": driver.token, "wait_s": 3600})


def test_who_uses_rdma_is_told_without_a_lease(world: World, driver: Driver) -> None:
    assert driver.call("rdma-use")["reasons"] == []
    world.contexts.append({"ifindex": 0, "ifname": "rocep1s0f0", "ctxn": 9, "pid": 77, "comm": "engine"})
    assert driver.call("rdma-use")["reasons"] == ["rocep1s0f0: open in engine (process 77)"]
    assert world.log == []


def test_who_read_nothing_of_a_trial_is_told_nothing_at_its_commit(world: World, driver: Driver) -> None:
    driver.apply("v1")
    world.log.clear()
    driver.begin()
    driver.stage([])
    assert driver.run(({"kind": "place"},))["phase"] == "trial"
    driver.ask("confirm")
    driver.ask("release")
    assert {argv[0] for argv in world.log} == {"systemd-run", "systemctl"}
    assert all(argv[0] != "systemctl" or argv[1] == "stop" for argv in world.log), world.log


def test_a_timer_that_cannot_finish_comes_again(world: World, driver: Driver) -> None:
    driver.apply("v1")
    before = Whole.of(world)
    driver = in_trial(world, "v2")
    run_out(world)
    world.faults["^nmcli .*connection up"] = "Error: Connection activation failed."
    world.fire()
    assert driver.ask("status")["phase"] == "undoing" and len(world.timers) == 1
    world.faults.clear()
    run_out(world)
    world.fire()
    assert Whole.of(world) == before
    assert driver.ask("status")["phase"] == "rolled-back" and world.timers == {}
