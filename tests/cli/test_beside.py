"""Work in a process of its own: the same result and the same error as in this one."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest

from fabric_plan.cli.beside import beside
from fabric_plan.errors import RoleError


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test runner may have threads of its own; a command line has none."""
    monkeypatch.setattr(threading, "active_count", lambda: 1)


def test_the_result_comes_from_another_process() -> None:
    wait = beside(lambda: (os.getpid(), "x" * (1 << 20)))
    pid, text = wait()
    assert pid != os.getpid()
    assert len(text) == 1 << 20, "more than a pipe holds"


def test_what_the_work_changes_stays_there() -> None:
    seen: list[int] = []
    assert beside(lambda: seen.append(1))() is None
    assert seen == []


def refused() -> None:
    raise RoleError("no such template", where="layer netplan", hint="look into templates/")


def test_an_error_is_raised_here_with_all_that_it_says() -> None:
    with pytest.raises(RoleError) as raised:
        beside(refused)()
    assert raised.value.lines() == [
        "layer netplan: no such template",
        "  hint: look into templates/",
    ]


def killed() -> int:
    if os.getpid() != HERE:
        os.kill(os.getpid(), signal.SIGKILL)
    return 7


HERE = os.getpid()


def test_work_of_a_process_that_was_killed_is_done_here() -> None:
    assert beside(killed)() == 7


def cannot_be_sent() -> Callable[[], int]:
    return lambda: 7


def test_a_result_that_cannot_be_sent_is_made_here() -> None:
    assert beside(cannot_be_sent)()() == 7


def test_beside_threads_it_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    assert beside(os.getpid)() == os.getpid()
