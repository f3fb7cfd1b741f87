"""What the real tools would print, as JSON, of the state that the stand-ins keep."""

from __future__ import annotations

import re
from typing import Any

State = dict[str, Any]
Entry = dict[str, Any]


def profile(dev: str, stanza: Entry) -> str:
    """Return the profile that netplan writes for NetworkManager."""
    lines = ["[connection]", f"id=netplan-{dev}", "type=ethernet", f"interface-name={dev}", "", "[ethernet]"]
    if "mtu" in stanza:
        lines.append(f"mtu={stanza['mtu']}")
    lines += ["", "[ipv4]", "method=manual" if stanza["addresses"] else "method=auto"]
    lines += [f"address{n}={address}" for n, address in enumerate(stanza["addresses"], 1)]
    for n, route in enumerate(stanza["routes"], 1):
        lines.append(f"route{n}={route['to']},{route['via']}")
        if "from" in route:
            lines.append(f"route{n}_options=src={route['from']}")
    return "\n".join(lines) + "\n"


def links(state: State, chosen: str | None) -> list[Entry]:
    """``ip -j -d addr show``."""
    found = []
    if chosen is None:
        found.append(_link("lo", {"index": 1, "mtu": 65536, "mac": "00:00:00:00:00:00", "carrier": True}))
    for dev, link in state["links"].items():
        if link["present"] and chosen in (None, dev):
            found.append(_link(dev, link))
    return found


def _link(dev: str, link: Entry) -> Entry:
    flags = ["BROADCAST", "MULTICAST", "UP", *(["LOWER_UP"] if link["carrier"] else [])]
    pairs = [address.split("/") for address in link.get("addresses", ())]
    entry: Entry = {
        "ifindex": link["index"],
        "ifname": dev,
        "flags": flags,
        "mtu": link["mtu"],
        "operstate": "UP" if link["carrier"] else "DOWN",
        "link_type": "ether",
        "address": link["mac"],
        "max_mtu": 9978,
        "addr_info": [
            {"family": "inet", "local": local, "prefixlen": int(prefix), "scope": "global", "label": dev}
            for local, prefix in pairs
        ],
    }
    if link.get("pci"):
        entry.update({"parentbus": "pci", "parentdev": link["pci"]})
    return entry


def routes(state: State, *, default_alone: bool) -> list[Entry]:
    """``ip -j -4 route show table all``."""
    found = []
    for route in state["routes"]:
        if default_alone and route["to"] != "default":
            continue
        entry = {"dst": route["to"], "dev": route["dev"], "protocol": route["proto"], "flags": []}
        if route["via"]:
            entry["gateway"] = route["via"]
        if route["src"]:
            entry["prefsrc"] = route["src"]
        if route["metric"] != "0":
            entry["metric"] = int(route["metric"])
        found.append(entry)
    return found


def qdiscs(state: State) -> list[Entry]:
    """``tc -j qdisc show``."""
    found: list[Entry] = []
    for dev, link in state["links"].items():
        if link["present"]:
            found.append({"kind": "mq", "handle": "0:", "dev": dev, "root": True, "options": {}})
            if dev in state["qdiscs"]:
                kind = state["qdiscs"][dev]
                found.append(
                    {"kind": kind, "handle": "ffff:", "dev": dev, "parent": "ffff:fff1", "options": {}}
                )
    return found


def filters(state: State, dev: str) -> list[Entry]:
    """``tc -j -s filter show dev DEV ingress``."""
    found = []
    for rule in sorted(state["filters"], key=lambda f: (f["pref"], f["handle"])):
        if rule["dev"] != dev or rule["direction"] != "ingress":
            continue
        head = {
            "protocol": f"[{int(rule['protocol'], 16)}]",
            "pref": rule["pref"],
            "kind": rule["kind"],
            "chain": 0,
        }
        if rule["kind"] != "flower":
            found.append({**head, "options": {"handle": rule["handle"]}})
            continue
        found += [head, {**head, "options": _flower(rule)}]
    return found


def _flower(rule: Entry) -> Entry:
    mac = rule["new"].replace(":", "")
    keys = {"dst_mac": rule["dst"], "eth_type": f"{int(rule['protocol'], 16):x}"}
    if rule["src"]:
        keys["src_mac"] = rule["src"]
    words = [
        {
            "htype": "eth",
            "offset": 12,
            "cmd": "set",
            "val": f"{int(rule['type'], 16) << 16:x}",
            "mask": "ffff",
        },
        {"htype": "eth", "offset": 0, "cmd": "set", "val": mac[:8], "mask": "0"},
        {"htype": "eth", "offset": 4, "cmd": "set", "val": f"{int(mac[8:], 16) << 16:x}", "mask": "ffff"},
    ]
    stats = {"bytes": 0, "packets": 0, "drops": 0, "hw_bytes": 0, "hw_packets": 0}
    options: Entry = {
        "handle": int(rule["handle"], 16),
        "keys": keys,
        "actions": [
            {
                "order": 1,
                "kind": "pedit",
                "control_action": {"type": "pipe"},
                "nkeys": 3,
                "keys": words,
                "stats": stats,
            },
            {
                "order": 2,
                "kind": "mirred",
                "mirred_action": "redirect",
                "direction": "egress",
                "to_dev": rule["to"],
                "control_action": {"type": "stolen"},
                "stats": stats,
                "cookie": rule["cookie"],
            },
        ],
    }
    options["skip_sw" if rule["skip_sw"] else "skip_none"] = True
    options.pop("skip_none", None)
    options.update({"in_hw": True, "in_hw_count": 1} if rule["in_hw"] else {"not_in_hw": True})
    return options


def devlink(state: State, argv: list[str]) -> Entry:
    """``devlink -j``: parameters, reloads, eswitch, information."""
    words = [word for word in argv if not word.startswith("-")]
    chosen = {
        f"pci/{pci}": device
        for pci, device in state["devlink"].items()
        if not any(word.startswith("pci/") for word in words) or f"pci/{pci}" in words
    }
    if words[:3] == ["dev", "param", "show"]:
        return {"param": {handle: _params(device) for handle, device in chosen.items()}}
    if words[:3] == ["dev", "eswitch", "show"]:
        return {"dev": {handle: {"mode": "legacy"} for handle in chosen}}
    if words[:2] == ["dev", "info"]:
        return {"info": {handle: {"driver": "mlx5_core", "versions": {}} for handle in chosen}}
    return {"dev": {handle: _reloads(device) for handle, device in chosen.items()}}


def _params(device: Entry) -> list[Entry]:
    found: list[Entry] = [
        {"name": name, "type": "driver-specific", "values": [{"cmode": "driverinit", "value": values[0]}]}
        for name, values in device["params"].items()
    ]
    steering = {"name": "flow_steering_mode", "type": "driver-specific"}
    return [*found, {**steering, "values": [{"cmode": "runtime", "value": "hmfs"}]}]


def _reloads(device: Entry) -> Entry:
    counts = {"driver_reinit": {"unspecified": device["reloads"]}}
    failed = {"reload_failed": True} if device["failed"] else {}
    return {**failed, "stats": {"reload": counts, "remote_reload": {"driver_reinit": {"unspecified": 9}}}}


def rdma_links(state: State) -> list[Entry]:
    """``rdma -j link show``."""
    return [
        {"ifindex": n, "ifname": link["rdma"], "port": 1, "state": "ACTIVE", "netdev": dev}
        for n, (dev, link) in enumerate(state["links"].items())
        if link["rdma"]
    ]


def resources(lines: list[str]) -> list[Entry]:
    """``rdma -j resource show``, from the lines of the text output."""
    found = []
    for number, line in enumerate(lines):
        head, _, comm = line.partition(" comm ")
        _, place, *words = head.split()
        device, _, port = place.partition("/")
        entry: Entry = {"ifindex": number, "ifname": device, "comm": comm.strip("[]")}
        if port:
            entry["port"] = int(port)
        for key, value in zip(words[::2], words[1::2], strict=True):
            entry[key] = int(value) if re.fullmatch(r"\d+", value) else value
        found.append(entry)
    return found
