"""Files, unit links, and other people's netplan definitions of our interfaces."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import yaml

from fabric_plan.compare.desired import Desired, DesiredFile
from fabric_plan.compare.model import Change, Resource, StepKind
from fabric_plan.facts.questions import shadowed
from fabric_plan.node.document import Facts, File
from fabric_plan.roles import Artefact

# What a change of a file sets in motion, by the trigger that its role names.
STEP_OF_TRIGGER: Mapping[str, StepKind] = {
    "netplan": StepKind.NETPLAN,
    "networkmanager-conf": StepKind.NM_CONF,
    "sysctl": StepKind.SYSCTL,
    "daemon-reload": StepKind.DAEMON_RELOAD,
    "forward": StepKind.FORWARD,
    "mesh": StepKind.MESH,
    "marker": StepKind.MARKERS,
}

# Where our files stand and nobody else's; netplan's folder is shared, so there the name decides.
_OURS = re.compile(
    r"/etc/fabric-plan/.+|/usr/local/lib/fabric-plan/.+|/etc/systemd/system/(?:[^/]+\.wants/)?fabric-plan-[^/]+"
    r"|/etc/sysctl\.d/90-fabric-plan\.conf|/etc/NetworkManager/(?:conf|dispatcher)\.d/90-fabric-plan[^/]*"
    r"|/etc/netplan/4[01]-sparkring-plane[12]\.yaml"
)

# A program, not a file of the plan: it is put there by hand or by `make marker`.
_PROGRAMS = ("/usr/local/lib/fabric-plan/fabric-plan-marker",)


def is_program(path: str) -> bool:
    """Tell whether a path among ours is a program, which no plan writes and nothing of ours takes away."""
    return path in _PROGRAMS


def is_ours(path: str) -> bool:
    """Tell whether a path is one that only this tool writes."""
    return _OURS.fullmatch(path) is not None and not is_program(path)


def interfaces_of_ours(facts: Facts) -> frozenset[str]:
    """Return the interfaces that the netplan files of ours on the node define now."""
    files = facts.netplan.value or {}
    return frozenset(
        netdev
        for path, file in files.items()
        if is_ours(path)
        for netdev in defined_interfaces(file.text or "")
    )


def file_changes(desired: Desired, facts: Facts) -> Iterator[Change]:
    """Yield what differs in files and links, and what stands in their way."""
    live = {**(facts.files.value or {}), **(facts.netplan.value or {})}
    if facts.files.value is None or facts.netplan.value is None:
        yield Change(Resource.UNKNOWN, "files", "not readable", "readable")
        return
    for file in desired.files:
        yield from _file(file, live.get(file.path))
    for path, target in desired.links:
        found = live.get(path)
        if found is None or found.kind != "link" or found.target not in (target, target.rsplit("/", 1)[-1]):
            have = None if found is None else found.target or found.kind
            yield Change(Resource.UNIT, path, have, f"link to {target}", StepKind.DAEMON_RELOAD)
    wanted = {file.path for file in desired.files} | {path for path, _ in desired.links}
    wanted.add(desired.marker_path or "")
    for path, found in sorted(live.items()):
        if is_ours(path) and path not in wanted and found.kind != "directory":
            yield Change(Resource.FILE, path, _words(found), None, _step_for_vanished(path))
    yield from _conflicts(desired, facts)


def _file(file: DesiredFile, found: File | None) -> Iterator[Change]:
    step = step_of(file.artefact)
    want = f"{file.mode} {file.sha256[:12]}"
    if found is None:
        yield Change(Resource.FILE, file.path, None, want, step)
    elif (
        found.kind != "file"
        or found.sha256 != file.sha256
        or found.mode != file.mode
        or found.uid not in (0, None)
    ):
        yield Change(Resource.FILE, file.path, _words(found), want, step)


def step_of(artefact: Artefact | None) -> StepKind | None:
    """Return the step that a change of this file needs most of all; None where placing it is enough."""
    triggers = artefact.triggers if artefact else ()
    steps = [STEP_OF_TRIGGER[trigger] for trigger in triggers if trigger in STEP_OF_TRIGGER]
    return steps[-1] if steps else None


def _step_for_vanished(path: str) -> StepKind | None:
    if "/netplan/" in path:
        return StepKind.NETPLAN
    if path.startswith("/etc/systemd/"):
        return StepKind.DAEMON_RELOAD
    return None


def _words(found: File) -> str:
    if found.kind != "file":
        return found.kind if found.target is None else f"{found.kind} to {found.target}"
    owner = "" if found.uid in (0, None) else f" owner {found.uid}"
    return f"{found.mode} {(found.sha256 or 'unreadable')[:12]}{owner}"


def _conflicts(desired: Desired, facts: Facts) -> Iterator[Change]:
    """Name other files that define our interfaces: netplan adds addresses up across files."""
    ours = {function.netdev for function in desired.functions}
    for path, found in shadowed(facts.netplan.value or {}).items():
        if is_ours(path.replace("/run/", "/etc/", 1)) or desired.file(path) is not None:
            continue
        if found.nul:
            yield Change(Resource.CONFLICT, path, f"{found.size} bytes with NUL", None)
            continue
        for netdev in sorted(ours & defined_interfaces(found.text or "")):
            yield Change(Resource.CONFLICT, path, f"defines {netdev}", None, interface=netdev)


def defined_interfaces(text: str) -> set[str]:
    """Return the interfaces that a netplan file defines, by id and by what its stanzas match; none where it
    cannot be read.
    """
    try:
        document = yaml.safe_load(text)
        ethernets = document["network"]["ethernets"]
        found = set()
        for name, stanza in ethernets.items():
            match = stanza.get("match", {}) if isinstance(stanza, dict) else {}
            found.add(str(match.get("name", name)) if isinstance(match, dict) else str(name))
    except (yaml.YAMLError, KeyError, TypeError, AttributeError):
        return set()
    return found
