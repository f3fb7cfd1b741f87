"""The pure core stays pure: no I/O, no remote library, no subprocess, no way into the shell around it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "fabric_plan"
PURE = (
    "inventory",
    "topology",
    "planner",
    "render",
    "simulate",
    "compare",
    "checks",
    "facts",
    "report",
    "nccl/env.py",
    "nccl/graph.py",
    "nccl/lint.py",
    "nccl/log.py",
    "nccl/neighbours.py",
    "nccl/renumber.py",
    "nccl/views.py",
    "nccl/xml.py",
)
# The node program lends its plain records; they are as pure as the rest.
RECORDS = ("node/document.py", "node/records.py", "node/reading.py")
SINGLE = ("errors.py", "findings.py", "roles.py", *RECORDS)
FORBIDDEN = {
    "fabric",
    "invoke",
    "paramiko",
    "pyroute2",
    "subprocess",
    "socket",
    "os",
    "sys",
    "io",
    "pathlib",
    "shutil",
    "tempfile",
    "time",
    "datetime",
    "random",
    "secrets",
    "getpass",
    "platform",
    "threading",
    "asyncio",
    "logging",
}
SHELL = ("cli", "compiled", "transport", "node", "apply", "verify", "resources", "prove")


def modules() -> Iterator[Path]:
    for name in PURE:
        path = PACKAGE / name
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path] if path.exists() else []
    for name in SINGLE:
        yield PACKAGE / name


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        # Pure paths are text; only the others touch a disk.
        elif isinstance(node, ast.ImportFrom) and {n.name for n in node.names} != {"PurePosixPath"}:
            yield node.module or ""


@pytest.mark.parametrize("path", list(modules()), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_pure_modules_do_no_io(path: Path) -> None:
    for name in imports(path):
        assert name.split(".")[0] not in FORBIDDEN, f"{path.name} imports {name}"
        lent = f"{name.removeprefix('fabric_plan.').replace('.', '/')}.py" in RECORDS
        below = name.startswith(tuple(f"fabric_plan.{part}" for part in SHELL))
        assert lent or not below, f"{path.name} imports {name}"
    calls = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not calls & {"open", "print", "input", "exec", "eval", "__import__"}


def test_the_walk_sees_the_core() -> None:
    assert len(list(modules())) > 25


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_modules_stay_readable(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 480
