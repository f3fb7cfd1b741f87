"""An emulated machine gets its time: every limit of a transaction is as much longer as the request says."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fabric_plan.apply.session import Session
from fabric_plan.node.__main__ import main
from fabric_plan.node.tools import Output, Tools
from fabric_plan.node.transaction import verbs
from fabric_plan.node.transaction.node import Node
from fabric_plan.node.tree import Tree
from fabric_plan.transport.base import Target
from fabric_plan.transport.fake import Fake


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """The limits under which commands were run; none of them is."""
    found: list[float | None] = []

    def run(self: Tools, argv: Sequence[str], limit_s: float | None = None) -> Output:
        found.append(limit_s)
        return Output(0, "", "")

    monkeypatch.setattr(Tools, "run", run)
    return found


def generate(node: Node, request: Mapping[str, Any]) -> dict[str, Any]:
    node.run(["netplan", "generate"], 60)
    return {"words": node.verb("execute")}


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "KEYS", {"rehearse": (generate, ())})


def ask(tmp_path: Path, **request: object) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(
        verbs.answer("rehearse", json.dumps(request), Tree(str(tmp_path)), Tools(1.0, own_path=True))
    )
    return answer


@pytest.mark.usefixtures("verb")
def test_a_request_lengthens_every_limit_and_is_handed_on(tmp_path: Path, limits: list[float | None]) -> None:
    words = ask(tmp_path, patience=8)["words"]
    assert limits == [480.0]
    assert words[words.index("--patience") + 1] == "8"


@pytest.mark.usefixtures("verb")
def test_without_it_nothing_is_longer(tmp_path: Path, limits: list[float | None]) -> None:
    assert "--patience" not in ask(tmp_path)["words"]
    assert limits == [60.0]


@pytest.mark.usefixtures("verb")
@pytest.mark.parametrize("value", [0, 51, 2.5, "8", True, None])
def test_what_is_no_factor_is_refused(value: object, tmp_path: Path, limits: list[float | None]) -> None:
    assert ask(tmp_path, patience=value)["error"]["id"] == "bad-request"
    assert limits == []


def test_the_program_that_is_called_again_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[float] = []

    def work(text: str, tree: Tree, tools: Tools) -> str:
        seen.append(tools.patience)
        return "{}"

    monkeypatch.setattr("fabric_plan.node.__main__.find", lambda verb: work)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    assert main(["execute", "--root", str(tmp_path), "--patience", "8"]) == 0
    assert main(["execute", "--root", str(tmp_path)]) == 0
    assert seen == [8.0, 1.0]


@pytest.mark.parametrize(("patience", "sent"), [(1.0, {}), (7.5, {"patience": 8})])
def test_the_controller_sends_what_the_hardware_role_says(patience: float, sent: dict[str, int]) -> None:
    asked: list[dict[str, Any]] = []

    def note(node: str, verb: str, request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request)
        return {"ok": True}

    Session(Target("spark1", "192.168.1.11", patience=patience), Fake(note), 180).call("rdma-use", {})
    assert asked == [sent]
