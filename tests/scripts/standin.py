"""A stand-in for the tools that the scripts call: it keeps a state and notes each call that changes it.

On PATH stand small clients named ``tc``, ``ip``, ``devlink``, ``rdma``, ``systemctl`` and so on; they ask the
`Standin` of the test over loopback. What it answers has the layout of the real tools (iproute2 6.1 to 6.15),
and its refusals have the kernel's words.

The state is plain data; `new_state` of `support` says what is in it. Under ``faults`` stand the ways to go
wrong.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
from pathlib import Path
from typing import Any, NoReturn

State = dict[str, Any]
KERNEL_TALK = "We have an error talking to the kernel"


class RefusalError(Exception):
    """The tool ends with these words and this status."""

    def __init__(self, words: str, status: int = 2) -> None:
        super().__init__(words)
        self.words = words
        self.status = status


class HangError(Exception):
    """The tool does not come back."""


def refuse(*lines: str, status: int = 2) -> NoReturn:
    raise RefusalError("\n".join(lines), status)


def note(state: State, argv: list[str]) -> None:
    """Note a call that changes something."""
    state["log"].append(argv)


def fault(state: State, name: str, key: str) -> bool:
    """Tell whether fault `name` is set for `key`; a number counts down to nothing with each hit."""
    faults = state["faults"].get(name, {})
    left = faults.get(key, 0)
    if left in (0, False):
        return False
    if left is not True:
        faults[key] = left - 1
    return True


# ---- sysfs ---------------------------------------------------------------------------------------


def write_sysfs(state: State) -> None:
    """Write what the scripts read of /sys for the links that exist: the GIDs, and the hairpins that live."""
    root = Path(state["root"])
    net, infiniband = root / "sys/class/net", root / "sys/class/infiniband"
    links = {dev: link for dev, link in state["links"].items() if link["present"]}
    for folder, names in ((net, set(links)), (infiniband, {link["rdma"] for link in links.values()} - {""})):
        folder.mkdir(parents=True, exist_ok=True)
        for entry in folder.iterdir():
            if entry.name not in names:
                remove_tree(entry)
    for dev, link in links.items():
        (net / dev).mkdir(exist_ok=True)
        (net / dev / "ifindex").write_text(f"{link['index']}\n")
        port = infiniband / link["rdma"] / "ports/1"
        if not link["rdma"]:
            continue
        for index, (gid, kind) in enumerate(link["gids"]):
            for name, text in (("gids", gid), ("gid_attrs/ndevs", dev), ("gid_attrs/types", kind)):
                (port / name).mkdir(parents=True, exist_ok=True)
                # The attributes of an empty place cannot be read.
                if kind or name == "gids":
                    (port / name / str(index)).write_text(text + "\n")


def remove_tree(path: Path) -> None:
    for entry in path.iterdir():
        remove_tree(entry) if entry.is_dir() else entry.unlink()
    path.rmdir()


# ---- ip ------------------------------------------------------------------------------------------


def visible(state: State, dev: str) -> dict[str, Any]:
    link: dict[str, Any] | None = state["links"].get(dev)
    if not link or not link["present"]:
        refuse(f'Device "{dev}" does not exist.', status=1)
    return link


def after(words: list[str], key: str) -> str | None:
    return words[words.index(key) + 1] if key in words else None


def arrivals(state: State) -> None:
    """Bring in the functions that come late, each after as many looks as its fault counts."""
    for dev, link in state["links"].items():
        if dev in state["faults"].get("late_function", {}) and not fault(state, "late_function", dev):
            link["present"] = True
            del state["faults"]["late_function"][dev]
            write_sysfs(state)


def ip(state: State, argv: list[str]) -> str:
    words = [word for word in argv if not word.startswith("-")]
    kind, verb, *rest = words
    if kind == "link" and verb == "show":
        arrivals(state)
        out = ""
        for dev, link in state["links"].items():
            if not link["present"]:
                continue
            carrier = link["carrier"] and not fault(state, "late_carrier", dev)
            flags = "BROADCAST,MULTICAST,UP,LOWER_UP" if carrier else "NO-CARRIER,BROADCAST,MULTICAST,UP"
            out += (
                f"{link['index']}: {dev}: <{flags}> mtu 9000 qdisc mq state {'UP' if carrier else 'DOWN'} "
                f"mode DEFAULT group default qlen 1000\\    link/ether {link['mac']} brd ff:ff:ff:ff:ff:ff\n"
            )
        return out
    if kind == "addr" and verb == "show":
        return "".join(
            f"{link['index']}: {dev}    inet {address} brd 10.255.255.255 scope global noprefixroute {dev}"
            "\\       valid_lft forever preferred_lft forever\n"
            for dev, link in state["links"].items()
            if link["present"] and not fault(state, "late_address", dev)
            for address in link["addresses"]
        )
    if kind == "route":
        return ip_route(state, verb, rest, argv)
    raise AssertionError(f"ip {argv}")


def ip_route(state: State, verb: str, rest: list[str], argv: list[str]) -> str:
    routes = state["routes"]
    if verb == "show":
        found = [route for route in routes if "default" not in rest or route["to"] == "default"]
        return "".join(map(route_line, sorted(found, key=lambda route: int(route["metric"]))))
    # Name and value in turn, as ip reads them: a device may be called like a word of ip's own.
    given = dict(zip(rest[1::2], rest[2::2], strict=True))
    route: dict[str, Any] = {
        "to": rest[0].removesuffix("/32"),
        "via": given.get("via"),
        "dev": given.get("dev"),
        "src": given.get("src"),
        "proto": given.get("proto", "boot"),
        "metric": given.get("metric", "0"),
    }
    if verb == "add":
        note(state, ["ip", *argv])
        if fault(state, "refuse_route", str(route["to"])):
            refuse("Error: Nexthop has invalid gateway.")
        visible(state, str(route["dev"]))
        if any(other["to"] == route["to"] and other["metric"] == route["metric"] for other in routes):
            refuse("RTNETLINK answers: File exists")
        routes.append(route)
        return ""
    if verb == "del":
        note(state, ["ip", *argv])
        for other in routes:
            if all(other[key] == route[key] for key in ("to", "via", "dev", "src", "proto", "metric")):
                routes.remove(other)
                return ""
        refuse("RTNETLINK answers: No such process")
    raise AssertionError(f"ip {argv}")


def route_line(route: dict[str, Any]) -> str:
    parts = [route["to"]]
    for key in ("via", "dev", "proto", "src", "metric"):
        if route[key] and (key, route[key]) not in (("metric", "0"), ("proto", "boot")):
            parts += [key, route[key]]
    return " ".join(parts) + " \n"


# ---- tc ------------------------------------------------------------------------------------------


def tc(state: State, argv: list[str]) -> str:
    kind, verb, *rest = argv
    if [kind, verb] == ["qdisc", "show"]:
        return show_qdiscs(state)
    dev = after(rest, "dev")
    assert dev
    if not state["links"].get(dev, {}).get("present"):
        refuse(f'Cannot find device "{dev}"', status=1)
    if kind == "qdisc":
        return tc_qdisc(state, verb, dev, rest, argv)
    if verb == "show":
        if fault(state, "unreadable", dev):
            refuse("Error: Something is wrong here.", "Dump terminated", status=1)
        direction = "egress" if "egress" in rest else "ingress"
        found = [f for f in state["filters"] if f["dev"] == dev and f["direction"] == direction]
        return show_filters(state, sorted(found, key=lambda f: (f["pref"], f["handle"])))
    note(state, ["tc", *argv])
    if verb == "del":
        return delete_filter(state, dev, rest)
    return put_filter(state, verb, dev, rest)


def show_qdiscs(state: State) -> str:
    out = "qdisc noqueue 0: dev lo root refcnt 2 \n"
    for dev, link in state["links"].items():
        if link["present"]:
            out += f"qdisc mq 0: dev {dev} root \n"
            out += f"qdisc fq_codel 0: dev {dev} parent :1 limit 10240p flows 1024 quantum 9014 \n"
            if dev in state["qdiscs"]:
                dashes = "---------------- " if state["qdiscs"][dev] == "ingress" else ""
                out += f"qdisc {state['qdiscs'][dev]} ffff: dev {dev} parent ffff:fff1 {dashes}\n"
    return out


def tc_qdisc(state: State, verb: str, dev: str, rest: list[str], argv: list[str]) -> str:
    present = state["qdiscs"].get(dev)
    note(state, ["tc", *argv])
    if verb == "add":
        if fault(state, "refuse_qdisc", dev):
            refuse("Error: Specified qdisc kind is unknown.")
        if present:
            refuse("Error: Exclusivity flag on, cannot modify.")
        state["qdiscs"][dev] = rest[-1]
        return ""
    assert verb == "del"
    if present != rest[-1]:
        refuse("Error: Invalid qdisc name: must match existing qdisc.")
    del state["qdiscs"][dev]
    state["filters"] = [f for f in state["filters"] if f["dev"] != dev]
    return ""


def delete_filter(state: State, dev: str, rest: list[str]) -> str:
    pref, handle, protocol = after(rest, "pref"), after(rest, "handle"), after(rest, "protocol")
    for f in state["filters"]:
        if (f["dev"], str(f["pref"]), f["handle"], f["protocol"]) == (dev, pref, handle, protocol):
            if fault(state, "refuse_delete", f"{dev} {pref} {handle}"):
                break
            state["filters"].remove(f)
            return ""
    refuse("Error: Specified filter handle not found.", KERNEL_TALK)


def put_filter(state: State, verb: str, dev: str, rest: list[str]) -> str:
    where = f"{dev} {after(rest, 'pref')} {after(rest, 'handle')}"
    if dev not in state["qdiscs"]:
        refuse("Error: Parent Qdisc doesn't exists.", KERNEL_TALK)
    if fault(state, f"refuse_{verb}", where):
        refuse("Error: mlx5_core: devices are not on same switch HW, can't offload forwarding.", KERNEL_TALK)
    new = parse_rule(state, dev, rest)
    same_pref = [
        f
        for f in state["filters"]
        if f["dev"] == dev and f["pref"] == new["pref"] and f["direction"] == "ingress"
    ]
    if any(f["protocol"] != new["protocol"] for f in same_pref):
        refuse("Error: Specified filter protocol does not match existing filter's.", KERNEL_TALK)
    if any(
        (f["src"], f["dst"]) == (new["src"], new["dst"]) and f["handle"] != new["handle"] for f in same_pref
    ):
        refuse("RTNETLINK answers: File exists", KERNEL_TALK)
    old = [f for f in same_pref if f["handle"] == new["handle"]]
    if old and verb == "add":
        refuse("Error: Filter already exists.", KERNEL_TALK)
    if new["skip_sw"] and fault(state, "no_offload", dev):
        refuse("Error: TC offload is disabled on net device.", KERNEL_TALK)
    new["in_hw"] = not fault(state, "not_in_hw", where)
    state["filters"] = [f for f in state["filters"] if f not in old] + [new]
    return ""


def parse_rule(state: State, dev: str, words: list[str]) -> dict[str, Any]:
    """Read the words of one rule in the order that the plan gives; anything else breaks the test."""
    text = " ".join(words)
    match = re.fullmatch(
        r"ingress protocol (?P<protocol>0x[0-9a-f]{4}) pref (?P<pref>\d+) handle (?P<handle>0x[0-9a-f]+) "
        r"flower (?P<skip_sw>skip_sw )?"
        r"(?:src_mac (?P<src>[0-9a-f:]{17}) )?dst_mac (?P<dst>[0-9a-f:]{17}) "
        r"action pedit ex munge eth type set 0x(?P<type>[0-9a-f]{4}) "
        r"munge eth dst set (?P<new>[0-9a-f:]{17}) pipe "
        r"action mirred egress redirect dev (?P<to>\S+) cookie (?P<cookie>[0-9a-f]{32})",
        text.removeprefix(f"dev {dev} "),
    )
    assert match, f"tc filter ... {text}"
    if not state["links"].get(match["to"], {}).get("present"):
        refuse(f'Cannot find device "{match["to"]}"', status=1)
    return {
        "dev": dev,
        "direction": "ingress",
        "kind": "flower",
        "protocol": match["protocol"],
        "pref": int(match["pref"]),
        "handle": match["handle"],
        "src": match["src"] or "",
        "dst": match["dst"],
        "type": match["type"],
        "new": match["new"],
        "to": match["to"],
        "to_index": state["links"][match["to"]]["index"],
        "cookie": match["cookie"],
        "skip_sw": bool(match["skip_sw"]),
        "in_hw": True,
    }


def show_filters(state: State, filters: list[dict[str, Any]]) -> str:
    out: list[str] = []
    prefs: set[int] = set()
    for f in filters:
        protocol = f"[{int(f['protocol'], 16)}]" if f["protocol"].startswith("0x") else f["protocol"]
        head = f"filter protocol {protocol} pref {f['pref']} {f['kind']} chain 0 "
        if f["pref"] not in prefs:
            out.append(head)
            prefs.add(f["pref"])
        out.append(f"{head}handle {f['handle']} ")
        if f["kind"] != "flower":
            out.append(f"  {f['text']}")
            continue
        out += [f"  dst_mac {f['dst']}"] + ([f"  src_mac {f['src']}"] if f["src"] else [])
        out.append(f"  eth_type {int(f['protocol'], 16):x}")
        out += (["  skip_sw"] if f["skip_sw"] else []) + (
            ["  in_hw in_hw_count 1"] if f["in_hw"] else ["  not_in_hw"]
        )
        mac = f["new"].replace(":", "")
        out += [
            "\taction order 1:  pedit action pipe keys 3",
            " \t index 1 ref 1 bind 1",
            f"\t key #0  at eth+12: val {f['type']}0000 mask 0000ffff",
            f"\t key #1  at eth+0: val {mac[:8]} mask 00000000",
            f"\t key #2  at eth+4: val {mac[8:]}0000 mask 0000ffff",
            "\tused_hw_stats delayed",
            "",
            f"\taction order 2: mirred (Egress Redirect to device {f['to']}) stolen",
            " \tindex 1 ref 1 bind 1",
        ]
        out += [f"\tcookie {f['cookie']}"] if f["cookie"] else []
        out += ["\tused_hw_stats delayed", ""]
    return "".join(line + "\n" for line in out)


# ---- devlink -------------------------------------------------------------------------------------


def devlink(state: State, argv: list[str]) -> str:
    words = [word for word in argv if not word.startswith("-")]
    pci = next(word for word in words if word.startswith("pci/")).removeprefix("pci/")
    device = state["devlink"].get(pci)
    netdev = next((name for name, link in state["links"].items() if link["pci"] == pci), "")
    if device is None or netdev in state["faults"].get("late_function", {}):
        refuse("devlink answers: No such device", status=1)
    if fault(state, "devlink_hangs", pci):
        raise HangError
    if words[:3] == ["dev", "param", "show"]:
        name = words[words.index("name") + 1]
        if name not in device["params"]:
            refuse("kernel answers: Invalid argument", status=1)
        value = device["params"][name][0]
        return (
            f"pci/{pci}:\n  name {name} type driver-specific\n    values:\n"
            f"      cmode driverinit value {value}\n"
        )
    if words[:3] == ["dev", "param", "set"]:
        note(state, ["devlink", *argv])
        if fault(state, "refuse_param", pci):
            refuse(
                "Error: mlx5_core: Maximum hairpin queue size is 2048.",
                "kernel answers: Invalid argument",
                status=1,
            )
        device["params"][words[words.index("name") + 1]][0] = int(words[words.index("value") + 1])
        return ""
    if words[:2] == ["dev", "reload"]:
        note(state, ["devlink", *argv])
        assert argv[-2:] == ["action", "driver_reinit"]
        return devlink_reload(state, pci, device)
    assert words[:2] == ["dev", "show"] and "-s" in argv, argv
    failed = "  reload_failed true\n" if device["failed"] else ""
    count = device["reloads"]
    return (
        f"pci/{pci}:\n{failed}  stats:\n      reload:\n"
        f"          driver_reinit:\n            unspecified {count}\n"
        "          fw_activate:\n            unspecified 7 no_reset 0\n"
        "      remote_reload:\n          driver_reinit:\n            unspecified 9\n"
        "          fw_activate:\n            unspecified 9 no_reset 0\n"
    )


def devlink_reload(state: State, pci: str, device: dict[str, Any]) -> str:
    if fault(state, "reload_fails", pci):
        device["failed"] = True
        refuse("Error: mlx5_core: reload failed.", "kernel answers: Input/output error", status=1)
    if fault(state, "reload_hangs", pci):
        raise HangError
    device["reloads"] += 0 if fault(state, "reload_without_count", pci) else 1
    newcomer = state.get("rdma_after_reloads")
    if newcomer and sum(device["reloads"] for device in state["devlink"].values()) == newcomer["count"]:
        state["rdma"]["ctx"].append(newcomer["line"])
    for value in device["params"].values():
        value[1] = value[0]
    for name, link in state["links"].items():
        if link["pci"] != pci:
            continue
        state["filters"] = [f for f in state["filters"] if f["dev"] != name]
        state["qdiscs"].pop(name, None)
        state["routes"] = [route for route in state["routes"] if route["dev"] != name]
        link["index"] = state["next_index"]
        state["next_index"] += 1
        link["present"] = not fault(state, "does_not_return", pci)
        write_sysfs(state)
    return "reload_actions_performed:\n    driver_reinit\n"


# ---- the rest ------------------------------------------------------------------------------------


def rdma(state: State, argv: list[str]) -> str:
    assert argv[:2] == ["resource", "show"], argv
    if fault(state, "rdma_hangs", argv[2]):
        raise HangError
    if fault(state, "rdma_unreadable", argv[2]):
        refuse("Failed to open NETLINK_RDMA socket", status=1)
    return "".join(line + "\n" for line in state["rdma"][argv[2]])


def systemctl(state: State, argv: list[str]) -> str:
    words = [word for word in argv if not word.startswith("--")]
    verb, *units = words
    active = state["units"]
    if verb == "is-active":
        found = active.get(units[0], "inactive")
        if found != "active":
            refuse("" if "--quiet" in argv else found, status=3)
        return "" if "--quiet" in argv else "active\n"
    if verb == "is-system-running":
        return f"{state['system']}\n"
    if verb == "show":
        pattern = re.escape(units[0]).replace(r"\*", ".*")
        return (
            "\n\n".join(str(state["pids"].get(unit, 0)) for unit in active if re.fullmatch(pattern, unit))
            + "\n"
        )
    if verb == "list-units":
        pattern = re.escape(units[0]).replace(r"\*", ".*")
        found = [
            unit
            for unit in active
            if re.fullmatch(pattern, unit) and active[unit] in ("active", "activating")
        ]
        return "".join(f"{unit} loaded {active[unit]} running fabric-plan: marker\n" for unit in found)
    note(state, ["systemctl", *argv])
    for unit in units:
        if fault(state, "refuse_unit", unit):
            refuse(f"Failed to {verb} {unit}: Unit {unit} not found.", status=5)
        if verb in ("start", "reload", "restart"):
            active[unit] = "active"
        elif verb == "stop":
            active[unit] = "inactive"
    return ""


def iptables(state: State, argv: list[str]) -> str:
    words = argv[2:] if argv[0] == "-w" else argv
    chain = state["docker_user"]
    verb = next(word for word in words if re.fullmatch(r"-[CIDLS]", word))
    if verb == "-S":
        return f"-P FORWARD {state['forward_policy']}\n"
    if chain is None:
        refuse("iptables: No chain/target/match by that name.", status=1)
    if verb == "-L":
        return "Chain DOCKER-USER (1 references)\ntarget     prot opt source               destination\n"
    rule = " ".join(words[words.index("DOCKER-USER") + 1 :])
    if verb == "-C":
        if rule not in chain:
            refuse("iptables: Bad rule (does a matching rule exist in that chain?).", status=1)
        return ""
    note(state, ["iptables", *argv])
    if fault(state, "refuse_iptables", verb):
        refuse("iptables: Resource temporarily unavailable.", status=4)
    if verb == "-I":
        chain.insert(0, rule)
    else:
        chain.remove(rule)
    return ""


def nft(state: State, argv: list[str]) -> str:
    assert argv == ["list", "table", "ip", "docker-bridges"], argv
    if not state["docker_nftables"]:
        refuse("Error: No such file or directory", status=1)
    return "table ip docker-bridges {\n}\n"


def udevadm(state: State, argv: list[str]) -> str:
    assert argv[0] == "settle"
    return ""


def netplan(state: State, argv: list[str]) -> str:
    note(state, ["netplan", *argv])
    return ""


TOOLS = {tool.__name__: tool for tool in (ip, tc, devlink, rdma, systemctl, iptables, nft, udevadm, netplan)}


# A client forks nothing and loads nothing: a run of a script calls dozens of tools.
CLIENT = """#!/bin/bash
exec 3<>/dev/tcp/127.0.0.1/{port} || exit 98
printf '%s\\0' "$$" {tool} "$@" '' >&3
IFS= read -r -d '' status <&3 || exec sleep infinity
IFS= read -r -d '' out <&3
IFS= read -r -d '' err <&3
printf '%s' "$out"
printf '%s' "$err" >&2
exit "$status"
"""
END = b"\0\0"


class Standin:
    """The tools of one node: `state` is what they work on, `bin` goes in front of PATH."""

    def __init__(self, home: Path, state: State) -> None:
        self.state = state
        self.bin = home / "bin"
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        port = self._socket.getsockname()[1]
        self.bin.mkdir()
        for tool in TOOLS:
            client = self.bin / tool
            client.write_text(CLIENT.format(port=port, tool=tool))
            client.chmod(0o755)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Answer nobody any more."""
        self._closed.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _serve(self) -> None:
        while not self._closed.is_set():
            try:
                channel, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(channel,), daemon=True).start()

    def _answer(self, channel: socket.socket) -> None:
        with channel:
            request = b""
            while not request.endswith(END) and (part := channel.recv(65536)):
                request += part
            pid, tool, *argv = request.removesuffix(END).decode().split("\0")
            try:
                with self._lock:
                    answer = (0, TOOLS[tool](self.state, argv), "")
            except RefusalError as refusal:
                # systemctl answers on its standard output even where the answer is no.
                words = refusal.words + "\n" if refusal.words else ""
                answer = (
                    refusal.status,
                    words if tool == "systemctl" else "",
                    "" if tool == "systemctl" else words,
                )
            except HangError:
                return
            except Exception as error:
                self.state["broken"].append(f"{tool} {argv}: {error!r}")
                answer = (99, "", f"{error!r}\n")
            if self.state["die_after"] is not None and len(self.state["log"]) > self.state["die_after"]:
                # The script dies with its tool, after the change and before it hears of it.
                os.killpg(os.getsid(int(pid)), signal.SIGKILL)
                return
            channel.sendall("".join(f"{part}\0" for part in answer).encode())
