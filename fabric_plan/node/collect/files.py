"""Files: everything under our paths, every netplan definition, libraries, and room on the disks."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping

from ..document import Disk, File, Library, NfsMount
from ..plain import replace
from ..reading import Reading, Unreadable, unreadable
from ..redact import redact
from ..tree import Tree

# What a plan renders, where it is tried (/run) and where it stays (/etc), as patterns: a file of ours that is
# no longer planned has to be seen too. The lease and what else a trial keeps is not for a bug report.
OURS = (
    "/etc/NetworkManager/conf.d/90-fabric-plan*",
    "/etc/NetworkManager/dispatcher.d/90-fabric-plan*",
    "/etc/fabric-plan/**",
    "/etc/netplan/4*-sparkring-plane*",
    "/etc/sysctl.d/90-fabric-plan*",
    "/etc/systemd/system/fabric-plan-*",
    "/etc/systemd/system/*.wants/fabric-plan-*",
    "/run/NetworkManager/conf.d/90-fabric-plan*",
    "/run/fabric-plan/hairpin/*",
    "/run/fabric-plan/markers/*",
    "/run/fabric-plan/qdiscs",
    "/run/fabric-plan/rocenante.env",
    "/run/fabric-plan/rules",
    "/run/netplan/4*-sparkring-plane*",
    "/run/sysctl.d/90-fabric-plan*",
    "/run/systemd/system.control/fabric-plan-*",
    "/usr/local/lib/fabric-plan/**",
)
NETPLAN = ("/lib/netplan/*.yaml", "/etc/netplan/*.yaml", "/run/netplan/*.yaml")
DISKS = ("/etc", "/var", "/run")
MAX_FILES = 512
CHUNK = 4 << 20
MAX_LIBRARY_BYTES = 4 << 30
MOUNTS_BYTES = 1 << 20
_VERSION = re.compile(rb"NCCL version (\d{1,3}(?:\.\d{1,3}){1,3})")
_OVERLAP = 256


def ours(tree: Tree, more: Iterable[str]) -> Reading[Mapping[str, File]]:
    """Return every file under our paths, and `more`, whether they are there or not."""
    patterns = [path for pattern in OURS for path in tree.match(pattern)]
    return _files(tree, [*dict.fromkeys([*patterns, *more])])


def netplan(tree: Tree) -> Reading[Mapping[str, File]]:
    """Return every netplan definition of the three folders, secrets taken out; netplan adds them all up."""
    read = _files(tree, [path for pattern in NETPLAN for path in tree.match(pattern)])
    return Reading({path: _without_secrets(file) for path, file in (read.value or {}).items()}, read.unread)


def _without_secrets(file: File) -> File:
    if file.text is None:
        return file
    text = redact(file.text)
    error = "withheld: it holds secrets in a form that cannot be taken out" if text is None else None
    return replace(file, text=text, redacted=text != file.text, error=error)


def _files(tree: Tree, paths: list[str]) -> Reading[Mapping[str, File]]:
    left_out = paths[MAX_FILES:]
    gaps = (Unreadable(f"{len(left_out)} more than {MAX_FILES} files", left_out[0]),) if left_out else ()
    return Reading({path: tree.file(path) for path in sorted(paths[:MAX_FILES])}, gaps)


def library(tree: Tree, path: str, marks: Iterable[str]) -> Library:
    """Return a library's digest, its NCCL version and which of `marks` occur in it."""
    wanted = {mark: mark.encode() for mark in marks}
    found: set[str] = set()
    version = ""
    digest = hashlib.sha256()
    size = 0
    tail = b""
    try:
        with open(tree.place(path), "rb") as file:  # noqa: PTH123 - pathlib would not shorten it
            while size < MAX_LIBRARY_BYTES:
                piece = file.read(CHUNK)
                if not piece:
                    break
                digest.update(piece)
                size += len(piece)
                window = tail + piece
                found |= {mark for mark, word in wanted.items() if word in window}
                match = None if version else _VERSION.search(window)
                version = match[1].decode() if match else version
                tail = window[-_OVERLAP:]
    except OSError as error:
        return Library(None, None, error=error.strerror)
    return Library(digest.hexdigest(), size, version or None, tuple(sorted(found)))


def disk(tree: Tree, path: str) -> Disk | None:
    """Return the room on a path's file system; None where it is not there."""
    try:
        status = os.statvfs(tree.place(path))
    except OSError:
        return None
    read_only = bool(status.f_flag & os.ST_RDONLY)
    return Disk(status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize, read_only)


def nfs(tree: Tree) -> Reading[tuple[NfsMount, ...]]:
    """Return the NFS mounts of /proc/mounts with the address that each one talks to."""
    text = tree.read("/proc/mounts", MOUNTS_BYTES)
    if text is None:
        return unreadable("/proc/mounts cannot be read")
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < 4 or words[2] not in ("nfs", "nfs4"):
            continue
        options = dict(option.partition("=")[::2] for option in words[3].split(","))
        server = options.get("addr") or words[0].rpartition(":")[0].strip("[]")
        found.append(NfsMount(server, words[1]))
    return Reading(tuple(found))
