"""perftest: ib_write_bw, ib_write_lat and their kin, whole or cut short."""

from __future__ import annotations

import re

from ..reading import MismatchError, Reading, Unreadable, decimal, excerpt, unreadable
from ..records import Perftest, PerftestRow

_TITLE = re.compile(r"^ +\S.* Test$")
_SETTING = re.compile(r"(\S[^:]*?)\s*: (\S+(?: \S+)*)(?=\s{2,}|\t|\s*$)")
_SETTINGS = re.compile(r"^ [A-Za-z][\w.*/ -]{3,18}\s*: \S")
_COLUMN = re.compile(r"#\w+|(?:BW |\d+(?:\.\d+)?% )?[\w.]+\[[^\]]+\]")
_PLACE = re.compile(r"^ *(local address|remote address|GID):")
_RULE = re.compile(r"^[-*]{10,}$")


def results(text: str) -> Reading[Perftest]:
    """Parse the output of one run. Lines that are no part of the report stand in `notes`."""
    title: str | None = None
    settings: dict[str, str] = {}
    columns: list[str] = []
    rows: list[PerftestRow] = []
    notes: list[str] = []
    unread: list[Unreadable] = []
    for line in text.splitlines():
        if not line.strip() or _RULE.match(line.strip()) or _PLACE.match(line):
            continue
        if title is None:
            if _TITLE.match(line):
                title = line.strip()
            else:
                notes.append(excerpt(line))
        elif line.lstrip().startswith("#bytes"):
            columns = _COLUMN.findall(line)
        elif columns:
            try:
                _row(line, columns, rows, notes)
            except MismatchError as error:
                unread.append(error.unreadable)
        elif _SETTINGS.match(line):
            settings.update(_SETTING.findall(line.strip()))
        else:
            notes.append(excerpt(line))
    if title is None:
        return unreadable("no perftest report in this output", text)
    return Reading(Perftest(title, settings, tuple(rows), tuple(notes)), tuple(unread))


def _row(line: str, columns: list[str], rows: list[PerftestRow], notes: list[str]) -> None:
    """Read a line under the header: a result row begins with a number, all else is a note."""
    words = line.split()
    if not words[0].isdigit():
        notes.append(excerpt(line))
        return
    if len(words) != len(columns):
        raise MismatchError(f"a result row of {len(words)} values under {len(columns)} columns", line)
    rows.append(PerftestRow({name: decimal(word) for name, word in zip(columns, words)}))
