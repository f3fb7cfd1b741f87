"""The man page is what the help says now, and the completion completes in a real bash."""

from __future__ import annotations

import subprocess

import pytest

from fabric_plan.cli.completion import script
from fabric_plan.cli.grammar import commands
from fabric_plan.cli.main import VERBS
from tests.packaging.man import PAGE, man, roff


def test_the_man_page_is_of_today() -> None:
    assert PAGE.read_text() == man(), "make man"


def test_the_man_page_has_every_verb_and_option() -> None:
    text = man()
    for command in commands():
        assert f'.SH "{command.name.upper()}"' in text
        for argument in command.arguments:
            assert all(roff(name) in text for name in argument.names)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["fabric-plan", "ren"], {"render"}),
        (["fabric-plan", "render", "--out"], {"--output"}),
        (["fabric-plan", "remove", "pl"], {"plane2"}),
        (["fabric-plan", "discover", "--topology", "ri"], {"ring"}),
        (["fabric-plan", ""], {verb.name for verb in VERBS} | {"--help", "--version"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bash_completes(line: list[str], expected: set[str]) -> None:
    words = " ".join(f"'{word}'" for word in line)
    ask = (
        f"{script()}\nCOMP_WORDS=({words}); COMP_CWORD={len(line) - 1}; _fabric_plan; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    found = subprocess.run(["bash", "--norc", "-c", ask], capture_output=True, text=True, timeout=60)
    assert found.stderr == ""
    assert set(found.stdout.split()) == expected
