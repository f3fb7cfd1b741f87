"""Sets of files in the one form that the journal has too: a ``list`` and numbered ``files`` beside it.

A line of the list is ``MODE TAB DIGEST TAB PATH``: an octal mode of four digits and the SHA-256 of the file
of that line's number; ``link`` and the link's target; or ``-`` twice for a path that is absent.
docs/reference/state.md is the reference; recover.sh reads the same form.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Sequence

from ..plain import dataclass
from ..tree import Tree
from . import store
from .faults import point
from .refusal import RefusalError

MAX_FILE_BYTES = 1 << 20
ABSENT = "-"
LINK = "link"
_MODE = re.compile(r"^0[0-7]{3}$")


@dataclass(frozen=True)
class Entry:
    """What a path is to be: a file (`mode` octal, `content`), a link (`target`), or absent (all None)."""

    path: str
    mode: str | None = None
    content: bytes | None = None
    target: str | None = None

    @property
    def absent(self) -> bool:
        """Whether the path is not there."""
        return self.content is None and self.target is None

    def line(self) -> str:
        """Return the entry's line of the list."""
        if self.content is not None:
            return f"{self.mode}\t{hashlib.sha256(self.content).hexdigest()}\t{self.path}\n"
        if self.target is not None:
            return f"{LINK}\t{self.target}\t{self.path}\n"
        return f"{ABSENT}\t{ABSENT}\t{self.path}\n"


def live(tree: Tree, path: str) -> Entry:
    """Return what a path is now. Raises `RefusalError` where it is nothing that could be put back."""
    place = tree.place(path)
    try:
        status = os.lstat(place)
    except (FileNotFoundError, NotADirectoryError):
        return Entry(path)
    except OSError as error:
        raise RefusalError("unreadable", f"{path} cannot be read: {error.strerror}") from None
    if stat.S_ISLNK(status.st_mode):
        return Entry(path, target=os.readlink(place))  # noqa: PTH115 - the written form
    if not stat.S_ISREG(status.st_mode):
        raise RefusalError("not-a-file", f"{path} is neither a file nor a link", "move it away")
    if status.st_size > MAX_FILE_BYTES:
        raise RefusalError("too-large", f"{path} is larger than {MAX_FILE_BYTES} bytes, so none of ours")
    content = tree.read_bytes(path, MAX_FILE_BYTES)
    if content is None:
        raise RefusalError("unreadable", f"{path} cannot be read")
    return Entry(path, f"{stat.S_IMODE(status.st_mode) & 0o777:04o}", content)


def write(folder: str, entries: Sequence[Entry], *, fault: str | None = None) -> None:
    """Write a set into a new folder, synced; `fault` is the point that is passed after each file."""
    store.ensure_dir(folder, 0o700)
    store.ensure_dir(f"{folder}/files", 0o700)
    for number, entry in enumerate(entries, 1):
        if entry.content is not None:
            store.write_file(f"{folder}/files/{number}", entry.content, 0o600)
            if fault:
                point(fault)
    store.sync_dir(f"{folder}/files")
    store.write_file(f"{folder}/list", "".join(entry.line() for entry in entries).encode(), 0o600)


def read(folder: str) -> tuple[Entry, ...]:
    """Return a set. Raises `RefusalError` where it is damaged."""
    tree = Tree(folder)
    text = tree.read_bytes("/list", MAX_FILE_BYTES)
    if text is None:
        raise RefusalError("damaged", f"{folder}/list cannot be read")
    return tuple(_entries(tree, text.decode("utf-8", "replace").splitlines()))


def _entries(tree: Tree, lines: Iterable[str]) -> Iterable[Entry]:
    for number, line in enumerate(lines, 1):
        words = line.split("\t")
        if len(words) != 3 or not words[2].startswith("/"):
            raise RefusalError("damaged", f"{tree.root}/list: line {number} is none")
        mode, digest, path = words
        if mode == ABSENT:
            yield Entry(path)
        elif mode == LINK:
            yield Entry(path, target=digest)
        else:
            content = tree.read_bytes(f"/files/{number}", MAX_FILE_BYTES)
            if content is None or not _MODE.match(mode) or hashlib.sha256(content).hexdigest() != digest:
                raise RefusalError("damaged", f"{tree.root}/files/{number}: not what its list says")
            yield Entry(path, mode, content)
