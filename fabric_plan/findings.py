"""What the tool has to say about an inventory or a plan without refusing it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Notice:
    """One warning: the `id` that ``fabric-plan explain`` knows, the text, and where in the inventory, if
    anywhere.
    """

    id: str
    text: str
    where: str | None = None
    hint: str | None = None
