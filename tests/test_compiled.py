"""What is kept of the templates: used again, harmless when lost, and nobody else's code."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from jinja2 import Environment

from fabric_plan import resources
from fabric_plan.compiled import compiled_templates
from fabric_plan.render.templates import Templates


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "fabric-plan" / "templates"


def say(text: str = "Hello {{ name }}\n") -> str:
    return (
        Templates(lambda name: text, compiled_templates())
        .environment(autoescape=False)
        .get_template("hello")
        .render(name="spark1")
    )


def test_a_template_is_compiled_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert say() == "Hello spark1\n"
    kept = list(folder.iterdir())
    assert len(kept) == 1 and folder.stat().st_mode & 0o777 == 0o700

    def never(*args: object, **named: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(Environment, "compile", never)
    assert say() == "Hello spark1\n"


def test_another_text_of_the_same_name_is_not_taken_for_it(folder: Path) -> None:
    say()
    assert say("Good day {{ name }}\n") == "Good day spark1\n"


@pytest.mark.parametrize("rest", [b"", b"garbage", b"j2"])
def test_a_spoilt_file_is_compiled_again(folder: Path, rest: bytes) -> None:
    say()
    for file in folder.iterdir():
        file.write_bytes(rest)
    assert say() == "Hello spark1\n"


def test_a_full_disk_costs_nothing_but_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **named: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("jinja2.bccache.tempfile.NamedTemporaryFile", full)
    assert say() == "Hello spark1\n"


@pytest.mark.parametrize("mode", [0o777, 0o770])
@pytest.mark.parametrize("above", [0, 1, 2])
def test_a_folder_that_others_may_write_to_is_not_used(folder: Path, mode: int, above: int) -> None:
    assert compiled_templates() is not None
    (folder, *folder.parents)[above].chmod(mode)
    assert compiled_templates() is None


def test_a_folder_of_somebody_else_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled_templates() is not None
    monkeypatch.setattr("fabric_plan.compiled.os.geteuid", lambda: os.getuid() + 4711)
    if os.getuid() == 0:  # what root owns is trusted: give the folder away
        os.chown(folder, 4712, -1)
    assert compiled_templates() is None


def test_a_user_without_a_home_is_not_given_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "nonexistent"))
    assert compiled_templates() is None
    assert not (tmp_path / "nonexistent").exists()


def test_no_home_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    assert compiled_templates() is None
    assert resources.templates() is resources.templates()
