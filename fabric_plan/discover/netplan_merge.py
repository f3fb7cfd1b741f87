"""Merge netplan files as netplan does, and keep which file said what.

A file of /run shadows its namesake in /etc, and that one the one in /lib; what remains is read in the order
of the file names, whatever the directory. A definition's single values come from the last file that gives
them, its addresses and routes add up. Scalars are read as text, as netplan itself reads them: ``no`` is a
word here, and a MAC never a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from ipaddress import IPv4Interface
from typing import Generic, TypeVar

import yaml

from fabric_plan.errors import FabricPlanError

MAX_BYTES = 1_000_000
MAX_DEPTH = 64

# libyaml, which netplan itself uses; the pure one behaves alike where PyYAML came without it.
_LOADER: type = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

# Sections whose entries are devices, and those whose devices take others in.
_DEVICES = ("ethernets", "wifis", "modems", "bonds", "bridges", "vlans", "tunnels", "vrfs", "dummy-devices")
_MASTERS = ("bonds", "bridges", "vrfs")

_TRUE = ("true", "on", "yes", "y")
_FALSE = ("false", "off", "no", "n")
_DIRECTORIES = ("/lib/netplan/", "/etc/netplan/", "/run/netplan/")  # later shadows earlier

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NetplanFile:
    """One file by its absolute path on the node, for example ``/etc/netplan/40-cx7.yaml``.

    `problem` says why its content could not be had, where that is so.
    """

    path: str
    content: bytes
    problem: str | None = None

    @property
    def name(self) -> str:
        """The name without its directory: what netplan sorts and shadows by."""
        return self.path.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class Said(Generic[T]):
    """A value, the file that gave it and the line there."""

    value: T
    file: str
    line: int

    @property
    def where(self) -> str:
        """Return ``file:line``."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Route:
    """A route as netplan writes it."""

    to: str
    via: str | None


@dataclass(frozen=True, slots=True)
class Definition:
    """One netplan definition after the merge. `match` is empty where the identifier itself is the interface's
    name.
    """

    id: str
    section: str
    match: bool = False
    match_names: tuple[str, ...] = ()
    match_mac: str | None = None
    set_name: Said[str] | None = None
    mtu: Said[int] | None = None
    dhcp4: Said[bool] | None = None
    link_local4: bool = False
    addresses: tuple[Said[IPv4Interface], ...] = ()
    routes: tuple[Said[Route], ...] = ()
    members: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    def claims(self, names: Iterable[str], mac: str | None) -> bool:
        """Tell whether this definition applies to the interface that goes by any of `names` and has `mac`."""
        known = tuple(names)
        if self.section != "ethernets":
            return False
        if not self.match:
            return self.id in known
        if self.match_mac is not None and self.match_mac != mac:
            return False
        if self.match_names:
            hit = any(fnmatchcase(name, pattern) for name in known for pattern in self.match_names)
            return hit or (self.set_name is not None and self.set_name.value in known)
        return self.match_mac is not None

    @property
    def own_name(self) -> str | None:
        """The one interface name that the definition itself gives away, None for a pattern or a bare MAC."""
        if self.set_name is not None:
            return self.set_name.value
        if not self.match:
            return self.id
        plain = [name for name in self.match_names if not set(name) & set("*?[")]
        return plain[0] if len(plain) == 1 and len(self.match_names) == 1 else None


@dataclass(frozen=True, slots=True)
class Merged:
    """The definitions by identifier in the order of first mention, and the files that netplan could not
    read.
    """

    definitions: dict[str, Definition]
    broken: tuple[FabricPlanError, ...]

    def master_of(self, name: str) -> str | None:
        """Return the bond or bridge that takes the interface (or definition) `name` in."""
        return next((d.id for d in self.definitions.values() if name in d.members), None)


class _UnreadableError(Exception):
    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


@dataclass(slots=True)
class _Merge:
    definitions: dict[str, Definition] = field(default_factory=dict)
    broken: list[FabricPlanError] = field(default_factory=list)


def effective(files: Iterable[NetplanFile]) -> tuple[NetplanFile, ...]:
    """Return the files that count, in the order in which netplan reads them."""
    by_name: dict[str, NetplanFile] = {}

    def directory(file: NetplanFile) -> int:
        return next((i for i, prefix in enumerate(_DIRECTORIES) if file.path.startswith(prefix)), 1)

    for file in sorted(files, key=directory):
        if file.name.endswith(".yaml") and not file.name.startswith("."):
            by_name[file.name] = file
    return tuple(by_name[name] for name in sorted(by_name))


def merge(files: Iterable[NetplanFile]) -> Merged:
    """Merge `files`. A file that cannot be read is named in `broken` and left out; on the node it stops every
    other one too.
    """
    merge = _Merge()
    for file in effective(files):
        before = dict(merge.definitions)
        try:
            root = _root(file)
            if root is not None:
                _file(merge, file, root)
        except _UnreadableError as error:
            merge.definitions = before
            merge.broken.append(_broken(file, error))
    return Merged(merge.definitions, tuple(merge.broken))


def _broken(file: NetplanFile, error: _UnreadableError) -> FabricPlanError:
    where = f"{file.path}:{error.line}" if error.line else file.path
    return FabricPlanError(
        f"{where} {error.message}, so `netplan generate` fails for every file of the node",
        hint=f"move this one file away and keep it: mv {file.path} /root/",
        id="unparseable-file",
    )


def _root(file: NetplanFile) -> yaml.MappingNode | None:
    if file.problem is not None:
        raise _UnreadableError(file.problem, 0)
    if len(file.content) > MAX_BYTES:
        raise _UnreadableError(f"is larger than {MAX_BYTES} bytes", 0)
    if file.content and not file.content.strip(b"\0"):
        raise _UnreadableError(f"is {len(file.content)} NUL bytes", 0)
    try:
        text = file.content.decode("utf-8-sig")
        _bounded(text)
        node = yaml.compose(text, Loader=_LOADER)
    except UnicodeDecodeError as error:
        raise _UnreadableError(f"is not UTF-8 text (byte {error.start})", 0) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = 0 if mark is None else mark.line + 1
        raise _UnreadableError(f"is not valid YAML ({error.problem})", line) from None
    except yaml.YAMLError as error:
        raise _UnreadableError(f"is not valid YAML ({str(error).splitlines()[0]})", 0) from None
    if node is None or (isinstance(node, yaml.ScalarNode) and node.value in ("", "null", "~")):
        return None
    if not isinstance(node, yaml.MappingNode):
        raise _UnreadableError("is not a mapping", _line(node))
    return node


def _bounded(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            mark = event.start_mark
            line = 0 if mark is None else mark.line + 1
            raise _UnreadableError(f"is nested deeper than {MAX_DEPTH} levels", line)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _items(node: yaml.Node, what: str) -> Iterable[tuple[str, yaml.Node]]:
    if isinstance(node, yaml.ScalarNode) and node.value in ("", "null", "~"):
        return []
    if not isinstance(node, yaml.MappingNode):
        raise _UnreadableError(f"has no mapping under `{what}`", _line(node))
    return [(key.value, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]


def _list(node: yaml.Node, what: str) -> list[yaml.Node]:
    if not isinstance(node, yaml.SequenceNode):
        raise _UnreadableError(f"has no list under `{what}`", _line(node))
    return list(node.value)


def _text(node: yaml.Node, what: str) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise _UnreadableError(f"has no single value under `{what}`", _line(node))
    return str(node.value)


def _file(merge: _Merge, file: NetplanFile, root: yaml.MappingNode) -> None:
    for key, network in _items(root, "the top level"):
        if key != "network":
            continue
        for section, entries in _items(network, "network"):
            if section in _DEVICES:
                for name, body in _items(entries, section):
                    _define(merge, file, section, name, body)


def _define(merge: _Merge, file: NetplanFile, section: str, name: str, body: yaml.Node) -> None:
    definition = merge.definitions.get(name, Definition(name, section))
    if file.path not in definition.files:
        definition = replace(definition, files=(*definition.files, file.path))
    for key, value in _items(body, name):
        reader = _READERS.get(key)
        if reader is not None:
            definition = reader(definition, value, file)
        elif key == "interfaces" and section in _MASTERS:
            members = tuple(_text(item, key) for item in _list(value, key))
            definition = replace(definition, members=_joined(definition.members, members))
    merge.definitions[name] = definition


def _joined(old: tuple[T, ...], new: Iterable[T]) -> tuple[T, ...]:
    return (*old, *(item for item in new if item not in old))


def _match(definition: Definition, node: yaml.Node, file: NetplanFile) -> Definition:
    for key, value in _items(node, "match"):
        if key == "name":
            nodes = list(value.value) if isinstance(value, yaml.SequenceNode) else [value]
            definition = replace(definition, match_names=tuple(_text(item, key) for item in nodes))
        elif key == "macaddress":
            definition = replace(definition, match_mac=_text(value, key).lower())
    return replace(definition, match=True)


def _set_name(definition: Definition, node: yaml.Node, file: NetplanFile) -> Definition:
    return replace(definition, set_name=Said(_text(node, "set-name"), file.path, _line(node)))


def _mtu(definition: Definition, node: yaml.Node, file: NetplanFile) -> Definition:
    text = _text(node, "mtu")
    if not text.isdigit() or not text.isascii() or len(text) > 9:
        raise _UnreadableError(f"has the mtu `{text[:20]}`", _line(node))
    return replace(definition, mtu=Said(int(text), file.path, _line(node)))


def _dhcp4(definition: Definition, node: yaml.Node, file: NetplanFile) -> Definition:
    word = _text(node, "dhcp4").lower()
    if word not in (*_TRUE, *_FALSE):
        raise _UnreadableError(f"has `dhcp4: {word[:20]}`", _line(node))
    return replace(definition, dhcp4=Said(word in _TRUE, file.path, _line(node)))


def _link_local(definition: Definition, node: yaml.Node, file: NetplanFile) -> Definition:
    words = [_text(item, "link-local") for item in _list(node, "link-local")]
    return replace(definition, link_local4="ipv4" in words)


def _addresses(definition: Definition, node: yaml.Node, file: NetplanFile) -> Definition:
    known = {said.value for said in definition.addresses}
    added: list[Said[IPv4Interface]] = []
    for item in _list(node, "addresses"):
        # An address with options is a mapping of one entry.
        inner = item.value[0][0] if isinstance(item, yaml.MappingNode) and item.value else item
        text = _text(inner, "addresses")
        if ":" in text:
            continue
        try:
            address = IPv4Interface(text)
        except ValueError:
            raise _UnreadableError(f"has the address `{text[:40]}`", _line(inner)) from None
        if "/" not in text:
            raise _UnreadableError(f"has the address `{text}` without a prefix length", _line(inner))
        if address not in known:
            known.add(address)
            added.append(Said(address, file.path, _line(inner)))
    return replace(definition, addresses=(*definition.addresses, *added))


def _routes(definition: Definition, node: yaml.Node, file: NetplanFile) -> Definition:
    known = {said.value for said in definition.routes}
    added: list[Said[Route]] = []
    for item in _list(node, "routes"):
        entry = {
            key: value.value for key, value in _items(item, "routes") if isinstance(value, yaml.ScalarNode)
        }
        route = Route(str(entry.get("to", "")), entry.get("via"))
        if route not in known:
            known.add(route)
            added.append(Said(route, file.path, _line(item)))
    return replace(definition, routes=(*definition.routes, *added))


_READERS: dict[str, Callable[[Definition, yaml.Node, NetplanFile], Definition]] = {
    "match": _match,
    "set-name": _set_name,
    "mtu": _mtu,
    "dhcp4": _dhcp4,
    "link-local": _link_local,
    "addresses": _addresses,
    "routes": _routes,
}
