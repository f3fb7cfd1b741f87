"""What Jinja2 made of the templates, kept for the next start of the same user."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from jinja2 import FileSystemBytecodeCache
from jinja2.bccache import Bucket

from fabric_plan import __version__


class _Compiled(FileSystemBytecodeCache):
    def dump_bytecode(self, bucket: Bucket) -> None:
        # A full disk must cost no more than the time to compile again.
        with contextlib.suppress(OSError):
            super().dump_bytecode(bucket)


def compiled_templates() -> FileSystemBytecodeCache | None:
    """Return the cache in this user's cache folder, or None where there is no safe one.

    What lies there is code that this process will run, so the folder has to be ours alone: with ``sudo`` and
    the home of somebody else, that somebody could hand code to root.
    """
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path("~").expanduser() / ".cache")
        if not base.parent.is_dir():
            return None  # a user without a home, as services have, is not given one
        folder = base / "fabric-plan" / "templates"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = folder.resolve()
        safe = all(_ours(part.stat()) for part in (folder, *folder.parents))
    except (OSError, RuntimeError):
        return None
    return _Compiled(str(folder), f"{__version__}-%s.jinja2") if safe else None


def _ours(found: os.stat_result) -> bool:
    """Return whether nobody but this user and root can put something else in this place."""
    mine = found.st_uid in (0, os.geteuid())
    return mine and (not found.st_mode & 0o022 or bool(found.st_mode & stat.S_ISVTX))
