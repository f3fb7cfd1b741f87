"""The one error tree: what went wrong, where, and how to mend it.

Everything that a user can cause ends as a `FabricPlanError`; the command line prints its `message`, its
`where` and its `hint` (one to three lines) and exits with its `exit_code`. A traceback appears under
``--debug`` alone.
"""

from __future__ import annotations

from enum import IntEnum


def printable(text: str) -> str:
    """Return `text` with every control character spelled out: what a file or a node says never steers a
    terminal.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class ExitCode(IntEnum):
    """What the process returns; the same for every verb."""

    OK = 0
    ERROR = 1
    DIFFERENCE = 2
    USAGE = 64


class FabricPlanError(Exception):
    """An error that the user can act on.

    `message` says what; `where` is ``file:line:column`` of an inventory or ``node: interface`` of a host;
    `hint` says how to mend it; `id` is the name that ``fabric-plan explain`` knows, where there is one.
    """

    exit_code: ExitCode = ExitCode.ERROR

    def __init__(
        self, message: str, *, where: str | None = None, hint: str | None = None, id: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint
        self.id = id

    def lines(self) -> list[str]:
        """Return the one to three lines that a person reads."""
        head = f"{self.where}: {self.message}" if self.where else self.message
        head += f" [{self.id}]" if self.id else ""
        return [printable(line) for line in (head, *([f"  hint: {self.hint}"] if self.hint else []))]


class UsageError(FabricPlanError):
    """The command line itself is wrong."""

    exit_code = ExitCode.USAGE


class InventoryError(FabricPlanError):
    """The inventory cannot be read, or says something that cannot be meant. Carries every finding of the
    file.
    """

    def __init__(self, errors: list[FabricPlanError]) -> None:
        first = errors[0]
        super().__init__(first.message, where=first.where, hint=first.hint, id=first.id)
        self.errors = errors

    def lines(self) -> list[str]:
        return [line for error in self.errors for line in error.lines()]


class EvidenceError(InventoryError):
    """What was found on the nodes makes no inventory. Carries every reason."""


class RefusalError(FabricPlanError):
    """The inventory is well formed, but no plan that works follows from it."""


class ProofError(FabricPlanError):
    """A plan exists, but a packet that should arrive does not, or one that should not moves."""


class RoleError(FabricPlanError):
    """A file under ``roles/`` or ``templates/`` is missing or malformed."""


class TransportError(FabricPlanError):
    """A node could not be reached, or a command on it did not come back."""


class NodeError(FabricPlanError):
    """A node was reached, and refused or failed a step."""
