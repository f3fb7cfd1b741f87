"""The machine under the lab: files that are whole, locks, commands that end."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import host
from lab.cli import main
from lab.driver import STATE, Lab, check_room
from lab.errors import LabError, LabUnavailableError
from lab.spec import ring


def test_a_file_is_the_old_or_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lab.json"
    host.replace_text(path, "old")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("no space left")))
    with pytest.raises(OSError, match="no space"):
        host.replace_text(path, "new")
    assert path.read_text() == "old"


def test_a_second_lab_does_not_start_beside_the_first(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with (
        host.sole(lock, seconds=0),
        pytest.raises(LabError, match="another lab's work"),
        host.sole(lock, seconds=0),
    ):
        pass
    with host.sole(lock, seconds=0):
        pass


def test_a_command_that_does_not_end_says_what_it_said() -> None:
    with pytest.raises(LabError, match=r"did not end within 1 s\nhalf way"):
        host.run(["sh", "-c", "echo half way; exec cat /dev/zero >/dev/null"], seconds=1)


def test_nobody_is_asked_anything() -> None:
    assert host.run(["sh", "-c", "read answer || echo none"], seconds=20) == "none\n"


def test_an_ordinary_user_needs_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "find", lambda program: None)
    monkeypatch.setattr(host, "is_root", lambda: True)
    root = host.missing_packages()
    monkeypatch.setattr(host, "is_root", lambda: False)
    assert set(host.missing_packages()) - set(root) == {"fakeroot", "uidmap"}


def test_a_host_that_lacks_the_suites_keys_gets_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(host, "KEYRING", (tmp_path / "none.gpg", "debian-archive-keyring"))
    assert "debian-archive-keyring" in host.missing_packages()


def test_nodes_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("lab.driver.DISK_MIB", 1 << 40)
    with pytest.raises(LabUnavailableError, match=f"MiB in {tmp_path}"):
        check_room(ring(2), tmp_path)
    monkeypatch.setattr("lab.driver.MEMORY_MIB", 1 << 40)
    with pytest.raises(LabUnavailableError, match="of memory"):
        check_room(ring(2))


def test_a_run_directory_too_long_for_sockets_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FABRIC_PLAN_LAB_RUN", str(tmp_path / ("x" * 80)))
    with pytest.raises(LabError, match="too long a name"):
        host.run_dir()
    assert list(tmp_path.iterdir()) == []


def test_a_lab_of_another_version_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / STATE).write_text('{"accelerator": "tcg"}')
    with pytest.raises(LabError, match="says nothing of 'artifacts': another version") as error:
        Lab.open(tmp_path)
    assert "make lab-down" in "\n".join(error.value.lines())


def test_an_interrupted_verb_says_no_more_than_that(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Lab, "open", interrupted)
    assert main(["status"]) == 130
    assert capsys.readouterr() == ("", "interrupted\n")
