"""nmcli: devices and profiles, as a table for people and in terse form (-t)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from ..reading import MismatchError, Reading, each, unreadable
from ..records import NmConnection, NmDevice

R = TypeVar("R")
DEVICE_FIELDS = ("DEVICE", "TYPE", "STATE", "CONNECTION")
CONNECTION_FIELDS = ("NAME", "UUID", "TYPE", "DEVICE", "FILENAME")


def devices(text: str) -> Reading[tuple[NmDevice, ...]]:
    """Parse ``nmcli device status``, or with ``-t -f DEVICE,TYPE,STATE,CONNECTION``."""

    def row(cells: dict[str, str]) -> NmDevice:
        return NmDevice(
            _need(cells, "DEVICE"), _need(cells, "TYPE"), _need(cells, "STATE"), _maybe(cells, "CONNECTION")
        )

    return _rows(text, DEVICE_FIELDS, row)


def connections(text: str) -> Reading[tuple[NmConnection, ...]]:
    """Parse ``nmcli connection show``, or with ``-t -f NAME,UUID,TYPE,DEVICE,FILENAME``."""

    def row(cells: dict[str, str]) -> NmConnection:
        return NmConnection(
            _need(cells, "NAME"),
            _need(cells, "TYPE"),
            _maybe(cells, "DEVICE"),
            _maybe(cells, "UUID"),
            _maybe(cells, "FILENAME"),
        )

    return _rows(text, CONNECTION_FIELDS, row)


def _need(cells: dict[str, str], name: str) -> str:
    if not cells.get(name):
        raise MismatchError(f"no {name} in this row", cells)
    return cells[name]


def _maybe(cells: dict[str, str], name: str) -> str | None:
    value = cells.get(name, "")
    return None if value in ("", "--") else value


def _rows(text: str, fields: Sequence[str], parse: Callable[[dict[str, str]], R]) -> Reading[tuple[R, ...]]:
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines or lines[0].split()[0] != fields[0]:
        return each(lines, lambda line: parse(_terse(line, fields)))
    starts = [(match.group(), match.start()) for match in re.finditer(r"\S+", lines[0])]
    if len(starts) < 2 or not {name for name, _ in starts} <= set(fields):
        return unreadable("unknown columns", lines[0])
    return each(lines[1:], lambda line: parse(_columns(line, starts)))


def _terse(line: str, fields: Sequence[str]) -> dict[str, str]:
    """Split a terse row at colons that no backslash precedes."""
    cells = [re.sub(r"\\(.)", r"\1", cell) for cell in re.findall(r"(?:^|:)((?:[^\\:]|\\.)*)", line)]
    if len(cells) != len(fields):
        raise MismatchError(f"expected {len(fields)} fields", line)
    return dict(zip(fields, cells))


def _columns(line: str, starts: list[tuple[str, int]]) -> dict[str, str]:
    """Cut a table row where the header's words begin; a value over the border would be cut wrong."""
    cells: dict[str, str] = {}
    for at, (name, start) in enumerate(starts):
        if start and line[start - 1 : start].strip():
            raise MismatchError("columns out of line with their header", line)
        end = starts[at + 1][1] if at + 1 < len(starts) else len(line)
        cells[name] = line[start:end].strip()
    return cells
