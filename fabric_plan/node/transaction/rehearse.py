"""What netplan would make of new definitions, tried in a copy of the node's own: whose files would change."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..tree import Tree
from . import bundle, fields, network, store
from .bundle import Entry
from .node import RUN, Node, failure
from .refusal import RefusalError

FOLDERS = ("/lib/netplan", "/etc/netplan", "/run/netplan")
MAX_DEFINITIONS = 256
MAX_OUTPUTS = 2048

# Below the copy: what netplan writes for its backends, by folder.
BACKENDS = {
    "/run/systemd/network/": "networkd",
    "/run/systemd/system/": "networkd",
    "/run/NetworkManager/": "NetworkManager",
    "/run/udev/": "udev",
    "/etc/": "other",
    "/run/": "other",
}
# An empty file that netplan writes beside its first definition for NetworkManager. It hides a file of the
# distribution by which NetworkManager leaves every Ethernet device alone that netplan does not mention.
_MANAGED = "/run/NetworkManager/conf.d/10-globally-managed-devices.conf"
_MANAGED_NOTE = "NetworkManager will also look after Ethernet devices that no netplan file mentions"
_INTERFACE = re.compile(
    r"/(?:netplan-(?P<nm>.+)\.nmconnection|\d+-netplan-(?P<networkd>.+)\.(?:network|netdev|link|rules)"
    r"|netplan-(?:ovs|wpa)-(?P<service>.+)\.service)$"
)


def rehearse(node: Node, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return which backend files of interfaces that are not ours would change, and which other definitions
    speak of ours. Changes nothing; the copies may hold secrets, so they are root's alone and gone at the end.
    """
    files = fields.entries(request.get("files", []))
    interfaces = fields.names(request.get("interfaces", []), "interfaces", fields.NETDEV)
    node.prepare()
    folder = f"{RUN}/rehearsal-{store.unguessable(8)}"
    store.ensure_dir(node.place(folder), 0o700)
    try:
        before, error = _outputs(node, f"{folder}/before", ())
        after, later = ({}, None) if error else _outputs(node, f"{folder}/after", files)
    finally:
        store.remove_tree(node.place(folder))
    if error:
        error = f"as the node is now: {error}"
    changed = [] if error or later else _changed(before, after, interfaces)
    notes = [_MANAGED_NOTE] if _MANAGED in after and _MANAGED not in before else []
    staged = {entry.path.rpartition("/")[2] for entry in files}
    return {
        "changed": changed,
        "conflicts": _conflicts(node, staged, interfaces),
        "error": error or later,
        "notes": notes,
    }


def _definitions(node: Node) -> Iterable[Entry]:
    paths = [path for folder in FOLDERS for path in node.tree.match(f"{folder}/*.yaml")]
    if len(paths) > MAX_DEFINITIONS:
        raise RefusalError("too-many", f"more than {MAX_DEFINITIONS} netplan definitions")
    return [bundle.live(node.tree, path) for path in paths]


def _outputs(node: Node, folder: str, files: Iterable[Entry]) -> tuple[dict[str, bytes], str | None]:
    """Generate in a copy; return every file that came of it, by path, and netplan's error."""
    root = node.place(folder)
    for path in FOLDERS:
        store.ensure_dir(root + path, 0o700)
    for entry in _definitions(node):
        _put(root, entry if entry.target is None else _followed(node, entry))
    for entry in files:
        if entry.path.startswith("/etc/netplan/"):
            _put(root, entry)
    output = network.generate(node, "--root-dir", root)
    if output.status != 0:
        # The path of the copy says nothing to anybody.
        return {}, failure(["netplan"], output).replace(root, "")
    made: dict[str, bytes] = {}
    tree = Tree(root)
    for path in (path for top in ("/run/**", "/etc/**") for path in tree.match(top)):
        if os.path.dirname(path) in FOLDERS or tree.file(path, 0).kind not in ("file", "link"):  # noqa: PTH120
            continue
        if len(made) >= MAX_OUTPUTS:
            raise RefusalError("too-many", f"netplan made more than {MAX_OUTPUTS} files")
        content = tree.read_bytes(path, bundle.MAX_FILE_BYTES)
        link = tree.link(path)
        made[path] = (link or "").replace(root, "").encode() if link is not None else content or b""
    return made, None


def _followed(node: Node, entry: Entry) -> Entry:
    """Return the definition behind a link of the node's own."""
    target = os.path.normpath(os.path.join("/etc/netplan", entry.target or ""))  # noqa: PTH118
    content = node.tree.read_bytes(target, bundle.MAX_FILE_BYTES)
    return Entry(entry.path, "0600", content) if content is not None else Entry(entry.path)


def _put(root: str, entry: Entry) -> None:
    place = root + entry.path
    if entry.content is None:
        store.remove_file(place)
    else:
        store.write_file(place, entry.content, 0o600, durable=False)


def _changed(
    before: Mapping[str, bytes], after: Mapping[str, bytes], interfaces: tuple[str, ...]
) -> list[dict[str, str | None]]:
    found = []
    for path in sorted({*before, *after}):
        if before.get(path) == after.get(path) or path == _MANAGED:
            continue
        match = _INTERFACE.search(path)
        interface = next((word for word in match.groups() if word), None) if match else None
        if interface in interfaces or (interface is None and _about(path, before, after, interfaces)):
            continue
        backend = next(name for prefix, name in BACKENDS.items() if path.startswith(prefix))
        found.append({"interface": interface, "backend": backend, "path": path})
    return found


def _about(
    path: str, before: Mapping[str, bytes], after: Mapping[str, bytes], interfaces: tuple[str, ...]
) -> bool:
    """Tell whether a file of no interface's own, such as the list of devices that NetworkManager is to leave
    alone, differs only by what it says of ours.
    """

    def others(files: Mapping[str, bytes]) -> list[str]:
        words: list[str] = []
        for line in files.get(path, b"").decode("utf-8", "replace").splitlines():
            said = [word for word in re.split(r"[\s;,=:\"]+|\bnetwork\.ethernets\.", line) if word]
            ours = any(word in interfaces for word in said)
            # A comment or a rule of udev is about one device; a list of NetworkManager names several.
            if not (ours and line.startswith(("#", "SUBSYSTEM"))):
                words += [word for word in said if word not in interfaces]
        return words

    return others(before) == others(after)


def _conflicts(node: Node, staged: set[str], interfaces: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the other definitions that name our interfaces outside of comments; netplan adds them all up."""
    found = []
    for entry in _definitions(node):
        name = entry.path.rpartition("/")[2]
        if name in staged or re.match(r"^4\d-sparkring-plane\d+\.yaml$", name):
            continue
        text = node.tree.read(entry.path, bundle.MAX_FILE_BYTES) or ""
        text = "\n".join(re.sub(r"(^|\s)#.*", "", line) for line in text.splitlines())
        named = [i for i in interfaces if re.search(rf"(?<![\w.-]){re.escape(i)}(?![\w.-])", text)]
        if named:
            found.append({"path": entry.path, "interfaces": named})
    return found
