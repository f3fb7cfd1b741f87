"""Who this node is, which tools it has, and over which connection this program was started."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping

from ..document import Host, Ssh, Tool
from ..reading import excerpt
from ..records import Interfaces
from ..tools import Tools
from ..tree import Tree

# Everything that a verb may need; a missing one is a fact that checks can name. Those with arguments tell
# their version quickly.
TOOLS: Mapping[str, tuple[str, ...]] = {
    "bash": (),
    "cc": (),
    "dcb": (),
    "devlink": (),
    "docker": (),
    "ethtool": (),
    "ib_write_bw": (),
    "ib_write_lat": (),
    "ip": ("-V",),
    "iptables": (),
    "lldpcli": (),
    "mlnx_qos": (),
    "netplan": (),
    "nft": (),
    "nmcli": (),
    "ping": (),
    "rdma": (),
    "sysctl": (),
    "systemctl": (),
    "systemd-run": (),
    "tc": (),
    "udevadm": (),
}


def host(tree: Tree) -> Host:
    """Return the node's identity."""
    uptime = (tree.read("/proc/uptime") or "").split()
    machine_id = tree.read("/etc/machine-id")
    return Host(
        hostname=tree.read("/proc/sys/kernel/hostname"),
        os=_os_name(tree.read("/etc/os-release") or tree.read("/usr/lib/os-release")),
        kernel=tree.read("/proc/sys/kernel/osrelease"),
        arch=os.uname().machine,
        machine_id_sha256=hashlib.sha256(machine_id.encode()).hexdigest() if machine_id else None,
        boot_id=tree.read("/proc/sys/kernel/random/boot_id"),
        uptime_s=float(uptime[0]) if uptime and uptime[0].replace(".", "", 1).isdigit() else None,
        python=".".join(map(str, sys.version_info[:3])),
        euid=os.geteuid(),
    )


def _os_name(release: str | None) -> str | None:
    for line in (release or "").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip("\"'")
    return None


def tool(tools: Tools, name: str) -> Tool:
    """Return where a tool is and what it says of its version."""
    path = tools.find(name)
    if path is None or not TOOLS[name]:
        return Tool(path)
    output = tools.run([name, *TOOLS[name]])
    lines = output.stdout.splitlines()
    return Tool(path, excerpt(lines[0]) if output.status == 0 and lines else None)


def ssh(tree: Tree, environment: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the client's and the server's address of the connection; None when there is none.

    sudo takes the variable out of the environment, so the parents' are looked at too.
    """
    value = environment.get("SSH_CONNECTION")
    pid = str(os.getppid())
    for _ in range(16):
        words = (value or "").split()
        if len(words) == 4:
            return words[0], words[2]
        if pid in ("0", "1"):
            return None
        variables = (tree.read_bytes(f"/proc/{pid}/environ") or b"").split(b"\0")
        found = next((item for item in variables if item.startswith(b"SSH_CONNECTION=")), b"")
        value = found.partition(b"=")[2].decode("utf-8", "replace")
        # The command's name in brackets may hold blanks; the parent is the second word behind it.
        behind = (tree.read(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
        pid = behind[1] if len(behind) > 1 else "0"
    return None


def connection(ends: tuple[str, str] | None, interfaces: Interfaces | None) -> Ssh | None:
    """Return the connection with the device that holds the server's address."""
    if ends is None:
        return None
    addresses = interfaces.addresses if interfaces else ()
    server = ends[1].partition("%")[0]
    return Ssh(ends[0], ends[1], next((found.dev for found in addresses if found.address == server), None))
