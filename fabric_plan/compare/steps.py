"""From differences to steps: what may run at once on every node, and what has to go one by one, in which
order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fabric_plan.compare.desired import Desired
from fabric_plan.compare.files import defined_interfaces
from fabric_plan.compare.model import Change, Diff, Resource, Step, StepKind
from fabric_plan.compare.network import ADDRESSES_GO
from fabric_plan.compare.offload import MARKER_RESTART, MESH_STOPS, RELOAD
from fabric_plan.node.document import Facts

SCRIPTS = "/usr/local/lib/fabric-plan"
UNIT = re.compile(r"/etc/systemd/system/fabric-plan-[^/@]+\.service")


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A path to bring into a new state: content and mode, or a link's target, or (both None) nothing there
    any more.
    """

    path: str
    mode: str | None = None
    content: str | None = None
    link: str | None = None


@dataclass(frozen=True, slots=True)
class FabricSteps:
    """The steps of the whole fabric: `harmless` by node, `disruptive` one after the other, `closing` by node
    after those.
    """

    harmless: Mapping[str, tuple[Step, ...]] = field(default_factory=dict)
    disruptive: tuple[tuple[str, Step], ...] = ()
    closing: Mapping[str, tuple[Step, ...]] = field(default_factory=dict)


def files_to_stage(desired: Desired, diff: Diff) -> tuple[StagedFile, ...]:
    """Return the paths that differ, as the node program takes them: files, links of enabled units, vanished
    ones.
    """
    links = dict(desired.links)
    staged = []
    for change in diff.changes:
        if change.resource not in (Resource.FILE, Resource.UNIT) or not change.name.startswith("/"):
            continue
        file = desired.file(change.name)
        if change.name in links:
            staged.append(StagedFile(change.name, link=links[change.name]))
        elif file is not None:
            staged.append(StagedFile(file.path, file.mode, file.content))
        else:
            staged.append(StagedFile(change.name))
    return tuple(sorted(staged, key=lambda file: file.path))


def plan_steps(
    desired: Mapping[str, Desired], diffs: Mapping[str, Diff], facts: Mapping[str, Facts]
) -> FabricSteps:
    """Return the steps that mend `diffs`.

    Harmless ones first and everywhere. Then, each kind node by node and function by function: what is taken
    down, address changes, driver reloads, markers. Last the rules and forwarding, which rest on all of those
    and change only what is wrong.
    """
    harmless: dict[str, tuple[Step, ...]] = {}
    closing: dict[str, tuple[Step, ...]] = {}
    rounds: dict[str, list[tuple[str, Step]]] = {
        kind: [] for kind in ("down", "addresses", "reloads", "markers")
    }
    for name, diff in diffs.items():
        if not diff.differs:
            continue
        want, found = desired[name], facts[name]
        harmless[name] = tuple(_harmless(want, diff))
        closing[name] = tuple(_closing(want, diff))
        rounds["down"] += [(name, step) for step in _down(diff, found)]
        for netdev in _in_order(want, found, _interfaces(diff, StepKind.NETPLAN)):
            step = Step(StepKind.NETPLAN, {"interfaces": [netdev]}, ADDRESSES_GO)
            rounds["addresses"].append((name, step))
        for netdev in _in_order(want, found, _interfaces(diff, StepKind.HAIRPIN)):
            rounds["reloads"].append((name, Step(StepKind.HAIRPIN, {"netdev": netdev}, RELOAD, idle=True)))
        devices = sorted(c.name for c in diff.changes if c.step is StepKind.MARKERS and _live(c))
        if devices:
            step = Step(StepKind.MARKERS, {"devices": devices}, MARKER_RESTART, idle=True)
            rounds["markers"].append((name, step))
    return FabricSteps(harmless, tuple(entry for kind in rounds.values() for entry in kind), closing)


def _vanished(diff: Diff) -> set[str]:
    return {c.name for c in diff.changes if c.resource is Resource.FILE and c.want is None}


def _down(diff: Diff, facts: Facts) -> Iterator[Step]:
    """Yield what takes away that which no file of the new state knows any more."""
    gone = _vanished(diff)
    left_behind = any(change.step is StepKind.MESH_DOWN for change in diff.changes)
    if f"{SCRIPTS}/mesh-down.sh" in gone or left_behind:
        yield Step(StepKind.MESH_DOWN, {}, MESH_STOPS, idle=True)
    units = sorted(path.rsplit("/", 1)[-1] for path in gone if UNIT.fullmatch(path))
    running = facts.units.value or {}
    stop = [unit for unit in units if unit in running and running[unit].active_state == "active"]
    if stop:
        yield Step(StepKind.UNITS, {"start": [], "stop": stop}, MESH_STOPS, idle=True)
    netplan = facts.netplan.value or {}
    texts = [netplan[path].text or "" for path in sorted(gone) if path in netplan]
    for netdev in sorted({netdev for text in texts for netdev in defined_interfaces(text)}):
        yield Step(StepKind.FLUSH, {"interfaces": [netdev]}, ADDRESSES_GO)


def _harmless(want: Desired, diff: Diff) -> Iterator[Step]:
    needed = {change.step for change in diff.changes if change.counts}
    if f"{SCRIPTS}/forward.sh" in _vanished(diff):
        yield Step(StepKind.FORWARD_STOP)
    if StepKind.DAEMON_RELOAD in needed or any(c.name.startswith("/etc/systemd/") for c in diff.changes):
        yield Step(StepKind.DAEMON_RELOAD)
    if StepKind.SYSCTL in needed:
        yield Step(StepKind.SYSCTL)
    if StepKind.NM_CONF in needed:
        yield Step(StepKind.NM_CONF)
    if StepKind.NETPLAN in needed or any(
        c.resource is Resource.FILE and "/netplan/" in c.name for c in diff.changes
    ):
        # The backend reads the new definitions; no profile is brought up by that alone.
        yield Step(StepKind.NETPLAN, {"interfaces": []})
    if StepKind.OFFLOAD in needed:
        yield Step(StepKind.OFFLOAD, {"interfaces": _interfaces(diff, StepKind.OFFLOAD)})


def _closing(want: Desired, diff: Diff) -> Iterator[Step]:
    """Yield what rests on addresses and functions: forwarding and mesh, which change only what is wrong."""
    needed = {change.step for change in diff.changes if change.counts}
    if want.file(f"{SCRIPTS}/forward.sh"):
        yield Step(StepKind.FORWARD)
    if want.mesh:
        yield Step(StepKind.MESH)
    if StepKind.UNITS in needed:
        yield Step(StepKind.UNITS, {"start": sorted(want.units), "stop": []})


def _interfaces(diff: Diff, kind: StepKind) -> list[str]:
    return sorted(
        {c.interface for c in diff.changes if c.step is kind and c.interface and c.counts and _live(c)}
    )


def _live(change: Change) -> bool:
    return change.resource is not Resource.FILE


def _in_order(want: Desired, facts: Facts, netdevs: list[str]) -> list[str]:
    """Return `netdevs` in PCI order, the one that carries the way to the management last."""
    carries = facts.ssh.dev if facts.ssh else None
    place = {function.netdev: function.pci for function in want.functions}
    return sorted(netdevs, key=lambda netdev: (netdev == carries, place.get(netdev, ""), netdev))
