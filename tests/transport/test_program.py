"""What travels to a node: the same bytes every time, and words that no shell bends."""

from __future__ import annotations

import ast
import io
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_plan.errors import TransportError
from fabric_plan.facts.load import facts_of
from fabric_plan.transport.base import Target
from fabric_plan.transport.exchange import MAX_REQUEST_BYTES, Exchange, Rights, Sudo
from fabric_plan.transport.local import Local
from fabric_plan.transport.program import PACKAGE, loader, pack, program
from tests.node.test_program import old_python


def test_the_program_is_the_same_whatever_the_order_and_the_clock() -> None:
    files = {"b/x.py": b"1", "a.py": b"2"}
    assert pack(files) == pack(dict(reversed(files.items())))
    assert pack(files) != pack({**files, "a.py": b"3"})
    assert program().digest != pack(files).digest


def test_the_program_holds_the_node_package_alone() -> None:
    names = zipfile.ZipFile(io.BytesIO(program().content)).namelist()
    assert f"{PACKAGE}/__main__.py" in names and f"{PACKAGE}/collect/__init__.py" in names
    assert all(name.startswith(f"{PACKAGE}/") or name == "__main__.py" for name in names)
    assert not any("__pycache__" in name for name in names)


def test_the_program_runs_as_a_file(tmp_path: Path) -> None:
    (tmp_path / "p.pyz").write_bytes(program().content)
    (tmp_path / "root").mkdir()
    words = [sys.executable, "-I", "-S", str(tmp_path / "p.pyz"), "collect", "--root", str(tmp_path / "root")]
    result = subprocess.run(words, input=b"{}", capture_output=True, check=True)
    assert result.stdout.startswith(b"{") and b"fabric-plan/facts/v1" in result.stdout


def test_the_loader_is_python_3_9_and_needs_nothing_else() -> None:
    tree = ast.parse(loader(), feature_version=(3, 9))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert all(name.name in sys.stdlib_module_names for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            top = (node.module or "").partition(".")[0]
            assert node.level == 0 and (top == PACKAGE or top in sys.stdlib_module_names)


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "zsh", "fish", "csh", "tcsh", "ksh"])
def test_login_shells(shell: str, tmp_path: Path) -> None:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"no {shell} here")
    exchange = Exchange("node", "collect", {}, Rights(Sudo.NEVER))
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "python3").write_text('#!/bin/sh\nfor word; do printf "%s\\n" "$word"; done\n')
    (tools / "python3").chmod(0o755)
    environment = {"PATH": f"{tools}:/usr/bin:/bin", "HOME": str(tmp_path)}
    result = subprocess.run(
        [path, "-c", exchange.command], env=environment, capture_output=True, text=True, check=True
    )
    arguments = result.stdout.splitlines()
    assert arguments[:5] == ["-I", "-S", "-X", "utf8", "-c"]
    assert arguments[5] == exchange.words[4] and arguments[6:] == exchange.words[6:]


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1))
def test_no_word_is_bent_on_its_way(text: str) -> None:
    exchange = Exchange("node", text, {"files": text}, Rights())
    assert shlex.split(exchange.command.removeprefix("exec ")) == exchange.words
    assert exchange.words[8] == text


def test_the_request_is_not_in_the_command_line() -> None:
    exchange = Exchange("node", "stage", {"content": "c2VjcmV0"}, Rights(Sudo.PASSWORD, "correct horse"))
    assert "c2VjcmV0" not in exchange.command and "correct" not in exchange.command


def test_a_request_has_a_bound() -> None:
    with pytest.raises(TransportError, match="at most"):
        Exchange("node", "stage", {"content": "x" * MAX_REQUEST_BYTES}, Rights())


def test_python_3_9_runs_it_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = old_python()
    if python is None:
        pytest.skip("no Python 3.9 here")
    root = tmp_path / "root"
    (root / "var").mkdir(parents=True)
    (tmp_path / "python3").write_text(f'#!/bin/sh\nexec {python} "$@" --root {root}\n')
    (tmp_path / "python3").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    connection = Local(Rights(Sudo.NEVER)).connect(Target("here", "localhost"))
    for _ in range(2):
        facts = facts_of(connection.call("collect", {}, limit_s=120.0), node="here")
        assert facts.host.python.startswith("3.9.")
    assert len(list((root / "var/cache/fabric-plan").iterdir())) == 1


def test_a_local_program_that_hangs_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python3").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "python3").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    connection = Local(Rights(Sudo.NEVER)).connect(Target("here", "localhost"))
    with pytest.raises(TransportError, match="no answer within 1 s"):
        connection.call("collect", {}, limit_s=1.0)
