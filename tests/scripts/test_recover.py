"""recover.sh: a commit that was cut anywhere ends as the old files or as the new ones, whole."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import signal
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.scripts.support import Host, ring4

STATE = "var/lib/fabric-plan"
PLANE = "/etc/netplan/40-sparkring-plane1.yaml"
SYSCTL = "/etc/sysctl.d/90-fabric-plan.conf"
FRESH = "/etc/fabric-plan/env/with space.env"
STALE = "/etc/netplan/99-old.yaml"
WANTS = "/etc/systemd/system/multi-user.target.wants/fabric-plan-mesh.service"


class Want(NamedTuple):
    """What a path is to be: mode and content, a link's target, or nothing at all."""

    mode: str = ""
    content: str = ""
    target: str = ""


OLD: Mapping[str, Want] = {
    PLANE: Want("0600", "old plane\n"),
    SYSCTL: Want("0644", "same\n"),
    FRESH: Want(),
    STALE: Want("0600", "stale\n"),
    WANTS: Want(),
}
NEW: Mapping[str, Want] = {
    PLANE: Want("0600", "new plane\n"),
    SYSCTL: Want("0644", "same\n"),
    FRESH: Want("0755", "fresh\n"),
    STALE: Want(),
    WANTS: Want(target="../fabric-plan-mesh.service"),
}


def put_set(folder: Path, files: Mapping[str, Want]) -> None:
    """Write a set of files as docs/reference/state.md has it."""
    (folder / "files").mkdir(parents=True)
    lines = []
    for number, (path, want) in enumerate(files.items(), 1):
        if want.target:
            lines.append(f"link\t{want.target}\t{path}\n")
        elif want.mode:
            (folder / "files" / str(number)).write_text(want.content)
            lines.append(f"{want.mode}\t{hashlib.sha256(want.content.encode()).hexdigest()}\t{path}\n")
        else:
            lines.append(f"-\t-\t{path}\n")
    (folder / "list").write_text("".join(lines))


def found(host: Host) -> dict[str, Want]:
    """What stands on the node under every path of the sets."""
    result = {}
    for path in NEW:
        place = host.root / path.lstrip("/")
        if place.is_symlink():
            result[path] = Want(target=str(place.readlink()))
        elif place.exists():
            result[path] = Want(f"0{stat.S_IMODE(place.stat().st_mode):o}", place.read_text())
        else:
            result[path] = Want()
    return result


def left_over(host: Host) -> list[str]:
    """Whatever a commit may have forgotten, in its own folder or beside the files."""
    own = [p.name for p in (host.root / STATE).iterdir() if p.name in ("stage", "journal", "done")]
    return own + [str(p) for p in (host.root / "etc").rglob("*fabric-plan-new*")]


def word(host: Host, name: str) -> str:
    path = host.root / STATE / name
    return path.read_text().strip() if path.exists() else ""


@pytest.fixture
def cut(make_host: Callable[..., Host]) -> Host:
    """A node whose commit passed its commit point and got no further."""
    host = make_host(ring4(), "spark1")
    prepare(host)
    return host


def prepare(host: Host) -> None:
    for path, want in OLD.items():
        if want.mode:
            host.put(path, want.content, int(want.mode, 8))
        else:
            (host.root / path.lstrip("/")).unlink(missing_ok=True)
    state = host.root / STATE
    put_set(state / "generations/7/before", OLD)
    put_set(state / "journal", NEW)
    (state / "journal/generation").write_text("7\n")


def recover(host: Host, *arguments: str, **environment: str) -> str:
    result = host.run("recover.sh", *arguments, **environment)
    assert result.returncode == 0, result.stdout
    return result.stdout


def test_nothing_to_do(host: Host) -> None:
    assert recover(host) == "" and recover(host, "--boot") == ""
    assert host.calls() == []


def test_a_commit_past_its_point_is_finished(cut: Host) -> None:
    said = recover(cut)
    assert found(cut) == NEW
    assert left_over(cut) == []
    assert (word(cut, "generations/7/result"), word(cut, "current")) == ("committed", "7")
    # What was the same already is not written again.
    assert SYSCTL not in said
    assert recover(cut) == ""


def test_a_commit_before_its_point_is_dropped(cut: Host) -> None:
    state = cut.root / STATE
    (state / "journal").rename(state / "stage")
    recover(cut)
    assert found(cut) == OLD
    assert left_over(cut) == []
    assert (word(cut, "generations/7/result"), word(cut, "current")) == ("", "")


@pytest.mark.parametrize("damage", ["file", "file gone", "list cut", "list empty", "list gone", "mode"])
def test_a_damaged_journal_is_undone(cut: Host, damage: str) -> None:
    journal = cut.root / STATE / "journal"
    listing = journal / "list"
    if damage == "file":
        (journal / "files/1").write_text("new pl")
    elif damage == "file gone":
        (journal / "files/3").unlink()
    elif damage == "list cut":
        listing.write_text(listing.read_text()[:-5])
    elif damage == "list empty":
        listing.write_text("")
    elif damage == "list gone":
        listing.unlink()
    else:
        listing.write_text(listing.read_text().replace("0755", "4755"))
    recover(cut)
    assert found(cut) == OLD
    assert left_over(cut) == []
    assert (word(cut, "generations/7/result"), word(cut, "current")) == ("undone", "")


def test_a_commit_half_carried_out_and_then_damaged_is_undone_too(cut: Host) -> None:
    cut.put(PLANE, NEW[PLANE].content, 0o600)
    (cut.root / STALE.lstrip("/")).unlink()
    (cut.root / STATE / "journal/files/3").unlink()
    recover(cut)
    assert found(cut) == OLD


def test_a_staged_file_that_has_arrived_is_no_longer_needed(cut: Host) -> None:
    cut.put(PLANE, NEW[PLANE].content, 0o600)
    (cut.root / STATE / "journal/files/1").unlink()
    recover(cut)
    assert found(cut) == NEW


def test_without_a_whole_set_nothing_is_touched(cut: Host) -> None:
    state = cut.root / STATE
    (state / "journal/files/1").write_text("x")
    (state / "generations/7/before/files/1").write_text("x")
    cut.put(PLANE, "neither\n", 0o600)
    result = cut.run("recover.sh")
    assert result.returncode == 1
    assert "no copy of the files before it is whole" in result.stdout
    assert found(cut) == {**OLD, PLANE: Want("0600", "neither\n")}
    assert (state / "journal").is_dir()


@pytest.mark.parametrize("path", ["etc/x", "/etc/../etc/x", "/etc/x/..", "/etc/x/", "//etc/x"])
def test_a_path_that_is_none_makes_the_list_a_damaged_one(cut: Host, path: str) -> None:
    listing = cut.root / STATE / "journal/list"
    listing.write_text(listing.read_text().replace(FRESH, path))
    recover(cut)
    assert found(cut) == OLD


# ---- cut at every step ------------------------------------------------------------------------------

SHIM = """#!/bin/bash
read -r left <"{count}"
if ((left == 0)); then
    kill -KILL -- -"$(ps -o pgid= -p $$ | tr -d ' ')"
fi
echo $((left - 1)) >"{count}"
exec {real} "$@"
"""


def cut_after(host: Host, steps: int) -> int:
    """Run recover.sh and kill it after `steps` calls of tools that change files. Returns its exit status."""
    count = host.root.parent / "count"
    count.write_text(f"{steps}\n")
    for tool in ("cp", "mv", "rm", "ln", "chmod", "mkdir", "sync"):
        shim = host.tools.bin / tool
        shim.write_text(SHIM.format(count=count, real=shutil.which(tool)))
        shim.chmod(0o755)
    status = host.run("recover.sh").returncode
    for tool in ("cp", "mv", "rm", "ln", "chmod", "mkdir", "sync"):
        (host.tools.bin / tool).unlink()
    return status


@pytest.mark.parametrize("damaged", [False, True])
def test_a_repair_that_is_cut_anywhere_is_repaired_by_the_next(
    make_host: Callable[..., Host], damaged: bool
) -> None:
    want = OLD if damaged else NEW
    status = -signal.SIGKILL
    steps = 0
    while status == -signal.SIGKILL:
        host = make_host(ring4(), "spark1")
        prepare(host)
        if damaged:
            cut_before = host.root / STATE / "journal/files/3"
            cut_before.write_text("?")
            host.put(PLANE, NEW[PLANE].content, 0o600)
        status = cut_after(host, steps)
        for path, now in found(host).items():
            assert now in (OLD[path], NEW[path]), (steps, path)
        recover(host)
        assert found(host) == want, steps
        assert left_over(host) == [], steps
        assert word(host, "generations/7/result") == ("undone" if damaged else "committed")
        steps += 1
    assert status == 0
    assert steps > 12


# ---- who is told ------------------------------------------------------------------------------------


def test_by_itself_it_brings_files_and_tells_nobody(cut: Host) -> None:
    recover(cut)
    assert cut.calls() == []


def test_a_boot_that_has_read_the_old_files_is_told(cut: Host) -> None:
    cut.state["system"] = "starting"
    recover(cut, "--boot")
    assert cut.calls() == [
        ["netplan", "generate"],
        ["systemctl", "daemon-reload"],
        ["systemctl", "--no-block", "start", "fabric-plan-mesh.service"],
    ]


def test_after_the_boot_nothing_is_started(cut: Host) -> None:
    cut.state["system"] = "running"
    recover(cut, "--boot")
    assert cut.calls() == [["netplan", "generate"], ["systemctl", "daemon-reload"]]


def test_a_dropped_stage_changes_nothing_that_anybody_has_read(cut: Host) -> None:
    state = cut.root / STATE
    (state / "journal").rename(state / "stage")
    recover(cut, "--boot")
    assert cut.calls() == []


def test_changed_kernel_settings_are_read_again(cut: Host) -> None:
    cut.put(SYSCTL, "other\n")
    recover(cut, "--boot")
    assert ["systemctl", "--no-block", "restart", "systemd-sysctl.service"] in cut.calls()


def test_the_generator_that_needs_no_python_is_preferred(cut: Host) -> None:
    cut.put("/usr/libexec/netplan/generate", f"#!/bin/bash\necho ran >{cut.root}/generated\n", 0o755)
    recover(cut, "--boot")
    assert (cut.root / "generated").read_text() == "ran\n"
    assert ["netplan", "generate"] not in cut.calls()


def test_it_waits_for_whoever_writes_a_commit(cut: Host) -> None:
    cut.run_dir.mkdir(parents=True, exist_ok=True)
    with (cut.run_dir / "commit.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = cut.run("recover.sh", FABRIC_PLAN_LOCK_WAIT="0")
        assert result.returncode == 1
        assert "somebody has held" in result.stdout
        assert found(cut) == OLD
    recover(cut)


def test_an_unknown_argument_changes_nothing(cut: Host) -> None:
    assert cut.run("recover.sh", "--bot").returncode == 1
    assert found(cut) == OLD
