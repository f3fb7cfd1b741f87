"""Read a folder of evidence: per node its netplan files and dumps, and beside them what the user declared."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fabric_plan.discover.evidence import Evidence, Login
from fabric_plan.discover.gather import Sources, broken_dump, gather
from fabric_plan.discover.netplan_merge import NetplanFile
from fabric_plan.discover.rendered import (
    RECORD_PATH,
    Host,
    Record,
    Whole,
    parse_record,
    parse_whole,
    settings_of,
)
from fabric_plan.errors import FabricPlanError
from fabric_plan.inventory.schema import END, HOST_NAME, TopologyKind
from fabric_plan.inventory.source import parse_yaml
from fabric_plan.node.parsers import ip_json, lldp, rdma
from fabric_plan.node.reading import Reading
from fabric_plan.node.records import Interfaces
from fabric_plan.roles import Hardware, Hardwares
from fabric_plan.topology.fabric import End

MAX_FILE_BYTES = 8_000_000
DEFAULT_HARDWARE = "dgx-spark"
_NETPLAN = ("etc/netplan", "run/netplan", "lib/netplan", "usr/lib/netplan")
_PLAN = "plan.json"
_DUMPS = ("ip-addr.json", "rdma-link.json", "lldp.json", RECORD_PATH.lstrip("/"))


@dataclass(frozen=True, slots=True)
class Declared:
    """What inventory.yaml of the folder says of one node."""

    name: str
    login: Login = field(default_factory=Login)
    hardware: str | None = None


def read_folder(folder: Path, roles: Hardwares) -> Evidence:
    """Return the evidence in `folder`: ``nodes/NAME/..`` or ``NAME/..``, inventory.yaml and cables.yaml where
    they are there.

    Raises `FabricPlanError` where it is no such folder, or what was declared does not fit what is in it.
    """
    if not folder.is_dir():
        raise FabricPlanError(
            f"{folder} is not a directory", hint="give the folder that holds nodes/<name>/etc/netplan"
        )
    found = {path.name: path for path in _node_folders(folder)}
    if not found:
        raise FabricPlanError(
            f"{folder} has no node in it",
            hint="expected nodes/<name>/etc/netplan/*.yaml, nodes/<name>/ip-addr.json or "
            "<name>/etc/netplan/*.yaml",
            id="no-nodes",
        )
    records = {name: _record(path) for name, path in found.items()}
    whole = _whole(folder / _PLAN)
    declared, kind = _declared(folder / "inventory.yaml")
    declared = declared or _by_record(found, records, whole)
    ranked = bool(declared)
    if ranked:
        _same_names(declared, found)
    else:
        declared = [Declared(name) for name in sorted(found)]
    nodes = tuple(gather(_sources(found[one.name], one, records[one.name], roles)) for one in declared)
    table = _table(folder / "cables.yaml", {node.name: node.hardware for node in nodes})
    return Evidence(
        nodes=nodes,
        ranked=ranked,
        declared=kind or (whole.kind if whole else None),
        table=table,
        listed=whole.cables if whole else None,
        settings=whole.settings if whole else settings_of([r for r in records.values() if r is not None]),
    )


def _record(folder: Path) -> Record | None:
    path = folder / RECORD_PATH.lstrip("/")
    return parse_record(_read(path), f"{folder.name}{RECORD_PATH}") if path.is_file() else None


def _whole(path: Path) -> Whole | None:
    return parse_whole(_read(path), path.name) if path.is_file() else None


def _by_record(
    found: Mapping[str, Path], records: Mapping[str, Record | None], whole: Whole | None
) -> list[Declared]:
    """Return the nodes by the ranks that this tool wrote down; nothing where one of them has no record."""
    ranked = sorted((record.rank, name) for name, record in records.items() if record is not None)
    if len(ranked) != len(found):
        return []
    return [_host(name, whole.hosts.get(name) if whole else None) for _, name in ranked]


def _host(name: str, host: Host | None) -> Declared:
    if host is None:
        return Declared(name)
    return Declared(name, Login(host.mgmt, host.mgmt_netdev, host.ssh.user, host.ssh.port), host.hardware)


def _node_folders(folder: Path) -> Iterator[Path]:
    root = folder / "nodes" if (folder / "nodes").is_dir() else folder
    for path in sorted(root.iterdir()):
        if path.is_dir() and (
            any((path / d).is_dir() for d in _NETPLAN) or any((path / f).is_file() for f in _DUMPS)
        ):
            yield path


def _same_names(declared: Sequence[Declared], found: Mapping[str, Path]) -> None:
    names = [one.name for one in declared]
    absent = [name for name in names if name not in found]
    extra = [name for name in found if name not in names]
    if absent or extra:
        said = [f"inventory.yaml names {', '.join(absent)}, of which there is no folder"] if absent else []
        said += (
            [f"there is a folder for {', '.join(extra)}, which inventory.yaml does not name"] if extra else []
        )
        raise FabricPlanError(
            "; ".join(said), hint="one folder a node, called as the inventory calls it", id="nodes-differ"
        )


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise FabricPlanError(
                f"larger than {MAX_FILE_BYTES} bytes", where=str(path), hint="this is no file of a node"
            )
        return path.read_bytes()
    except OSError as error:
        raise FabricPlanError(f"cannot be read: {error.strerror}", where=str(path)) from None


def _sources(folder: Path, declared: Declared, record: Record | None, roles: Hardwares) -> Sources:
    hardware = _hardware(declared, roles)
    sources = Sources(declared.name, hardware, declared.login, netplan=tuple(_netplan(folder)), record=record)
    broken: list[FabricPlanError] = []
    dump: Reading[Interfaces] | None = _parsed(folder / "ip-addr.json", ip_json.interfaces)
    if dump is not None:
        if dump.unread:
            broken.append(
                broken_dump(
                    declared.name, "ip-addr.json", [f"{u.reason} ({u.excerpt[:60]})" for u in dump.unread]
                )
            )
        sources = replace(sources, dump=dump.value, dump_name="ip-addr.json")
    links = _parsed(folder / "rdma-link.json", rdma.links)
    heard = _parsed(folder / "lldp.json", lldp.neighbours)
    return replace(
        sources,
        rdma=(links.value or ()) if links else (),
        lldp=(heard.value or ()) if heard else (),
        broken=tuple(broken),
    )


def _parsed(path: Path, parse: Any) -> Any:
    return parse(_read(path).decode("utf-8", "replace")) if path.is_file() else None


def _netplan(folder: Path) -> Iterator[NetplanFile]:
    for directory in _NETPLAN:
        base = folder / directory
        if base.is_dir():
            for path in sorted(base.iterdir()):
                if path.is_file():
                    # /lib is a link into /usr on every current system.
                    yield NetplanFile(f"/{directory.removeprefix('usr/')}/{path.name}", _read(path))


def _hardware(declared: Declared, roles: Hardwares) -> Hardware:
    name = declared.hardware or DEFAULT_HARDWARE
    if name not in roles:
        raise FabricPlanError(
            f"{declared.name}: unknown hardware role `{name}`",
            hint=f"known: {', '.join(sorted(roles))}",
            id="unknown-hardware",
        )
    return roles[name]


def _document(path: Path) -> Any:
    return parse_yaml(_read(path), path.name).data


def _declared(path: Path) -> tuple[list[Declared], TopologyKind | None]:
    """Read the declared nodes, in rank order, and the declared topology. An absent file declares nothing."""
    if not path.is_file():
        return [], None
    data = _document(path)
    entries = data.get("nodes") if isinstance(data, dict) else None
    if not isinstance(entries, list) or not all(
        isinstance(e, dict) and isinstance(e.get("name"), str) for e in entries
    ):
        raise FabricPlanError(
            "nodes: must be a list of mappings with a name", where=path.name, id="declared-nodes"
        )
    for entry in entries:
        if not HOST_NAME.fullmatch(entry["name"]):
            raise FabricPlanError(
                f"`{entry['name']}` is not a host name", where=path.name, id="declared-nodes"
            )
    ranks = [entry.get("rank", i) for i, entry in enumerate(entries)]
    if not all(isinstance(rank, int) for rank in ranks) or len(set(ranks)) != len(ranks):
        raise FabricPlanError(
            "rank: must be a number of its own for every node", where=path.name, id="declared-nodes"
        )
    ordered = [entry for _, entry in sorted(zip(ranks, entries, strict=True), key=lambda pair: pair[0])]
    return [Declared(e["name"], _login(e), _text(e, "hardware")) for e in ordered], _kind(data, path)


def _kind(data: Mapping[str, Any], path: Path) -> TopologyKind | None:
    word = data.get("topology")
    if word is None:
        return None
    try:
        return TopologyKind(word)
    except ValueError:
        known = ", ".join(TopologyKind)
        raise FabricPlanError(
            f"topology `{word}` is not one of {known}", where=path.name, id="unknown-value"
        ) from None


def _login(entry: Mapping[str, Any]) -> Login:
    ssh = entry["ssh"] if isinstance(entry.get("ssh"), dict) else {}
    port = ssh.get("port")
    return Login(
        mgmt=_text(entry, "mgmt"),
        mgmt_netdev=_text(entry, "mgmt_netdev"),
        user=_text(ssh, "user"),
        port=port if isinstance(port, int) else None,
    )


def _text(entry: Mapping[str, Any], key: str) -> str | None:
    value = entry.get(key)
    return value if isinstance(value, str) else None


def _table(path: Path, nodes: Mapping[str, Hardware]) -> tuple[tuple[End, End], ...] | None:
    """Read the stated cables: ``{a: {node, port}, b: {node, port}}`` or, as an inventory has them, ``ends:
    [node.port, node.port]``.
    """
    if not path.is_file():
        return None
    data = _document(path)
    entries = data.get("cables") if isinstance(data, dict) else data
    if not isinstance(entries, list):
        raise FabricPlanError("cables: must be a list", where=path.name, id="table-unreadable")
    return tuple(_pair(entry, i, path.name, nodes) for i, entry in enumerate(entries))


def _pair(entry: Any, index: int, name: str, nodes: Mapping[str, Hardware]) -> tuple[End, End]:
    where = f"{name}: cables[{index}]"
    sides: list[Any] = []
    if isinstance(entry, dict):
        sides = entry["ends"] if isinstance(entry.get("ends"), list) else [entry.get("a"), entry.get("b")]
    if len(sides) != 2:
        raise FabricPlanError(
            "a cable is `{a: {node: .., port: ..}, b: {..}}`", where=where, id="table-unreadable"
        )
    first, second = (_end(side, where, nodes) for side in sides)
    return first, second


def _end(side: Any, where: str, nodes: Mapping[str, Hardware]) -> End:
    if isinstance(side, str) and (match := END.fullmatch(side)):
        side = {"node": match["node"], "port": match["port"]}
    if not isinstance(side, dict) or not all(
        isinstance(side.get(key), (str, int)) for key in ("node", "port")
    ):
        raise FabricPlanError(
            f"an end is a node and a port, not {json.dumps(side, default=str)[:60]}",
            where=where,
            id="table-unreadable",
        )
    node, port = str(side["node"]), str(side["port"])
    if node not in nodes:
        raise FabricPlanError(
            f"names node {node}, of which there is no folder ({', '.join(nodes)})",
            where=where,
            id="unknown-node",
        )
    known = nodes[node].port_named(port)
    if known is None:
        raise FabricPlanError(
            f"{node} has no port {port} (ports are {' and '.join(nodes[node].ports)})",
            where=where,
            id="unknown-port",
        )
    return End(node, known)
