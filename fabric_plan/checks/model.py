"""The words of a verification: checks, what they rest on, and findings with their consequences."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What a check may say. What was not seen is *not proven*, never a pass."""

    PASS = "pass"  # noqa: S105 - a verdict
    FAIL = "fail"
    NOT_PROVEN = "not proven"


class Layer(StrEnum):
    """What a check is about, in the order in which a person should read it."""

    NODE = "node"
    LINK = "link"
    CABLING = "cabling"
    ADDRESS = "address"
    GID = "gid"
    ROUTE = "route"
    SYSCTL = "sysctl"
    DRIVER = "driver"
    RULES = "rules"
    MARKERS = "markers"
    UNITS = "units"
    FILES = "files"
    CONFLICTS = "conflicts"
    LIBRARIES = "libraries"
    PROBE = "probe"


def at(node: str, thing: str | None = None) -> str:
    """Return the name of a thing of a node (a network device, a path, a unit) by which checks refer to it."""
    return f"{node} {thing}" if thing else node


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    `subject` says which one of its kind (a route's destination, a rule's place, a path), `needs` names what
    it rests on besides its own interface: things, as `at` spells them, whose failing would explain its own.
    """

    id: str
    layer: Layer
    node: str
    interface: str | None
    subject: str
    verdict: Verdict
    read: str
    expected: str
    mend: str
    needs: tuple[str, ...] = ()

    @property
    def about(self) -> str:
        """The thing that this check judges."""
        return at(self.node, self.interface or self.subject)

    @property
    def place(self) -> str:
        """Where, for people."""
        words = (self.node, self.interface, self.subject if self.subject != self.interface else None)
        return " ".join(word for word in words if word)

    def __str__(self) -> str:
        return f"{self.place}: {self.id}: {self.verdict}: {self.read} (expected {self.expected})"


@dataclass(frozen=True, slots=True)
class Root:
    """A finding, and what necessarily follows from it."""

    check: Check
    consequences: tuple[Check, ...] = ()


@dataclass(frozen=True, slots=True)
class Verification:
    """Every check in reading order, and those that did not pass by their roots."""

    checks: tuple[Check, ...]
    roots: tuple[Root, ...]

    @property
    def ok(self) -> bool:
        """Whether everything was seen to be right; a fabric of which nothing was seen is not."""
        return bool(self.checks) and not self.roots
