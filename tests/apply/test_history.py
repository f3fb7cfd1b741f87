"""Reading a node's generations: data from a node, of which nothing is believed unseen."""

from __future__ import annotations

from base64 import b64decode, b64encode
from hashlib import sha256
from typing import Any

import pytest

from fabric_plan.apply.history import files_of
from fabric_plan.apply.session import staged_document
from fabric_plan.compare.desired import desired_of
from fabric_plan.compare.steps import StagedFile
from fabric_plan.errors import NodeError
from fabric_plan.transport.base import Target
from fabric_plan.transport.fake import Fake

MARKER = "/usr/local/lib/fabric-plan/fabric-plan-marker"


def file(path: str, content: bytes, mode: str = "0644") -> dict[str, Any]:
    return {"path": path, "mode": mode, "sha256": "", "content": b64encode(content).decode()}


def read(*files: dict[str, Any]) -> dict[str, tuple[str, str]]:
    fake = Fake(lambda node, verb, request: {"ok": True, "files": list(files)})
    return files_of(fake.connect(Target("spark1", "127.0.0.1")), 3)


def test_a_program_beside_our_files_is_no_part_of_a_generation() -> None:
    sysctl = file("/etc/sysctl.d/90-fabric-plan.conf", b"a = 1\n")
    gone = {"path": "/etc/netplan/50-other.yaml", "content": None}
    link = {"path": "/etc/systemd/system/multi-user.target.wants/fabric-plan-mesh.service", "link": "../x"}
    for program in (b"\x7fELF\xff\xfe", b"#!/bin/sh\n"):
        found = read(sysctl, file(MARKER, program, "0755"), gone, link)
        assert found == {"/etc/sysctl.d/90-fabric-plan.conf": ("0644", "a = 1\n")}


def test_what_is_no_text_goes_back_byte_by_byte() -> None:
    key = bytes(range(256))
    files = read(file("/etc/fabric-plan/key.bin", key, "0600"))
    (kept,) = desired_of("spark1", files, ()).files
    assert kept.sha256 == sha256(key).hexdigest()
    staged = staged_document(StagedFile(kept.path, kept.mode, kept.content))
    assert (staged["sha256"], b64decode(staged["content"])) == (kept.sha256, key)


@pytest.mark.parametrize(
    "broken", [{"path": "/etc/x", "content": "%"}, {"content": ""}, {"path": "/etc/x", "content": ""}]
)
def test_a_generation_that_makes_no_sense_is_named(broken: dict[str, Any]) -> None:
    with pytest.raises(NodeError, match="generation 3 makes no sense"):
        read(broken)
