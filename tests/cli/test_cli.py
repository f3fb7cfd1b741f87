"""The command line as a user meets it: exit codes, streams, messages, and nothing half written."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fabric_plan import __version__
from fabric_plan.cli.main import VERBS, main
from tests.golden_trees import ROOT

RING4 = str(ROOT / "inventories" / "ring4.yaml")
BAD = ROOT / "tests" / "cases" / "bad-inventory"

Captured = pytest.CaptureFixture[str]


def test_help_names_verbs_and_exit_codes(capsys: Captured) -> None:
    with pytest.raises(SystemExit) as done:
        main(["--help"])
    out = capsys.readouterr().out
    assert done.value.code == 0
    assert all(verb.name in out for verb in VERBS)
    assert "exit codes" in out


@pytest.mark.parametrize("verb", [verb.name for verb in VERBS])
def test_every_verb_has_an_example(verb: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as done:
        main([verb, "--help"])
    out = capsys.readouterr().out
    assert done.value.code == 0
    assert f"example:\n  fabric-plan {verb}" in out


def test_version(capsys: Captured) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"fabric-plan {__version__}\n"


@pytest.mark.parametrize("argv", [[], ["render"], ["render", "-i"], ["render", "-i", RING4, "--nonsense"]])
def test_wrong_usage_is_64(argv: list[str], capsys: Captured) -> None:
    try:
        code: object = main(argv)
    except SystemExit as done:
        code = done.code
    assert code == 64
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "usage" in captured.err


@pytest.mark.parametrize("words", [["lab"], ["lab", "up", "-i", RING4]], ids=" ".join)
def test_an_installed_package_has_no_lab(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setitem(sys.modules, "lab.cli", None)
    assert main(words) == 1
    assert "the lab is not part of the installed package" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "hint"),
    [("rendr", "did you mean render?"), ("xyz\x1b[2J", "`fabric-plan --help` lists the verbs")],
)
def test_a_strange_verb(word: str, hint: str, capsys: Captured) -> None:
    assert main([word]) == 64
    captured = capsys.readouterr()
    assert captured.out == "" and hint in captured.err and "\x1b" not in captured.err


def test_a_wrong_option_points_to_the_help(capsys: Captured) -> None:
    with pytest.raises(SystemExit):
        main(["render", "--nonsense"])
    assert "hint: `fabric-plan render --help`" in capsys.readouterr().err


def test_the_difference_of_this_machine_is_that_of_one_node(capsys: Captured) -> None:
    assert main(["diff", "-i", RING4, "--local"]) == 64
    assert "say --node with one of spark1" in capsys.readouterr().err


def test_render_writes_and_reports(tmp_path: Path, capsys: Captured) -> None:
    assert main(["render", "-i", RING4, "-o", str(tmp_path / "b")]) == 0
    out = capsys.readouterr().out
    assert "proof: ok (24 RDMA paths arrive, 0 frames forwarded by a kernel" in out
    assert out.count("research-only") == 2  # one warning: its text and its id
    plan = json.loads((tmp_path / "b" / "plan.json").read_text())
    assert plan["proof"]["ok"] is True
    for node, part in plan["nodes"].items():
        for file in part["files"]:
            assert (tmp_path / "b" / f"{node}{file['path']}").exists()


def test_json_is_alone_on_stdout(capsys: Captured) -> None:
    assert main(["render", "-i", RING4, "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["schema"] == "fabric-plan/plan/v1"
    assert "proof: ok" in captured.err


def test_bad_inventory_writes_nothing(tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "b"
    assert main(["render", "-i", str(BAD / "07-missing-node.yaml"), "-o", str(out)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "n3" in captured.err
    assert "Traceback" not in captured.err
    assert not out.exists()


def test_a_missing_inventory_is_one_clear_error(capsys: Captured) -> None:
    assert main(["validate", "-i", "/nonexistent/x.yaml"]) == 1
    assert "cannot read the inventory: No such file or directory" in capsys.readouterr().err


def test_render_leaves_a_strangers_directory_alone(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "precious").write_text("mine")
    assert main(["render", "-i", RING4, "-o", str(tmp_path)]) == 1
    assert "is not empty" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["precious"]


def test_rendering_again_takes_old_files_away_and_keeps_yours(tmp_path: Path) -> None:
    out = tmp_path / "b"
    assert main(["render", "-i", RING4, "-o", str(out)]) == 0
    before = {p for p in out.rglob("*") if p.is_file()}
    (out / "spark1" / "notes.txt").write_text("mine")
    smaller = tmp_path / "one-plane.yaml"
    smaller.write_text(Path(RING4).read_text() + "planes: {1: managed}\n")
    assert main(["render", "-i", str(smaller), "-o", str(out)]) == 0
    after = {p for p in out.rglob("*") if p.is_file()}
    assert out / "spark1/etc/netplan/41-sparkring-plane2.yaml" in before - after
    assert (out / "spark1" / "notes.txt").read_text() == "mine"


def test_one_node(tmp_path: Path) -> None:
    assert main(["render", "-i", RING4, "-o", str(tmp_path / "b"), "--node", "spark2"]) == 0
    assert sorted(p.name for p in (tmp_path / "b").iterdir()) == ["plan.json", "review.html", "spark2"]


def test_a_strange_node_is_refused(tmp_path: Path, capsys: Captured) -> None:
    assert main(["render", "-i", RING4, "-o", str(tmp_path / "b"), "--node", "sprak2"]) == 1
    assert "the nodes are spark1, spark2, spark3, spark4" in capsys.readouterr().err


def test_an_unwritable_place_is_one_clear_error(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "file").write_text("")
    assert main(["render", "-i", RING4, "-o", str(tmp_path / "file" / "b")]) == 1
    assert "cannot write the rendered files" in capsys.readouterr().err


def test_prove_shows_every_hop(capsys: Captured) -> None:
    assert main(["prove", "-i", RING4, "-v"]) == 0
    out = capsys.readouterr().out
    assert "spark1 to spark3, plane 1 through spark2" in out
    assert "0x88b5" in out
