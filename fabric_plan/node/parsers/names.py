"""Which RDMA device is which network device, and its GIDs: ibdev2netdev, show_gids, ibv_devinfo."""

from __future__ import annotations

import re

from ..reading import MismatchError, Reading, Unreadable, each_line, excerpt, number
from ..records import DevicePort, Gid, VerbsDevice

_DEVICE_PORT = re.compile(r"^(\S+) port (\d{1,3}) ==> (\S+) \((Up|Down)\)$")
_GID = re.compile(r"^[0-9a-f]{4}(:[0-9a-f]{4}){7}$")
_FIELD = re.compile(r"^\s*([\w.]+(?:\[ *\d+\])?):\s+(\S.*)$")
_MAPPED = "0000:0000:0000:0000:0000:ffff:"


def ibdev2netdev(text: str) -> Reading[tuple[DevicePort, ...]]:
    """Parse ibdev2netdev."""

    def line(row: str) -> DevicePort:
        match = _DEVICE_PORT.match(row)
        if match is None:
            raise MismatchError("not a line of ibdev2netdev", row)
        return DevicePort(match[1], number(match[2]), match[3], match[4] == "Up")

    return each_line(text, line)


def show_gids(text: str) -> Reading[tuple[Gid, ...]]:
    """Parse show_gids. The IPv4 column may be empty, so columns are told apart by their form."""

    def line(row: str) -> Gid | None:
        words = row.split()
        if words[0] in ("DEV", "---") or row.startswith("n_gids_found="):
            return None
        if len(words) not in (6, 7) or not _GID.match(words[3]) or words[-2] not in ("v1", "v2"):
            raise MismatchError("not a line of show_gids", row)
        address = words[4] if len(words) == 7 else None
        if address is not None and address != mapped_address(words[3]):
            raise MismatchError("the IPv4 column is not the address of the GID", row)
        return Gid(words[0], number(words[1]), number(words[2]), words[3], words[-2], words[-1], address)

    return each_line(text, line)


def mapped_address(gid: str) -> str | None:
    """Return the IPv4 address that a full-length GID carries, or None."""
    if not _GID.match(gid) or not gid.startswith(_MAPPED):
        return None
    word = int(gid[-9:].replace(":", ""), 16)
    return ".".join(str(word >> shift & 255) for shift in (24, 16, 8, 0))


def ibv_devinfo(text: str) -> Reading[tuple[VerbsDevice, ...]]:
    """Parse ibv_devinfo, with ``-v`` or without; lines before the first ``hca_id:`` belong to no device."""
    found: list[VerbsDevice] = []
    unread: list[Unreadable] = []
    fields: dict[str, str] = {}
    port: dict[str, str] = {}
    inside: dict[str, str] | None = None
    for line in text.splitlines():
        match = _FIELD.match(line)
        if match and match[1] == "hca_id":
            fields, port = {}, {}
            inside = fields
            found.append(VerbsDevice(match[2].strip(), fields, port))
        elif match and inside is not None:
            if match[1] == "port" and inside is fields:
                inside = port
            # A second port of a card is no function of ours; its fields must not overwrite the first's.
            inside.setdefault(match[1], match[2].strip())
        elif line.strip():
            reason = "no device named before this line" if match else "not a line of ibv_devinfo"
            unread.append(Unreadable(reason, excerpt(line)))
    return Reading(tuple(found) if found or not unread else None, tuple(unread))
