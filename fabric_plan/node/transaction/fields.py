"""What may stand in a request of the transaction: every field has a form, and everything else is refused."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from .bundle import MAX_FILE_BYTES, Entry
from .refusal import RefusalError

MAX_FILES = 256
MAX_NAMES = 512
MAX_TOTAL_BYTES = 8 << 20
MAX_LEASE_S = 3600

# Under these a plan writes, and nowhere else.
PREFIXES = (
    "/etc/netplan/",
    "/etc/NetworkManager/",
    "/etc/sysctl.d/",
    "/etc/systemd/system/",
    "/etc/fabric-plan/",
    "/usr/local/lib/fabric-plan/",
)
INTENTS = ("apply", "rollback", "remove")
NETDEV = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}$")
RDMA = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$")
UNIT = re.compile(r"^fabric-plan-[A-Za-z0-9_.-]{1,60}(@[A-Za-z0-9_.-]{1,64})?\.service$")
_TEXT = re.compile(r"^[^\x00-\x1f\x7f]{0,200}$")
_TOKEN = re.compile(r"^[0-9a-f]{8,64}$")
_PATH = re.compile(r"^/[A-Za-z0-9_.@/:+-]{1,250}$")
_SYSCTL = re.compile(r"^[a-z0-9_]+([./][A-Za-z0-9_:.-]+)+$")


def bad(what: str, value: object) -> RefusalError:
    """Return the refusal of a field."""
    return RefusalError("bad-request", f"{what}: not allowed here: {str(value)[:60]!r}")


def load(text: str, known: tuple[str, ...]) -> dict[str, Any]:
    """Return the request, an object of `known` keys. Raises `RefusalError`."""
    try:
        document = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise RefusalError("bad-request", f"the request is no JSON: {error}") from None
    if not isinstance(document, dict) or not document.keys() <= set(known):
        raise RefusalError("bad-request", f"the request is an object of these keys: {', '.join(known)}")
    return document


def text(request: Mapping[str, Any], key: str) -> str:
    """Return a line of text without control characters."""
    value = request.get(key)
    if not isinstance(value, str) or not _TEXT.match(value):
        raise bad(key, value)
    return value


def token(request: Mapping[str, Any], key: str = "token") -> str:
    """Return a token: hexadecimal, as this program or the controller drew it."""
    value = request.get(key)
    if not isinstance(value, str) or not _TOKEN.match(value):
        raise bad(key, value)
    return value


def number(request: Mapping[str, Any], key: str, low: int, high: int) -> int:
    """Return a whole number within its bounds."""
    value = request.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise bad(key, value)
    return value


def names(value: object, what: str, form: re.Pattern[str]) -> tuple[str, ...]:
    """Return a list of names of one form, without repetition."""
    if not isinstance(value, list) or len(value) > MAX_NAMES:
        raise bad(what, value)
    for name in value:
        if not isinstance(name, str) or not form.match(name) or name in (".", ".."):
            raise bad(what, name)
    return tuple(dict.fromkeys(value))


def sysctls(value: object) -> tuple[str, ...]:
    """Return sysctl names as paths below /proc/sys: ``net/ipv4/conf/DEV/rp_filter``."""
    found = names(value, "sysctls", _SYSCTL)
    return tuple(sysctl_path(name) for name in found)


def sysctl_path(name: str) -> str:
    """Return a sysctl's path below /proc/sys. Where a slash comes first, dots are part of a name."""
    slash, dot = name.find("/"), name.find(".")
    dotted = slash < 0 or 0 <= dot < slash
    path = name.translate(str.maketrans("./", "/.")) if dotted else name
    if not re.match(r"^net(/[A-Za-z0-9_:.-]+)+$", path) or ".." in path.split("/"):
        raise bad("sysctl", name)
    return path


def path_of(value: object) -> str:
    """Return a path that a plan may write."""
    if (
        not isinstance(value, str)
        or not _PATH.match(value)
        or not value.startswith(PREFIXES)
        or value.endswith("/")
        or any(part in ("", ".", "..") for part in value.split("/")[1:])
    ):
        raise bad("path", value)
    return value


def entries(value: object) -> tuple[Entry, ...]:
    """Return the files of a request: content with mode and digest, a link, or null for a removed one."""
    if not isinstance(value, list) or len(value) > MAX_FILES:
        raise RefusalError("bad-request", f"files is a list of at most {MAX_FILES}")
    found = tuple(_entry(item) for item in value)
    if len({entry.path for entry in found}) != len(found):
        raise RefusalError("bad-request", "a path stands twice among the files")
    if sum(len(entry.content or b"") for entry in found) > MAX_TOTAL_BYTES:
        raise RefusalError("bad-request", f"the files are more than {MAX_TOTAL_BYTES} bytes together")
    return found


def _entry(item: object) -> Entry:
    if not isinstance(item, dict) or not item.keys() <= {"path", "mode", "sha256", "content", "link"}:
        raise bad("file", item)
    path = path_of(item.get("path"))
    link, content = item.get("link"), item.get("content")
    if link is not None:
        if (
            content is not None
            or not isinstance(link, str)
            or not re.match(r"^[A-Za-z0-9_.@/-]{1,250}$", link)
        ):
            raise bad(path, link)
        return Entry(path, target=link)
    if content is None:
        return Entry(path)
    mode = item.get("mode")
    if not isinstance(mode, str) or not re.match(r"^0[0-7]{3}$", mode) or int(mode, 8) & 0o022:
        raise bad(f"{path}: mode", mode)
    try:
        data = base64.b64decode(content, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise bad(f"{path}: content", content) from None
    if len(data) > MAX_FILE_BYTES:
        raise RefusalError("bad-request", f"{path} is larger than {MAX_FILE_BYTES} bytes")
    if hashlib.sha256(data).hexdigest() != item.get("sha256"):
        raise RefusalError("bad-digest", f"{path} arrived with another digest than it was sent with")
    return Entry(path, mode, data)
