"""Kernel and RDMA counters: /proc/net/snmp, nstat, and listings of an RDMA port's hw_counters."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..reading import (
    MismatchError,
    Reading,
    Unreadable,
    clean,
    each_line,
    excerpt,
    int_of,
    is_json,
    load_json,
    number,
    object_of,
)

_NAMED = re.compile(r"^\s*([A-Za-z]\w*): (\d{1,20})$")
_SIGNED = re.compile(r"^-?\d{1,20}$")


def snmp(text: str) -> Reading[Mapping[str, int]]:
    """Parse /proc/net/snmp by column name: ``Ip.ForwDatagrams``; newer kernels add columns in the middle."""
    found: dict[str, int] = {}
    unread: list[Unreadable] = []
    names: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if not words:
            continue
        if not names:
            names = words
        elif words[0] == names[0] and words[0].endswith(":") and len(words) == len(names):
            values = words[1:]
            if all(_SIGNED.match(value) for value in values):
                group = words[0][:-1]
                found.update((f"{group}.{name}", int(value)) for name, value in zip(names[1:], values))
            else:
                unread.append(Unreadable("a counter that is not a number", excerpt(line)))
            names = []
        else:
            unread.append(Unreadable("names and values do not pair", excerpt(f"{names[0]} / {line}")))
            names = words
    if names:
        unread.append(Unreadable("names without values", excerpt(" ".join(names))))
    return Reading(found if found or not unread else None, tuple(unread))


def nstat(text: str) -> Reading[Mapping[str, int]]:
    """Parse ``nstat -az`` with ``--json`` or without; the rate column is passed over."""
    if is_json(text):
        try:
            document = load_json(text)
            table = object_of(document, "kernel") if isinstance(document, dict) else {}
            return Reading({clean(name): int_of(table, name) for name in table})
        except MismatchError as error:
            return Reading(None, (error.unreadable,))

    def line(row: str) -> tuple[str, int] | None:
        words = row.split()
        if words[0].startswith("#"):
            return None
        if len(words) != 3:
            raise MismatchError("not a line of nstat", row)
        return words[0], number(words[1])

    read = each_line(text, line)
    return Reading(None if read.value is None else dict(read.value), read.unread)


def hw_counters(text: str) -> Reading[Mapping[str, int]]:
    """Parse ``name: value`` lines as scripts print them over sysfs; a heading ends in a colon."""

    def line(row: str) -> tuple[str, int] | None:
        match = _NAMED.match(row)
        if match is None:
            if row.endswith(":"):
                return None
            raise MismatchError("not a counter line", row)
        return match[1], number(match[2])

    read = each_line(text, line)
    return Reading(None if read.value is None else dict(read.value), read.unread)
