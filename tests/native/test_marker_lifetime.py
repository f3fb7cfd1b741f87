"""Every way in which a marker ends leaves nothing behind, and says why it ended."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.native.harness import (
    BOTH_FORMS,
    DEADLINE_S,
    DEVICE,
    EVENT_DEVICE_FATAL,
    EVENT_PORT_ACTIVE,
    NO_LEAK_CHECK,
    Home,
    Outcome,
    created,
    destroyed,
    errno_env,
    event,
    nothing_left,
    signal_env,
)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
CODE_OF_FAILED_CALL = {
    "get_device_list": 69,
    "open_device": 69,
    "free_device_list": 0,  # returns nothing, so it cannot fail
    "query_port": 69,
    "create_flow_matcher": 76,
    "create_modify_header": 76,
    "create_flow": 76,
    "destroy_flow": 70,
    "destroy_flow_action": 70,
    "destroy_flow_matcher": 70,
    "close_device": 70,
}


def run_to_the_end(home: Home, **env: str) -> Outcome:
    """Run both forms; where nothing ends it earlier, it is stopped when it holds its rules."""
    home.forget()
    with home.listening() as listener:
        process = subprocess.Popen(
            home.command(BOTH_FORMS),
            env=home.environment(NOTIFY_SOCKET=str(home.notify_path), **env),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        ended = os.pidfd_open(process.pid)
        try:
            ready, _, _ = select.select([listener.fileno(), ended], [], [], DEADLINE_S)
            assert ready, "neither ready nor ended"
            if listener.fileno() in ready:
                process.send_signal(signal.SIGTERM)
            stdout, stderr = process.communicate(timeout=DEADLINE_S)
        finally:
            os.close(ended)
            if process.poll() is None:
                process.kill()
                process.communicate()
    return Outcome(process.returncode, stdout, stderr, home.calls())


def test_a_failure_of_any_call_is_cleaned_up(home: Home) -> None:
    names = run_to_the_end(home).names()
    assert len(names) == 19
    for number, name in enumerate(names, start=1):
        outcome = run_to_the_end(home, **errno_env(number), **NO_LEAK_CHECK)
        where = f"{name} (call {number}): {outcome.stderr}"
        assert outcome.code == CODE_OF_FAILED_CALL[name], where
        assert destroyed(outcome.calls) == created(outcome.calls)[::-1], where
        opened = name != "get_device_list" and name != "open_device"
        assert outcome.names().count("close_device") == int(opened), where
        if name.startswith(("create_", "query_", "open_", "get_")):
            assert outcome.names()[number:] == [
                *(["free_device_list"] if name == "open_device" else []),
                *(f"destroy_{kind}" for kind in reversed(kinds_created(outcome))),
                *(["close_device"] if opened else []),
            ], where
        if CODE_OF_FAILED_CALL[name] != 0:
            assert f"fabric-plan-marker: {DEVICE}: cannot " in outcome.stderr, where
            assert "Input/output error (EIO)\n  hint: " in outcome.stderr, where


def kinds_created(outcome: Outcome) -> list[str]:
    destroy_name = {
        "create_flow_matcher": "flow_matcher",
        "create_modify_header": "flow_action",
        "create_flow": "flow",
    }
    return [destroy_name[c["call"]] for c in outcome.calls if c["call"] in destroy_name and not c["failed"]]


def test_the_first_failure_decides_the_exit_code(home: Home) -> None:
    """The second rule is refused, and then the first one cannot be removed."""
    outcome = run_to_the_end(home, **errno_env(10, 11), **NO_LEAK_CHECK)
    assert outcome.code == 76
    assert outcome.stderr.index("cannot create the rule") < outcome.stderr.index("cannot remove a rule")
    assert destroyed(outcome.calls) == created(outcome.calls)[::-1]


def test_nothing_leaks_on_a_failed_installation(home: Home) -> None:
    """Under the sanitizers the stand-ins' objects count as leaks too."""
    for number in range(1, 12):
        assert "LeakSanitizer" not in run_to_the_end(home, **errno_env(number)).stderr


@pytest.mark.parametrize(
    ("error", "code", "hint"),
    [
        (errno.EPERM, 77, "CAP_NET_RAW"),
        (errno.EOPNOTSUPP, 76, "up to date"),
        (errno.EINVAL, 76, "flow_steering_mode"),
        (errno.EEXIST, 76, "second marker"),
        (errno.ENOMEM, 76, "full"),
        (errno.EIO, 76, "dmesg"),
    ],
)
def test_a_refused_rule_is_named_with_a_hint(home: Home, error: int, code: int, hint: str) -> None:
    outcome = run_to_the_end(home, **errno_env(10, error=error))
    assert outcome.code == code
    first, second = outcome.stderr.splitlines()
    assert f"cannot create the rule for 10.10.4.11 (EtherType 0x88b6): {os.strerror(error)} " in first
    assert hint in second


@pytest.mark.parametrize("which", STOP_SIGNALS)
def test_a_signal_during_any_call_is_a_clean_stop(home: Home, which: signal.Signals) -> None:
    for number in range(1, 20):
        outcome = run_to_the_end(home, **signal_env(number, which))
        assert outcome.code == 0, f"call {number}: {outcome.stderr}"
        assert nothing_left(outcome.calls), f"call {number}: {outcome.names()}"
        if number < 12:
            later = outcome.names()[number:]
            assert not any(name.startswith("create_") for name in later), f"call {number}: {later}"
            assert "holding" not in outcome.stderr


@pytest.mark.parametrize("which", STOP_SIGNALS)
def test_a_signal_while_holding_is_a_clean_stop(home: Home, which: signal.Signals) -> None:
    with home.holding(*BOTH_FORMS) as marker:
        outcome = marker.stop(which)
    assert outcome.code == 0
    assert nothing_left(outcome.calls)
    assert outcome.stderr == f"fabric-plan-marker: {DEVICE}: holding 3 rules\n"


def test_a_log_that_nobody_reads_does_not_end_it(home: Home) -> None:
    """Its messages are lost, its rules are not."""
    home.forget()
    reading, writing = os.pipe()
    os.close(reading)
    with home.listening() as listener:
        process = subprocess.Popen(
            home.command(BOTH_FORMS),
            env=home.environment(NOTIFY_SOCKET=str(home.notify_path)),
            stderr=writing,
        )
        os.close(writing)
        assert listener.recv(4096).startswith(b"READY=1\n")
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
    assert nothing_left(home.calls())


def test_events_that_do_not_matter_are_read_and_forgotten(home: Home) -> None:
    with home.events() as events, home.holding(*BOTH_FORMS) as marker:
        os.write(events, event(EVENT_PORT_ACTIVE))
        home.wait_for_call("ack_async_event")
        assert marker.process.poll() is None
        outcome = marker.stop()
    assert outcome.code == 0 and nothing_left(outcome.calls)


def test_a_device_that_goes_away_ends_it(home: Home) -> None:
    with home.events() as events, home.holding(*BOTH_FORMS) as marker:
        os.write(events, event(EVENT_DEVICE_FATAL))
        outcome = marker.wait()
    assert outcome.code == 74
    assert "the device went away, and its rules with it\n  hint: start the marker again" in outcome.stderr
    assert nothing_left(outcome.calls)


def test_a_device_that_goes_away_may_refuse_the_clean_up(home: Home) -> None:
    # 12 and 13 read and acknowledge the event, 14 is the first removal.
    with (
        home.events() as events,
        home.holding(*BOTH_FORMS, **errno_env(14), **NO_LEAK_CHECK) as marker,
    ):
        os.write(events, event(EVENT_DEVICE_FATAL))
        outcome = marker.wait()
    assert outcome.code == 74
    assert "cannot remove" not in outcome.stderr


@pytest.mark.parametrize(("error", "ends"), [(errno.EIO, True), (errno.EAGAIN, False)])
def test_events_that_cannot_be_read(home: Home, error: int, ends: bool) -> None:
    with home.events() as events, home.holding(*BOTH_FORMS, **errno_env(12, error=error)) as marker:
        os.write(events, event(EVENT_PORT_ACTIVE))
        if ends:
            outcome = marker.wait()
        else:
            home.wait_for_call("ack_async_event")
            outcome = marker.stop()
    assert outcome.code == (74 if ends else 0)
    assert nothing_left(outcome.calls)


@pytest.mark.parametrize("abstract", [False, True], ids=["path", "abstract"])
def test_tells_the_service_manager(home: Home, abstract: bool) -> None:
    address = f"@fabric-plan-marker-test-{os.getpid()}" if abstract else str(home.notify_path)
    with home.listening(address) as listener:
        process = subprocess.Popen(
            home.command((*BOTH_FORMS, "--managed")),
            env=home.environment(NOTIFY_SOCKET=address),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert listener.recv(4096) == f"READY=1\nSTATUS=Holding 3 rules on {DEVICE}".encode()
        # All rules are there before it says so.
        assert len(created(home.calls())) == 7 and destroyed(home.calls()) == []
        process.send_signal(signal.SIGTERM)
        assert listener.recv(4096) == b"STOPPING=1"
        stdout, stderr = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, stdout) == (0, "")
    assert stderr == f"<6>fabric-plan-marker: {DEVICE}: holding 3 rules\n"


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("/nonexistent/notify", "cannot reach the service manager"),
        ("relative", "not an address"),
        ("/" * 200, "not an"),
    ],
)
def test_a_service_manager_that_cannot_be_told(home: Home, address: str, says: str) -> None:
    outcome = home.run(*BOTH_FORMS, "--managed", env={"NOTIFY_SOCKET": address})
    assert outcome.code == 71
    error, hint = outcome.stderr.splitlines()[-2:]
    assert says in error and error.startswith("<3>") and hint.startswith("<3>  hint: ")
    assert len(created(outcome.calls)) == 7 and nothing_left(outcome.calls)


PARENT = """
import subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("managed", [False, True], ids=["alone", "managed"])
def test_ends_with_its_parent_unless_managed(home: Home, managed: bool) -> None:
    with home.listening() as listener:
        parent = subprocess.Popen(
            [sys.executable, "-c", PARENT, *home.command((*BOTH_FORMS, *(["--managed"] if managed else [])))],
            env=home.environment(NOTIFY_SOCKET=str(home.notify_path)),
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert parent.stdout is not None
        marker = int(parent.stdout.readline())
        ended = os.pidfd_open(marker)
        try:
            assert listener.recv(4096).startswith(b"READY=1\n")
            parent.kill()
            parent.communicate(timeout=DEADLINE_S)
            if managed:
                # Its stop signals stay pending until the end, so that none came is certain.
                status = Path(f"/proc/{marker}/status").read_text(encoding="ascii").splitlines()
                pending = [line.split()[1] for line in status if line.startswith(("ShdPnd", "SigPnd"))]
                assert pending == ["0" * 16, "0" * 16]
                assert destroyed(home.calls()) == []
                os.kill(marker, signal.SIGTERM)
            assert select.select([ended], [], [], DEADLINE_S)[0], "did not end"
        finally:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(ended, signal.SIGKILL)
            os.close(ended)
    assert nothing_left(home.calls())
