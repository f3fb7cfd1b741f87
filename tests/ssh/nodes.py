"""Nodes for tests: real SSH servers on loopback, each with a root directory and tools of its own.

    with start(tmp_path, 4) as cluster:
        cluster.nodes[0].root       # what the node program takes for /
        cluster.nodes[0].tools      # first in PATH there: put stand-ins into it
        cluster.config              # for `Ssh(config_file=...)` and `--ssh-config`
        cluster.inventory()         # the text of a ring over these nodes

The program gets its root through a stand-in for python3 that adds ``--root DIR``. Nothing here listens or
connects beyond 127.0.0.1. The servers run as whoever runs the tests, and let that user in by key alone.
"""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from fabric_plan.transport.base import Target

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
LOOPBACK = "127.0.0.1"
START_LIMIT_S = 20.0


@dataclass(slots=True)
class SshNode:
    """One SSH server and the machine that it pretends to be; `wrapper` is a command that starts it."""

    name: str
    base: Path
    port: int
    wrapper: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def root(self) -> Path:
        """What the node program takes for ``/``."""
        return self.base / "root"

    @property
    def tools(self) -> Path:
        """The folder that stands first in PATH."""
        return self.base / "tools"

    @property
    def home(self) -> Path:
        """The home of the user who logs in; its ``.bashrc`` is read by every command."""
        return self.base / "home"

    @property
    def log(self) -> Path:
        """What the server wrote."""
        return self.base / "sshd.log"

    @property
    def target(self) -> Target:
        """The node as the transport wants it."""
        return Target(self.name, LOOPBACK, None, self.port)

    @property
    def host_key(self) -> str:
        """The public host key: type and base64."""
        return (self.base / "host_key.pub").read_text().strip()

    def tool(self, name: str, *lines: str) -> Path:
        """Put a stand-in of these shell lines into `tools`."""
        place = self.tools / name
        place.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
        place.chmod(0o755)
        return place

    def restrict_path(self) -> None:
        """Leave nothing but `tools` in PATH."""
        config = self.base / "sshd_config"
        config.write_text(config.read_text().replace(f"{self.tools}:/usr/bin:/bin", str(self.tools)))
        self.restart()

    def launch(self) -> None:
        """Start the server without waiting for it."""
        assert SSHD is not None
        self.process = subprocess.Popen(
            [*self.wrapper, SSHD, "-D", "-f", str(self.base / "sshd_config"), "-E", str(self.log)],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def wait(self) -> None:
        """Wait until the server greets."""
        deadline = time.monotonic() + START_LIMIT_S
        while not greets(self.port):
            if self.process is None or self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"sshd of {self.name} did not start: {self.log.read_text()}")
            time.sleep(0.01)

    def family(self) -> list[int]:
        """Return the server's process and all below it."""
        return [self.process.pid, *descendants(self.process.pid)] if self.process else []

    def stop(self) -> None:
        """Freeze the server and everything that it started: connections stay open, nobody answers."""
        self._signal(self.family(), signal.SIGSTOP)

    def cont(self) -> None:
        """Let a frozen node go on."""
        self._signal(self.family(), signal.SIGCONT)

    def drop(self) -> None:
        """Kill every connection and what runs in it; the server goes on listening."""
        self._signal(self.family()[1:], signal.SIGKILL)

    def kill(self) -> None:
        """Kill the server and everything that it started."""
        if self.process is not None:
            self._signal(self.family(), signal.SIGKILL)
            self.process.wait()
            self.process = None

    def restart(self) -> None:
        """Kill everything, start the server again and wait for it."""
        self.kill()
        self.launch()
        self.wait()

    def new_host_key(self) -> None:
        """Give the server another host key, as a new installation would, and restart it."""
        write_key(self.base / "host_key")
        self.restart()

    @staticmethod
    def _signal(pids: Iterable[int], number: signal.Signals) -> None:
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue


@dataclass(slots=True)
class Cluster:
    """The nodes of a test, and what a client needs to reach them."""

    base: Path
    nodes: list[SshNode]

    @property
    def config(self) -> Path:
        """The SSH configuration of the client."""
        return self.base / "ssh_config"

    @property
    def known_hosts(self) -> Path:
        """The host keys that the client knows; all nodes' at first."""
        return self.base / "known_hosts"

    @property
    def key(self) -> Path:
        """The key that every node lets in."""
        return self.base / "id_ed25519"

    def configure(self, *lines: str) -> None:
        """Put lines before the client's configuration, where they win."""
        self.config.write_text("\n".join([*lines, self.config.read_text()]))

    def inventory(self, more: str = "mesh: {paths: opposite}\n") -> str:
        """Return an inventory of the nodes, a ring or a pair, with MACs; `more` are further lines."""
        count = len(self.nodes)
        lines = ["fabric: loopback", more.rstrip(), "nodes:"]
        for i, node in enumerate(self.nodes, start=1):
            macs = [f"4c:bb:47:{i:02x}:00:{number:02x}" for number in (1, 5, 2, 6)]
            ports = [f'[{{mac: "{a}"}}, {{mac: "{b}"}}]' for a, b in (macs[:2], macs[2:])]
            lines += [
                f"  - name: {node.name}",
                f"    mgmt: {LOOPBACK}",
                f"    ssh: {{port: {node.port}}}",
                f"    ports: {{f0: {ports[0]}, f1: {ports[1]}}}",
            ]
        lines.append("cables:")
        for i in range(count if count > 2 else 1):
            lines.append(f"  - ends: [{self.nodes[i].name}.f0, {self.nodes[(i + 1) % count].name}.f1]")
        return "\n".join(lines) + "\n"


@contextmanager
def start(base: Path, count: int = 4) -> Iterator[Cluster]:
    """Run `count` nodes called spark1, spark2, ... below the folder `base`; all is ended on leaving."""
    names = [f"spark{i}" for i in range(1, count + 1)]
    cluster = Cluster(base, [SshNode(name, base / name, free_port()) for name in names])
    write_key(cluster.key)
    try:
        for node in cluster.nodes:
            prepare(node, cluster.key.with_name("id_ed25519.pub").read_text())
            node.launch()
        for node in cluster.nodes:
            node.wait()
        cluster.known_hosts.write_text(
            "".join(f"[{LOOPBACK}]:{node.port} {node.host_key}\n" for node in cluster.nodes)
        )
        cluster.config.write_text(CLIENT.format(user=getpass.getuser(), base=base))
        yield cluster
    finally:
        for node in cluster.nodes:
            node.kill()


def prepare(node: SshNode, authorized: str) -> None:
    """Write a node's folders, keys and configuration."""
    for folder in (node.root, node.tools, node.home):
        folder.mkdir(parents=True)
    for name in ("etc", "run", "proc", "sys", "var/cache"):
        (node.root / name).mkdir(parents=True)
    write_key(node.base / "host_key")
    (node.base / "authorized_keys").write_text(authorized)
    node.tool("python3", f'exec {shlex.quote(sys.executable)} "$@" --root {shlex.quote(str(node.root))}')
    (node.base / "sshd_config").write_text(
        SERVER.format(base=node.base, port=node.port, path=f"{node.tools}:/usr/bin:/bin", home=node.home)
    )
    if os.geteuid() != 0:
        node.tool("id", "echo 0")  # with a root directory of its own, the node needs no root
    else:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where sshd separates its privileges


def write_key(path: Path) -> None:
    """Write a new key pair in OpenSSH's form."""
    key = Ed25519PrivateKey.generate()
    path.unlink(missing_ok=True)
    path.touch(0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    path.with_name(f"{path.name}.pub").write_bytes(public + b"\n")


def free_port() -> int:
    """Return a port on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def greets(port: int) -> bool:
    """Tell whether an SSH server greets on a port."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=START_LIMIT_S) as client:
            return client.recv(4) == b"SSH-"
    except OSError:
        return False


def descendants(pid: int) -> list[int]:
    """Return all processes below `pid`, parents first."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = parents.get(waiting.pop(0), [])
        found += below
        waiting += below
    return found


SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {base}/host_key
AuthorizedKeysFile {base}/authorized_keys
PidFile {base}/sshd.pid
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
PrintMotd no
MaxStartups 100
AllowTcpForwarding yes
Subsystem sftp internal-sftp
LogLevel VERBOSE
SetEnv PATH={path} HOME={home}
"""

CLIENT = """\
Host *
  User {user}
  IdentityFile {base}/id_ed25519
  IdentitiesOnly yes
  UserKnownHostsFile {base}/known_hosts
  GlobalKnownHostsFile none
"""
