"""How a verb says no: an id for programs, one line for people, and how to mend it."""

from __future__ import annotations

from typing import Any


class RefusalError(Exception):
    """A verb refuses or fails; nothing is half-done that the node would not finish or take back by itself.

    `extra` goes into the reply's ``error`` beside id, message and hint.
    """

    def __init__(self, id: str, message: str, hint: str | None = None, **extra: Any) -> None:
        super().__init__(message)
        self.id = id
        self.message = message
        self.hint = hint
        self.extra = extra

    def document(self) -> dict[str, Any]:
        """Return the ``error`` of the reply."""
        return {"id": self.id, "message": self.message, "hint": self.hint, **self.extra}
