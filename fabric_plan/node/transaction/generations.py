"""The node's history: one folder a generation, with what was there before it and after it."""

from __future__ import annotations

import fnmatch
import hashlib
from base64 import b64encode
from collections.abc import Iterable
from typing import Any

from ..collect.files import OURS
from . import bundle, store
from .bundle import Entry
from .node import CURRENT, GENERATIONS, JOURNAL, Node
from .refusal import RefusalError
from .state import ENDED, State

KEPT = 5
COMMITTED_WORD = "committed"
UNDONE_WORD = "undone"
ROLLED_BACK_WORD = "rolled-back"
OWN = tuple(pattern for pattern in OURS if not pattern.startswith("/run/"))
MAX_OWN_FILES = 512


def record_path(number: int) -> str:
    """Return the folder of a generation, as a path of the node."""
    return f"{GENERATIONS}/{number}"


def numbers(node: Node) -> list[int]:
    """Return the generations that the node keeps, the oldest first."""
    return sorted(int(name) for name in node.tree.names(GENERATIONS) if name.isascii() and name.isdigit())


def result(node: Node, number: int) -> str | None:
    """Return how a generation's commit ended; None while it has not."""
    return node.tree.read(f"{record_path(number)}/result") or None


def committed(node: Node, number: int) -> bool:
    """Tell whether a generation was committed."""
    return result(node, number) == COMMITTED_WORD


def current(node: Node) -> int | None:
    """Return the generation that is in place, None where there is none of ours.

    The last committed one counts where the note of it was lost.
    """
    word = node.tree.read(CURRENT) or ""
    if word.isascii() and word.isdigit() and committed(node, int(word)):
        return int(word)
    return max((number for number in numbers(node) if committed(node, number)), default=None)


def next_number(node: Node) -> int:
    """Return a number that no generation had that is still kept."""
    return max([*numbers(node), current(node) or 0], default=0) + 1


def token_digest(token: str) -> str:
    """Return what a record keeps of a token, to answer its holder after a restart."""
    return hashlib.sha256(token.encode()).hexdigest()


def of_token(node: Node, token: str) -> int | None:
    """Return the generation that the holder of `token` began, None where none is kept."""
    wanted = token_digest(token)
    for number in reversed(numbers(node)):
        record = store.read_json(node.place(f"{record_path(number)}/meta.json"))
        if record is not None and record.get("token_sha256") == wanted:
            return number
    return None


def own_files(node: Node) -> tuple[Entry, ...]:
    """Return every file and link of ours that is in place."""
    paths = sorted({path for pattern in OWN for path in node.tree.match(pattern)})
    if len(paths) > MAX_OWN_FILES:
        raise RefusalError("too-many", f"more than {MAX_OWN_FILES} files stand under our paths")
    found = []
    for path in paths:
        if node.tree.file(path, 0).kind in ("file", "link"):
            try:
                found.append(bundle.live(node.tree, path))
            except RefusalError as refusal:
                # A library or a program that somebody keeps beside our files is no file of a plan.
                if refusal.id != "too-large":
                    raise
    return tuple(found)


def overlay(files: Iterable[Entry], changes: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return a set of files with changes made; absent ones leave it."""
    merged = {entry.path: entry for entry in files}
    merged.update({entry.path: entry for entry in changes})
    return tuple(merged[path] for path in sorted(merged) if not merged[path].absent)


def list_all(node: Node, state: State | None) -> dict[str, Any]:
    """Return the history as the verb ``generations`` does.

    `result` is ``committed``, ``undone`` (a commit that was cut), ``rolled-back``, ``trial`` while it runs,
    ``committing`` between its decision and its end, or ``interrupted``: the node restarted in the trial.
    """
    found = []
    for number in numbers(node):
        record = store.read_json(node.place(f"{record_path(number)}/meta.json")) or {}
        found.append(
            {
                "number": number,
                "when_unix": record.get("when_unix"),
                "digest": record.get("digest"),
                "fabric": record.get("fabric"),
                "who": record.get("who"),
                "intent": record.get("intent"),
                "version": record.get("version"),
                "result": result(node, number) or _unfinished(node, number, state),
            }
        )
    return {"generations": found, "current": current(node)}


def _unfinished(node: Node, number: int, state: State | None) -> str:
    if node.tree.read(f"{JOURNAL}/generation") == str(number):
        return "committing"
    if state is not None and state.generation == number and state.phase not in ENDED:
        return "trial"
    return "interrupted"


def files_after(node: Node, number: int) -> list[dict[str, Any]]:
    """Return what was in place after a generation, as ``stage`` takes files; 0 is before the first.

    A path that a later generation changed and that was none of ours before, such as a definition that was
    taken over, is part of it: as it was, or null where it was absent.
    """
    kept = numbers(node)
    later = [other for other in kept if other > number and committed(node, other)]
    if number != 0 and not (number in kept and committed(node, number)):
        raise RefusalError("unknown-generation", f"generation {number} is not kept or was never in place")
    if number == 0 and (not later or _first_committed(node) != later[0]):
        raise RefusalError("unknown-generation", "what was before the first generation is no longer kept")
    merged: dict[str, Entry] = {}
    for other in reversed(later):
        merged.update(
            {entry.path: entry for entry in bundle.read(node.place(f"{record_path(other)}/before"))}
        )
    if number:
        own = bundle.read(node.place(f"{record_path(number)}/after"))
        # One of ours that was not there after it came by another hand since.
        merged = {path: Entry(path) if _ours(path) else entry for path, entry in merged.items()}
        merged.update({entry.path: entry for entry in own})
    return [document(merged[path]) for path in sorted(merged)]


def _first_committed(node: Node) -> int | None:
    """Return the first generation if nothing was pruned before it."""
    return next(
        (number for number in numbers(node) if committed(node, number) and _is_first(node, number)), None
    )


def _is_first(node: Node, number: int) -> bool:
    record = store.read_json(node.place(f"{record_path(number)}/meta.json")) or {}
    return record.get("previous") is None


def _ours(path: str) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in OWN)


def document(entry: Entry) -> dict[str, Any]:
    """Return a file as the verb ``stage`` takes it."""
    if entry.target is not None:
        return {"path": entry.path, "link": entry.target}
    if entry.content is None:
        return {"path": entry.path, "content": None}
    return {
        "path": entry.path,
        "mode": entry.mode,
        "sha256": hashlib.sha256(entry.content).hexdigest(),
        "content": b64encode(entry.content).decode(),
    }


def prune(node: Node) -> None:
    """Keep the last committed generations, and of the attempts that came to nothing the later ones."""
    good = [number for number in numbers(node) if committed(node, number)]
    oldest = good[-KEPT:][0] if good else 0
    attempts = [number for number in numbers(node) if number not in good and number > oldest]
    keep = {*good[-KEPT:], *attempts[-KEPT:]}
    for number in numbers(node):
        if number not in keep:
            store.remove_tree(node.place(record_path(number)))
