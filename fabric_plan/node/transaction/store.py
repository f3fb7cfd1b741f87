"""Files that outlive a power cut or are wholly absent: random temporary names, no link followed, everything
synced.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .refusal import RefusalError

LOCK_POLL_S = 0.05
MAX_JSON_BYTES = 4 << 20


def ensure_dir(path: str, mode: int) -> None:
    """Make a folder with its parents; one that is there already has to be root's alone to write.

    `mode` is of the last folder when it is made anew; parents get 0755.
    """
    parent = os.path.dirname(path)  # noqa: PTH120 - strings are what Tree places
    if parent and not os.path.isdir(parent):  # noqa: PTH112
        ensure_dir(parent, 0o755)
    try:
        os.mkdir(path, mode)  # noqa: PTH102
        os.chmod(path, mode)  # noqa: PTH101 - whatever the umask was
    except FileExistsError:
        status = os.lstat(path)
        foreign = status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022
        if not stat.S_ISDIR(status.st_mode) or foreign:
            raise RefusalError(
                "unsafe-directory",
                f"{path} is no folder that root alone can write",
                f"look who made it: ls -ld {path}",
            ) from None


def sync_dir(path: str) -> None:
    """Bring the names in a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unguessable(size: int) -> str:
    """Return `size` random bytes in hexadecimal; the module for that would cost every call its import."""
    return os.urandom(size).hex()


def _fresh(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.{unguessable(8)}"


def write_file(path: str, data: bytes, mode: int, *, durable: bool = True) -> None:
    """Replace a file in one step; `durable` syncs content and name."""
    fresh = _fresh(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(fresh, flags, 0o600)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - of a descriptor
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            if durable:
                os.fsync(file.fileno())
        os.rename(fresh, path)  # noqa: PTH104
    except BaseException:
        remove_file(fresh)
        raise
    if durable:
        sync_dir(path.rpartition("/")[0])


def write_link(path: str, target: str) -> None:
    """Replace a path by a symbolic link in one step."""
    fresh = _fresh(path)
    os.symlink(target, fresh)  # noqa: PTH211
    try:
        os.rename(fresh, path)  # noqa: PTH104
    except BaseException:
        remove_file(fresh)
        raise
    sync_dir(path.rpartition("/")[0])


def remove_file(path: str) -> bool:
    """Remove a file or a link; tell whether it was there."""
    try:
        os.unlink(path)  # noqa: PTH108
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def remove_tree(path: str) -> None:
    """Remove a folder and all below; links in it are removed, never followed."""
    if os.path.islink(path):  # noqa: PTH114
        os.unlink(path)  # noqa: PTH108
        return
    import shutil

    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        if os.path.lexists(path):
            raise


def write_json(path: str, document: Any, *, durable: bool = True) -> None:
    """Replace a JSON document, readable to root alone."""
    write_file(path, (json.dumps(document, sort_keys=True, indent=1) + "\n").encode(), 0o600, durable=durable)


def read_json(path: str) -> dict[str, Any] | None:
    """Return a JSON object of ours; None where there is none or it cannot be read as one."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - of a descriptor
            document = json.loads(file.read(MAX_JSON_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


@contextmanager
def locked(path: str, wait_s: float, busy: str) -> Iterator[None]:
    """Hold the lock file `path`; after `wait_s` seconds a `RefusalError` "busy" says `busy`.

    The kernel lets go of the lock when the process dies, however it dies.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() >= deadline:
                    raise RefusalError("busy", busy, "ask again in a moment") from None
                time.sleep(LOCK_POLL_S)
        yield
    finally:
        os.close(descriptor)
