"""The generations that a node keeps: what was in place, when, by whom, and how it ended."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from dataclasses import dataclass
from typing import Any

from fabric_plan.compare.files import is_program
from fabric_plan.errors import NodeError
from fabric_plan.transport.base import Connection

LIMIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation of a node. `when_unix` is in seconds; `digest` the plan's, or empty."""

    number: int
    when_unix: int
    digest: str
    who: str
    intent: str
    result: str


@dataclass(frozen=True, slots=True)
class History:
    """The generations that a node still has, the newest first, and the one in effect."""

    generations: tuple[Generation, ...]
    current: int | None

    def before(self) -> int:
        """Return the generation to go back to: the committed one before the present; 0 is the state before
        any.
        """
        older = [
            g.number for g in self.generations if g.result == "committed" and g.number < (self.current or 0)
        ]
        return max(older, default=0)


def ask(connection: Connection, verb: str, request: dict[str, Any]) -> dict[str, Any]:
    """Call a verb and return its reply. Raises `NodeError` where the node refuses."""
    reply = connection.call(verb, request, limit_s=LIMIT_S)
    if reply.get("ok") is not True:
        error = reply.get("error") if isinstance(reply.get("error"), dict) else {}
        assert isinstance(error, dict)
        raise NodeError(str(error.get("message")), where=connection.target.name, hint=error.get("hint"))
    return reply


def history_of(connection: Connection) -> History:
    """Return a node's generations. Raises `NodeError` where the answer makes no sense."""
    reply = ask(connection, "generations", {})
    try:
        found = tuple(
            Generation(
                int(entry["number"]),
                int(entry["when_unix"] or 0),
                str(entry["digest"] or ""),
                str(entry["who"] or ""),
                str(entry["intent"] or ""),
                str(entry["result"] or ""),
            )
            for entry in reply["generations"]
        )
        current = None if reply["current"] is None else int(reply["current"])
    except (KeyError, TypeError, ValueError) as error:
        raise NodeError(f"the history makes no sense ({error})", where=connection.target.name) from None
    return History(tuple(sorted(found, key=lambda g: -g.number)), current)


def files_of(connection: Connection, number: int) -> dict[str, tuple[str, str]]:
    """Return mode and content by path of what was in place after generation `number`; links are not among
    them, and no program: whoever put one beside our files has the say over it.
    """
    reply = ask(connection, "generation", {"number": number})
    files = {}
    try:
        for entry in reply["files"]:
            path = str(entry["path"])
            if entry.get("content") is not None and not is_program(path):
                content = b64decode(entry["content"], validate=True)
                # Somebody else's file under our paths need not be text; it goes back byte by byte.
                files[path] = (str(entry["mode"]), content.decode("utf-8", "surrogateescape"))
    except (KeyError, TypeError, ValueError, Base64Error) as error:
        raise NodeError(
            f"generation {number} makes no sense ({error})", where=connection.target.name
        ) from None
    return files
