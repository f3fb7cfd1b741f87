"""The hardware table of a node: a small text that the guest's "firmware" reads from its second disk."""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Mapping
from pathlib import Path

from lab.machine import wire_mac
from lab.spec import PORTS, Node

TABLE_BYTES = 65536  # one read of the disk, zero-filled

_NAMESPACE = uuid.UUID("9d2f6b3e-5a0c-4c1b-8f5e-0a4d1f7c2e60")


def table(node: Node, *, host_key: Path, authorized: str, faults: Mapping[str, str]) -> bytes:
    """Return the disk's content: identity, ports, functions, and the faults (path under debugfs, value) to
    set at every boot.
    """
    mgmt = node.mgmt
    lines = [
        f"node {node.name}",
        f"machine-id {hashlib.md5(node.name.encode(), usedforsecurity=False).hexdigest()}",
        f"uuid {uuid.uuid5(_NAMESPACE, node.name)}",
        f"authorized {authorized.strip()}",
        f"hostkey {base64.b64encode(host_key.read_bytes()).decode()}",
        f"mgmt {mgmt.netdev} {mgmt.mac} {mgmt.address} {mgmt.renderer}",
    ]
    lines += ["docker yes"] if node.docker else []
    lines += [f"function {f.pci} {f.port} {f.netdev} {f.rdma} {f.mac}" for f in node.functions]
    lines += [f"wire {port} {wire_mac(port)}" for port in PORTS]
    lines += [f"fault {path} {value}" for path, value in faults.items()]
    text = "\n".join(lines).encode() + b"\n"
    return text.ljust(TABLE_BYTES, b"\0")
