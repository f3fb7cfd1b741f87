"""QoS of a port: mlnx_qos and dcb. The driver refuses hairpins under DSCP trust, so trust is what matters."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..reading import MismatchError, Reading, Unreadable, each_line, excerpt, number
from ..records import Dcb, Qos

_TRUST = re.compile(r"^Priority trust state: (\w+)$")
_DCBX = re.compile(r"^DCBX mode: (.+)$")
_KNOWN = re.compile(
    r"^(dscp2prio mapping:|prio:\d+ dscp:[\d,]*|default priority:.*|Receive buffer size.*|Cable len:.*"
    r"|PFC configuration:|(priority|enabled|buffer)( +\d+)+|tc: \d+ .*|priority: +\d+|Configured.*)$"
)


def mlnx_qos(text: str) -> Reading[Qos]:
    """Parse ``mlnx_qos -i DEV``."""
    trust = dcbx = None
    priorities: list[int] = []
    enabled: tuple[int, ...] = ()
    unread: list[Unreadable] = []
    for line in (row.strip() for row in text.splitlines()):
        words = line.split()
        if _TRUST.match(line):
            trust = words[-1]
        elif _DCBX.match(line):
            dcbx = line.partition(": ")[2]
        elif line and not _KNOWN.match(line):
            unread.append(Unreadable("not a line of mlnx_qos", excerpt(line)))
        elif words[:1] == ["priority"]:
            priorities = [number(word) for word in words[1:] if len(word) < 4]
        elif words[:1] == ["enabled"] and len(words) == len(priorities) + 1:
            enabled = tuple(priority for priority, word in zip(priorities, words[1:]) if word == "1")
    known = trust is not None or dcbx is not None
    return Reading(
        Qos(trust, dcbx, enabled) if known else None, tuple(unread) if known or unread else (_NOTHING,)
    )


_NOTHING = Unreadable("no QoS state in this output")


def dcb(text: str) -> Reading[Dcb]:
    """Parse lines of ``dcb pfc|ets|app show``; a key that stands twice keeps both values (``2,3``)."""

    def line(row: str) -> Mapping[str, Mapping[str, str]]:
        tables: dict[str, dict[str, str]] = {}
        name = ""
        for word in row.split():
            key, colon, value = word.partition(":")
            if not colon and name and name not in tables:
                tables.setdefault("", {})[name] = word
                name = ""
            elif not colon:
                name = word
            elif name and key and value:
                table = tables.setdefault(name, {})
                table[key] = f"{table[key]},{value}" if key in table else value
            else:
                raise MismatchError("not a line of dcb", row)
        if name and name not in tables:
            raise MismatchError("a name without values", row)
        return tables

    read = each_line(text, line)
    if read.value is None:
        return Reading(None, read.unread)
    merged: dict[str, dict[str, str]] = {}
    for tables in read.value:
        for name, table in tables.items():
            merged.setdefault(name, {}).update(table)
    return Reading(Dcb(merged), read.unread)
