"""Interfaces that are ours no longer: which they are, and what NetworkManager itself says of them."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from fabric_plan.compare.files import interfaces_of_ours
from fabric_plan.compare.takeover import MOVED, move_aside
from fabric_plan.errors import NodeError
from fabric_plan.node.document import Facts, File
from fabric_plan.node.reading import Reading
from tests.facts_builder import desired, live
from tests.golden_trees import ROOT
from tests.planner.test_ring4 import planned

WANT = desired(planned((ROOT / "inventories" / "ring4.yaml").read_text()))["spark1"]
NAME = "/etc/netplan/90-NM-0a1b2c3d-0000-4000-8000-000000000001.yaml"
TEXT = 'network:\n  version: 2\n  ethernets:\n    enP2p1s0f0np0:\n      addresses: ["10.99.0.1/24"]\n'
PLANE2 = frozenset({"enP2p1s0f0np0", "enP2p1s0f1np1"})


def facts_with(text: str, sha256: str | None = None) -> Facts:
    found = live(WANT)
    digest = sha256 or hashlib.sha256(text.encode()).hexdigest()
    file = File("file", "0600", 0, 0, size=len(text), sha256=digest, text=text)
    return replace(found, netplan=Reading({**(found.netplan.value or {}), NAME: file}, ()))


def test_what_our_files_define_is_ours_even_where_nothing_is_wanted_any_more() -> None:
    ours = {function.netdev for function in WANT.functions}
    assert interfaces_of_ours(facts_with(TEXT.replace("enP2p1s0f0np0", "wlP9s9"))) == ours


def test_networkmanagers_own_file_is_moved_aside_whole() -> None:
    ((change, copy),) = move_aside("spark1", facts_with(TEXT), PLANE2).items()
    assert (change.name, change.want) == (NAME, None)
    assert (copy.path, copy.mode, copy.content) == (NAME + MOVED, "0600", TEXT)
    assert not copy.path.endswith(".yaml"), "netplan would read the copy"


def test_a_file_about_others_stays() -> None:
    assert move_aside("spark1", facts_with(TEXT.replace("enP2p1s0f0np0", "wlP9s9")), PLANE2) == {}


def test_a_file_about_others_too_is_refused() -> None:
    with pytest.raises(NodeError, match="it defines wlP9s9 too"):
        move_aside("spark1", facts_with(TEXT + "    wlP9s9: {dhcp4: true}\n"), PLANE2)


def test_a_text_that_is_not_whole_is_no_copy() -> None:
    with pytest.raises(NodeError, match="it holds secrets"):
        move_aside("spark1", facts_with(TEXT, "0" * 64), PLANE2)
