"""Every id that the code can show, read from its source: whatever is written as the id of a notice, an error
or a finding.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "fabric_plan"

# Which positional argument of a call is an id, by the call's name and, where names collide, by folder.
POSITIONAL: dict[str, tuple[int, str]] = {
    "Notice": (0, ""),
    "Problem": (1, ""),
    "Finding": (0, "compare"),
    "Setting": (0, "compare"),
    "RefusalError": (0, "node"),
    "_finding": (0, "nccl"),
    "_good": (0, "nccl"),
    "_bad": (0, "nccl"),
    "LibraryFinding": (0, "nccl"),
    "must": (2, "node"),
}

# Ids that the source composes, and what they come from.
COMPOSED = {
    "fabric_plan/inventory/checks.py": {
        "duplicate-node",
        "duplicate-management",
        "duplicate-mac",
        "duplicate-netdev",
        "duplicate-rdma",
        "duplicate-pci",
    },
    # `must` gives the script's or the unit's own name; the undo reports it among its notes, not as an id.
    "fabric_plan/node/transaction/node.py": {"command-failed"},
}

# A tool that an undo could not run is named by its file in `undo-incomplete`.
NAMES_OF_SCRIPTS = {"mesh-down.sh", "forward.sh"}


Constants = Mapping[str, str]


def constants_of(tree: ast.Module) -> Constants:
    """Return the texts that the module gives a name at its top."""
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value.value, str)
    }


def words(node: ast.expr | None, constants: Constants) -> Iterator[str]:
    """Yield the texts that an expression can be."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Name) and node.id in constants:
        yield constants[node.id]
    elif isinstance(node, ast.IfExp):
        yield from words(node.body, constants)
        yield from words(node.orelse, constants)


def name_of(call: ast.Call) -> str:
    return (
        call.func.id
        if isinstance(call.func, ast.Name)
        else call.func.attr
        if isinstance(call.func, ast.Attribute)
        else ""
    )


def ids_in(path: Path) -> Iterator[str]:
    """Yield the ids in one module."""
    folder = path.relative_to(PACKAGE).parts[0]
    tree = ast.parse(path.read_text())
    named = constants_of(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from (word for key in node.keywords if key.arg == "id" for word in words(key.value, named))
            index, where = POSITIONAL.get(name_of(node), (-1, ""))
            if 0 <= index < len(node.args) and where in ("", folder):
                yield from words(node.args[index], named)
            if name_of(node) == "PydanticCustomError" and node.args:
                yield from (
                    word.replace("_", "-")
                    for word in words(node.args[0], named)
                    if not word.endswith("_type")
                )
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if key is not None and "id" in words(key, named):
                    yield from words(value, named)
        elif isinstance(node, ast.FunctionDef):
            arguments = [*node.args.args, *node.args.kwonlyargs]
            defaults = [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]
            for argument, default in zip(reversed(arguments), reversed(defaults), strict=False):
                if argument.arg == "id":
                    yield from words(default, named)


@cache
def ids() -> dict[str, set[str]]:
    """Return every id with the modules that can show it. The checks have a table of their own."""
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = str(path.relative_to(PACKAGE.parent))
        if path.relative_to(PACKAGE).parts[0] in ("checks", "verify"):
            continue
        for word in (*ids_in(path), *COMPOSED.get(relative, ())):
            if word and word not in NAMES_OF_SCRIPTS:
                found.setdefault(word, set()).add(relative)
    return found
