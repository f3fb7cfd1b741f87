"""The controller's reader of a node's document: data, never trusted."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric_plan.errors import NodeError
from fabric_plan.facts import (
    MAX_DOCUMENT_BYTES,
    Facts,
    effective_sysctl,
    link_of,
    load_facts,
    must_read,
    shadowed,
)
from fabric_plan.node.collect import collect
from fabric_plan.node.document import SCHEMA, File
from fabric_plan.node.reading import Reading, Unreadable
from fabric_plan.node.records import Interfaces, Link
from fabric_plan.node.request import Request
from fabric_plan.node.tools import Tools
from fabric_plan.node.tree import Tree


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the document of an empty node: every area is there, nothing is in it."""
    patch = pytest.MonkeyPatch()
    patch.setenv("PATH", "/nonexistent")
    try:
        facts = collect(
            Request(interfaces=("a",)), Tree(str(tmp_path_factory.mktemp("root"))), Tools(5, own_path=True)
        )
    finally:
        patch.undo()
    loaded: dict[str, Any] = json.loads(json.dumps(facts, default=vars))
    return loaded


def load(document: object) -> Facts:
    return load_facts(json.dumps(document).encode(), node="spark1")


def change(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a copy of the document with the value at a dotted path replaced."""
    copy: dict[str, Any] = json.loads(json.dumps(document))
    *way, last = path.split(".")
    place = copy
    for key in way:
        place = place[key]
    place[last] = value
    return copy


def test_document_comes_back_as_it_was(document: dict[str, Any]) -> None:
    facts = load(document)
    assert facts.functions == ("a",)
    assert (
        json.loads(
            json.dumps(
                facts, default=lambda item: vars(item) if dataclasses.is_dataclass(item) else dict(item)
            )
        )
        == document
    )


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("schema", "fabric-plan/facts/v2", "expected 'fabric-plan/facts/v1'"),
        ("took_ms", "5", "took_ms: expected a whole number, found '5'"),
        ("took_ms", True, "took_ms: expected a whole number"),
        ("took_ms", 10**30, "took_ms: expected a whole number"),
        ("functions", {}, "functions: expected a list"),
        ("functions", ["a"] * 20_001, "functions: expected a list of at most"),
        ("functions", ["\ud800"], "functions[0]: expected text without NUL and lone surrogates"),
        ("functions", ["a\0"], "functions[0]: expected text without NUL"),
        ("host", [], "host: expected an object"),
        ("host.uptime_s", "1", "host.uptime_s: expected a number"),
        ("interfaces.value", {"links": []}, "interfaces.value.addresses: expected a value, found None"),
        ("tc.a.rules.value", [{"dev": "a"}], "tc.a.rules.value[0]."),
        ("rdma.usage.in_use", "no", "rdma.usage.in_use: expected true or false"),
        ("files.value", {"/etc/x": {"kind": None}}, "files.value./etc/x.kind: expected text"),
    ],
)
def test_nonsense_is_named_with_its_place(
    document: dict[str, Any], path: str, value: Any, words: str
) -> None:
    with pytest.raises(NodeError) as error:
        load(change(document, path, value))
    assert words in error.value.message
    assert error.value.where == "spark1"


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"null", b"Welcome!\n{}", b"\xff\xfe\x00", b"[" * 200_000, b'{"schema": NaN}', b"9" * 9999],
)
def test_no_document_is_one_clear_error(text: bytes) -> None:
    with pytest.raises(NodeError):
        load_facts(text, node="spark1")


def test_size_is_bounded() -> None:
    with pytest.raises(NodeError, match="at most"):
        load_facts(b" " * (MAX_DOCUMENT_BYTES + 1), node="spark1")


def test_missing_and_unknown_keys(document: dict[str, Any]) -> None:
    del document["lldp"]
    with pytest.raises(NodeError, match="lldp: expected a value"):
        load(document)
    document["lldp"] = {"value": []}
    document["of_a_newer_program"] = {"deep": [1, 2]}
    assert load(document).lldp == Reading(())


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_changed_document_is_facts_or_an_error(document: dict[str, Any], data: st.DataObject) -> None:
    copy = json.loads(json.dumps(document))
    place = copy
    while isinstance(place, dict) and place:
        key = data.draw(st.sampled_from(sorted(place)))
        inner = place[key]
        if not isinstance(inner, dict) or not inner or data.draw(st.booleans()):
            junk = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
            place[key] = data.draw(
                junk | st.lists(junk, max_size=2) | st.dictionaries(st.text(max_size=3), junk, max_size=2)
            )
            break
        place = inner
    with contextlib.suppress(NodeError):
        assert load(copy).schema == SCHEMA


def test_must_read_tells_why(document: dict[str, Any]) -> None:
    with pytest.raises(NodeError, match="cannot read the links: ip is not there"):
        must_read(load(document).interfaces, "the links", node="spark1")
    assert must_read(Reading((), (Unreadable("a gap"),)), "x", node="n") == ()


def with_sysctls(document: dict[str, Any], **values: str) -> Facts:
    names = {f"net.ipv4.conf.{key.replace('__', '.')}": value for key, value in values.items()}
    return load(change(document, "sysctls", names))


@pytest.mark.parametrize(
    ("name", "own", "common", "forwarding", "effective"),
    [
        ("rp_filter", "1", "2", "0", 2),
        ("arp_ignore", "1", "0", "0", 1),
        ("send_redirects", "0", "1", "0", 1),
        ("forwarding", "0", "1", "0", 0),
        ("accept_redirects", "1", "0", "1", 0),
        ("accept_redirects", "1", "0", "0", 1),
        ("accept_redirects", "0", "0", "0", 0),
    ],
)
def test_sysctl_in_effect(
    document: dict[str, Any], name: str, own: str, common: str, forwarding: str, effective: int
) -> None:
    values = {"a__forwarding": forwarding, f"a__{name}": own, f"all__{name}": common}
    assert effective_sysctl(with_sysctls(document, **values), "a", name) == effective


def test_sysctl_that_was_not_read_has_no_value(document: dict[str, Any]) -> None:
    assert effective_sysctl(with_sysctls(document, a__rp_filter="2"), "a", "rp_filter") is None


def test_link_by_any_of_its_names(document: dict[str, Any]) -> None:
    links = (
        Link("eth0", mac="02:00:00:00:00:01", pci="0000:01:00.0", altnames=("enp1s0f0np0",)),
        Link("bond0", mac="02:00:00:00:00:02"),
        Link("eth1", mac="02:00:00:00:00:02", permanent_mac="02:00:00:00:00:03"),
        Link("eth2", mac="02:00:00:00:00:02"),
    )
    facts = dataclasses.replace(load(document), interfaces=Reading(Interfaces(links, ())))
    assert link_of(facts, name="enp1s0f0np0") == links[0]
    assert link_of(facts, pci="0000:01:00.0") == links[0]
    assert link_of(facts, mac="02:00:00:00:00:03") == links[2]
    assert link_of(facts, mac="02:00:00:00:00:02") is None, "two have it"
    assert link_of(load(document), name="eth0") is None


def test_netplan_definitions_in_effect() -> None:
    paths = [
        "/lib/netplan/b.yaml",
        "/etc/netplan/b.yaml",
        "/run/netplan/a.yaml",
        "/etc/netplan/a.yaml",
        "/lib/netplan/c.yaml",
    ]
    files = {path: File("file", text=path) for path in paths}
    assert list(shadowed(files)) == ["/run/netplan/a.yaml", "/etc/netplan/b.yaml", "/lib/netplan/c.yaml"]
