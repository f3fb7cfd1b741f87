"""What was read, and what could not be: the result type of every parser and of every question to a node.

A parser never raises and never guesses. What it understood stands in `Reading.value`; each piece that it did
not understand stands in `Reading.unread` with the reason and the words in question. `value` is None when
nothing at all could be read, so a type checker makes every consumer face that case.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, Generic, NoReturn, TypeVar

from .plain import dataclass

T = TypeVar("T")
R = TypeVar("R")

EXCERPT_CHARS = 160
MAX_INT = 2**64 - 1
MAC = re.compile(r"^[0-9a-f]{2}(:[0-9a-f]{2}){5}$")


@dataclass(frozen=True)
class Unreadable:
    """A piece of input that was not understood: why, and its first characters verbatim."""

    reason: str
    excerpt: str = ""


@dataclass(frozen=True)
class Reading(Generic[T]):
    """What a parser made of its input: the value, and all that is missing from it."""

    value: T | None
    unread: tuple[Unreadable, ...] = ()

    @property
    def complete(self) -> bool:
        """True when everything was understood."""
        return self.value is not None and not self.unread


class MismatchError(Exception):
    """A piece of input has another shape than expected; caught inside the parsers, never seen outside."""

    def __init__(self, reason: str, piece: object = "") -> None:
        super().__init__(reason)
        self.unreadable = Unreadable(reason, excerpt(piece))


def excerpt(piece: object) -> str:
    """Return the first characters of a piece of input on one line, safe to print and to encode."""
    text = piece if isinstance(piece, str) else json.dumps(piece, default=str)
    text = text[: 4 * EXCERPT_CHARS].encode("utf-8", "replace").decode()
    text = "".join(char if char.isprintable() else " " for char in text).strip()
    return text if len(text) <= EXCERPT_CHARS else text[: EXCERPT_CHARS - 3] + "..."


def unreadable(reason: str, piece: object = "") -> Reading[Any]:
    """Return a reading without a value."""
    return Reading(None, (Unreadable(reason, excerpt(piece)),))


def each(pieces: Iterable[T], parse: Callable[[T], R | None]) -> Reading[tuple[R, ...]]:
    """Parse every piece for itself; `parse` returns None for a piece that carries nothing."""
    found: list[R] = []
    unread: list[Unreadable] = []
    for piece in pieces:
        try:
            item = parse(piece)
        except MismatchError as error:
            unread.append(error.unreadable)
        else:
            if item is not None:
                found.append(item)
    return Reading(tuple(found) if found or not unread else None, tuple(unread))


def each_line(text: str, parse: Callable[[str], R | None]) -> Reading[tuple[R, ...]]:
    """Parse every line that is not blank; an empty output is an empty, complete reading."""
    return each([line.rstrip() for line in text.splitlines() if line.strip()], parse)


def load_json(text: str) -> Any:
    """Return the JSON value of a tool's whole output; an empty output is an empty list.

    Raises `MismatchError` with the place of the fault, never anything else.
    """

    def refuse(word: str) -> NoReturn:
        raise ValueError(f"{word} is not JSON")

    if not text.strip():
        return []
    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise MismatchError(
            f"broken JSON at character {error.pos}: {error.msg}",
            text[max(0, error.pos - 60) : error.pos + 60],
        ) from None
    except (ValueError, RecursionError) as error:
        raise MismatchError(f"broken JSON: {error}", text) from None


def json_items(text: str, parse: Callable[[dict[str, Any]], R | None]) -> Reading[tuple[R, ...]]:
    """Parse a tool's JSON array of objects, each object for itself."""

    def one(item: Any) -> R | None:
        if not isinstance(item, dict):
            raise MismatchError("expected an object", item)
        # iproute2 prints an empty object for a row that its filter dropped.
        return parse(item) if item else None

    try:
        items = load_json(text)
    except MismatchError as error:
        return Reading(None, (error.unreadable,))
    if not isinstance(items, list):
        return unreadable("expected a JSON array", items)
    return each(items, one)


def is_json(text: str) -> bool:
    """Tell a JSON output from a text output by its first character."""
    return text.lstrip()[:1] in ("{", "[")


def words_of(item: dict[str, Any], key: str) -> tuple[str, ...]:
    """Return a list of words; an absent key is an empty list."""
    value = item.get(key, [])
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise MismatchError(f"{key} is not a list of words", item)
    return tuple(clean(word) for word in value)


def text_of(item: dict[str, Any], key: str) -> str:
    """Return a required string."""
    value = item.get(key)
    if not isinstance(value, str):
        raise MismatchError(f"{key} is absent or not a string", item)
    return clean(value)


def text_or_none(item: dict[str, Any], key: str) -> str | None:
    """Return a string, or None where the key is absent or null."""
    return None if item.get(key) is None else text_of(item, key)


def int_of(item: dict[str, Any], key: str) -> int:
    """Return a required number between 0 and 2**64 - 1."""
    value = item.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_INT:
        raise MismatchError(f"{key} is absent or not a number", item)
    return value


def int_or_none(item: dict[str, Any], key: str) -> int | None:
    """Return a number, or None where the key is absent or null."""
    return None if item.get(key) is None else int_of(item, key)


def object_of(item: dict[str, Any], key: str) -> dict[str, Any]:
    """Return an object; an absent key is an empty object."""
    value = item.get(key, {})
    if not isinstance(value, dict):
        raise MismatchError(f"{key} is not an object", item)
    return value


def objects_of(item: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """Return a list of objects; an absent key is an empty list."""
    value = item.get(key, [])
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise MismatchError(f"{key} is not a list of objects", item)
    return value


def number(word: str, base: int = 10) -> int:
    """Return the number between 0 and 2**64 - 1 that a word of a text output spells in ASCII digits."""
    try:
        value = int(word, base) if len(word) <= 20 and word.isascii() and word.isalnum() else -1
    except ValueError:
        value = -1
    if not 0 <= value <= MAX_INT:
        raise MismatchError("expected a number", word)
    return value


def decimal(word: str) -> float:
    """Return the plain decimal number that a word spells (no exponent, no infinity)."""
    if not re.fullmatch(r"-?[0-9]{1,18}(\.[0-9]{1,12})?", word):
        raise MismatchError("expected a decimal number", word)
    return float(word)


def mac(word: str) -> str:
    """Return a MAC address in lower case."""
    if not MAC.match(word.lower()):
        raise MismatchError("expected a MAC address", word)
    return word.lower()


def clean(text: str) -> str:
    """Return the text without what cannot be encoded (a lone surrogate of a JSON escape)."""
    return text.encode("utf-8", "replace").decode()


def pairs(words: list[str]) -> dict[str, str]:
    """Return ``key value key value ...`` as a mapping; an odd word or a repeated key is a mismatch."""
    if len(words) % 2:
        raise MismatchError("a key without a value", " ".join(words))
    table = dict(zip(words[::2], words[1::2]))
    if len(table) * 2 != len(words):
        raise MismatchError("a key that stands twice", " ".join(words))
    return table
