"""Put a rendered plan into a directory: whole or not at all, and nothing of somebody else's touched."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from fabric_plan.errors import FabricPlanError
from fabric_plan.render.document import SCHEMA

PLAN_FILE = "plan.json"
REVIEW_FILE = "review.html"


def write_tree(out: Path, files: Mapping[str, tuple[str, int]]) -> None:
    """Write `files` (content and mode by path relative to `out`) and take away what the render before left
    there.

    `plan.json` goes last, so a directory whose plan.json is new is complete. Raises `FabricPlanError` where
    `out` holds something that no render put there, and where writing fails.
    """
    before = _rendered_before(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        for relative, (content, mode) in sorted(files.items(), key=lambda item: item[0] == PLAN_FILE):
            _write(out / relative, content, mode)
        for relative in sorted(before - set(files)):
            (out / relative).unlink(missing_ok=True)
            _prune(out, (out / relative).parent)
    except OSError as error:
        raise FabricPlanError(
            f"cannot write the rendered files: {error.strerror}",
            where=str(error.filename or out),
            hint="nothing on any node was touched; render again into a directory that can be written",
        ) from None


def contents_before(out: Path) -> dict[str, dict[str, str]]:
    """Return the contents of an earlier render in `out` by node and path; nothing where there was none.

    A file that somebody took away or made unreadable is left out.
    """
    found: dict[str, dict[str, str]] = {}
    for relative in sorted(_rendered_before(out)):
        node, _, path = relative.partition("/")
        try:
            found.setdefault(node, {})[f"/{path}"] = (out / relative).read_text(encoding="utf-8")
        except (OSError, ValueError):
            continue
    return found


def _rendered_before(out: Path) -> set[str]:
    """Return the relative paths of an earlier render in `out`, from its plan.json."""
    if not out.exists():
        return set()
    if not out.is_dir():
        raise FabricPlanError(
            "is not a directory", where=str(out), hint="name a directory for the rendered files"
        )
    plan = out / PLAN_FILE
    if not plan.exists():
        if any(out.iterdir()):
            raise FabricPlanError(
                "is not empty, and fabric-plan did not render it",
                where=str(out),
                hint="name an empty or a new directory: render takes away what an earlier render left",
            )
        return set()
    try:
        document: Any = json.loads(plan.read_text())
        if document["schema"] != SCHEMA:
            raise KeyError(document["schema"])
        return {f"{node}{file['path']}" for node, part in document["nodes"].items() for file in part["files"]}
    except (ValueError, KeyError, TypeError, OSError):
        raise FabricPlanError(
            "is not a plan of fabric-plan", where=str(plan), hint="move it away, or name another directory"
        ) from None


def _write(path: Path, content: str, mode: int) -> None:
    if ".." in PurePosixPath(path).parts:
        raise FabricPlanError("a rendered path leaves its directory", where=str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(content)
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _prune(out: Path, directory: Path) -> None:
    """Remove `directory` and its parents up to `out` while they are empty."""
    while directory != out and not any(directory.iterdir()):
        directory.rmdir()
        directory = directory.parent
