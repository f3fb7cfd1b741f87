"""An NFS mount over the fabric is warned about, one over the management network is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fabric_plan.compare.diff import diff
from fabric_plan.compare.preflight import Severity, preflight
from fabric_plan.node.collect.files import nfs
from fabric_plan.node.document import NfsMount
from fabric_plan.node.tree import Tree
from tests.compare.test_diff import F0, LIVE, WANT, link
from tests.facts_builder import read


@pytest.mark.parametrize(
    ("server", "warned"), [("10.10.4.10", True), ("10.10.0.11", True), ("192.168.1.20", False)]
)
def test_server(server: str, warned: bool) -> None:
    facts = replace(link(F0, mtu=1500)(LIVE), nfs=read((NfsMount(server, "/models"),)))
    found = list(
        preflight({"spark1": WANT}, {"spark1": facts}, {"spark1": diff(WANT, facts)}, take_over=False)
    )
    assert [(f.id, f.severity) for f in found] == ([("nfs-on-fabric", Severity.WARN)] if warned else [])


def test_the_mounts_of_a_node_are_read(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/mounts").write_text(
        "sysfs /sys sysfs rw 0 0\nspark1:/m /models nfs4 rw,vers=4.2,addr=10.10.0.10 0 "
        "0\n[fe80::1]:/x /x nfs rw 0 0\n"
    )
    assert nfs(Tree(str(tmp_path))).value == (NfsMount("10.10.0.10", "/models"), NfsMount("fe80::1", "/x"))
    assert nfs(Tree(str(tmp_path / "none"))).value is None
