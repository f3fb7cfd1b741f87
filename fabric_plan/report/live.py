"""The live state beside the plan: what differs on each node, what apply would do about it, how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fabric_plan.compare.desired import Desired
from fabric_plan.compare.diff import diff
from fabric_plan.compare.files import is_ours
from fabric_plan.compare.model import Diff, Step
from fabric_plan.compare.offload import RELOAD, RELOAD_SECONDS
from fabric_plan.compare.preflight import Finding, preflight
from fabric_plan.compare.steps import FabricSteps, plan_steps
from fabric_plan.node.document import Facts, File

# Seconds, least and most, of what has been measured; the other disruptions say themselves how long.
_LASTS: Mapping[str, tuple[int, int]] = {RELOAD: RELOAD_SECONDS}


@dataclass(frozen=True, slots=True)
class Live:
    """The nodes of which there are facts, compared with the plan.

    `files` are their files of ours, by node and path, for the differences of the page: None where the facts
    do not hold the content. `taken` says of each node when its facts were taken.
    """

    diffs: Mapping[str, Diff]
    steps: FabricSteps
    findings: tuple[Finding, ...]
    files: Mapping[str, Mapping[str, str | None]]
    taken: Mapping[str, str]

    @classmethod
    def of(cls, wants: Mapping[str, Desired], facts: Mapping[str, Facts], taken: Mapping[str, str]) -> Live:
        """Compare the nodes of `wants`; each of them needs its facts."""
        diffs = {name: diff(want, facts[name]) for name, want in wants.items()}
        return cls(
            diffs,
            plan_steps(wants, diffs, facts),
            tuple(preflight(wants, facts, diffs, take_over=False)),
            {name: dict(_files(want, facts[name])) for name, want in wants.items()},
            taken,
        )

    def differences(self) -> dict[str, int]:
        """Return how many differences each node has."""
        return {name: sum(change.counts for change in found.changes) for name, found in self.diffs.items()}

    def view(self) -> dict[str, Any]:
        """Return what the page shows."""
        return {
            "findings": self.findings,
            "disruptions": disruptions(self.steps),
            "order": [(name, str(step)) for name, step in self.steps.disruptive],
            "nodes": [
                {
                    "node": name,
                    "taken": self.taken.get(name),
                    "changes": [change for change in found.changes if change.counts],
                    "foreign": [change for change in found.changes if not change.counts],
                    "disruptive": len(found.disruptive),
                    "quiet": [str(step) for step in self._quiet(name)],
                }
                for name, found in self.diffs.items()
            ],
        }

    def _quiet(self, name: str) -> tuple[Step, ...]:
        return (*self.steps.harmless.get(name, ()), *self.steps.closing.get(name, ()))


def _files(want: Desired, facts: Facts) -> Iterator[tuple[str, str | None]]:
    links = {path for path, _ in want.links}
    for path, found in {**(facts.files.value or {}), **(facts.netplan.value or {})}.items():
        if is_ours(path) and path not in links and found.kind != "directory":
            yield path, _content(want, path, found)


def _content(want: Desired, path: str, found: File) -> str | None:
    planned = want.file(path)
    if planned is not None and found.sha256 == planned.sha256:
        return planned.content
    return None if found.redacted else found.text


def disruptions(steps: FabricSteps) -> list[dict[str, Any]]:
    """Return each kind of disruption with its count, the nodes, and how long all of them last, one after the
    other; `seconds` is None where nobody measured one.
    """
    nodes: dict[str, Counter[str]] = {}
    for name, step in steps.disruptive:
        nodes.setdefault(step.disrupts or "", Counter())[name] += 1
    found = []
    for words, counts in nodes.items():
        count, lasts = sum(counts.values()), _LASTS.get(words)
        seconds = [lasts[0] * count, lasts[1] * count] if lasts else None
        found.append({"words": words, "count": count, "nodes": dict(counts), "seconds": seconds})
    return found
