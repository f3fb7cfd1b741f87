"""Every file of tests/cases/bad-inventory is refused as its table says; the good one loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fabric_plan.errors import InventoryError
from fabric_plan.inventory.load import load
from fabric_plan.resources import hardware_roles

CASES = Path(__file__).parent.parent / "cases" / "bad-inventory"
EXPECTED: dict[str, dict[str, Any]] = yaml.safe_load((CASES / "expect.yaml").read_text())
ANY_CASE = {"20-empty.yaml", "22-top-level-list.yaml", "24-alias-bomb.yaml"}


def refusal(text: str | bytes, name: str = "inventory.yaml") -> InventoryError:
    with pytest.raises(InventoryError) as caught:
        load(text, name, hardware_roles())
    return caught.value


def test_the_good_one_loads() -> None:
    loaded = load((CASES / "00-good.yaml").read_bytes(), "00-good.yaml", hardware_roles())
    assert [node.name for node in loaded.fabric.nodes] == ["n1", "n2"]
    assert loaded.notices == ()


def test_the_table_has_every_file() -> None:
    files = {path.name for path in CASES.glob("*.yaml")} - {"00-good.yaml", "expect.yaml"}
    assert files == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_bad(name: str) -> None:
    error = refusal((CASES / name).read_bytes(), name)
    text = "\n".join(error.lines())
    expected = EXPECTED[name]
    for word in expected["must_name"]:
        assert (word.lower() in text.lower()) if name in ANY_CASE else (word in text)
    if expected["line"] is not None:
        assert f"{name}:{expected['line']}:" in text


def test_findings_come_in_one_run_and_in_file_order() -> None:
    text = (CASES / "00-good.yaml").read_text()
    text = text.replace("mtu: 9000", "mtu: 90000").replace("subnet: 10.61.1.0/24", "subent: 10.61.1.0/24")
    text = text.replace("n2.f0", "n3.f0").replace('"a6:3c:10:11:01:12"', "10:20:30:40:50:10")
    error = refusal(text)
    places = [int((e.where or "").split(":")[1]) for e in error.errors]
    assert places == sorted(places)
    assert [e.id for e in error.errors] == [
        "out-of-range",
        "unquoted",
        "node-without-cable",
        "unknown-node",
        "unknown-key",
    ]


@pytest.mark.parametrize(
    ("change", "id_", "words"),
    [
        (("mtu: 9000", "mtu: 9000\nplanes: {1: manged}"), "unknown-value", "manged"),
        (("mtu: 9000", "mtu: 9000\nplanes: {3: managed}"), "wrong-type", "1 and 2"),
        (("mtu: 9000", "mtu: 9000\nplanes: {2: managed}"), "no-plane-1", "plane 1"),
        (("mtu: 9000", "mtu: '9000'"), "wrong-type", "whole number"),
        (("mtu: 9000", "mtu: true"), "wrong-type", "the truth value True"),
        (("mtu: 9000", "hardware: dgx-sparc"), "unknown-hardware", "dgx-sparc"),
        (("queue_size: 1024", "queue_size: 16384"), "queue-size", "8192"),
        (("name: n2", "name: n1"), "duplicate-node", "n1"),
        (("name: n2", "name: on"), "unquoted", "the truth value True"),
        (("192.168.71.22", "192.168.71.21"), "duplicate-management", "192.168.71.21"),
        (("192.168.71.22", "10.61.0.40"), "management-in-fabric", "10.61.0.40"),
        (("a6:3c:10:11:02:12", "a6:3c:10:11:01:12"), "duplicate-mac", "a6:3c:10:11:01:12"),
        (("a6:3c:10:11:02:12", "a7:3c:10:11:02:12"), "mac", "multicast"),
        (("a6:3c:10:11:02:12", "a6:3c:10:11:02"), "mac", "six pairs"),
        (("0000:01:00.1", "0000:01:00.0"), "duplicate-pci", "0000:01:00.0"),
        (("netdev: enp1s0f1np1", 'netdev: "a;reboot"'), "text-pattern", "a;reboot"),
        (("netdev: enp1s0f1np1", "netdev: abcdefghijklmnop"), "text-pattern", "15"),
        (("10.61.1.0/24", "10.61.1.5/24"), "subnet", "10.61.1.0/24"),
        (("10.61.1.0/24", "10.61.1.0"), "subnet", "prefix length"),
        (("10.61.1.0/24", "169.254.1.0/24"), "unusable-range", "link-local"),
        (("10.61.1.0/24", "10.61.0.0/24"), "overlapping-subnets", "10.61.0.0/24"),
        (
            ("10.61.1.0/24", "10.61.1.0/24\n        addresses: [10.61.1.1]"),
            "address-count",
            "1 addresses for 2",
        ),
        (
            ("10.61.1.0/24", "10.61.1.0/24\n        addresses: [10.61.1.1, 10.61.1.255]"),
            "address-outside-subnet",
            "10.61.1.255",
        ),
        (
            ("10.61.1.0/24", "10.61.1.0/24\n        addresses: [10.61.1.1, 10.61.1.1]"),
            "duplicate-address",
            "same address",
        ),
        (("ends: [n1.f0, n2.f0]", "ends: [n1.f0, n2f0]"), "cable-end", "node.port"),
        (("ends: [n1.f0, n2.f0]", "ends: [n1.f0]"), "wrong-count", "2"),
        (("ends: [n1.f0, n2.f0]", "ends: [n1.p0, n2.f0]"), "unknown-port", "is called f0 here"),
        (("mtu: 9000", "mtu: 9000\nmesh: opposite"), "mesh-needs-macs", "plane 2"),
        (("mtu: 9000", "mtu: 9000\naddressing: {prefix: 32}"), "out-of-range", "31"),
        (("mtu: 9000", "mtu: 9000\naddressing: {pool: 10.0.0.0/25}"), "pool-too-small", "/24"),
        (("mtu: 9000", "mtu: 9000\nfoo: bar"), "unknown-key", "known here"),
    ],
)
def test_one_defect(change: tuple[str, str], id_: str, words: str) -> None:
    text = (CASES / "00-good.yaml").read_text().replace(*change, 1)
    error = refusal(text)
    assert id_ in [e.id for e in error.errors]
    assert words in "\n".join(error.lines())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"\xff\xfe\x00", "UTF-8"),
        (b"\0" * 541, "541 bytes of NUL"),
        (b"a: [1, 2", "not valid YAML"),
        (b"a:\n\t- b", "tabs"),
        (b"--- {}\n--- {}", "2 YAML documents"),
        (b"[" * 5000, "nested deeper"),
        (b"a: !!python/object:os.system x", "not allowed"),
        (b"<<: {a: 1}\n", "merge keys"),
        (b"nodes: 2026-02-31", "cannot read"),
        (b"x" * 1_000_001, "larger than"),
        (b"just words", "single value"),
        (b"a: &a 1\n" + b"".join(b"k%d: *a\n" % i for i in range(17)), "aliases"),
    ],
)
def test_unreadable(text: bytes, words: str) -> None:
    assert words in "\n".join(refusal(text).lines())


def test_a_range_of_fake_dns_answers_is_warned_about_with_its_place() -> None:
    text = (CASES / "00-good.yaml").read_text().replace("10.61.1.0/24", "198.18.1.0/24")
    notices = load(text, "good.yaml", hardware_roles()).notices
    assert [notice.id for notice in notices] == ["fake-dns-range"]
    assert "198.18.1.0/24 lies in 198.18.0.0/15" in notices[0].text
    assert notices[0].where == "good.yaml:19:17"
