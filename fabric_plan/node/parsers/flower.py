"""What a flower filter means: from the words tc printed to one normalised rule.

A pedit word replaces 32 bits, most significant byte first: ``new = (old & mask) ^ val``, so a mask byte of 00
sets the byte to the value's and a mask byte of ff with a value byte of 00 keeps it. The Ethernet header is
destination (0-5), source (6-11), type (12-13); bytes 14 and 15 belong to the packet behind it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..plain import dataclass
from ..reading import MAC, MismatchError, number
from ..records import TcRule

# tc's names of EtherTypes (lib/ll_proto.c) that may stand in a rule beside ours.
ETHERTYPES = {
    "all": "0x0003",
    "ip": "0x0800",
    "ipv4": "0x0800",
    "arp": "0x0806",
    "ipv6": "0x86dd",
    "802.1Q": "0x8100",
    "802.1ad": "0x88a8",
    "mpls_uc": "0x8847",
    "mpls_mc": "0x8848",
    "LLDP": "0x88cc",
}


@dataclass(frozen=True)
class Stats:
    """Counters of an action since the rule was added."""

    bytes: int | None
    packets: int | None
    hw_bytes: int
    hw_packets: int
    drops: int | None


@dataclass(frozen=True)
class RawAction:
    """An action as printed: what we know the meaning of by name, the rest verbatim in `fields`."""

    kind: str
    control: str | None
    redirect: str | None
    words: tuple[tuple[str, str, str, int, int], ...]
    cookie: str | None
    stats: Stats | None
    fields: Mapping[str, str]


@dataclass(frozen=True)
class RawFilter:
    """A filter as printed."""

    dev: str
    kind: str
    protocol: str | None
    pref: int | None
    handle: int | None
    chain: int | None
    parent: str | None
    keys: Mapping[str, str]
    flags: frozenset[str]
    in_hw_count: int | None
    actions: tuple[RawAction, ...]
    rest: Mapping[str, str]


def ethertype(word: str) -> str:
    """Return ``0x88b5`` for tc's forms of it (a name, ``[34997]``, ``88b5``); any other word as it is."""
    if word in ETHERTYPES:
        return ETHERTYPES[word]
    try:
        if word.startswith("[") and word.endswith("]"):
            value = number(word[1:-1])
        else:
            value = number(word.removeprefix("0x"), 16)
    except MismatchError:
        return word
    return f"0x{value:04x}" if value <= 0xFFFF else word


def normalise(raw: RawFilter) -> TcRule:
    """Return the rule with all that is not part of the plain form under `other`."""
    other = {f"match {key}": value for key, value in raw.keys.items()}
    other.update(raw.rest)
    protocol = None if raw.protocol is None else ethertype(raw.protocol)
    if "match eth_type" in other and ethertype(other["match eth_type"]) == protocol:
        del other["match eth_type"]
    src_mac = _take_mac(other, "match src_mac")
    dst_mac = _take_mac(other, "match dst_mac")
    if "skip_hw" in raw.flags:
        other["skip_hw"] = "true"
    frame: dict[int, int] = {}
    redirect: str | None = None
    for place, action in enumerate(raw.actions, 1):
        name = f"action {place} {action.kind}"
        other.update({f"{name} {key}": value for key, value in action.fields.items()})
        if redirect is not None:
            other[name] = "after the redirect"
        elif action.redirect is not None:
            redirect = action.redirect
            _note_control(other, name, action.control, "stolen")
        elif action.kind == "pedit":
            _note_control(other, name, action.control, "pipe")
            for word in action.words:
                if not _write(frame, word):
                    header, at, verb, value, mask = word
                    other[f"{name} {header}{int(at):+d}"] = f"{verb} {value:08x} mask {mask:08x}"
        elif not action.fields:
            other[name] = action.control or "true"
        if redirect is not None and action.redirect is None and action.words:
            other[f"{name} words"] = str(len(action.words))
    set_dst_mac = _take_bytes(frame, 0, 6)
    set_type = _take_bytes(frame, 12, 2)
    for offset in sorted(frame):
        other[f"sets eth+{offset}"] = f"{frame[offset]:02x}"
    stats = next((action.stats for action in reversed(raw.actions) if action.stats is not None), None)
    return TcRule(
        dev=raw.dev,
        kind=raw.kind,
        protocol=protocol,
        pref=raw.pref,
        handle=raw.handle,
        chain=raw.chain,
        parent=raw.parent,
        src_mac=src_mac,
        dst_mac=dst_mac,
        set_type=None if set_type is None else "0x" + set_type.hex(),
        set_dst_mac=None if set_dst_mac is None else set_dst_mac.hex(":"),
        redirect=redirect,
        skip_sw="skip_sw" in raw.flags,
        in_hw="in_hw" in raw.flags,
        in_hw_count=raw.in_hw_count,
        cookie=_cookie(raw.actions, other),
        packets=stats.packets if stats else None,
        bytes=stats.bytes if stats else None,
        hw_packets=stats.hw_packets if stats else None,
        hw_bytes=stats.hw_bytes if stats else None,
        drops=stats.drops if stats else None,
        other=other,
    )


def _take_mac(other: dict[str, str], key: str) -> str | None:
    """Take a whole-address match out of `other`; one with a mask stays there."""
    value = other.get(key, "").lower()
    if not MAC.match(value):
        return None
    del other[key]
    return value


def _note_control(other: dict[str, str], name: str, control: str | None, usual: str) -> None:
    if control is not None and control != usual:
        other[f"{name} then"] = control


def _write(frame: dict[int, int], word: tuple[str, str, str, int, int]) -> bool:
    """Write a word's bytes into the frame; False when it does not plainly replace Ethernet header bytes."""
    header, offset, verb, value, mask = word
    if header != "eth" or verb != "set" or not 0 <= int(offset) <= 12:
        return False
    values, masks = value.to_bytes(4, "big"), mask.to_bytes(4, "big")
    written: dict[int, int] = {}
    for at in range(4):
        if masks[at] == 0:
            written[int(offset) + at] = values[at]
        elif masks[at] != 0xFF or values[at] != 0:
            return False
    frame.update(written)
    return True


def _take_bytes(frame: dict[int, int], start: int, length: int) -> bytes | None:
    """Take a header field out of the written bytes if all of it was written."""
    span = range(start, start + length)
    if not all(at in frame for at in span):
        return None
    return bytes(frame.pop(at) for at in span)


def _cookie(actions: tuple[RawAction, ...], other: dict[str, str]) -> str | None:
    """Return the cookie of the actions; when they differ there is none and all are named."""
    cookies = sorted({action.cookie for action in actions if action.cookie is not None})
    if len(cookies) > 1:
        other["cookies"] = " ".join(cookies)
    return cookies[0] if len(cookies) == 1 else None
