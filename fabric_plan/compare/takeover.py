"""Move other files' stanzas of our interfaces away, and nothing else of those files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import yaml

from fabric_plan.compare.desired import Desired
from fabric_plan.compare.files import defined_interfaces
from fabric_plan.compare.model import Change, Diff, Resource, StepKind
from fabric_plan.compare.steps import StagedFile
from fabric_plan.errors import NodeError
from fabric_plan.node.document import Facts

HEADER = (
    "# Interfaces of the fabric were moved away by fabric-plan; the original is in the generation before.\n"
)

# NetworkManager keeps in such files what a person changed through it; they win over ours.
NETWORK_MANAGERS = re.compile(r"/etc/netplan/90-NM-[^/]+\.yaml")
MOVED = ".moved-by-fabric-plan"


def take_over(desired: Desired, diff: Diff, facts: Facts) -> tuple[StagedFile, ...]:
    """Return the new states of the files that stand in the way; the originals are kept with the generation.

    A file without anything else in it goes; so does one of NUL bytes, which makes netplan fail for all.
    Raises `NodeError` for a file that is not in /etc: nobody's package or runtime state is rewritten.
    """
    conflicts = sorted({change.name for change in diff.changes if change.resource is Resource.CONFLICT})
    return tuple(_rewritten(desired, facts, conflicts))


def _rewritten(desired: Desired, facts: Facts, conflicts: list[str]) -> Iterator[StagedFile]:
    ours = {function.netdev for function in desired.functions}
    for path in conflicts:
        if not path.startswith("/etc/netplan/"):
            raise NodeError(
                f"{path} defines interfaces of the fabric, and only files in /etc/netplan are rewritten",
                where=desired.node,
                hint="take the stanzas away there yourself",
                id="netplan-conflict",
            )
        file = (facts.netplan.value or {})[path]
        document = None if file.nul or file.text is None else without(file.text, ours)
        if document is None:
            yield StagedFile(path)
        else:
            text = HEADER + yaml.safe_dump(document, sort_keys=False, default_flow_style=False)
            yield StagedFile(path, file.mode or "0600", text)


def without(text: str, interfaces: set[str]) -> dict[str, Any] | None:
    """Return the netplan document without the stanzas of `interfaces`; None where nothing else is in it."""
    document: dict[str, Any] = yaml.safe_load(text)
    network = document["network"]
    kept = {
        name: stanza
        for name, stanza in network["ethernets"].items()
        if not defined_interfaces(yaml.safe_dump({"network": {"ethernets": {name: stanza}}})) & interfaces
    }
    rest = {key: value for key, value in network.items() if key != "ethernets"}
    if not kept and not set(rest) - {"version", "renderer"}:
        return None
    return {"network": {**rest, **({"ethernets": kept} if kept else {})}}


def move_aside(node: str, facts: Facts, interfaces: frozenset[str]) -> dict[Change, StagedFile]:
    """Return the changes that take NetworkManager's own definitions of `interfaces` away, each with the copy
    under another name that stays: netplan reads only what is called ``.yaml``.

    Raises `NodeError` for a file that speaks of other interfaces too, or whose text did not arrive whole.
    """
    moved = {}
    for path, file in sorted((facts.netplan.value or {}).items()):
        named = defined_interfaces(file.text or "") if NETWORK_MANAGERS.fullmatch(path) else set()
        if not named & interfaces:
            continue
        whole = file.text is not None and hashlib.sha256(file.text.encode()).hexdigest() == file.sha256
        if not whole or not named <= interfaces:
            why = (
                "it holds secrets" if not whole else f"it defines {', '.join(sorted(named - interfaces))} too"
            )
            raise NodeError(
                f"{path} names {', '.join(sorted(named & interfaces))} and cannot be moved aside: {why}",
                where=node,
                hint="take the stanzas away there yourself",
                id="netplan-conflict",
            )
        change = Change(Resource.FILE, path, f"defines {', '.join(sorted(named))}", None, StepKind.NETPLAN)
        moved[change] = StagedFile(path + MOVED, file.mode or "0600", file.text)
    return moved
