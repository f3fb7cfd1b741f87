"""One owner a device, by a lock that nobody else can place, replace or take."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.native.harness import BOTH_FORMS, DEVICE, Home, Outcome, nothing_left, signal_env

OTHER_DEVICE = "roceP2p1s0f0"
ONE_RULE = ("--rule", "10.10.2.11=0x88b5")


def refused(home: Home, state_dir: Path | str) -> Outcome:
    outcome = home.run(*BOTH_FORMS, "--state-dir", str(state_dir), exact=True)
    assert outcome.code == 73, outcome.stderr
    assert outcome.calls == []
    return outcome


def test_second_owner_is_refused_and_told_who_holds_it(home: Home) -> None:
    with home.holding(*BOTH_FORMS) as first:
        before = home.calls()
        second = home.run(*BOTH_FORMS, env={"STANDIN_RECORD": str(home.root / "other-record")})
        assert second.code == 75
        assert (
            f"another marker holds this device, process {first.process.pid}\n  hint: stop that one"
            in second.stderr
        )
        assert not (home.root / "other-record").exists()
        assert first.process.poll() is None
        home.record.write_text("", encoding="ascii")
        assert first.stop().code == 0
    assert len(before) == 11
    assert home.run(*BOTH_FORMS, env=signal_env(11, signal.SIGTERM)).code == 0


def test_other_devices_are_free(home: Home) -> None:
    with home.holding(*BOTH_FORMS):
        other = home.run(
            *("--device", OTHER_DEVICE, *ONE_RULE),
            env=signal_env(7, signal.SIGTERM) | {"STANDIN_RECORD": str(home.root / "other-record")},
        )
        assert other.code == 0, other.stderr


def test_lock_outlives_nobody(home: Home) -> None:
    with home.holding(*BOTH_FORMS) as first:
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
    with home.holding(*BOTH_FORMS) as second:
        lock = home.state_dir / f"{DEVICE}.lock"
        assert lock.read_text(encoding="ascii") == f"{second.process.pid}\n"
        outcome = second.stop()
    assert outcome.code == 0 and nothing_left(outcome.calls)


def test_state_directory_and_lock_are_private(home: Home) -> None:
    with home.holding(*BOTH_FORMS):
        assert home.state_dir.stat().st_mode & 0o7777 == 0o700
        assert (home.state_dir / f"{DEVICE}.lock").stat().st_mode & 0o7777 == 0o600


def test_a_holder_without_a_number_is_still_a_holder(home: Home) -> None:
    with home.holding(*BOTH_FORMS):
        (home.state_dir / f"{DEVICE}.lock").write_text("", encoding="ascii")
        second = home.run(*BOTH_FORMS, env={"STANDIN_RECORD": str(home.root / "other-record")})
        assert second.code == 75
        assert "another marker holds this device\n" in second.stderr


def test_symbolic_link_as_state_directory(home: Home) -> None:
    (home.root / "real").mkdir(mode=0o700)
    home.state_dir.symlink_to(home.root / "real")
    assert "(ELOOP)" in (stderr := refused(home, home.state_dir).stderr) or "(ENOTDIR)" in stderr
    assert list((home.root / "real").iterdir()) == []


def test_symbolic_link_on_the_way(home: Home) -> None:
    (home.root / "real").mkdir(mode=0o700)
    (home.root / "link").symlink_to(home.root / "real")
    assert "cannot open 'link'" in refused(home, home.root / "link" / "state").stderr
    assert list((home.root / "real").iterdir()) == []


def test_symbolic_link_as_lock_file(home: Home) -> None:
    home.state_dir.mkdir(mode=0o700)
    target = home.root / "target"
    target.write_text("precious", encoding="ascii")
    (home.state_dir / f"{DEVICE}.lock").symlink_to(target)
    assert "(ELOOP)" in refused(home, home.state_dir).stderr
    assert target.read_text(encoding="ascii") == "precious"


def test_hard_link_as_lock_file(home: Home) -> None:
    home.state_dir.mkdir(mode=0o700)
    target = home.root / "target"
    target.write_text("precious", encoding="ascii")
    (home.state_dir / f"{DEVICE}.lock").hardlink_to(target)
    assert "not a plain file" in refused(home, home.state_dir).stderr
    assert target.read_text(encoding="ascii") == "precious"


@pytest.mark.parametrize(
    ("kind", "says"),
    [("fifo", "is not a plain file"), ("directory", "(EISDIR)"), ("foreign", "is not a plain file of root")],
)
def test_lock_file_of_another_kind(home: Home, kind: str, says: str) -> None:
    home.state_dir.mkdir(mode=0o700)
    lock = home.state_dir / f"{DEVICE}.lock"
    if kind == "fifo":
        os.mkfifo(lock)
    elif kind == "directory":
        lock.mkdir()
    else:
        lock.touch(mode=0o600)
        os.chown(lock, 12345, 12345)
    assert says in refused(home, home.state_dir).stderr


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_state_directory_that_others_can_write(home: Home, mode: int) -> None:
    home.state_dir.mkdir()
    home.state_dir.chmod(mode)
    assert f"is not safe: owner 0, mode {mode:04o}" in refused(home, home.state_dir).stderr


def test_state_directory_of_somebody_else(home: Home) -> None:
    home.state_dir.mkdir(mode=0o700)
    os.chown(home.state_dir, 12345, 12345)
    assert "is not safe: owner 12345" in refused(home, home.state_dir).stderr


@pytest.mark.parametrize(("mode", "safe"), [(0o777, False), (0o1777, True)])
def test_directory_on_the_way_that_others_can_write(home: Home, mode: int, safe: bool) -> None:
    way = home.root / "way"
    way.mkdir()
    way.chmod(mode)
    if safe:
        arguments = (*BOTH_FORMS, "--state-dir", str(way / "state"))
        outcome = home.run(*arguments, exact=True, env=signal_env(1, signal.SIGTERM))
        assert outcome.code == 0, outcome.stderr
    else:
        assert "'way' of the state directory" in refused(home, way / "state").stderr


@pytest.mark.parametrize(
    "path",
    ["/", "//", "/run/../run/marker-test", "/run/./marker-test", "/nonexistent/marker", "/" + "n" * 256],
)
def test_paths_that_cannot_be_a_state_directory(home: Home, path: str) -> None:
    assert "hint: use a directory under /run" in refused(home, path).stderr


def test_a_file_in_place_of_the_state_directory(home: Home) -> None:
    home.state_dir.touch()
    assert "(ENOTDIR)" in refused(home, home.state_dir).stderr


def test_state_directory_with_extra_slashes_is_the_same_one(home: Home) -> None:
    with home.holding(*BOTH_FORMS):
        doubled = str(home.state_dir).replace("/", "//") + "//"
        second = home.run(
            *BOTH_FORMS,
            "--state-dir",
            doubled,
            exact=True,
            env={"STANDIN_RECORD": str(home.root / "other-record")},
        )
        assert second.code == 75
