"""What a library is and what it makes of the plan, on files with an ELF file's sections and no code."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from fabric_plan.cli.main import main
from fabric_plan.errors import FabricPlanError
from fabric_plan.inventory.schema import NcclLibrary
from fabric_plan.nccl.env import nccl_names
from fabric_plan.nccl.library import judge, read_library
from fabric_plan.nccl.log import Verdict

RING4 = Path(__file__).parents[2] / "inventories" / "ring4.yaml"

STOCK = nccl_names(NcclLibrary.STOCK)
PATCHED = nccl_names(NcclLibrary.PATCHED)
ORDER = "NCCL_IB_DEVICE_PCI_ORDER"


def library(path: Path, version: str, names: tuple[str, ...], code: bytes = b"") -> Path:
    """Write an ELF file whose .rodata holds a version and names; `code` stands in another section."""
    strings = b"\0".join(
        [b"", f"NCCL version {version}+cuda13.0".encode(), *(name.encode() for name in names), b""]
    )
    table = b"\0.text\0.rodata\0.shstrtab\0"
    offsets, body = [], b""
    for part in (code, strings, table):
        offsets.append(64 + len(body))
        body += part
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01" + bytes(9),
        *(3, 183, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, 4, 3),
    )
    sections = [
        (0, 0, 0),
        (1, offsets[0], len(code)),
        (7, offsets[1], len(strings)),
        (15, offsets[2], len(table)),
    ]
    entries = b"".join(
        struct.pack("<IIQQQQIIQQ", name, 1, 2, 0, at, size, 0, 0, 1, 0) for name, at, size in sections
    )
    path.write_bytes(header + body + entries)
    return path


def _findings(path: Path, planned: tuple[str, ...], mode: NcclLibrary) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for finding in judge(read_library(path), planned, mode):
        found.setdefault(str(finding.verdict), []).append(finding.text)
    return found


def test_a_current_stock_library_knows_everything(tmp_path: Path) -> None:
    path = library(tmp_path / "libnccl.so.2", "2.30.7", (*STOCK, ORDER))
    read = read_library(path)
    assert (read.release, read.cuda, read.marker) == ("2.30.7", "13.0", False)
    assert _findings(path, STOCK, NcclLibrary.STOCK) == {
        "good": ["it knows every variable that matters of the 12 planned"]
    }


def test_an_older_one_ignores_subnet_aware_routing(tmp_path: Path) -> None:
    names = tuple(name for name in STOCK if "SUBNET" not in name)
    found = _findings(library(tmp_path / "l.so", "2.28.9", names), STOCK, NcclLibrary.STOCK)
    assert found["bad"][0].startswith("this library ignores NCCL_IB_SUBNET_AWARE_ROUTING (2.30.7)")
    assert "numbers devices as the driver lists them" in found["not proven"][0]
    assert "good" not in found


def test_a_stock_library_where_a_patched_one_is_planned(tmp_path: Path) -> None:
    found = _findings(library(tmp_path / "l.so", "2.30.7", STOCK), PATCHED, NcclLibrary.PATCHED)
    assert "SWITCHLESS_RING_ONLY does not stand in this one" in found["bad"][0]
    assert any("ignores NCCL_SWITCHLESS_RING_ONLY (a patched library alone)" in text for text in found["bad"])


def test_a_patched_library(tmp_path: Path) -> None:
    path = library(tmp_path / "l.so", "2.30.7", (*PATCHED, ORDER))
    assert read_library(path).marker
    assert list(_findings(path, PATCHED, NcclLibrary.PATCHED)) == ["good"]
    assert "the patch stays unused" in _findings(path, STOCK[:3], NcclLibrary.STOCK)["not proven"][0]


def test_a_build_that_knows_one_of_two_names_will_do(tmp_path: Path) -> None:
    names = tuple(name for name in PATCHED if name != "NCCL_SKIP_TREE_CONNECT")
    found = _findings(library(tmp_path / "l.so", "2.30.7", names), PATCHED, NcclLibrary.PATCHED)
    assert "bad" not in found
    assert "NCCL_SKIP_TREE_CONNECT" in found["not proven"][0]


def test_names_count_whole_and_in_constants_alone(tmp_path: Path) -> None:
    path = library(
        tmp_path / "l.so",
        "2.30.7",
        ("NCCL_ALGO_EXTRA", "xNCCL_CROSS_NIC", "NCCL_DEBUG=INFO"),
        b"\0NCCL_ALGO\0",
    )
    assert read_library(path).names == {"NCCL_ALGO_EXTRA"}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"),
        (b"#!/bin/sh\n", "no ELF header"),
        (b"\x7fELF", "no NCCL version"),
        (b"\x7fELF\x02\x01" + b"\xff" * 200, "no NCCL version"),
        (b"\x7fELF\x01\x01" + bytes(80), "no NCCL version"),
    ],
)
def test_what_is_no_library_is_said(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "l.so"
    path.write_bytes(data)
    with pytest.raises(FabricPlanError) as raised:
        read_library(path)
    assert said in raised.value.message


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(FabricPlanError, match="cannot read the library"):
        read_library(tmp_path / "none.so")


def test_without_a_section_table_everything_is_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "l.so"
    path.write_bytes(b"\x7fELF\x02\x01" + bytes(58) + b"\0NCCL version 2.27.3+cuda12.9\0NCCL_ALGO\0")
    read = read_library(path)
    assert read.release == "2.27.3"
    assert read.names == {"NCCL_ALGO"}


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = tuple(name for name in STOCK if "SUBNET" not in name)
    old = library(tmp_path / "old.so", "2.28.9", names)
    assert main(["nccl", "check-library", str(old), "-i", str(RING4)]) == 2
    assert "this library ignores NCCL_IB_SUBNET_AWARE_ROUTING (2.30.7)" in capsys.readouterr().out
    new = library(tmp_path / "new.so", "2.30.7", (*STOCK, ORDER))
    assert main(["nccl", "check-library", str(new), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["version"], document["ok"], document["marker"]) == ("2.30.7", True, False)
    assert [finding["verdict"] for finding in document["findings"]] == [str(Verdict.GOOD)]
