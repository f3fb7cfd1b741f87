"""The tutorial without the lab: five commands that exist; the one that needs no lab prints what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from fabric_plan.cli.main import main, parser
from tests.docs.tutorial import PAGE, commands
from tests.golden_trees import ROOT


def test_there_are_at_most_five_commands() -> None:
    found = commands()
    assert len(found) == len(re.findall(r"^## \d", PAGE.read_text(), re.MULTILINE)) == 5


def test_every_command_is_there() -> None:
    targets = set(
        re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text() + (ROOT / "lab/lab.mk").read_text(), re.M)
    )
    for command in commands():
        program, *words = shlex.split(command)
        if program == "make":
            assert words[0] in targets
        else:
            assert program == ".venv/bin/fabric-plan"
            options = parser(words[0]).parse_args(words)
            assert (ROOT / options.inventory).exists()


def test_the_lab_is_linked_where_the_commands_look() -> None:
    text = (ROOT / "lab/lab.mk").read_text()
    assert "build/lab\n" in text
    assert all("--ssh-config build/lab/ssh_config" in command for command in commands()[2:4])


def test_render_prints_what_the_page_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "inventories").symlink_to(ROOT / "inventories")
    monkeypatch.chdir(tmp_path)
    (command,) = (one for one in commands() if " render " in one)
    assert main(shlex.split(command)[1:]) == 0
    shown = re.search(r"ends with\n\n((?:    .*\n)+)", PAGE.read_text())
    assert shown
    lines = [line.removeprefix("    ") for line in shown[1].splitlines()]
    assert capsys.readouterr().out.splitlines()[-len(lines) :] == lines
    assert (tmp_path / "build/lab4/review.html").exists()
