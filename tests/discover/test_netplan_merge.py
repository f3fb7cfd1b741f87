"""Netplan files merge here as netplan itself merges them; what it cannot read is named, file by file."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric_plan.discover.netplan_merge import Merged, NetplanFile, merge

NETPLAN = shutil.which("netplan", path="/usr/sbin:/usr/bin:/sbin:/bin")
needs_netplan = pytest.mark.skipif(
    NETPLAN is None, reason="netplan is not installed: apt-get install netplan.io"
)


def files(*pairs: tuple[str, str | bytes]) -> Merged:
    return merge(NetplanFile(path, text.encode() if isinstance(text, str) else text) for path, text in pairs)


def ethernets(body: str) -> str:
    return f"network:\n  version: 2\n  ethernets:\n{body}\n"


def netplan_get(root: Path) -> dict[str, Any]:
    """Return netplan's own view of the files below `root`."""
    assert NETPLAN is not None
    result = subprocess.run(
        [NETPLAN, "get", "--root-dir", str(root), "ethernets"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return yaml.load(result.stdout, Loader=yaml.BaseLoader) or {}


def ours(merged: Merged) -> dict[str, Any]:
    """Return the merge in netplan's own words, as far as it is read here."""
    out: dict[str, Any] = {}
    for definition in merged.definitions.values():
        entry: dict[str, Any] = {}
        match: dict[str, Any] = {}
        if definition.match_names:
            match["name"] = definition.match_names[0]
        if definition.match_mac:
            match["macaddress"] = definition.match_mac
        if definition.match:
            entry["match"] = match
        if definition.addresses:
            entry["addresses"] = [str(said.value) for said in definition.addresses]
        if definition.dhcp4 is not None:
            entry["dhcp4"] = str(definition.dhcp4.value).lower()
        if definition.mtu is not None:
            entry["mtu"] = str(definition.mtu.value)
        if definition.routes:
            entry["routes"] = [{"to": said.value.to, "via": said.value.via} for said in definition.routes]
        if definition.set_name is not None:
            entry["set-name"] = definition.set_name.value
        out[definition.id] = entry
    return out


def write(root: Path, path: str, text: str) -> None:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    place.chmod(0o600)


LAYERS = (
    ("/etc/netplan/10-a.yaml", ethernets("    e0: {addresses: [10.0.0.1/24], mtu: 1400, dhcp4: yes}")),
    ("/etc/netplan/20-b.yaml", ethernets("    e0: {addresses: [10.0.0.1/24, 10.0.0.9/24], dhcp4: off}")),
    ("/lib/netplan/05-l.yaml", ethernets("    e0: {mtu: 900}\n    e5: {dhcp4: no}")),
    ("/run/netplan/20-b.yaml", ethernets("    e1: {addresses: [10.1.0.1/24], mtu: 9000}")),
)


def test_run_shadows_etc_by_name_and_the_rest_adds_up() -> None:
    merged = files(*LAYERS)
    e0 = merged.definitions["e0"]
    assert [str(said.value) for said in e0.addresses] == ["10.0.0.1/24"], "/etc/netplan/20-b.yaml is hidden"
    assert e0.mtu is not None and (e0.mtu.value, e0.mtu.file) == (1400, "/etc/netplan/10-a.yaml")
    assert e0.dhcp4 is not None and e0.dhcp4.value is True, "yes is a word of YAML 1.1"
    assert e0.files == ("/lib/netplan/05-l.yaml", "/etc/netplan/10-a.yaml")
    assert "e1" in merged.definitions


def test_each_value_knows_its_file_and_line() -> None:
    text = ethernets(
        "    e0:\n      addresses:\n        - 10.0.0.1/24\n        - 10.0.0.2/24\n      mtu: 9000"
    )
    e0 = files(("/etc/netplan/x.yaml", text)).definitions["e0"]
    assert [said.where for said in e0.addresses] == ["/etc/netplan/x.yaml:6", "/etc/netplan/x.yaml:7"]
    assert e0.mtu is not None and e0.mtu.where == "/etc/netplan/x.yaml:8"


@needs_netplan
def test_netplan_agrees_on_layers(tmp_path: Path) -> None:
    for path, text in LAYERS:
        write(tmp_path, path, text)
    assert ours(files(*LAYERS)) == netplan_get(tmp_path)


_DEVICES = ("e0", "e1", "x")
_entries = st.fixed_dictionaries(
    {},
    optional={
        "addresses": st.lists(
            st.sampled_from(["10.0.0.1/24", "10.0.0.2/24", "10.1.0.1/30"]), min_size=1, max_size=3
        ),
        "mtu": st.sampled_from([1500, 9000]),
        "dhcp4": st.sampled_from(["yes", "no", "true", "off", "On", "n"]),
        "routes": st.lists(
            st.sampled_from(["10.9.0.0/24", "10.9.1.0/24"]).map(lambda to: {"to": to, "via": "10.0.0.9"}),
            min_size=1,
            max_size=2,
        ),
    },
)
_files = st.dictionaries(
    st.tuples(st.sampled_from(["etc", "run", "lib"]), st.sampled_from(["10-a", "20-b", "90-NM-1", "99"])),
    st.dictionaries(st.sampled_from(_DEVICES), _entries.filter(bool), min_size=1),
    min_size=1,
    max_size=4,
)


@needs_netplan
@given(drawn=_files)
@settings(max_examples=12, deadline=None)
def test_netplan_agrees_on_any_files(drawn: dict[tuple[str, str], dict[str, Any]]) -> None:
    texts = []
    for (layer, name), devices in drawn.items():
        bodies = {
            dev: {**body, **({"match": {"macaddress": "02:00:00:00:00:0a"}} if dev == "x" else {})}
            for dev, body in devices.items()
        }
        text = yaml.safe_dump({"network": {"version": 2, "ethernets": bodies}})
        # The words of YAML 1.1 stand there unquoted, as people write them.
        for word in ("yes", "no", "true", "off", "On", "n"):
            text = text.replace(f"dhcp4: '{word}'", f"dhcp4: {word}")
        texts.append((f"/{layer}/netplan/{name}.yaml", text))
    with tempfile.TemporaryDirectory() as folder:
        for path, text in texts:
            write(Path(folder), path, text)
        theirs = netplan_get(Path(folder))
    assert ours(files(*texts)) == theirs


BROKEN = {
    "nul": b"\0" * 541,
    "half": b"network:\n  ethernets:\n    e0: {mtu: 9000",
    "tab": b"network:\n\tethernets: {}\n",
    "list": b"- network\n",
    "latin": "# größer\n".encode("latin-1") + b"network: {version: 2}\n",
    "address": ethernets("    e0: {addresses: [10.0.0.300/24]}").encode(),
    "no-prefix": ethernets("    e0: {addresses: [10.0.0.3]}").encode(),
    "mtu": ethernets("    e0: {mtu: jumbo}").encode(),
    "dhcp": ethernets("    e0: {dhcp4: maybe}").encode(),
    "sequence": ethernets("    e0: {addresses: 10.0.0.3/24}").encode(),
}
HARMLESS = {
    "empty": b"",
    "comment": b"# nothing here\n",
    "renderer": b"network: {version: 2, renderer: NetworkManager}\n",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_named_and_the_others_still_read(name: str) -> None:
    merged = files(
        ("/etc/netplan/50-bad.yaml", BROKEN[name]),
        ("/etc/netplan/10-good.yaml", ethernets("    e0: {addresses: [10.0.0.1/24]}")),
    )
    (error,) = merged.broken
    assert "/etc/netplan/50-bad.yaml" in error.message
    assert error.hint is not None and "50-bad.yaml" in error.hint and "*" not in error.hint
    assert [str(said.value) for said in merged.definitions["e0"].addresses] == ["10.0.0.1/24"]


@needs_netplan
@pytest.mark.parametrize(("name", "content"), [*BROKEN.items(), *HARMLESS.items()])
def test_netplan_agrees_on_what_is_broken(name: str, content: bytes, tmp_path: Path) -> None:
    assert NETPLAN is not None
    write(tmp_path, "/etc/netplan/50.yaml", "")
    (tmp_path / "etc/netplan/50.yaml").write_bytes(content)
    result = subprocess.run(
        [NETPLAN, "generate", "--root-dir", str(tmp_path)], capture_output=True, check=False
    )
    assert (result.returncode != 0) == (name in BROKEN), result.stderr
    assert bool(files(("/etc/netplan/50.yaml", content)).broken) == (name in BROKEN)


@given(content=st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_no_content_raises(content: bytes) -> None:
    merge([NetplanFile("/etc/netplan/50.yaml", content)])


def test_a_deep_file_is_refused_and_not_followed() -> None:
    assert files(("/etc/netplan/x.yaml", b"[" * 5000)).broken


def test_hidden_and_other_files_do_not_count() -> None:
    body = ethernets("    e0: {mtu: 9000}")
    assert not files(("/etc/netplan/.x.yaml", body), ("/etc/netplan/x.yaml.bak", body)).definitions


@pytest.mark.parametrize(
    ("body", "name", "mac", "claims"),
    [
        ("    e0: {mtu: 1}", "e0", None, True),
        ("    e0: {mtu: 1}", "e1", None, False),
        ("    any: {match: {name: 'enp1s0f*'}}", "enp1s0f1np1", None, True),
        ("    any: {match: {macaddress: '02:00:00:00:00:0A'}}", "e7", "02:00:00:00:00:0a", True),
        ("    any: {match: {macaddress: '02:00:00:00:00:0a'}}", "any", None, False),
        ("    any: {match: {macaddress: '02:00:00:00:00:0a', name: e1}}", "e1", "02:00:00:00:00:0b", False),
        ("    any: {match: {name: old}, set-name: new}", "new", None, True),
    ],
)
def test_which_interface_a_definition_applies_to(body: str, name: str, mac: str | None, claims: bool) -> None:
    (definition,) = files(("/etc/netplan/x.yaml", ethernets(body))).definitions.values()
    assert definition.claims((name,), mac) is claims
