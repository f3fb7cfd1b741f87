"""A node made of files: a root directory, and stand-ins for tools that print recorded outputs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.node.sample_claims import SAMPLES


class Node:
    """A root directory and a folder of stand-in commands under `base`."""

    def __init__(self, base: Path) -> None:
        self.root = base / "root"
        self.bin = base / "bin"
        self.root.mkdir()
        self.bin.mkdir()

    def write(self, path: str, content: str | bytes, mode: int = 0o644) -> None:
        """Put a file below the root."""
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)
        place.chmod(mode)

    def tool(
        self, name: str, answers: Mapping[str, str | Sequence[str]], otherwise: str = "exit 255"
    ) -> None:
        """Put a stand-in that cats a sample or runs shell lines when its arguments match a pattern."""
        lines = ["#!/bin/bash", 'case "$*" in']
        for pattern, answer in answers.items():
            body = (
                f"exec cat {shlex.quote(str(SAMPLES / answer))}"
                if isinstance(answer, str)
                else "; ".join(answer)
            )
            lines.append(f"{pattern}) {body} ;;")
        lines += [f"*) {otherwise} ;;", "esac"]
        place = self.bin / name
        place.write_text("\n".join(lines) + "\n")
        place.chmod(0o755)


def function(node: Node, dev: str, rdma: str, pci: str, *, address: str = "") -> None:
    """Give the node a function: its sysfs entries, its GIDs with the address' at index 3, its sysctls."""
    device = node.root / f"sys/devices/pci/{pci}"
    (device / "net" / dev).mkdir(parents=True)
    for path in (f"sys/class/net/{dev}", f"sys/class/infiniband/{rdma}"):
        (node.root / path).mkdir(parents=True)
        (node.root / path / "device").symlink_to(f"../../../devices/pci/{pci}")
    base = f"/sys/class/infiniband/{rdma}"
    zero = ":".join(["0000"] * 8)
    mapped = ":".join(["0000"] * 5 + ["ffff"])
    words = bytes(int(part) for part in address.split(".")) if address else b""
    gids = {0: ("fe80:" + ":".join(["0000"] * 6) + ":0001", "IB/RoCE v1"), 1: (zero, ""), 2: (zero, "")}
    if words:
        gids[3] = (f"{mapped}:{words[:2].hex()}:{words[2:].hex()}", "RoCE v2")
    for index, (gid, kind) in gids.items():
        node.write(f"{base}/ports/1/gids/{index}", gid + "\n")
        if kind:
            node.write(f"{base}/ports/1/gid_attrs/types/{index}", kind + "\n")
            node.write(f"{base}/ports/1/gid_attrs/ndevs/{index}", dev + "\n")
    node.write(f"{base}/fw_ver", "28.45.4028\n")
    node.write(f"{base}/sys_image_guid", "025e:1003:000a:1112\n")
    node.write(f"{base}/ports/1/state", "4: ACTIVE\n")
    node.write(f"{base}/ports/1/hw_counters/out_of_sequence", "7\n")
    node.write(f"{base}/ports/1/counters/port_xmit_data", "18446744073709551615\n")
    node.write(f"/proc/sys/net/ipv4/conf/{dev}/rp_filter", "2\n")
    node.write(f"/proc/sys/net/ipv4/conf/{dev}/forwarding", "1\n")


def spark(base: Path) -> Node:
    """Return a node with one function and the recorded outputs of the tools."""
    node = Node(base)
    function(node, "enp1s0f0np0", "rocep1s0f0", "0000:01:00.0", address="10.10.0.10")
    node.write("/etc/machine-id", "0123456789abcdef0123456789abcdef\n")
    node.write("/etc/os-release", 'NAME="X"\nPRETTY_NAME="DGX OS 7"\n')
    node.write("/proc/sys/kernel/hostname", "spark1\n")
    node.write("/proc/sys/kernel/osrelease", "6.14.0-1013-nvidia\n")
    node.write("/proc/sys/kernel/random/boot_id", "84a73ed0-d5d2-425c-991a-829c314a27ac\n")
    node.write("/proc/uptime", "1741.34 3000.00\n")
    node.write("/proc/net/snmp", (SAMPLES / "proc-net-snmp.txt").read_text())
    node.write("/proc/sys/net/ipv4/conf/all/rp_filter", "0\n")
    node.write("/sys/kernel/debug/mlx5/0000:01:00.0/nic/fs/tc/hairpin_table_dump", HAIRPIN)
    node.write("/proc/77/cmdline", "\0".join(MARKER) + "\0")
    node.write("/proc/78/cmdline", "bash\0-c\0fabric-plan-marker\0")
    node.tool(
        "ip",
        {
            "'-V'": ["echo ip utility, iproute2-6.1.0"],
            "'-j -d addr show'": "ip-addr-show-d.json",
            "'-j -4 route show table all'": "hardware/ip-route-1.json",
            "'-j -6 route show'": ["true"],
            "'-j neigh show'": "ip-neigh-show.json",
        },
    )
    node.tool(
        "tc",
        {
            "'-j qdisc show'": [QDISCS],
            "'-j -s filter show dev enp1s0f0np0 ingress'": "tc-filter-show-s.json",
        },
    )
    node.tool("ethtool", {"'--json -k'*": "ethtool-k.json", "'-S'*": "ethtool-S.txt"})
    node.tool(
        "devlink",
        {
            "'-j dev param show'": "devlink-dev-param-show.json",
            "'-j -s dev show'": "devlink-dev-show-s.json",
            "'-j dev eswitch show pci/0000:01:00.0'": "devlink-dev-eswitch-show.json",
            "'-j dev info'": "devlink-dev-info.json",
        },
    )
    node.tool(
        "rdma",
        {
            "'-j link show'": "rdma-link-show.json",
            "'-j resource show qp'": "rdma-resource-show-qp.json",
            "'-j resource show ctx'": [
                'echo \'[{"ifname":"rocep1s0f0","ctxn":1,"pid":77,"comm":"marker"}]\''
            ],
        },
    )
    node.tool("ibv_devinfo", {"*": "hardware/ibv_devinfo-1.txt"})
    node.tool("nmcli", {"*device*": "nmcli-dev-status.txt", "*connection*": ["true"]})
    node.tool("systemctl", {"show*": [f"printf {shlex.quote(UNITS)}"]})
    node.tool("lldpcli", {"*": "hardware/lldp-1.json"})
    node.tool("mlnx_qos", {"*": "hardware/mlnx_qos-1.txt"})
    node.tool("dcb", {"*": "hardware/dcb-2.txt"})
    node.tool("iptables", {"*": ["echo -P FORWARD DROP"]})
    return node


MARKER = (
    "/usr/local/lib/fabric-plan/fabric-plan-marker",
    "--device",
    "rocep1s0f0",
    "--rule",
    "10.10.2.11=0x88b5",
)
QDISCS = 'echo \'[{"kind":"clsact","handle":"ffff:","dev":"enp1s0f0np0","parent":"ffff:fff1","options":{}}]\''
HAIRPIN = "Hairpin peer_vhca_id 1 prio 0 refcnt 2 num_channels 4 num_packets 8192\n"
UNITS = (
    "Id=fabric-plan-mesh.service\\nLoadState=loaded\\nActiveState=active\\nSubState=exited\\n"
    "UnitFileState=enabled\\nResult=success\\nMainPID=0\\nNRestarts=0\\nExecMainStatus=0\\n"
    "ActiveEnterTimestampMonotonic=9315204\\nFragmentPath=/etc/systemd/system/fabric-plan-mesh.service\\n"
    "NeedDaemonReload=no\\n\\n"
    "Id=docker.service\\nLoadState=not-found\\nActiveState=inactive\\nSubState=dead\\n"
)
