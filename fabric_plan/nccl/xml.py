"""Read a graph file the way NCCL's own reader does, not the way XML is meant.

That reader takes one blank between attributes and nothing else, knows no declaration and no text, and
stops at the first surprise. What it would stop at is a `Finding`; what it would read is a tree of
`Element`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

# The smallest limits among the versions read (2.28 to 2.30).
_MAX_TEXT = 254
_MAX_ATTRIBUTES = 16
_MAX_CHILDREN = 128
_MAX_ELEMENTS = 4096

_TOKEN_ENDS = b" >/\n\r"

# What may stand in what; everything else is skipped over in silence.
_CHILDREN: dict[str, tuple[str, ...]] = {
    "": ("graphs",),
    "graphs": ("graph",),
    "graph": ("channel",),
    "channel": ("net", "gpu"),
}


class Effect(StrEnum):
    """What NCCL does about it. Silence is the worst: the job runs, on other devices than planned."""

    CRASHES = "crashes"
    FAILS = "fails"
    SILENT = "silent"


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One thing wrong with a graph file: where, what NCCL makes of it, and how to mend it."""

    line: int
    column: int
    effect: Effect
    text: str
    hint: str


@dataclass(slots=True)
class Element:
    """One element as NCCL keeps it; of a repeated attribute it reads the first."""

    name: str
    attributes: list[tuple[str, str]]
    at: int
    children: list[Element] = field(default_factory=list)

    def get(self, key: str) -> str | None:
        """Return the value that NCCL reads for `key`, None where there is none."""
        return next((value for name, value in self.attributes if name == key), None)


class _StopError(Exception):
    def __init__(self, at: int, text: str, hint: str) -> None:
        super().__init__(text)
        self.at, self.text, self.hint = at, text, hint


@dataclass(frozen=True, slots=True)
class _Tag:
    kind: str  # open, close, single
    name: str
    attributes: list[tuple[str, str]]
    at: int


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.pos = 0
        self.elements = 0

    def char(self) -> int:
        if self.pos >= len(self.data):
            raise _StopError(
                self.pos,
                "the file ends in the middle of a tag",
                "write the whole file; it ends with </graphs>",
            )
        self.pos += 1
        return self.data[self.pos - 1]

    def token(self, *, valued: bool) -> tuple[str, str, int]:
        """Return name, value and the character after them; `valued` says whether an ``=`` may follow the
        name.
        """
        start = self.pos
        while True:
            c = self.char()
            if c == ord("="):
                if not valued:
                    hint = "put one blank, and no tab, between a name and its first attribute"
                    raise _StopError(self.pos - 1, "an `=` where the name of an element should end", hint)
                name = self.data[start : self.pos - 1]
                return _text(name), *self.value()
            if c in _TOKEN_ENDS:
                return _text(self.data[start : self.pos - 1]), "", c
            if self.pos - start > _MAX_TEXT:
                raise _StopError(
                    start, f"a name of more than {_MAX_TEXT} characters", "a graph file has none"
                )

    def value(self) -> tuple[str, int]:
        quote = self.char()
        if quote not in b"\"'":
            raise _StopError(self.pos - 1, "a value without quotes", 'write dev="0"')
        start = self.pos
        while self.char() != quote:
            if self.pos - start > _MAX_TEXT:
                raise _StopError(start, f"a value of more than {_MAX_TEXT} characters", "is a quote missing?")
        return _text(self.data[start : self.pos - 1]), self.char()

    def tag(self) -> _Tag | None:
        """Return the next tag, None at the end of the file."""
        while True:
            while self.pos < len(self.data) and self.data[self.pos] in b" \n\r":
                self.pos += 1
            if self.pos >= len(self.data):
                return None
            at = self.pos
            c = self.char()
            if c == ord("\t"):
                raise _StopError(at, "a tab between tags", "indent with blanks")
            if c != ord("<"):
                raise _StopError(
                    at, f"text between tags, beginning with `{chr(c)}`", "a graph file holds tags alone"
                )
            name, _, last = self.token(valued=False)
            if not name.startswith("!--"):
                return self._rest_of_tag(name, last, at)
            self._skip_comment(name[3:], last, at)

    def _skip_comment(self, begun: str, last: int, at: int) -> None:
        tail = (b"..." + begun.encode("latin-1") + bytes((last,)))[-3:]
        while tail != b"-->":
            if self.pos >= len(self.data):
                raise _StopError(at, "a comment that never ends", "close it with -->, or leave it out")
            tail = tail[1:] + bytes((self.char(),))

    def _rest_of_tag(self, name: str, last: int, at: int) -> _Tag:
        if not name and last == ord("/"):
            closed, _, last = self.token(valued=False)
            if last != ord(">"):
                raise _StopError(
                    self.pos - 1, f"`{chr(last)}` in the closing tag of {closed}", f"write </{closed}>"
                )
            return _Tag("close", closed, [], at)
        attributes: list[tuple[str, str]] = []
        while last == ord(" "):
            key, value, last = self.token(valued=True)
            attributes.append((key, value))
        kind = "open"
        if last == ord("/"):
            kind = "single"
            _, _, last = self.token(valued=False)
        if last != ord(">"):
            what = {
                "\n": "a newline",
                "\r": "a newline",
                "\t": "a tab",
                "?": "an XML declaration or other `?`",
            }
            found = what.get(chr(last), f"`{chr(last)}`")
            hint = (
                "leave the declaration out"
                if last == ord("?")
                else "write a tag in one line, one blank between attributes"
            )
            raise _StopError(self.pos - 1, f"{found} inside the tag <{name}>", hint)
        return _Tag(kind, name, [pair for pair in attributes[:_MAX_ATTRIBUTES] if pair[0]], at)

    def load(self, head: Element | None, parent: str) -> list[Element]:
        """Return the elements inside `head` (the whole file where it is None)."""
        found: list[Element] = []
        while True:
            at = self.pos
            tag = self.tag()
            if tag is None:
                if head is not None:
                    raise _StopError(
                        at,
                        f"<{head.name}> is never closed: the file is cut short",
                        f"end it with </{head.name}>",
                    )
                return found
            if head is not None and tag.kind == "close":
                if tag.name != head.name:
                    raise _StopError(tag.at, f"</{tag.name}> closes <{head.name}>", f"write </{head.name}>")
                return found
            if tag.name in _CHILDREN.get(parent, ()):
                found.append(self._element(tag, len(found)))
            elif tag.kind != "single":
                self._skip(tag)

    def _element(self, tag: _Tag, siblings: int) -> Element:
        self.elements += 1
        if self.elements > _MAX_ELEMENTS or siblings >= _MAX_CHILDREN:
            raise _StopError(
                tag.at, "more elements than NCCL's reader has room for", "a graph of a few channels is small"
            )
        element = Element(tag.name, tag.attributes, tag.at)
        if tag.kind != "single":
            element.children = self.load(element, tag.name)
        return element

    def _skip(self, opened: _Tag) -> None:
        """Pass over what NCCL does not know. Any closing tag closes there: it does not compare names."""
        depth = 1
        while depth:
            tag = self.tag()
            if tag is None:
                raise _StopError(
                    opened.at,
                    f"<{opened.name}> is never closed: the file is cut short",
                    f"end it with </{opened.name}>",
                )
            depth += {"open": 1, "close": -1, "single": 0}[tag.kind]


def _text(raw: bytes) -> str:
    """Read as C does: up to the first zero byte."""
    return raw.split(b"\0", 1)[0].decode("latin-1")


def place(data: bytes, at: int) -> tuple[int, int]:
    """Return line and column, from 1, of the byte at `at`."""
    return data.count(b"\n", 0, at) + 1, at - data.rfind(b"\n", 0, at)


@lru_cache(maxsize=16)
def read(data: bytes) -> tuple[Element | None, Finding | None]:
    """Return the root that NCCL keeps (None where there is none) and the finding that its reader stops at, if
    any. The nodes of a ring have the same few files, so what was read is kept: nobody may change it.
    """
    try:
        roots = _Reader(data).load(None, "")
    except _StopError as stop:
        return None, Finding(*place(data, stop.at), Effect.FAILS, stop.text, stop.hint)
    return (roots[0] if roots else None), None
