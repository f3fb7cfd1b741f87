"""Move other files' stanzas of our interfaces away, and nothing else of those files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from fabric_plan.compare.desired import Desired
from fabric_plan.compare.files import defined_interfaces
from fabric_plan.compare.model import Diff, Resource
from fabric_plan.compare.steps import StagedFile
from fabric_plan.errors import NodeError
from fabric_plan.node.document import Facts

HEADER = (
    "# Interfaces of the fabric were moved away by fabric-plan; the original is in the generation before.\n"
)


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
