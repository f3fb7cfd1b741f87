"""The lines of known_hosts, the configuration with its Include, and what stays unimported."""

from __future__ import annotations

import subprocess
import sys
from base64 import b64encode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paramiko.config import SSHConfig

from fabric_plan.errors import TransportError
from fabric_plan.transport.known_hosts import fingerprint, known_keys, lookup_names
from fabric_plan.transport.ssh_config import expand, read_config

KEY = b64encode(b"a key").decode()


@pytest.mark.parametrize(
    ("line", "known"),
    [
        (f"spark1 ssh-ed25519 {KEY} comment", True),
        (f"other,SPARK1 ssh-ed25519 {KEY}", True),
        (f"spark? ssh-ed25519 {KEY}", True),
        (f"*,!spark1 ssh-ed25519 {KEY}", False),
        (f"!spark1,* ssh-ed25519 {KEY}", False),
        (f"[spark1]:22 ssh-ed25519 {KEY}", False),
        (f"spark[12] ssh-ed25519 {KEY}", False),
        (f"# spark1 ssh-ed25519 {KEY}", False),
        ("spark1 ssh-ed25519 not*base64", False),
        ("spark1 ssh-ed25519", False),
        ("|1|damaged ssh-ed25519 " + KEY, False),
    ],
)
def test_lines(tmp_path: Path, line: str, known: bool) -> None:
    (tmp_path / "k").write_text(f"\n{line}\n")
    keys = known_keys([str(tmp_path / "absent"), str(tmp_path / "k")], ("spark1",))
    assert [(key.type, key.key, key.place) for key in keys] == (
        [("ssh-ed25519", b"a key", f"{tmp_path}/k:2")] if known else []
    )


def test_markers(tmp_path: Path) -> None:
    (tmp_path / "k").write_text(f"@revoked * ssh-ed25519 {KEY}\n@cert-authority * ssh-ed25519 {KEY}\n")
    assert [key.marker for key in known_keys([str(tmp_path / "k")], ("spark1",))] == [
        *("@revoked", "@cert-authority")
    ]


@given(st.binary(max_size=200))
def test_any_file_is_read(content: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "k").write_bytes(content)
        known_keys([f"{folder}/k"], ("spark1",))


def test_names() -> None:
    assert lookup_names("Spark1", 22, None) == ("spark1",)
    assert lookup_names("::1", 2222, None) == ("[::1]:2222", "::1")
    assert lookup_names("10.0.0.1", 2222, "Home") == ("home",)


def test_the_fingerprint_is_openssh_s() -> None:
    assert fingerprint(b"") == "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU"


def test_include_keeps_the_block_that_it_stands_in(tmp_path: Path) -> None:
    (tmp_path / "main").write_text(
        "Include part.*\nUser everybody\nHost b\n  Include=part.1\n  Port 7\nInclude none-here\n"
    )
    (tmp_path / "part.1").write_text("Host a\n  User first\n")
    text = expand(tmp_path / "main", tmp_path)
    (tmp_path / "whole").write_text(text)
    config = SSHConfig.from_text(read_config(str(tmp_path / "whole")))
    assert config.lookup("a")["user"] == "first"
    assert config.lookup("c")["user"] == "everybody"
    assert config.lookup("b")["port"] == "7" and "port" not in config.lookup("a")


def test_include_of_itself_ends(tmp_path: Path) -> None:
    (tmp_path / "main").write_text("Include main\n")
    with pytest.raises(TransportError, match="deeper than"):
        expand(tmp_path / "main", tmp_path)


def test_nothing_heavy_is_imported_before_a_connection() -> None:
    code = (
        "import sys, fabric_plan.cli.collect, fabric_plan.transport.ssh;"
        "print([m for m in ('fabric', 'paramiko', 'invoke', 'cryptography') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
