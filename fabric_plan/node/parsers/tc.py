"""tc: filters and queueing disciplines, from JSON and from text.

Both forms are first read into the same `RawFilter`, so that what a rule *means* is decided in one place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..reading import (
    MismatchError,
    Reading,
    Unreadable,
    excerpt,
    int_or_none,
    is_json,
    json_items,
    number,
    object_of,
    objects_of,
    text_of,
    text_or_none,
)
from ..records import Qdisc, TcRule
from .flower import RawAction, RawFilter, Stats, normalise

# Values of an action that say nothing about what it does to a packet.
_BOOKKEEPING = frozenset(
    {"order", "kind", "index", "ref", "bind", "installed", "last_used", "nkeys"}
) | frozenset(
    {
        "control_action",
        "stats",
        "cookie",
        "keys",
        "used_hw_stats",
        "no_percpu",
        "not_in_hw",
        "in_hw",
        "in_hw_count",
    }
)
_ACTION = re.compile(r"^action order (\d{1,4}): +(\S.*)$")
_MIRRED = re.compile(r"^mirred \((Egress|Ingress) (Redirect|Mirror) to device (\S+)\) (\w+)$")
_PEDIT = re.compile(r"^pedit\s+action (\w+) keys (\d{1,4})$")
_PEDIT_KEY = re.compile(
    r"^key #\d{1,4} +at (?:(\w+)([+-]\d{1,5})|(-?\d{1,5})): (val|add) ([0-9a-f]{1,8}) mask ([0-9a-f]{1,8})$"
)
_SENT = re.compile(
    r"^Sent (?:(software|hardware) )?(\d{1,20}) bytes (\d{1,20}) pkts?(?: \(dropped (\d{1,20}),.*)?$"
)
_QUIET = re.compile(
    r"^(Action statistics:|backlog .*|no_percpu|used_hw_stats .*|index \d+ ref \d+ bind \d+.*)$"
)
_CONTROL = frozenset(
    {"pass", "ok", "pipe", "stolen", "drop", "shot", "reclassify", "continue", "trap", "goto"}
)
_FLAGS = frozenset({"skip_sw", "skip_hw", "in_hw", "not_in_hw"})


def filters(text: str, dev: str) -> Reading[tuple[TcRule, ...]]:
    """Parse ``tc [-j] [-s] filter show dev DEV ingress``; `dev` names the device that was asked about."""
    if is_json(text):
        return json_items(text, lambda item: _json_filter(item, dev))
    rules: list[TcRule] = []
    unread: list[Unreadable] = []
    for block in _blocks(text):
        try:
            rule = _text_filter(block, dev)
        except MismatchError as error:
            unread.append(error.unreadable)
        else:
            if rule is not None:
                rules.append(rule)
    return Reading(tuple(rules) if rules or not unread else None, tuple(unread))


def _json_filter(item: dict[str, Any], dev: str) -> TcRule | None:
    """Parse one element; the header-only element of each preference carries nothing."""
    kind = text_of(item, "kind")
    if "options" not in item:
        return None
    options = object_of(item, "options")
    keys = {key: _verbatim(value) for key, value in object_of(options, "keys").items()}
    rest = {
        key: _verbatim(value)
        for key, value in options.items()
        if key not in {"handle", "keys", "actions", "in_hw_count"} | _FLAGS
    }
    return normalise(
        RawFilter(
            dev=text_or_none(item, "dev") or dev,
            kind=kind,
            protocol=text_or_none(item, "protocol"),
            pref=int_or_none(item, "pref"),
            handle=_handle(options.get("handle", item.get("handle"))),
            chain=int_or_none(item, "chain"),
            parent=text_or_none(item, "parent"),
            keys=keys,
            flags=frozenset(flag for flag in _FLAGS if options.get(flag) is True),
            in_hw_count=int_or_none(options, "in_hw_count"),
            actions=tuple(_json_action(action) for action in objects_of(options, "actions")),
            rest=rest,
        )
    )


def _handle(value: Any) -> int | None:
    """Return the handle, which is a number in most versions and a hexadecimal string in some."""
    if isinstance(value, str):
        return number(value.removeprefix("0x"), 16)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32):
        return value
    raise MismatchError("handle is not a number", value)


def _json_action(action: dict[str, Any]) -> RawAction:
    kind = text_of(action, "kind")
    fields = {key: _verbatim(value) for key, value in action.items() if key not in _BOOKKEEPING}
    redirect = None
    if kind == "mirred" and fields.get("mirred_action") == "redirect" and fields.get("direction") == "egress":
        redirect = text_of(action, "to_dev")
        fields = {key: fields[key] for key in fields if key not in ("mirred_action", "direction", "to_dev")}
    words = []
    if kind == "pedit":
        for key in objects_of(action, "keys"):
            known = (text_of(key, "htype"), str(_offset(key)), text_of(key, "cmd"))
            words.append((*known, number(text_of(key, "val"), 16), number(text_of(key, "mask"), 16)))
    elif "keys" in action:
        fields["keys"] = _verbatim(action["keys"])
    return RawAction(
        kind=kind,
        control=text_or_none(object_of(action, "control_action"), "type"),
        redirect=redirect,
        words=tuple(words),
        cookie=text_or_none(action, "cookie"),
        stats=_json_stats(action),
        fields=fields,
    )


def _json_stats(action: dict[str, Any]) -> Stats | None:
    if "stats" not in action:
        return None
    stats = object_of(action, "stats")
    return Stats(
        bytes=int_or_none(stats, "bytes"),
        packets=int_or_none(stats, "packets"),
        hw_bytes=int_or_none(stats, "hw_bytes") or 0,
        hw_packets=int_or_none(stats, "hw_packets") or 0,
        drops=int_or_none(stats, "drops"),
    )


def _offset(key: dict[str, Any]) -> int:
    value = key.get("offset")
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > 65535:
        raise MismatchError("pedit offset is not a number", key)
    return value


def _verbatim(value: Any) -> str:
    return excerpt(value)


def _blocks(text: str) -> Iterator[list[str]]:
    """Cut a text output into filters: each begins with an unindented line."""
    block: list[str] = []
    for line in text.splitlines():
        if line.strip() and not line[0].isspace():
            if block:
                yield block
            block = []
        if line.strip():
            block.append(line)
    if block:
        yield block


def _text_filter(block: list[str], dev: str) -> TcRule | None:
    head = block[0].split()
    if head[0] != "filter":
        raise MismatchError("not a filter line", "\n".join(block))
    named, kind, flags, count = _head(head[1:], block[0])
    if "handle" not in named and len(block) == 1:
        return None  # the header of a preference
    keys: dict[str, str] = {}
    actions: list[RawAction] = []
    lines = [line.strip() for line in block[1:]]
    starts = [at for at, line in enumerate(lines) if _ACTION.match(line)]
    for line in lines[: starts[0] if starts else len(lines)]:
        words = line.split()
        if words[0] in _FLAGS:
            flags.add(words[0])
            if words[1:2] == ["in_hw_count"] and len(words) == 3:
                count = number(words[2])
            elif len(words) > 1:
                keys[" ".join(words[1:])] = ""
        elif words[0] in keys:
            raise MismatchError(f"{words[0]} stands twice in a filter", "\n".join(block))
        else:
            keys[words[0]] = " ".join(words[1:])
    for start, end in zip(starts, [*starts[1:], len(lines)]):
        actions.append(_text_action(lines[start:end]))
    return normalise(
        RawFilter(
            dev=named.get("dev", dev),
            kind=kind,
            protocol=named.get("protocol"),
            pref=number(named["pref"]) if "pref" in named else None,
            handle=number(named["handle"].removeprefix("0x"), 16) if "handle" in named else None,
            chain=number(named["chain"]) if "chain" in named else None,
            parent=named.get("parent"),
            keys=keys,
            flags=frozenset(flags),
            in_hw_count=count,
            actions=tuple(actions),
            rest={},
        )
    )


def _head(words: list[str], line: str) -> tuple[dict[str, str], str, set[str], int | None]:
    """Read a filter's first line: named values, the classifier's kind, flags and the hardware count."""
    named: dict[str, str] = {}
    flags: set[str] = set()
    kind = ""
    rest = iter(words)
    for word in rest:
        if word in ("protocol", "pref", "handle", "chain", "parent", "dev", "in_hw_count"):
            value = next(rest, None)
            if value is None:
                raise MismatchError(f"{word} without a value", line)
            named[word] = value
        elif word in _FLAGS:
            flags.add(word)
        elif word in ("ingress", "egress"):
            continue
        elif not kind:
            kind = word
        else:
            raise MismatchError("unknown word in a filter line", line)
    if not kind:
        raise MismatchError("a filter line without a kind", line)
    count = named.pop("in_hw_count", None)
    return named, kind, flags, None if count is None else number(count)


def _text_action(lines: list[str]) -> RawAction:
    head = _ACTION.match(lines[0])
    if head is None:
        raise MismatchError("not an action", lines[0])
    body = head[2].rstrip()
    mirred, pedit = _MIRRED.match(body), _PEDIT.match(body)
    words: list[tuple[str, str, str, int, int]] = []
    fields: dict[str, str] = {}
    cookie: str | None = None
    sent: dict[str, tuple[int, int, int | None]] = {}
    redirect = control = None
    if mirred and mirred[1] == "Egress" and mirred[2] == "Redirect":
        redirect, control = mirred[3], mirred[4]
    elif pedit:
        control = pedit[1]
    else:
        tail = body.split()
        control = tail[-1] if tail[-1] in _CONTROL else None
        fields["does"] = body
    for line in lines[1:]:
        key, stat = _PEDIT_KEY.match(line), _SENT.match(line)
        if pedit and key:
            place = (key[1], key[2]) if key[1] else ("network", key[3])
            verb = "set" if key[4] == "val" else "add"
            words.append((place[0], str(int(place[1])), verb, int(key[5], 16), int(key[6], 16)))
        elif stat:
            sent[stat[1] or "all"] = (number(stat[2]), number(stat[3]), number(stat[4]) if stat[4] else None)
        elif line.startswith("cookie ") and len(line.split()) == 2:
            cookie = line.split()[1]
        elif not _QUIET.match(line):
            name, _, value = line.partition(" ")
            fields[name] = value.strip()
    if pedit and number(pedit[2]) != len(words):
        fields["keys"] = f"{pedit[2]} announced, {len(words)} shown"
    total, hardware = sent.get("all"), sent.get("hardware", (0, 0, None))
    return RawAction(
        kind=body.split()[0],
        control=control,
        redirect=redirect,
        words=tuple(words),
        cookie=cookie,
        stats=Stats(total[0], total[1], hardware[0], hardware[1], total[2]) if total else None,
        fields=fields,
    )


def qdiscs(text: str, dev: str | None = None) -> Reading[tuple[Qdisc, ...]]:
    """Parse ``tc [-j] qdisc show [dev DEV]``; `dev` names the device where the output does not."""

    def from_json(item: dict[str, Any]) -> Qdisc:
        return Qdisc(
            text_or_none(item, "dev") or dev,
            text_of(item, "kind"),
            text_or_none(item, "handle"),
            text_or_none(item, "parent"),
        )

    def from_block(block: list[str]) -> Qdisc:
        words = block[0].split()
        if words[0] != "qdisc" or len(words) < 3:
            raise MismatchError("not a qdisc line", "\n".join(block))
        where = {key: words[at + 1] for at, key in enumerate(words[:-1]) if key in ("dev", "parent")}
        return Qdisc(where.get("dev", dev), words[1], words[2], where.get("parent"))

    if is_json(text):
        return json_items(text, from_json)
    found: list[Qdisc] = []
    unread: list[Unreadable] = []
    for block in _blocks(text):
        try:
            found.append(from_block(block))
        except MismatchError as error:
            unread.append(error.unreadable)
    return Reading(tuple(found) if found or not unread else None, tuple(unread))
