"""From differences to steps: what may run at once on every node, and what has to go one by one, in which
order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fabric_plan.compare.desired import Desired
from fabric_plan.compare.model import Change, Diff, Resource, Step, StepKind
from fabric_plan.compare.network import ADDRESSES_GO
from fabric_plan.compare.offload import MARKER_RESTART, RELOAD
from fabric_plan.node.document import Facts


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

    Harmless ones first and everywhere; then address changes, node by node and function by function; then
    driver reloads in the same way; then the rules on every node whose own or whose neighbour's function was
    made anew, and last the
    markers.
    """
    harmless: dict[str, tuple[Step, ...]] = {}
    addresses: list[tuple[str, Step]] = []
    reloads: list[tuple[str, Step]] = []
    markers: list[tuple[str, Step]] = []
    closing: dict[str, tuple[Step, ...]] = {}
    for name, diff in diffs.items():
        if not diff.differs:
            continue
        want = desired[name]
        before = {change.step for change in diff.changes if change.counts}
        harmless[name] = tuple(_harmless(want, diff, before))
        for netdev in _in_order(want, facts[name], _interfaces(diff, StepKind.NETPLAN)):
            addresses.append((name, Step(StepKind.NETPLAN, {"interfaces": [netdev]}, ADDRESSES_GO)))
        for netdev in _in_order(want, facts[name], _interfaces(diff, StepKind.HAIRPIN)):
            reloads.append((name, Step(StepKind.HAIRPIN, {"netdev": netdev}, RELOAD, reloads=True)))
        devices = sorted(
            c.name for c in diff.changes if c.step is StepKind.MARKERS and c.resource is Resource.MARKER
        )
        if devices:
            markers.append((name, Step(StepKind.MARKERS, {"devices": devices}, MARKER_RESTART)))
        closing[name] = tuple(_closing(want, before))
    # A reloaded function leaves rules on both ends that look right and lead nowhere, and a route that is
    # gone.
    if reloads:
        for name, want in desired.items():
            if want.mesh and name not in closing:
                closing[name] = (Step(StepKind.MESH),)
    return FabricSteps(harmless, (*addresses, *reloads, *markers), closing)


def _harmless(want: Desired, diff: Diff, needed: set[StepKind | None]) -> Iterator[Step]:
    if StepKind.DAEMON_RELOAD in needed or any(c.name.startswith("/etc/systemd/") for c in diff.changes):
        yield Step(StepKind.DAEMON_RELOAD)
    if StepKind.SYSCTL in needed:
        yield Step(StepKind.SYSCTL)
    if StepKind.NM_CONF in needed:
        yield Step(StepKind.NM_CONF)
    if any(c.resource is Resource.FILE and "/netplan/" in c.name for c in diff.changes):
        # The backend reads the new definitions; no profile is brought up by that alone.
        yield Step(StepKind.NETPLAN, {"interfaces": []})
    if StepKind.OFFLOAD in needed:
        yield Step(StepKind.OFFLOAD, {"interfaces": _interfaces(diff, StepKind.OFFLOAD)})


def _closing(want: Desired, needed: set[StepKind | None]) -> Iterator[Step]:
    """Yield what rests on addresses and functions: forwarding and the mesh, each of which changes only what
    is wrong.
    """
    if want.file("/usr/local/lib/fabric-plan/forward.sh"):
        yield Step(StepKind.FORWARD)
    if want.mesh:
        yield Step(StepKind.MESH)
    if StepKind.UNITS in needed:
        yield Step(
            StepKind.UNITS, {"start": sorted(path.rsplit("/", 1)[-1] for path, _ in want.links), "stop": []}
        )


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
