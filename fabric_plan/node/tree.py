"""The node's files below a root directory, read with bounded sizes."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import stat
from collections.abc import Iterator

from .document import File
from .plain import replace

TEXT_BYTES = 64 << 10
SMALL_BYTES = 64 << 10


def last_name(path: str) -> str:
    """Return the last part of a path."""
    return path.rstrip("/").rpartition("/")[2]


class Tree:
    """File access below `root`; paths are the node's own, absolute ones."""

    def __init__(self, root: str = "/") -> None:
        self.root = root.rstrip("/")

    def place(self, path: str) -> str:
        """Return where a path of the node lies."""
        return self.root + path

    def read_bytes(self, path: str, limit: int = SMALL_BYTES) -> bytes | None:
        """Return at most `limit` bytes of a file, or None where it cannot be read.

        A FIFO would block and a device could do anything, so only regular files are read; those of /proc and
        /sys are regular.
        """
        try:
            descriptor = os.open(self.place(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, "rb", buffering=0) as file:  # noqa: PTH123 - of a descriptor
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    return None
                pieces = []
                while limit > 0:
                    piece = file.read(limit)
                    if not piece:
                        break
                    pieces.append(piece)
                    limit -= len(piece)
                return b"".join(pieces)
        except OSError:
            return None

    def read(self, path: str, limit: int = SMALL_BYTES) -> str | None:
        """Return a file's text without blanks around it, or None where it cannot be read."""
        data = self.read_bytes(path, limit)
        return None if data is None else data.decode("utf-8", "replace").strip()

    def attribute(self, path: str) -> str | None:
        """Return a sysfs attribute or sysctl, which one read gives whole, or None where it cannot be read."""
        try:
            descriptor = os.open(self.place(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                return os.read(descriptor, 4096).decode("utf-8", "replace").strip()
            finally:
                os.close(descriptor)
        except OSError:
            return None

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a folder; none where it cannot be listed."""
        try:
            return sorted(os.listdir(self.place(path)))  # noqa: PTH208 - names alone are wanted
        except OSError:
            return []

    def link(self, path: str) -> str | None:
        """Return the target of a symbolic link as it is written, or None."""
        try:
            return os.readlink(self.place(path))  # noqa: PTH115 - the written form
        except OSError:
            return None

    def match(self, pattern: str) -> Iterator[str]:
        """Yield the paths that match a pattern; ``*`` stays within one name, a last ``**`` is all below."""
        yield from self._match("", [part for part in pattern.split("/") if part])

    def _match(self, base: str, parts: list[str]) -> Iterator[str]:
        part, rest = parts[0], parts[1:]
        if part == "**":
            for name in self.names(base or "/"):
                path = f"{base}/{name}"
                yield path
                if os.path.isdir(self.place(path)) and not os.path.islink(self.place(path)):  # noqa: PTH112, PTH114
                    yield from self._match(path, ["**"])
            return
        names = fnmatch.filter(self.names(base or "/"), part) if "*" in part or "[" in part else [part]
        for name in names:
            path = f"{base}/{name}"
            if rest:
                yield from self._match(path, rest)
            elif os.path.lexists(self.place(path)):
                yield path

    def file(self, path: str, limit: int = 1 << 20) -> File:
        """Return what there is to know of a path; contents only up to `limit` bytes."""
        try:
            status = os.lstat(self.place(path))
        except OSError as error:
            return File("unreadable", error=error.strerror)
        mode, kind = f"{stat.S_IMODE(status.st_mode):04o}", stat.S_IFMT(status.st_mode)
        base = File("other", mode, status.st_uid, status.st_gid)
        if kind == stat.S_IFLNK:
            return replace(base, kind="link", target=self.link(path))
        if kind == stat.S_IFDIR:
            return replace(base, kind="directory")
        if kind != stat.S_IFREG:
            return base
        data = self.read_bytes(path, limit + 1)
        if data is None or len(data) > limit:
            reason = "cannot be opened" if data is None else f"larger than {limit} bytes"
            return replace(base, kind="file", size=status.st_size, error=reason)
        nul = b"\0" in data
        try:
            text = None if nul or len(data) > TEXT_BYTES else data.decode("utf-8")
        except UnicodeDecodeError:
            text = None
        digest = hashlib.sha256(data).hexdigest()
        return replace(base, kind="file", size=len(data), sha256=digest, text=text, nul=nul)
