"""A user who is not root, and the real sudo: in a mount namespace with accounts and sudoers of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabric_plan.errors import TransportError
from fabric_plan.transport.exchange import Rights, Sudo
from tests.ssh.nodes import SSHD, Cluster, start
from tests.ssh.test_transport import LIMITS, ask

USER, UID, PASSWORD = "spark", 4711, "correct horse"
NEEDS = ("sudo", "unshare", "openssl", "/usr/bin/python3")
MISSING = [name for name in NEEDS if shutil.which(name) is None]

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a mount namespace"),
    pytest.mark.skipif(bool(MISSING) or SSHD is None, reason=f"not here: {', '.join(MISSING) or 'sshd'}"),
]

# One line after the other replaces a file of /etc for the server and all that it starts.
MOUNTS = 'for f in passwd shadow group sudoers; do mount --bind "$0/$f" "/etc/$f"; done; exec "$@"'
DEFAULTS = "Defaults timestamp_timeout=0, lecture=always, !mailerpath, !fqdn, passprompt_override, use_pty\n"


@pytest.fixture
def node() -> Iterator[Cluster]:
    """One node on which a user called spark has a password, and sudo by the sudoers in its folder."""
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        base.chmod(0o755)  # the user reads keys and tools below it
        with start(base, 1) as cluster:
            server = cluster.nodes[0]
            server.tool("python3", f'exec /usr/bin/python3 "$@" --root {server.root}')
            for path in (server.home, server.root / "var/cache"):
                os.chown(path, UID, UID)
            accounts(base, server.home)
            wrapper = ("unshare", "--mount", "--propagation", "private", "sh", "-c", MOUNTS, str(base))
            server.wrapper = wrapper
            server.restart()
            cluster.configure(f"User {USER}")
            yield cluster


def accounts(folder: Path, home: Path) -> None:
    crypted = subprocess.run(
        ["openssl", "passwd", "-6", "-stdin"], input=PASSWORD, capture_output=True, text=True, check=True
    ).stdout.strip()
    for name, line in (
        ("passwd", f"{USER}:x:{UID}:{UID}::{home}:/bin/sh\n"),
        ("shadow", f"{USER}:{crypted}:19000:0:99999:7:::\n"),
        ("group", f"{USER}:x:{UID}:\n"),
    ):
        shutil.copy(f"/etc/{name}", folder / name)
        with (folder / name).open("a") as file:
            file.write(line)
    sudoers(folder, "")


def sudoers(folder: Path, rule: str) -> None:
    place = folder / "sudoers"
    place.touch()
    place.write_text(f"{DEFAULTS}{rule}\n")
    place.chmod(0o440)


def euid(cluster: Cluster, rights: Rights) -> int:
    from fabric_plan.transport.ssh import Ssh

    reply = ask(Ssh(str(cluster.config), rights, LIMITS), cluster.nodes[0].target)
    return int(reply["host"]["euid"])


def test_a_user_without_sudo_reads_what_a_user_may(node: Cluster) -> None:
    assert euid(node, Rights(Sudo.NEVER)) == UID


def test_sudo_without_a_password(node: Cluster) -> None:
    sudoers(node.base, f"{USER} ALL=(ALL) NOPASSWD: ALL")
    assert euid(node, Rights()) == 0
    (kept,) = (node.nodes[0].root / "var/cache/fabric-plan").iterdir()
    assert kept.owner() == "root" and kept.stat().st_mode & 0o077 == 0
    # Asked for a password or not, the exchange is the same.
    assert euid(node, Rights(Sudo.PASSWORD, PASSWORD)) == 0


def test_sudo_with_a_password(node: Cluster) -> None:
    sudoers(node.base, f"{USER} ALL=(ALL) ALL")
    with pytest.raises(TransportError, match="sudo was refused: sudo: a password is required"):
        euid(node, Rights())
    assert euid(node, Rights(Sudo.PASSWORD, PASSWORD)) == 0
    with pytest.raises(TransportError, match="sudo did not take the password"):
        euid(node, Rights(Sudo.PASSWORD, "battery"))


def test_no_right_to_sudo(node: Cluster) -> None:
    with pytest.raises(TransportError, match="sudo was refused"):
        euid(node, Rights())
    with pytest.raises(TransportError, match=r"sudo was refused: .*not in the sudoers file"):
        euid(node, Rights(Sudo.PASSWORD, PASSWORD))
