"""What people and programs read: words, tables and colours on one side, one JSON document on the other."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

from fabric_plan.errors import FabricPlanError

# Blue and orange stay apart for the colour-blind; bold carries the rest. Nothing is said by colour alone.
_STYLES = {"good": "34", "bad": "1;33", "head": "1", "dim": "2"}


class Console:
    """Writes results to stdout and everything else to stderr; with `json` so do words for people."""

    def __init__(
        self,
        *,
        json: bool = False,
        color: bool = True,
        verbose: bool = False,
        patience_s: float = 1.0,
        out: IO[str] | None = None,
        err: IO[str] | None = None,
    ) -> None:
        self.json = json
        self.verbose = verbose
        self._patience_s = patience_s
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self._color = color and "NO_COLOR" not in os.environ

    @property
    def _people(self) -> IO[str]:
        return self._err if self.json else self._out

    def style(self, text: str, style: str, stream: IO[str] | None = None) -> str:
        """Colour `text` where its stream is a terminal."""
        if not self._color or not (stream or self._people).isatty():
            return text
        return f"\033[{_STYLES[style]}m{text}\033[0m"

    def say(self, text: str = "", style: str | None = None) -> None:
        """Write one line for people."""
        self._people.write(f"{self.style(text, style) if style else text}\n")

    def note(self, text: str) -> None:
        """Write one line of progress or warning to stderr."""
        self._err.write(f"{text}\n")

    def progress(self, text: str) -> None:
        """Write one line of progress where a person watches: not to a pipe, and not with ``--json``."""
        if self.watched:
            self.note(text)

    @property
    def watched(self) -> bool:
        """Whether a person watches what this run does."""
        return not self.json and self._err.isatty()

    @contextmanager
    def stage(self, text: str) -> Iterator[None]:
        """Say `text` as progress once what is inside has taken a second. Threads may call it."""
        if not self.watched:
            yield
            return
        from threading import Timer

        timer = Timer(self._patience_s, self.note, (f"· {text}",))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def error(self, error: FabricPlanError) -> None:
        """Write an error's lines to stderr."""
        first, *rest = error.lines()
        self._err.write(f"{self.style('error:', 'bad', self._err)} {first}\n")
        for line in rest:
            head = "" if line.startswith("  hint:") else f"{self.style('error:', 'bad', self._err)} "
            self._err.write(f"{head}{line}\n")

    def document(self, document: Any) -> None:
        """Write the JSON document of this run to stdout."""
        self._out.write(json.dumps(document, indent=2) + "\n")

    def line(self, document: Any) -> None:
        """Write one JSON document as one line to stdout, at once: for what goes on until it is stopped."""
        self._out.write(json.dumps(document) + "\n")
        self._out.flush()

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]], indent: str = "  ") -> None:
        """Write a table, columns as wide as their content, numbers to the right."""
        body = [list(row) for row in rows]
        widths = [max(len(row[i]) for row in [list(header), *body]) for i in range(len(header))]
        right = [
            bool(body) and all(row[i].replace(".", "").isdigit() for row in body) for i in range(len(header))
        ]

        def line(row: Sequence[str]) -> str:
            cells = (
                cell.rjust(width) if r else cell.ljust(width)
                for cell, width, r in zip(row, widths, right, strict=True)
            )
            return (indent + "  ".join(cells)).rstrip()

        self.say(line(header), "head")
        for row in body:
            self.say(line(row))
