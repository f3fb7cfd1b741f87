"""What the controller asks for: one JSON object on stdin, checked before anything is done with it."""

from __future__ import annotations

import json
import re
from typing import Any

from .plain import dataclass, names

MAX_ENTRIES = 256
TOOL_LIMIT_S = 2.0

_NETDEV = re.compile(r"^[A-Za-z0-9_.-]{1,15}$")
_UNIT = re.compile(r"^[A-Za-z0-9:_.@-]{1,200}$")
_WORD = re.compile(r"^[\x20-\x7e]{1,200}$")
_PATH = re.compile(r"^/[^\x00]{1,1000}$")


class RequestError(Exception):
    """The request is not one that this program understands."""


@dataclass(frozen=True)
class Request:
    """What to collect beyond what is always collected.

    `interfaces` limits what is asked per device (empty: every device that has an RDMA device); `paths` are
    files to digest as our own are, `libraries` shared libraries to digest and search for `marks`, `units`
    systemd units, `markers` names of marker programs. The limits are for one tool and for everything; a
    question of two steps, or of JSON and then text, still ends within the default ones.
    """

    interfaces: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    markers: tuple[str, ...] = ()
    tool_limit_s: float = TOOL_LIMIT_S
    all_limit_s: float = 4.5


_FORMS = {
    "interfaces": _NETDEV,
    "paths": _PATH,
    "libraries": _PATH,
    "marks": _WORD,
    "units": _UNIT,
    "markers": _WORD,
}


_LIMITS = ("tool_limit_s", "all_limit_s")
MAX_SECONDS = 600


def parse_request(text: str) -> Request:
    """Return the request; an empty text asks for nothing special. Raises `RequestError`."""
    if not text.strip():
        return Request()
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the request is no JSON: {error}") from None
    known = set(names(Request))
    if not isinstance(document, dict) or not document.keys() <= known:
        raise RequestError(f"the request is an object of these keys: {', '.join(sorted(known))}")
    checked: dict[str, Any] = {
        key: _seconds(key, value) if key in _LIMITS else _words(key, value) for key, value in document.items()
    }
    return Request(**checked)


def _words(key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MAX_ENTRIES:
        raise RequestError(f"{key} is a list of at most {MAX_ENTRIES}")
    for word in value:
        if not isinstance(word, str) or not _FORMS[key].match(word) or word in (".", ".."):
            raise RequestError(f"{key}: not allowed here: {str(word)[:60]!r}")
        if key in ("paths", "libraries") and ".." in word.split("/"):
            raise RequestError(f"{key}: not allowed here: {word[:60]!r}")
    return tuple(value)


def _seconds(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= MAX_SECONDS:
        raise RequestError(f"{key} is a number of seconds up to {MAX_SECONDS}")
    return float(value)
