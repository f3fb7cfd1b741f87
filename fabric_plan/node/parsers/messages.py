"""Messages of the kernel and of iproute2 on stderr: extack errors, answers and warnings."""

from __future__ import annotations

import re

from ..reading import MismatchError, Reading, each_line
from ..records import Message

_EXTACK = re.compile(r"^(Error|Warning): (?:(\w+): )?(\S.*)$")
_ANSWER = re.compile(r"^(\w+) answers: (\S.*)$")


def messages(text: str) -> Reading[tuple[Message, ...]]:
    """Parse stderr. `source` is the driver of an extack message or the tool that passes an answer on.

    A warning is no failure; a line without a known form is a note, kept as it is.
    """

    def line(row: str) -> Message:
        extack, answer = _EXTACK.match(row), _ANSWER.match(row)
        if extack:
            return Message(extack[1].lower(), extack[2], extack[3].strip())
        if answer:
            return Message("error", answer[1], answer[2].strip())
        if "\x00" in row:
            raise MismatchError("not text", row)
        return Message("note", None, row.strip())

    return each_line(text, line)
