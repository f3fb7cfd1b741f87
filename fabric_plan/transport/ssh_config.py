"""The user's SSH configuration, with ``Include``, which the library underneath does not know."""

from __future__ import annotations

import shlex
from pathlib import Path

from fabric_plan.errors import TransportError

MAX_DEPTH = 16
USER = "~/.ssh/config"
SYSTEM = "/etc/ssh/ssh_config"


def read_config(file: str | None) -> str:
    """Return the text of `file` alone, as ``ssh -F`` would read it, or of the user's and then the system's.

    Raises `TransportError` where one cannot be read or makes no sense.
    """
    from paramiko.config import SSHConfig
    from paramiko.ssh_exception import ConfigParseError

    texts = []
    for name in (USER, SYSTEM) if file is None else (file,):
        path = Path(name).expanduser()
        if file is None and not path.is_file():
            continue
        base = path.parent if name == SYSTEM else Path("~/.ssh").expanduser()
        texts.append(expand(path, base))
        try:
            SSHConfig.from_text(texts[-1])
        except ConfigParseError as error:
            raise TransportError(str(error), where=str(path), hint="`ssh -G HOST` shows it too") from None
    return "\nHost *\n".join(texts)


def expand(path: Path, base: Path, depth: int = 0, block: str = "Host *") -> str:
    """Return the text of a configuration file with its ``Include`` lines replaced by what they name.

    Relative names are below `base`. After an included file the block around its line goes on.
    """
    if depth > MAX_DEPTH:
        raise TransportError(f"Include goes deeper than {MAX_DEPTH} files", where=str(path))
    try:
        text = path.read_text("utf-8", "replace")
    except OSError as error:
        raise TransportError(f"cannot be read: {error.strerror}", where=str(path)) from None
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        key, _, value = line.strip().replace("=", " ", 1).partition(" ")
        if key.lower() in ("host", "match"):
            block = line.strip()
        if key.lower() != "include":
            lines.append(line)
            continue
        try:
            patterns = shlex.split(value)
        except ValueError as error:
            raise TransportError(f"Include: {error}", where=f"{path}:{number}") from None
        for pattern in patterns:
            for place in _places(Path(pattern).expanduser(), base):
                lines.append(expand(place, base, depth + 1, block))
        lines.append(block)
    return "\n".join(lines)


def _places(pattern: Path, base: Path) -> list[Path]:
    """Return the files that a pattern names; none is no error, as for OpenSSH."""
    whole = pattern if pattern.is_absolute() else base / pattern
    anchor = Path(whole.anchor)
    return sorted(place for place in anchor.glob(str(whole.relative_to(anchor))) if place.is_file())
