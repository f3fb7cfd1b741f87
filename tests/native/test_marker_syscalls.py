"""Each system call of the marker's own fails once and is interrupted once: nothing is left behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections import Counter
from dataclasses import dataclass

import pytest

from tests.native.harness import BOTH_FORMS, EVENT_DEVICE_FATAL, Home, Outcome, event, nothing_left

CALLS = (
    "mkdirat,openat,open,fstat,newfstatat,flock,ftruncate,pread64,pwrite64,prctl,capget,capset,socket,sendto,"
    "signalfd4,rt_sigaction,rt_sigprocmask,poll,ppoll,fcntl,umask"
)
DEVICE_GONE = 74

pytestmark = [
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed"),
    pytest.mark.skipif(
        "MARKER_SANITIZE" in os.environ, reason="the leak sanitizer and strace both want ptrace"
    ),
]


@dataclass(frozen=True, slots=True)
class Site:
    """The `ordinal`-th call of system call `name`, and the line that strace printed for it."""

    name: str
    ordinal: int
    text: str


def traced(home: Home, *options: str) -> Outcome:
    """Run both forms under strace; the device goes away once the rules are held, which ends the run."""
    with home.listening(), home.events() as events:
        os.write(events, event(EVENT_DEVICE_FATAL))
        prefix = ("strace", "-qq", "-o", str(home.root / "trace"), "-e", f"trace={CALLS}", *options)
        return home.run(*BOTH_FORMS, prefix=prefix, env={"NOTIFY_SOCKET": str(home.notify_path)})


def sites(home: Home) -> list[Site]:
    """The calls from main() on, without those of the stand-ins."""
    assert traced(home).code == DEVICE_GONE
    counter: Counter[str] = Counter()
    found: list[Site] = []
    in_main = False
    for line in (home.root / "trace").read_text(encoding="utf-8").splitlines():
        match = re.match(r"(\w+)\(", line)
        if match is None:
            continue
        name = match[1]
        counter[name] += 1
        in_main = in_main or name == "umask"
        of_standin = any(text in line for text in (str(home.record), str(home.root / "events")))
        if in_main and not of_standin:
            found.append(Site(name, counter[name], line))
    assert len(found) > 60
    return found


@pytest.fixture
def traceable(home: Home) -> Home:
    probe = home.run("--version", exact=True, prefix=("strace", "-qq", "-o", str(home.root / "trace")))
    if probe.code != 0:
        pytest.skip(f"strace cannot trace here: {probe.stderr.strip()}")
    return home


def test_any_failing_system_call_is_cleaned_up(traceable: Home) -> None:
    codes: Counter[int] = Counter()
    for site in sites(traceable):
        outcome = traced(traceable, "-e", f"inject={site.name}:error=EPERM:when={site.ordinal}")
        if site.name == "capget" and outcome.code == -signal.SIGABRT:
            continue  # the stand-ins read capabilities too, and abort where they cannot
        codes[outcome.code] += 1
        assert outcome.code in {71, 73, DEVICE_GONE}, f"{site}: {outcome}"
        assert nothing_left(outcome.calls), f"{site}: {outcome}"
        if outcome.code != DEVICE_GONE:
            assert "Operation not permitted (EPERM)" in outcome.stderr, f"{site}: {outcome}"
    assert codes[71] > 40 and codes[73] > 10


def test_a_signal_in_any_system_call_is_a_clean_stop(traceable: Home) -> None:
    for site in sites(traceable):
        outcome = traced(traceable, "-e", f"inject={site.name}:signal=SIGTERM:when={site.ordinal}")
        # Before the signals are blocked nothing exists yet, and the default action ends the process.
        assert outcome.code in {0, -signal.SIGTERM, DEVICE_GONE}, f"{site}: {outcome}"
        assert nothing_left(outcome.calls), f"{site}: {outcome}"
        assert outcome.code in {0, DEVICE_GONE} or outcome.calls == [], f"{site}: {outcome}"
