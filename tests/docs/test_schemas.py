"""What the verbs print is what docs/schema says, key by key: a key that no schema names fails too."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

from fabric_plan.apply.ends import End, NodeEnd, Report
from fabric_plan.apply.history import Generation, History
from fabric_plan.cli import deploying, history
from fabric_plan.cli.console import Console
from fabric_plan.cli.main import main
from fabric_plan.compare.diff import diff
from fabric_plan.facts.saved import collection
from lab import driver
from tests.checks.sound import broken, sound
from tests.checks.test_faults import marker_dead
from tests.facts_builder import desired
from tests.golden_trees import ROOT
from tests.planner.test_ring4 import RING4, planned

SCHEMAS = ROOT / "docs" / "schema"
INVENTORY = str(ROOT / "inventories" / "ring4.yaml")
GOLDEN = sorted((ROOT / "tests" / "golden").glob("*/plan.json"))

Captured = pytest.CaptureFixture[str]


def closed(schema: Any) -> Any:
    """Return a schema that allows no key beside those that it names."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    return {"additionalProperties": False, **inner} if "properties" in schema else inner


def check(document: Mapping[str, Any], *, strict: bool = True) -> None:
    name = document["schema"].split("/")[1]
    schema = json.loads((SCHEMAS / f"{name}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(closed(schema) if strict else schema).validate(document)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.parent.name)
def test_rendered_plans(path: Path) -> None:
    check(json.loads(path.read_text()))


@pytest.mark.parametrize(
    "words",
    [
        ("validate", "-i", INVENTORY),
        ("prove", "-i", INVENTORY),
        ("pin", "-i", INVENTORY),
        ("explain",),
        ("completion",),
        ("explain", "half-bandwidth"),
        ("adopt", str(ROOT / "tests" / "golden" / "ring4")),
    ],
    ids=" ".join,
)
def test_what_verbs_print(words: tuple[str, ...], capsys: Captured) -> None:
    assert main([*words, "--json"]) == 0
    check(json.loads(capsys.readouterr().out))


def test_collect_diff_and_verify(tmp_path: Path, capsys: Captured) -> None:
    facts = broken(sound(planned(RING4)), {"spark1": marker_dead()}).facts
    documents = {name: json.loads(json.dumps(found, default=vars)) for name, found in facts.items()}
    saved = collection(documents, {})
    check(saved, strict=False)
    path = tmp_path / "facts.json"
    path.write_text(json.dumps(saved))
    for verb, code in (("diff", 0), ("verify", 2)):
        assert main([verb, "-i", INVENTORY, "--facts", str(path), "--json"]) == code
        check(json.loads(capsys.readouterr().out))
    words = ["review", str(path), "-i", INVENTORY, "-o", str(tmp_path / "page.html"), "--json"]
    assert main(words) == 0
    check(json.loads(capsys.readouterr().out))


def test_a_report_of_an_apply() -> None:
    scene = broken(sound(planned(RING4)), {"spark1": marker_dead()})
    diffs = {name: diff(want, scene.facts[name]) for name, want in desired(planned(RING4)).items()}
    ends = tuple(
        NodeEnd(f"n{i}", end, i or None, f"words {i}" if i else None, ("a note",))
        for i, end in enumerate(End)
    )
    out = io.StringIO()
    report = Report("apply", "ab" * 32, ends, diffs)
    assert deploying.report(report, Console(json=True, out=out, err=io.StringIO())) == 1
    document = json.loads(out.getvalue())
    assert document["diff"]["differs"]
    check(document)


def test_a_history(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    kept = History((Generation(2, 1767225600, "ab" * 32, "me@here", "apply", "committed"),), 2)
    monkeypatch.setattr(history, "on_nodes", lambda plan, names, *_: dict.fromkeys(names, kept))
    assert main(["history", "-i", INVENTORY, "--json"]) == 0
    check(json.loads(capsys.readouterr().out))


INSIDE = {"node", "facts", "reply", "trial", "generation"}  # what nodes and the tool say to each other


def test_every_document_has_a_schema() -> None:
    sources = [*(ROOT / "fabric_plan").rglob("*.py"), *(ROOT / "lab").rglob("*.py")]
    text = "".join(path.read_text() for path in sources)
    names = set(re.findall(r'"fabric-plan/([a-z-]+)/v1"', text)) | {"adopt", "discover"}
    assert names - INSIDE == {path.stem for path in SCHEMAS.glob("*.json")}


def test_what_nccl_prints(tmp_path: Path, capsys: Captured) -> None:
    assert main(["render", "-i", INVENTORY, "-o", str(tmp_path / "b")]) == 0
    graph = tmp_path / "b" / "spark2/etc/fabric-plan/nccl/ring.xml"
    capsys.readouterr()
    assert main(["nccl", "check", str(graph), "--json"]) == 0
    check(json.loads(capsys.readouterr().out))
    graph.write_text("<system>")
    assert main(["nccl", "check", str(graph), "--json"]) == 2
    check(json.loads(capsys.readouterr().out))
    for log in sorted((ROOT / "tests" / "nccl" / "logs").iterdir())[:6]:
        assert main(["nccl", "check-log", str(log), "--json"]) in (0, 2)
        check(json.loads(capsys.readouterr().out))


def test_the_state_of_a_lab(monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path) -> None:
    node = SimpleNamespace(node=SimpleNamespace(name="spark1"), ssh_port=20001, pid=lambda: 1)
    running = SimpleNamespace(machines=lambda: [node], run_dir=tmp_path, accelerator="tcg")
    monkeypatch.setattr(driver.Lab, "open", lambda: running)
    for words in (["lab", "status", "--json"], ["lab", "--json", "status"]):
        assert main(words) == 0
        check(json.loads(capsys.readouterr().out))


def test_a_wrong_document_fails() -> None:
    document = json.loads(GOLDEN[0].read_text())
    document["nodes"] = {name: {**part, "rank": "first"} for name, part in document["nodes"].items()}
    with pytest.raises(jsonschema.ValidationError):
        check(document)
    with pytest.raises(jsonschema.ValidationError):
        check({**json.loads(GOLDEN[0].read_text()), "new": 1})
