"""Progress is for people who watch: after a second, never into a pipe, never with ``--json``."""

from __future__ import annotations

import io
import threading

import pytest

from fabric_plan.cli.console import Console

DEADLINE_S = 20.0


class Terminal(io.StringIO):
    """A terminal that tells when something was written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        done = super().write(text)
        self.written.set()
        return done


def test_what_takes_long_is_said() -> None:
    err = Terminal()
    console = Console(out=io.StringIO(), err=err, patience_s=0.0)
    with console.stage("proving 64 nodes"):
        assert err.written.wait(DEADLINE_S)
    assert err.getvalue() == "· proving 64 nodes\n"


def test_what_is_done_at_once_is_not() -> None:
    err = Terminal()
    console = Console(out=io.StringIO(), err=err, patience_s=DEADLINE_S)
    with console.stage("proving 4 nodes"):
        pass
    console.note("after it")
    assert err.getvalue() == "after it\n"


@pytest.mark.parametrize(("json", "err"), [(True, Terminal()), (False, io.StringIO())], ids=["json", "pipe"])
def test_pipes_and_programs_get_none(json: bool, err: io.StringIO) -> None:
    console = Console(json=json, out=io.StringIO(), err=err, patience_s=0.0)
    assert not console.watched
    with console.stage("proving"):
        console.progress("asked")
    assert err.getvalue() == ""


def test_columns_of_numbers_stand_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    Console().table(("node", "count"), [("a", "5"), ("bb", "12")])
    assert capsys.readouterr().out == "  node  count\n  a         5\n  bb       12\n"
