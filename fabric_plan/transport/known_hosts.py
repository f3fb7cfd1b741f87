"""OpenSSH's known_hosts: which keys a host may show, and in which line each of them stands."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

DEFAULT_PORT = 22


@dataclass(frozen=True, slots=True)
class KnownKey:
    """One line: a key of this `type` (``ssh-ed25519``) in OpenSSH's binary form, and where it stands.

    `marker` is empty, ``@revoked`` or ``@cert-authority``.
    """

    marker: str
    type: str
    key: bytes
    file: str
    line: int

    @property
    def place(self) -> str:
        """The file and line, as an editor takes them."""
        return f"{self.file}:{self.line}"


def lookup_names(host: str, port: int, alias: str | None) -> tuple[str, ...]:
    """Return the names to look for, the better one first, as OpenSSH does."""
    if alias is not None:
        return (alias.lower(),)
    plain = host.lower()
    return (plain,) if port == DEFAULT_PORT else (f"[{plain}]:{port}", plain)


def known_keys(files: Iterable[str], names: tuple[str, ...]) -> tuple[KnownKey, ...]:
    """Return the keys for the first of `names` that any of `files` knows; unreadable files know none."""
    lines = [
        (name, number, line)
        for name in files
        for number, line in enumerate(_read(Path(name)).splitlines(), start=1)
    ]
    for wanted in names:
        found = [_parse(line, wanted, name, number) for name, number, line in lines]
        keys = tuple(key for key in found if key is not None)
        if keys:
            return keys
    return ()


def fingerprint(key: bytes) -> str:
    """Return a key's fingerprint as ``ssh-keygen -l`` prints it."""
    return "SHA256:" + b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


def _read(path: Path) -> str:
    try:
        return path.expanduser().read_text("utf-8", "replace")
    except (OSError, RuntimeError):
        return ""


def _parse(line: str, wanted: str, file: str, number: int) -> KnownKey | None:
    words = line.split()
    if not words or words[0].startswith("#"):
        return None
    marker = words.pop(0) if words[0].startswith("@") else ""
    if len(words) < 3 or not _matches(words[0], wanted):
        return None
    try:
        return KnownKey(marker, words[1], b64decode(words[2], validate=True), file, number)
    except ValueError:
        return None


def _matches(patterns: str, wanted: str) -> bool:
    """Tell whether a line's first word means `wanted`: a hash, or patterns, of which negated ones exclude."""
    if patterns.startswith("|1|"):
        return _hashed(patterns, wanted)
    hit = False
    for pattern in patterns.lower().split(","):
        # Brackets are literal in known_hosts ([host]:port), and a set of characters to fnmatch.
        glob = pattern.removeprefix("!").replace("[", "[[]")
        if fnmatchcase(wanted, glob):
            if pattern.startswith("!"):
                return False
            hit = True
    return hit


def _hashed(word: str, wanted: str) -> bool:
    try:
        salt, digest = (b64decode(part, validate=True) for part in word.removeprefix("|1|").split("|"))
    except ValueError:
        return False
    return hmac.compare_digest(hmac.new(salt, wanted.encode(), hashlib.sha1).digest(), digest)
