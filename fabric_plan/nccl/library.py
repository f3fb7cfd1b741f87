"""What an NCCL library is, read off its bytes: it is never loaded.

NCCL ignores a variable that it does not know, and says nothing. Every variable that it does know stands in
its read-only data by its full name, so the planned environment can be held against the file.
"""

from __future__ import annotations

import hashlib
import mmap
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fabric_plan.errors import FabricPlanError
from fabric_plan.inventory.schema import NcclLibrary
from fabric_plan.nccl.log import Verdict

MARKER = "SWITCHLESS_RING_ONLY"

_VERSION = re.compile(rb"NCCL version (\d+)\.(\d+)\.(\d+)(?:\+cuda([0-9.]+)| compiled with CUDA ([0-9.]+))")
_NAME = re.compile(rb"(?:NCCL|GLOO)_[A-Z0-9_]+\Z")


@dataclass(frozen=True, slots=True)
class Library:
    """A libnccl: its version as (major, minor, patch), the CUDA it was built for, whether it carries the ring
    patch's marker, the names that it knows, and the SHA-256 by which nodes are compared.
    """

    path: str
    version: tuple[int, int, int]
    cuda: str
    marker: bool
    names: frozenset[str]
    sha256: str

    @property
    def release(self) -> str:
        """The version as people write it."""
        return ".".join(map(str, self.version))


@dataclass(frozen=True, slots=True)
class LibraryFinding:
    """What the library makes of one planned variable, or of the plan as a whole."""

    id: str
    verdict: Verdict
    text: str
    mend: str


def read_library(path: Path) -> Library:
    """Read the library at `path`. Raises `FabricPlanError` where it cannot be read or is no NCCL library."""
    where = str(path)
    try:
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                raise FabricPlanError("the file is empty", where=where)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _read(where, data)
    except OSError as error:
        raise FabricPlanError(f"cannot read the library: {error.strerror}", where=where) from None


def _read(where: str, data: mmap.mmap) -> Library:
    if data[:4] != b"\x7fELF":
        hint = "name the shared object itself, libnccl.so.2"
        raise FabricPlanError("this is no shared library (no ELF header)", where=where, hint=hint)
    spans = _constants(data) or [(0, len(data))]
    found = next((match for start, end in spans if (match := _VERSION.search(data, start, end))), None)
    if found is None:
        raise FabricPlanError(
            "no NCCL version stands in this library", where=where, hint="is it libnccl.so.2?"
        )
    return Library(
        path=where,
        version=(int(found[1]), int(found[2]), int(found[3])),
        cuda=(found[4] or found[5] or b"").decode(),
        marker=any(data.find(MARKER.encode(), start, end) >= 0 for start, end in spans),
        names=frozenset(name for start, end in spans for name in _names(data, start, end)),
        sha256=_digest(data),
    )


def _constants(data: mmap.mmap) -> list[tuple[int, int]]:
    """Return where a 64-bit little-endian ELF file keeps its strings; nothing where its section table cannot
    be read.
    """
    try:
        if data[4:6] != b"\x02\x01":
            return []
        (table,) = struct.unpack_from("<Q", data, 0x28)
        size, count, names = struct.unpack_from("<HHH", data, 0x3A)
        headers = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(count)]
        start = headers[names][4]
        spans = []
        for name, _, _, _, offset, length in headers:
            end = data.find(b"\0", start + name)
            if data[start + name : end].startswith(b".rodata") and offset + length <= len(data):
                spans.append((offset, offset + length))
    except (struct.error, IndexError, ValueError, OverflowError):
        return []
    return spans


def _names(data: mmap.mmap, start: int, end: int) -> Iterable[str]:
    """Yield every string of a span that is a variable's name and nothing else."""
    at = data.find(b"NCCL_", start, end)
    while at >= 0:
        stop = data.find(b"\0", at, end)
        if stop < 0:
            return
        if (at == start or data[at - 1] == 0) and _NAME.match(data[at:stop]):
            yield data[at:stop].decode()
        at = data.find(b"NCCL_", max(stop, at + 1), end)


def _digest(data: mmap.mmap) -> str:
    digest = hashlib.sha256()
    for start in range(0, len(data), 1 << 20):
        digest.update(data[start : start + (1 << 20)])
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class _Known:
    """Since which version stock NCCL knows a variable (None: only a patched one does), and what ignoring it
    means.
    """

    since: str | None
    ignored: str
    vital: bool = True


_KNOWN: dict[str, _Known] = {
    "NCCL_IB_SUBNET_AWARE_ROUTING": _Known("2.30.7", "sends leave by a port that faces another rank"),
    "NCCL_IB_SUBNET_PREFIX_LEN": _Known("2.30.7", "nothing tells the functions of a node apart"),
    "NCCL_RUNTIME_CONNECT": _Known("2.22", "trees are connected at start, and the start fails"),
    "NCCL_CUMEM_ENABLE": _Known("2.18", "trees are connected at start, and the start fails"),
    "NCCL_IB_MERGE_NICS": _Known("2.20", "functions may be merged into one device", vital=False),
    "NCCL_IB_QPS_PER_CONNECTION": _Known("2.10", "one queue pair a connection is the default", vital=False),
    "NCCL_SWITCHLESS_RING_ONLY": _Known(None, "trees and PAT are connected, and the start fails"),
    "NCCL_SKIP_TREE_CONNECT": _Known(None, "NCCL_SWITCHLESS_RING_ONLY does the same", vital=False),
    "NCCL_IB_EXTENDED_IPV4_GIDS": _Known(None, "the second plane moves nothing"),
    "NCCL_IB_PRESERVE_PCI_DOMAIN": _Known(None, "plane 2 collapses onto plane 1"),
    "NCCL_IB_ROUTE_DIAGNOSTICS": _Known(None, "which device a connection took is not logged", vital=False),
}  # fmt: skip

# Not in the environment, because it is the default of the versions that know it: the planned device numbers
# rest on it.
_PCI_ORDER = "NCCL_IB_DEVICE_PCI_ORDER"
_PCI_ORDER_SINCE = "2.29.7"


def judge(library: Library, planned: Iterable[str], mode: NcclLibrary) -> tuple[LibraryFinding, ...]:
    """Return what `library` makes of an environment of the `planned` variables, written for a library of
    `mode`.
    """
    found = [*_kind(library, mode)]
    wanted = [name for name in planned if name.startswith("NCCL_")]
    for name in wanted:
        if name in library.names:
            continue
        known = _KNOWN.get(name)
        since = f" ({known.since or 'a patched library alone'})" if known else ""
        what = f": {known.ignored}" if known else ""
        verdict = Verdict.BAD if known is None or known.vital else Verdict.NOT_PROVEN
        mend = _mend(known, library)
        found.append(LibraryFinding("ignored", verdict, f"this library ignores {name}{since}{what}", mend))
    if "NCCL_GRAPH_FILE" in wanted and _PCI_ORDER not in library.names:
        text = (
            "this library numbers devices as the driver lists them; by PCI path, as the graph files do, only "
            f"{_PCI_ORDER_SINCE} and later"
        )
        mend = "compare `NET/IB : Using [0]... [1]...` in its log with the order in NCCL_IB_HCA"
        found.append(LibraryFinding("device-order", Verdict.NOT_PROVEN, text, mend))
    if not any(finding.verdict is Verdict.BAD for finding in found):
        text = f"it knows every variable that matters of the {len(wanted)} planned"
        found.append(LibraryFinding("knows", Verdict.GOOD, text, ""))
    return tuple(found)


def _kind(library: Library, mode: NcclLibrary) -> Iterable[LibraryFinding]:
    if mode is NcclLibrary.PATCHED and not library.marker:
        yield LibraryFinding(
            "not-patched",
            Verdict.BAD,
            f"the plan is for a patched library, and {MARKER} does not stand in this one",
            "install the patched build on every node, or write `nccl: {library: stock}`",
        )
    if mode is NcclLibrary.STOCK and library.marker:
        yield LibraryFinding(
            "patched",
            Verdict.NOT_PROVEN,
            f"this library carries {MARKER}, and the plan is for a stock one: the patch stays unused",
            "write `nccl: {library: patched}` to use it",
        )


def _mend(known: _Known | None, library: Library) -> str:
    if known is None:
        return "compare the library with the one that was planned for"
    if known.since is None:
        return "install the patched build, or write `nccl: {library: stock}`"
    return f"install NCCL {known.since} or later; this is {library.release}"
