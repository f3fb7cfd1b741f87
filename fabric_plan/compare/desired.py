"""What a node has to look like, read from the very files that it gets: node.json, the sysctl file, the
markers', the units.

So a node's plan of today and a generation of last month are read in one way, and nothing is compared that no
file carries.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fabric_plan.errors import NodeError
from fabric_plan.roles import Artefact, Layer

NODE_FILE = "/etc/fabric-plan/node.json"
SYSCTL_FILE = "/etc/sysctl.d/90-fabric-plan.conf"
MARKER_FILE = re.compile(r"/etc/fabric-plan/markers/(?P<rdma>[^/]+)\.env")
UNIT_FILE = re.compile(r"/etc/systemd/system/(?P<unit>[^/]+)")


@dataclass(frozen=True, slots=True)
class DesiredFile:
    """A file as it has to be: `artefact` is the role data that it came from, None where no role knows the
    path. Bytes of `content` that are no UTF-8 stand in it as surrogates.
    """

    path: str
    mode: str
    content: str
    artefact: Artefact | None

    @property
    def sha256(self) -> str:
        """The digest of the bytes on disk."""
        return hashlib.sha256(self.content.encode("utf-8", "surrogateescape")).hexdigest()


@dataclass(frozen=True, slots=True)
class DesiredFunction:
    """A function that is ours to configure; `address` is with its prefix length, None where no cable is
    plugged in.
    """

    netdev: str
    rdma: str
    pci: str
    mac: str | None
    plane: int
    port: str
    address: str | None


@dataclass(frozen=True, slots=True)
class DesiredRoute:
    """A route; `src` is None where the kernel chooses. `peer` is None on the way to a whole cable."""

    to: str
    via: str
    dev: str
    src: str | None
    peer: str | None


@dataclass(frozen=True, slots=True)
class DesiredRule:
    """A hairpin rule in the words of the plan document."""

    dev: str
    protocol: str
    pref: int
    handle: int
    src_mac: str | None
    dst_mac: str
    set_type: str
    set_dst_mac: str
    redirect: str
    cookie: str

    @property
    def place(self) -> str:
        """Where the rule stands: no two filters can be there."""
        return f"{self.dev} pref {self.pref} handle {self.handle:#x}"


@dataclass(frozen=True, slots=True)
class DesiredSysctl:
    """One kernel setting by its dotted scope and name under ``net.ipv4.conf``."""

    scope: str
    name: str
    value: int


@dataclass(frozen=True, slots=True)
class DesiredMarker:
    """The one marker process of a device and its arguments, the program left out."""

    rdma: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Desired:
    """The whole of it. `digest` is the plan's; `queue_size` and `num_queues` are None where nothing is
    relayed. `marker_path` and `marker_sha256` are the program that somebody put on the node and pinned in the
    inventory, None where it is the usual one.
    """

    node: str
    digest: str | None
    mtu: int
    files: tuple[DesiredFile, ...]
    functions: tuple[DesiredFunction, ...] = ()
    routes: tuple[DesiredRoute, ...] = ()
    sysctls: tuple[DesiredSysctl, ...] = ()
    rules: tuple[DesiredRule, ...] = ()
    markers: tuple[DesiredMarker, ...] = ()
    queue_size: int | None = None
    num_queues: int | None = None
    links: tuple[tuple[str, str], ...] = ()
    marker_path: str | None = None
    marker_sha256: str | None = None

    @property
    def mesh(self) -> bool:
        """Whether the node takes part in hardware forwarding, as relay, sender or neighbour."""
        return self.queue_size is not None

    @property
    def units(self) -> tuple[str, ...]:
        """The enabled units that are up after a boot. What finishes a cut commit is none of them: on an
        ordinary boot its conditions fail.
        """
        boot = (target for path, target in self.links if "/multi-user.target.wants/" in path)
        return tuple(dict.fromkeys(target.rsplit("/", 1)[-1] for target in boot))

    def file(self, path: str) -> DesiredFile | None:
        """Return the file at `path`, None where there is to be none."""
        return next((file for file in self.files if file.path == path), None)


def artefact_of(path: str, layers: Iterable[Layer]) -> Artefact | None:
    """Return the role data whose path pattern makes `path`; None where no role does."""
    for layer in layers:
        for artefact in layer.artefacts:
            pattern = re.sub(r"\\{\w+\\}", "[^/]+", re.escape(artefact.path))
            if re.fullmatch(pattern, path):
                return artefact
    return None


def desired_of(node: str, files: Mapping[str, tuple[str, str]], layers: Sequence[Layer]) -> Desired:
    """Return what the `files` (mode and content by path) ask of `node`; none at all means nothing of ours.

    Raises `NodeError` where node.json is not one, which only files from a node can be.
    """
    ordered = tuple(
        DesiredFile(path, mode, content, artefact_of(path, layers))
        for path, (mode, content) in sorted(files.items())
    )
    by_path = {file.path: file for file in ordered}
    if NODE_FILE not in by_path:
        return Desired(node, None, 0, ordered)
    try:
        return _from_document(node, json.loads(by_path[NODE_FILE].content), ordered)
    except (ValueError, KeyError, TypeError) as error:
        raise NodeError(
            f"{NODE_FILE} is not a plan of fabric-plan ({error})", where=node, hint="apply again"
        ) from None


def _from_document(node: str, document: Mapping[str, Any], files: tuple[DesiredFile, ...]) -> Desired:
    ours = [function for function in document["functions"] if function.get("managed", True)]
    meshed = any(file.path.endswith("/mesh-up.sh") for file in files)
    hairpin = document["hairpin"] if meshed else {}
    return Desired(
        node=node,
        digest=document["digest"],
        mtu=document["mtu"],
        files=files,
        functions=tuple(
            DesiredFunction(
                **{key: f[key] for key in ("netdev", "rdma", "pci", "mac", "plane", "port", "address")}
            )
            for f in ours
        ),
        routes=(
            *(DesiredRoute(r["to"], r["via"], r["dev"], None, None) for r in document["kernel_routes"]),
            *(
                DesiredRoute(r["to"], r["via"], r["dev"], r["src"], r["peer"])
                for r in document["relay_routes"]
            ),
        ),
        sysctls=_sysctls(files),
        rules=tuple(
            DesiredRule(**{key: r[key] for key in DesiredRule.__dataclass_fields__})
            for r in document["rules"]
        ),
        markers=_markers(files),
        queue_size=hairpin.get("queue_size"),
        num_queues=hairpin.get("num_queues"),
        links=tuple(sorted(link for file in files for link in _links(file))),
        marker_path=document.get("marker_path") if meshed else None,
        marker_sha256=document.get("marker_sha256") if meshed else None,
    )


def _sysctls(files: tuple[DesiredFile, ...]) -> tuple[DesiredSysctl, ...]:
    found = []
    for file in files:
        if file.path == SYSCTL_FILE:
            for line in file.content.splitlines():
                match = re.fullmatch(r"net/ipv4/conf/(?P<scope>[^/]+)/(?P<name>\w+) = (?P<value>\d+)", line)
                if match:
                    found.append(DesiredSysctl(match["scope"], match["name"], int(match["value"])))
    return tuple(found)


def _markers(files: tuple[DesiredFile, ...]) -> tuple[DesiredMarker, ...]:
    found = []
    for file in files:
        match = MARKER_FILE.fullmatch(file.path)
        arguments = re.search(r'^MARKER_ARGS="([^"]*)"$', file.content, re.MULTILINE)
        if match and arguments:
            found.append(DesiredMarker(match["rdma"], tuple(arguments[1].split())))
    return tuple(found)


def _links(file: DesiredFile) -> list[tuple[str, str]]:
    """Return the links that enable a unit: what ``systemctl enable`` would make of its [Install] section."""
    match = UNIT_FILE.fullmatch(file.path)
    if not match or file.artefact is None or not file.artefact.enable:
        return []
    targets = re.findall(r"^WantedBy=(.+)$", file.content, re.MULTILINE)
    unit = match["unit"]
    return [
        (f"/etc/systemd/system/{target}.wants/{unit}", file.path)
        for line in targets
        for target in line.split()
    ]
