"""Where a file is tried: in a place that a reboot forgets and that, while it is there, wins over the file in
/etc.

netplan takes a file of /run over its namesake in /etc. systemd, sysctl.d and NetworkManager do not: units go
to /run/systemd/system.control, which stands above /etc, and the two others get a name of their own that is
read after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ..plain import dataclass
from .bundle import Entry

SCRIPTS = "/usr/local/lib/fabric-plan/"
OWN = "/etc/fabric-plan/"
UNITS = "/etc/systemd/system/"
TRIAL_UNITS = "/run/systemd/system.control/"
MARKERS = "/etc/fabric-plan/markers/"
EMPTY_NETPLAN = b"network: {version: 2}\n"

# What finishes a cut commit stands before everything else, so it is never tried.
RECOVER = (
    "/usr/local/lib/fabric-plan/recover.sh",
    "/etc/systemd/system/fabric-plan-recover.service",
    "/etc/systemd/system/sysinit.target.wants/fabric-plan-recover.service",
)


@dataclass(frozen=True)
class Tried:
    """A file of the trial: what stands where."""

    place: str
    mode: str
    content: bytes


def trial_place(path: str, trial: str) -> str | None:
    """Return where the file `path` is tried, None where it only comes with the commit."""
    folder, _, name = path.rpartition("/")
    if path in RECOVER:
        return None
    if folder == "/etc/netplan":
        return f"/run/netplan/{name}"
    if folder == "/etc/sysctl.d":
        return f"/run/sysctl.d/{_read_later(name)}"
    if folder == "/etc/NetworkManager/conf.d":
        return f"/run/NetworkManager/conf.d/{_read_later(name)}"
    if folder == UNITS.rstrip("/"):
        return f"{TRIAL_UNITS}{name}"
    if path.startswith((UNITS, "/etc/NetworkManager/")):
        return None
    if path.startswith(MARKERS):
        # The markers' unit reads this place by itself.
        return f"/run/fabric-plan/markers/{name}"
    return trial + path


def _read_later(name: str) -> str:
    stem, dot, suffix = name.rpartition(".")
    return f"{stem}.trial.{suffix}" if dot else f"{name}.trial"


def tried(entries: Iterable[Entry], trial: str, installed: Mapping[str, str]) -> tuple[Tried, ...]:
    """Return every file to put in place for the trial.

    `installed` are our units that lie in /etc, by path: where one calls a file that is being tried, it is
    tried too, or a reload of it would bring the old file back in the middle of the trial.
    """
    entries = tuple(entries)
    moved = {
        entry.path: trial_place(entry.path, trial) or ""
        for entry in entries
        if entry.content is not None and entry.path.startswith((SCRIPTS, OWN))
    }
    scripts = {
        entry.path
        for entry in entries
        if entry.path.startswith(SCRIPTS) and (entry.content or b"").startswith(b"#!")
    }
    found: list[Tried] = []
    for entry in entries:
        place = trial_place(entry.path, trial)
        if place is None:
            continue
        if entry.content is None:
            if entry.target is None and entry.path.startswith("/etc/netplan/"):
                found.append(Tried(place, "0600", EMPTY_NETPLAN))
            continue
        content = entry.content
        if entry.path.startswith((UNITS, SCRIPTS)):
            content = _redirect(content, moved, scripts, unit=entry.path.startswith(UNITS))
        found.append(Tried(place, entry.mode or "0600", content))
    staged = {entry.path for entry in entries}
    for path, text in installed.items():
        if path not in staged and path not in RECOVER:
            content = _redirect(text.encode(), moved, scripts, unit=True)
            if content != _optional(text.encode()):
                found.append(Tried(f"{TRIAL_UNITS}{path.rpartition('/')[2]}", "0644", content))
    return tuple(found)


def _redirect(content: bytes, moved: Mapping[str, str], scripts: Iterable[str], *, unit: bool) -> bytes:
    """Return a unit or script that calls what is tried in place of what is installed."""
    scripts = set(scripts)
    text = content.decode("utf-8", "surrogateescape")
    for path, place in moved.items():
        # /run may be mounted noexec: bash reads a script from there, nobody executes it.
        value = f"/bin/bash {place}" if path in scripts else place
        text = re.sub(rf"(?<![\w./-]){re.escape(path)}(?![\w./-])", value.replace("\\", r"\\"), text)
    result = text.encode("utf-8", "surrogateescape")
    return _optional(result) if unit else result


def _optional(unit: bytes) -> bytes:
    """What the plan adds under /etc/fabric-plan is not there before the commit: no unit may insist on it."""
    return re.sub(rb"(?m)^EnvironmentFile=/etc/fabric-plan/", b"EnvironmentFile=-/etc/fabric-plan/", unit)
