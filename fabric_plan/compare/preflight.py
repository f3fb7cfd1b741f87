"""What has to be true of every node before any is changed: identity, profile, rights, room, nobody's traffic,
nobody's files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from fabric_plan.compare.desired import Desired, DesiredFunction
from fabric_plan.compare.model import Diff, Resource, StepKind
from fabric_plan.compare.profile import settings
from fabric_plan.facts.questions import link_of
from fabric_plan.node.document import Facts

ROOM_BYTES = 64 << 20

# Where the facts show every file; a marker that stands elsewhere is its owner's business.
PROGRAMS = "/usr/local/lib/fabric-plan/"
_MARKER_UNIT = "/etc/systemd/system/fabric-plan-marker@.service"


class Severity(StrEnum):
    """Whether a finding stops the apply, warns, or says that something could not be shown."""

    REFUSE = "refuse"
    WARN = "warn"
    NOT_PROVEN = "not proven"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding about one node."""

    id: str
    node: str
    message: str
    severity: Severity = Severity.REFUSE
    interface: str | None = None
    hint: str | None = None


def preflight(
    desired: Mapping[str, Desired], facts: Mapping[str, Facts], diffs: Mapping[str, Diff], *, take_over: bool
) -> Iterator[Finding]:
    """Yield every finding, node by node. A node without a difference is asked for its identity alone."""
    macs = {f.mac: name for name, want in desired.items() for f in want.functions if f.mac}
    for name, want in desired.items():
        yield from identity(want, facts[name], macs)
        if diffs[name].differs:
            for check in _CHECKS:
                yield from check(want, facts[name], diffs[name])
            if not take_over:
                yield from _conflicts(diffs[name])


def identity(want: Desired, facts: Facts, macs: Mapping[str, str]) -> Iterator[Finding]:
    """The node at this address has the functions that were planned for it."""
    for function in want.functions:
        link = link_of(facts, name=function.netdev)
        if link is None:
            elsewhere = link_of(facts, pci=function.pci)
            hint = (
                f"{function.pci} is called {elsewhere.name} there: write `netdev: {elsewhere.name}`"
                if elsewhere
                else None
            )
            yield Finding(
                "function-missing",
                want.node,
                "there is no such function",
                interface=function.netdev,
                hint=hint,
            )
            continue
        if link.pci is not None and link.pci != function.pci:
            text = f"is at {link.pci}, planned was {function.pci}"
            yield Finding(
                "wrong-pci",
                want.node,
                text,
                interface=function.netdev,
                hint="correct `pci:` in the inventory",
            )
        have = link.permanent_mac or link.mac
        if function.mac is not None and have != function.mac:
            yield _other_mac(want.node, function, have, macs)


def _other_mac(node: str, function: DesiredFunction, have: str | None, macs: Mapping[str, str]) -> Finding:
    text = f"has MAC {have}, planned was {function.mac}"
    owner = macs.get(have or "")
    if owner is not None and owner != node:
        hint = f"that is a MAC of {owner}: do the two management addresses stand the wrong way round?"
    else:
        hint = "if the card was changed, write the new MAC into the inventory and apply to every node"
    return Finding("wrong-mac", node, text, interface=function.netdev, hint=hint)


def _rights(want: Desired, facts: Facts, diff: Diff) -> Iterator[Finding]:
    if facts.host.euid != 0:
        yield Finding(
            "not-root",
            want.node,
            "the node program does not run as root",
            hint="log in as root, or allow sudo",
        )


def _room(want: Desired, facts: Facts, diff: Diff) -> Iterator[Finding]:
    for path, disk in sorted(facts.disks.items()):
        if disk.read_only:
            yield Finding(
                "read-only",
                want.node,
                f"{path} is mounted read-only",
                hint="see `dmesg`: a disk that fails goes read-only",
            )
        elif disk.free < ROOM_BYTES:
            text = f"{path} has {disk.free >> 20} MiB free, {ROOM_BYTES >> 20} are needed"
            yield Finding("disk-full", want.node, text, hint="make room")


def _tools(want: Desired, facts: Facts, diff: Diff) -> Iterator[Finding]:
    needed = ["ip", "systemctl", "netplan", "nmcli"] + (["tc", "devlink"] if want.mesh else [])
    for name in needed:
        tool = facts.tools.get(name)
        if tool is not None and tool.path is None:
            yield Finding(
                "tool-missing", want.node, f"{name} is not installed", hint=f"install what brings `{name}`"
            )


def _marker(want: Desired, facts: Facts, diff: Diff) -> Iterator[Finding]:
    """The marker's unit starts a program that apply does not bring."""
    unit = want.file(_MARKER_UNIT)
    started = re.search(r"^ExecStart=(\S+)", unit.content, re.MULTILINE) if unit and want.markers else None
    if started is None or facts.files.value is None or not started[1].startswith(PROGRAMS):
        return
    if started[1] not in facts.files.value:
        yield Finding(
            "marker-missing",
            want.node,
            f"the marker is not there: {started[1]}",
            hint="`make marker` builds it, docs/marker.md says where; or `mesh: off` in the inventory",
        )


def pinned_marker(want: Desired, facts: Facts, diff: Diff | None = None) -> Iterator[Finding]:
    """The program that the inventory pins by its digest is that program."""
    if want.marker_path is None:
        return
    found = (facts.files.value or {}).get(want.marker_path)
    have = found.sha256 if found is not None and found.kind == "file" else None
    if have != want.marker_sha256:
        state = "is not there or cannot be read" if have is None else f"has the digest {have[:12]}"
        yield Finding(
            "marker-program",
            want.node,
            f"{want.marker_path} {state}, planned was {(want.marker_sha256 or '')[:12]}",
            hint="put the marker there that `mesh.marker.sha256` names, or write the digest of this one",
        )


def management(want: Desired, facts: Facts, diff: Diff | None = None) -> Iterator[Finding]:
    """Nothing that could cut the user off: no way to the node leads over a function that is to change."""
    ours = {function.netdev for function in want.functions}
    if facts.ssh is not None and facts.ssh.dev in ours:
        text = "this very connection comes in over a fabric function"
        yield Finding(
            "management-on-fabric",
            want.node,
            text,
            interface=facts.ssh.dev,
            hint="set `mgmt:` to the management address",
        )
    for route in facts.routes.value or ():
        if route.to == "default" and route.dev in ours:
            text = "the default route leaves by a fabric function"
            yield Finding(
                "default-route-on-fabric",
                want.node,
                text,
                interface=route.dev,
                hint="move it to the management port",
            )


def _profile(want: Desired, facts: Facts, diff: Diff) -> Iterator[Finding]:
    """What hardware forwarding was qualified on: checked, never silently changed."""
    for setting in settings(want, facts):
        if setting.wrong:
            yield Finding(setting.id, want.node, setting.text, interface=setting.netdev, hint=setting.hint)


def _rdma(want: Desired, facts: Facts, diff: Diff) -> Iterator[Finding]:
    if facts.rdma.usage.in_use and any(c.step in (StepKind.HAIRPIN, StepKind.MARKERS) for c in diff.changes):
        text = f"RDMA is in use: {', '.join(facts.rdma.usage.reasons[:3])}"
        yield Finding("rdma-in-use", want.node, text, hint="stop the engine on every node, then apply again")


def other_mesh(want: Desired, facts: Facts, diff: Diff | None = None) -> Iterator[Finding]:
    for unit, state in sorted((facts.units.value or {}).items()):
        if unit.startswith(("dsv41-mesh", "sparkring")) and state.active_state == "active":
            yield Finding(
                "other-mesh",
                want.node,
                f"{unit} runs: another tool's mesh",
                hint=f"`systemctl disable --now {unit}` first",
            )


def other_subnets(want: Desired, facts: Facts, diff: Diff | None = None) -> Iterator[Finding]:
    """No other interface of the node may sit in a subnet of the fabric."""
    ours = {function.netdev for function in want.functions}
    nets = {IPv4Interface(f.address).network for f in want.functions if f.address}
    nets |= {IPv4Network(route.to) for route in want.routes if route.peer is None}
    for address in facts.interfaces.value.addresses if facts.interfaces.value else ():
        if address.family != "inet" or address.dev in ours:
            continue
        other = IPv4Interface(f"{address.address}/{address.prefix}").network
        for net in sorted(nets, key=str):
            if net.overlaps(other):
                text = (
                    f"{address.dev} has {address.address}/{address.prefix}, which overlaps {net} of the "
                    "fabric"
                )
                yield Finding(
                    "subnet-taken",
                    want.node,
                    text,
                    interface=address.dev,
                    hint="take another addressing.pool",
                )


def _nfs(want: Desired, facts: Facts, diff: Diff) -> Iterator[Finding]:
    """A file system over the fabric shares its cables with the collectives, and dies with any of them."""
    nets = {IPv4Interface(f.address).network for f in want.functions if f.address}
    nets |= {IPv4Network(route.to) for route in want.routes if route.peer is None}
    for mount in facts.nfs.value or ():
        try:
            server = IPv4Address(mount.server)
        except ValueError:
            continue
        if any(server in net for net in nets):
            yield Finding(
                "nfs-on-fabric",
                want.node,
                f"{mount.mountpoint} is mounted over NFS from {server}, an address of the fabric",
                Severity.WARN,
                hint="mount it over the management network, or keep a copy on every node",
            )


def _conflicts(diff: Diff) -> Iterator[Finding]:
    for change in diff.changes:
        if change.resource is Resource.CONFLICT:
            yield Finding(
                "netplan-conflict",
                diff.node,
                f"{change.name} {change.have}: netplan adds addresses up across files",
                interface=change.interface,
                hint="`--take-over` moves just those stanzas away and keeps the originals",
            )


_CHECKS: tuple[Callable[[Desired, Facts, Diff], Iterator[Finding]], ...] = (
    _rights,
    _room,
    _tools,
    _marker,
    management,
    _profile,
    pinned_marker,
    _rdma,
    other_mesh,
    other_subnets,
    _nfs,
)
