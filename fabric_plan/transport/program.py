"""The node program as one archive, the same bytes from the same sources, and the words that start it there.

The archive is stored, not compressed: its bytes then depend on no version of zlib. It travels once per
version; the loader keeps it on the node with bytecode beside the sources, which halves the program's start.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fabric_plan import node

PACKAGE = "fabric_plan_node"
# Started as a file (``python3 PROGRAM VERB``), as the node does for its own services.
_START = f"import runpy\n\nrunpy.run_module({PACKAGE!r}, run_name='__main__', alter_sys=True)\n"
# The oldest date that the format knows: an archive carries no clock.
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Program:
    """The archive and its SHA-256, by which the node keeps it."""

    content: bytes
    digest: str


@cache
def program() -> Program:
    """Return the node program of this version."""
    (folder,) = (Path(place) for place in node.__path__)
    files = {
        f"{PACKAGE}/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in folder.rglob("*.py")
    }
    return pack({**files, "__main__.py": _START.encode()})


def pack(files: dict[str, bytes]) -> Program:
    """Return an archive of `files` by path, independent of their order and of the clock."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name])
    content = buffer.getvalue()
    return Program(content, hashlib.sha256(content).hexdigest())


@cache
def loader() -> bytes:
    """Return the text of the loader, which the node's Python executes."""
    return Path(__file__).with_name("loader.py").read_bytes()
