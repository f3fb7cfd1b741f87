"""How an apply ended, node by node, and what may be said of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fabric_plan.compare.model import Diff

SCHEMA = "fabric-plan/apply/v1"


class End(StrEnum):
    """What became of one node. `UNKNOWN` is said where the last word of a node did not arrive."""

    UNCHANGED = "unchanged"
    APPLIED = "applied"
    ROLLED_BACK = "rolled back"
    ROLLBACK_FAILED = "rollback failed"
    UNREACHABLE = "unreachable"
    UNTOUCHED = "untouched"


# The ends after which nothing is left to do on a node.
GOOD = (End.UNCHANGED, End.APPLIED)


@dataclass(frozen=True, slots=True)
class NodeEnd:
    """The end of one node: the generation that it is on, and in words what went wrong or what stays."""

    node: str
    end: End
    generation: int | None = None
    message: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """The whole apply: ends in rank order, and the differences that it set out to mend."""

    intent: str
    digest: str | None
    ends: tuple[NodeEnd, ...]
    diffs: Mapping[str, Diff]

    @property
    def ok(self) -> bool:
        """Whether every node is where it should be."""
        return all(end.end in GOOD for end in self.ends)

    def document(self) -> dict[str, Any]:
        """Return the report as ``--json`` prints it."""
        return {
            "schema": SCHEMA,
            "intent": self.intent,
            "digest": self.digest,
            "ok": self.ok,
            "nodes": {
                end.node: {
                    "end": str(end.end),
                    "generation": end.generation,
                    "message": end.message,
                    "notes": list(end.notes),
                }
                for end in self.ends
            },
        }
