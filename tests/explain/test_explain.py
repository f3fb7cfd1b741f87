"""Every id that can be shown has a text, every text an id, and the command prints it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fabric_plan.checks.texts import TEXTS
from fabric_plan.cli.main import main
from fabric_plan.explain import listed
from fabric_plan.resources import meanings
from tests.explain.ids import PACKAGE, ids, ids_in

Captured = pytest.CaptureFixture[str]
KNOWN = {name for texts in meanings().values() for name in texts}


def test_every_id_has_a_text() -> None:
    assert {name: sorted(where) for name, where in ids().items() if name not in KNOWN} == {}


def test_every_text_has_an_id() -> None:
    assert sorted(KNOWN - set(ids())) == []


def test_the_checks_are_explained_from_their_own_table(capsys: Captured) -> None:
    assert main(["explain", "hairpin"]) == 0
    assert "checks" in capsys.readouterr().out
    assert {one.id for one in listed(meanings()) if one.area == "checks"} == set(TEXTS)


def test_the_reader_of_the_source_sees_each_form(tmp_path: Path) -> None:
    module = PACKAGE / "planner" / "notices.py"
    assert "half-bandwidth" in set(ids_in(module))
    assert "not-joined" in set(ids_in(PACKAGE / "topology" / "detect.py"))  # one of two, by a condition
    assert "power-of-two" in set(ids_in(PACKAGE / "inventory" / "schema.py"))  # the validator's own kind
    assert "no-room" in set(ids_in(PACKAGE / "node" / "transaction" / "verbs.py"))  # in a reply's dict


def test_each_area_knows_an_id_once() -> None:
    for path in (PACKAGE.parent / "roles" / "explain").glob("*.yaml"):
        keys = re.findall(r"^([a-z0-9-]+):", path.read_text(), re.MULTILINE)
        assert len(keys) == len(set(keys)), path.name


@pytest.mark.parametrize("id", sorted(KNOWN))
def test_a_text_says_all_three(id: str) -> None:
    for area in meanings().values():
        if id in area:
            meaning = area[id]
            for part in (meaning.what, meaning.why, meaning.mend):
                assert part.endswith((".", "?")) and len(part) < 240, part


def test_figures_name_their_section() -> None:
    sections = {
        int(number)
        for number in re.findall(
            r"^## (\d+)\.", (PACKAGE.parent / "docs/fabric.md").read_text(), re.MULTILINE
        )
    }
    for area in meanings().values():
        for meaning in area.values():
            for number in re.findall(r"docs/fabric\.md (\d+)", meaning.figure or ""):
                assert int(number) in sections


def test_explain_prints_and_lists(capsys: Captured) -> None:
    assert main(["explain", "half-bandwidth"]) == 0
    out = capsys.readouterr().out
    assert "109 Gb/s" in out and "mend" in out
    assert main(["explain", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {one["id"] for one in document["ids"]} == KNOWN | set(TEXTS)


def test_an_unknown_id_names_the_nearest(capsys: Captured) -> None:
    assert main(["explain", "half-bandwith"]) == 1
    assert "did you mean half-bandwidth" in capsys.readouterr().err


def test_errors_show_their_id(capsys: Captured) -> None:
    bad = PACKAGE.parent / "tests" / "cases" / "bad-inventory" / "07-missing-node.yaml"
    assert main(["validate", "-i", str(bad)]) == 1
    shown = re.findall(r"\[([a-z0-9-]+)\]$", capsys.readouterr().err, re.MULTILINE)
    assert shown and set(shown) <= KNOWN
