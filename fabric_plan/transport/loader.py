"""The first words on a node: find the program in the node's cache or take it from the connection, and run it.

This file is sent as text and executed by the node's own Python (3.9 and newer, standard library only); it
imports nothing of this package, and what few calls need only there. Arguments: MARK, length of this text,
VERB, digest and size of the program, length of the request, and what more the program shall see (``--root
DIR``). On standard input follow the request and, when asked for with ``need``, the program. Every line for
the controller begins with MARK, since a login script may print before us.
"""

# Plain os functions: pathlib would cost every call its import.
# ruff: noqa: PTH103, PTH105, PTH108, PTH111, PTH118, PTH123, PTH208
from __future__ import annotations

import hashlib
import io
import os
import stat
import sys

KEEP = 5


class CacheError(Exception):
    """The program cannot be kept on this node."""


def cache_folder(root: str) -> str:
    """Return the folder for programs, made if need be; it is ours alone, or refused."""
    if os.geteuid() == 0 or root != "/":
        base = os.path.join(root, "var/cache")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.path.join(base, "fabric-plan")
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        found = os.lstat(folder)
    except OSError as error:
        raise CacheError(f"cannot make {folder}: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise CacheError(f"{folder} belongs to somebody else, or others may write to it")
    return folder


def find(folder: str, stem: str) -> str | None:
    """Return the whole program of this name, or None; the last part of a name is the file's own digest."""
    for name in os.listdir(folder):
        if name.startswith(stem) and name.endswith(".pyz"):
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    if hashlib.sha256(file.read()).hexdigest() == name[len(stem) : -4]:
                        return os.path.join(folder, name)
            except OSError:
                continue
    return None


def compiled(program: bytes) -> bytes:
    """Return the archive with bytecode for this Python beside every source; another one reads the source."""
    import marshal
    import zipfile
    from importlib.util import MAGIC_NUMBER

    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(program)) as sources, zipfile.ZipFile(buffer, "w") as archive:
        for name in sources.namelist():
            text = sources.read(name)
            code = marshal.dumps(compile(text, name, "exec", dont_inherit=True))
            # Flag 1: no source is looked at, neither its date nor its digest; both came in one piece.
            archive.writestr(
                zipfile.ZipInfo(name + "c"), MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8) + code
            )
            archive.writestr(zipfile.ZipInfo(name), text)
    return buffer.getvalue()


def keep(folder: str, stem: str, program: bytes) -> str:
    """Put the program into `folder`, whole or not at all; let go of all but the newest few."""
    import tempfile

    archive = compiled(program)
    path = os.path.join(folder, stem + hashlib.sha256(archive).hexdigest() + ".pyz")
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".")
        with open(descriptor, "wb") as file:
            file.write(archive)
        os.replace(temporary, path)
        kept = sorted(
            (os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".pyz")),
            key=lambda place: os.lstat(place).st_mtime,
        )
        for place in kept[:-KEEP]:
            os.unlink(place)
    except OSError as error:
        if temporary is not None and os.path.lexists(temporary):
            os.unlink(temporary)
        raise CacheError(f"cannot write {path}: {error.strerror}") from None
    return path


def execute(path: str, verb: str, more: list[str], request: bytes) -> tuple[int, bytes, bytes]:
    """Run the program in this process and return its status and what it printed."""
    sys.path.insert(0, path)
    sys.argv = [path, verb, *more]
    sys.stdin = io.TextIOWrapper(io.BytesIO(request), "utf-8")
    out, err = io.BytesIO(), io.BytesIO()
    sys.stdout = io.TextIOWrapper(out, "utf-8", write_through=True)
    sys.stderr = io.TextIOWrapper(err, "utf-8", "backslashreplace", write_through=True)
    try:
        from fabric_plan_node.__main__ import main  # type: ignore[import-not-found]

        status = main(sys.argv[1:])
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        status = 70
    return status, out.getvalue(), err.getvalue()


def load(words: list[str]) -> None:
    """Do the whole exchange; leaves the process."""
    mark, _, verb, digest, size, length, *more = words
    source, answer = sys.stdin.buffer, sys.stdout.buffer

    def say(line: str) -> None:
        answer.write(f"{mark} {line}\n".encode())
        answer.flush()

    def take(count: int) -> bytes:
        data = source.read(count)
        if len(data) != count:
            os._exit(1)  # the controller went away, and nothing was begun
        return data

    root = more[more.index("--root") + 1] if "--root" in more[:-1] else "/"
    try:
        folder = cache_folder(root)
        # Bytecode belongs to one version of Python, and the node may get another one.
        stem = f"{digest[:32]}-{sys.hexversion:x}-"
        path = find(folder, stem)
        say("need" if path is None else "have")
        request = take(int(length))
        if path is None:
            program = take(int(size))
            if hashlib.sha256(program).hexdigest() != digest:
                raise CacheError("the program arrived damaged")
            path = keep(folder, stem, program)
    except CacheError as error:
        say(f"cache {error}")
        os._exit(1)
    status, out, err = execute(path, verb, more, request)
    say(f"done {status} {len(out)} {len(err)}")
    answer.write(out + err)
    answer.flush()
    # A thread may still be stuck in the kernel on a broken device: leave without waiting for it.
    os._exit(0)


if __name__ == "__main__":
    load(sys.argv[1:])
