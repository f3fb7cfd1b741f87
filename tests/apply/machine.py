"""One machine for the whole chain: an SSH server in front, and behind it stand-ins that share one state.

What netplan, NetworkManager, systemd and the scripts did shows up wherever the collector looks: in
``ip -j``, ``tc -j``, ``devlink -j``, ``rdma -j``, ethtool, sysfs, /proc and ``systemctl show``. The stand-ins
of the transaction (`tests.node.txn.world`) and of the scripts (`tests.scripts.standin`) do the work; here
they are joined.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
import uuid
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Any

import yaml

from fabric_plan.node.collect.network import SYSCTLS_IPV4, SYSCTLS_IPV6
from fabric_plan.planner.model import NodePlan
from tests.apply import printed
from tests.apply.programs import Programs, running
from tests.node.txn import world
from tests.node.txn.processes import Outside, Process
from tests.node.txn.world import MANAGEMENT, PROFILES, RefusalError, World, install_tools
from tests.scripts import standin
from tests.scripts.standin import write_sysfs
from tests.scripts.support import BOOT_ID, KERNEL_QUEUE_PAIR, gid_of, new_state
from tests.ssh.nodes import SshNode

State = dict[str, Any]
MORE_TOOLS = ("tc", "devlink", "iptables", "nft", "udevadm")
EMPTY_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
MANAGEMENT_ADDRESS = "192.168.1.11/24"
DISPATCHER = "etc/NetworkManager/dispatcher.d/90-fabric-plan"
ENDED_S = 60.0

# What other people have on such a machine; nothing of it may ever change.
FOREIGN = {
    "/etc/netplan/01-network-manager-all.yaml": "network:\n  version: 2\n  renderer: NetworkManager\n",
    "/etc/hosts": "127.0.0.1 localhost\n",
    "/etc/sysctl.d/10-own.conf": "vm.swappiness = 10\n",
    "/etc/NetworkManager/conf.d/10-own.conf": "[main]\ndns=default\n",
    "/etc/systemd/system/engine.service": "[Service]\nExecStart=/usr/bin/engine\n",
}
PROGRAM = b"\x7fELF\x02\x01\x01\xff\xfe a marker's program is no text\n"


class Machine(World):
    """The node of `plan` behind the SSH server `ssh`, as it left the factory."""

    def __init__(self, ssh: SshNode, plan: NodePlan) -> None:
        self.ssh = ssh
        self.name = ssh.name
        home = ssh.base / "w"
        home.mkdir()
        names = tuple(planned.function.netdev for planned in plan.functions)
        self.state = new_state(plan, home / "root")
        super().__init__(home, names, Programs(ssh.tools))
        self._jobs: list[threading.Thread] = []
        self._kept_states: dict[str, State] = {}
        self._next_pid = 4000
        self._join()
        self._write_root()
        self._sync()
        self._install(ssh)

    def _join(self) -> None:
        """Let both kinds of stand-in work on one log and one set of links."""
        state = self.state
        state["log"], state["broken"] = self.log, self.broken
        for link in state["links"].values():
            link["addresses"], link["mtu"] = [], 1500
        state["links"][MANAGEMENT] = {
            "index": 2,
            "present": True,
            "carrier": True,
            "mac": "4c:bb:47:00:00:01",
            "addresses": [MANAGEMENT_ADDRESS],
            "mtu": 1500,
            "rdma": "",
            "pci": "0007:01:00.0",
            "gids": [],
        }
        way = {"to": "default", "via": "192.168.1.1", "dev": MANAGEMENT, "src": None}
        state["routes"] = [{**way, "proto": "dhcp", "metric": "100"}]
        state["docker_user"] = []

    def _write_root(self) -> None:
        for scope in ("all", "default", *self.functions):
            for name in SYSCTLS_IPV4:
                redirects = name in ("send_redirects", "accept_redirects", "secure_redirects")
                self.write(f"/proc/sys/net/ipv4/conf/{scope}/{name}", f"{int(redirects)}\n")
            for name in SYSCTLS_IPV6:
                self.write(f"/proc/sys/net/ipv6/conf/{scope}/{name}", "0\n")
        self.write("/proc/sys/net/ipv4/ip_forward", "0\n")
        self.write("/proc/sys/kernel/random/boot_id", BOOT_ID + "\n")
        self.write("/proc/sys/kernel/hostname", self.name + "\n")
        self.write("/proc/sys/kernel/osrelease", "6.11.0-1016-nvidia\n")
        self.write("/proc/uptime", "1000.00 1000.00\n")
        self.write("/proc/net/snmp", "Ip: Forwarding ForwDatagrams\nIp: 1 0\n")
        self.write("/etc/machine-id", f"{uuid.uuid5(uuid.NAMESPACE_DNS, self.name).hex}\n")
        for path, content in FOREIGN.items():
            self.write(path, content, 0o600 if "/netplan/" in path else 0o644)
        program = self.root / "usr/local/lib/fabric-plan/fabric-plan-marker"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_bytes(PROGRAM)
        program.chmod(0o755)

    def _install(self, ssh: SshNode) -> None:
        install_tools(ssh.tools)
        for tool in MORE_TOOLS:
            (ssh.tools / tool).hardlink_to(ssh.tools / world.TOOLS[0])
        self.environment["FABRIC_PLAN_WAIT"] = "10"
        self.wrap()

    def wrap(self, **more: str) -> None:
        """Write what starts Python on this node; `more` is in its environment, for faults."""
        given = {**self.env(), **more}
        words = [f"export {name}={shlex.quote(value)}" for name, value in given.items()]
        root = shlex.quote(str(self.root))
        place = self.ssh.tools / "python3.new"
        place.write_text(
            "\n".join(["#!/bin/sh", *words, f'exec {shlex.quote(sys.executable)} "$@" --root {root}', ""])
        )
        place.chmod(0o755)
        place.replace(self.ssh.tools / "python3")

    # ---- one state ---------------------------------------------------------------------------------------

    def _sync(self) -> None:
        """Let the links show the addresses that NetworkManager gave, and sysfs the links."""
        for dev in self.functions:
            link = self.state["links"][dev]
            link["addresses"] = list(self.kernel.addresses[dev])
            mapped = gid_of(IPv4Interface(link["addresses"][0])) if link["addresses"] else EMPTY_GID
            link["gids"][2:4] = (
                [[mapped, "IB/RoCE v1"], [mapped, "RoCE v2"]]
                if link["addresses"]
                else [[mapped, ""], [mapped, ""]]
            )
        base = self.root / "sys/class/infiniband"
        for dev in self.functions:
            # What write_sysfs leaves when a GID goes: the attributes of an empty place cannot be read.
            for index, (_, kind) in enumerate(self.state["links"][dev]["gids"]):
                if not kind:
                    for name in ("ndevs", "types"):
                        folder = base / self.state["links"][dev]["rdma"] / "ports/1/gid_attrs" / name
                        (folder / str(index)).unlink(missing_ok=True)
        write_sysfs(self.state)
        for dev, link in self.state["links"].items():
            if link["present"] and link["pci"]:
                for place in (f"net/{dev}", f"infiniband/{link['rdma']}" if link["rdma"] else ""):
                    device = self.root / "sys/class" / place / "device"
                    if place and not device.is_symlink():
                        device.symlink_to(f"../../../{link['pci']}")
                if link["rdma"]:
                    (base / link["rdma"] / "ports/1/state").write_text("4: ACTIVE\n")

    def _tool(self, tool: str, argv: list[str]) -> str:
        try:
            if tool in ("systemctl", "systemd-run"):
                return super()._tool(tool, argv)
            # A hook of a test may wait for something: it runs before anything is locked.
            for pattern, act in list(self.during.items()):
                if re.search(pattern, " ".join([tool, *argv])):
                    del self.during[pattern]
                    act()
            with self._lock:
                return super()._tool(tool, argv)
        except standin.RefusalError as refusal:
            raise RefusalError(refusal.words, refusal.status) from None

    def keep(self, name: str = "kept") -> None:
        """Keep the machine as it is now, to come back to."""
        self.rest()
        super().keep(name)
        state = {key: value for key, value in self.state.items() if key not in ("log", "broken")}
        self._kept_states[name] = copy.deepcopy(state)

    def come_back(self, name: str = "kept") -> None:
        """Be the machine that was kept."""
        self.rest()
        super().come_back(name)
        self.environment["FABRIC_PLAN_WAIT"] = "10"
        self.state.update(copy.deepcopy(self._kept_states[name]))
        self.state["log"], self.state["broken"] = self.log, self.broken
        self.wrap()

    def _at_work(self) -> bool:
        """Tell whether anything that systemd or an SSH session started runs; a session that was cut may leave
        its program behind, which ends what it was told to do.
        """
        return (
            any(job.is_alive() for job in self._jobs)
            or any(service.poll() is None for service in self.services.values())
            or len(self.ssh.family()) > 1
            or bool(running(str(self.root)))
        )

    def rest(self) -> None:
        """Wait until nothing runs on the machine any more."""
        deadline = time.monotonic() + ENDED_S
        while self._at_work():
            assert time.monotonic() < deadline, "something runs on and on"
            time.sleep(0.02)
        self._jobs.clear()

    def pass_time(self) -> None:
        """Let every lease and every armed rollback run out: the clock is moved, nobody waits."""
        self.rest()
        place = self.root / "run/fabric-plan/apply.json"
        if place.exists():
            lease = json.loads(place.read_text())
            lease["expires_s"] = 0.0
            if lease["armed_until_s"] is not None:
                lease["armed_until_s"] = 0.0
            place.write_text(json.dumps(lease))
        while self.timers:
            name = next(iter(self.timers))
            status = self._spawn(self.timers.pop(name)).wait(ENDED_S)
            assert status == 0, (self.name, name, status)
            self.rest()

    def tree(self) -> dict[str, tuple[Any, ...]]:
        """Return everything below the root with the time of its last change: a file that is written again
        shows, even with the same content.
        """
        found: dict[str, tuple[Any, ...]] = {}
        for path in sorted(self.root.rglob("*")):
            status = path.lstat()
            if not path.is_dir():
                content = os.fspath(path.readlink()) if path.is_symlink() else path.read_bytes()
                found[f"/{path.relative_to(self.root)}"] = (status.st_mode, status.st_mtime_ns, content)
        return found

    def lasting(self) -> dict[str, tuple[int, bytes | str]]:
        """Return what lies under /etc and /usr, with modes; links as their targets."""
        return {
            path: (mode, content)
            for path, (mode, _, content) in self.tree().items()
            if path.startswith(("/etc/", "/usr/"))
        }

    def kernel_state(self) -> dict[str, Any]:
        """Return what lives: links, routes, rules, driver values, sysctls, our units."""
        state = copy.deepcopy(
            {key: self.state[key] for key in ("links", "qdiscs", "filters", "routes", "devlink")}
        )
        state["routes"] = sorted(state["routes"], key=str)
        state["filters"] = sorted(state["filters"], key=str)
        live = self.live()
        return {
            **state,
            "forwarding": sorted(self.state["docker_user"]),
            "sysctls": self.sysctls(),
            "units": live.units,
            "markers": live.marker_args,
            "active": live.active,
            "nm_conf": live.nm_conf,
        }

    # ---- netplan and NetworkManager ----------------------------------------------------------------------

    def netplan(self, argv: list[str]) -> str:
        root = Path(argv[argv.index("--root-dir") + 1]) if "--root-dir" in argv else self.root
        if root == self.root:
            self.log.append(["netplan", *argv])
        files: dict[str, Path] = {}
        for folder in ("lib/netplan", "etc/netplan", "run/netplan"):
            files.update({path.name: path for path in (root / folder).glob("*.yaml")})
        stanzas: dict[str, dict[str, Any]] = {}
        renderer = "networkd"
        for _, path in sorted(files.items()):
            text = path.read_text()
            if "\0" in text:
                raise RefusalError(f"{path}: Invalid YAML: control characters are not allowed", 78)
            network = (yaml.safe_load(text) or {}).get("network", {})
            renderer = network.get("renderer", renderer)
            for name, stanza in network.get("ethernets", {}).items():
                merged = stanzas.setdefault(name, {"addresses": [], "routes": []})
                for key, value in stanza.items():
                    merged[key] = merged[key] + value if key in ("addresses", "routes") else value
        for backend in (root / PROFILES, root / "run/systemd/network"):
            backend.mkdir(parents=True, exist_ok=True)
            for made in backend.glob("*netplan-*"):
                made.unlink()
        for dev, stanza in stanzas.items():
            if stanza.get("renderer", renderer) == "NetworkManager":
                place = root / PROFILES / f"netplan-{dev}.nmconnection"
                place.write_text(printed.profile(dev, stanza))
            else:
                place = root / f"run/systemd/network/10-netplan-{dev}.network"
                place.write_text(f"[Match]\nName={dev}\n{json.dumps(stanza, sort_keys=True)}\n")
        return ""

    def _load(self, path: Path) -> None:
        super()._load(path)
        profile = self.kernel.profiles.get(path.name)
        if profile is not None:
            text = path.read_text()
            sources = dict(re.findall(r"(?m)^route(\d+)_options=src=(.+)$", text))
            profile["routes"] = [
                (to, via, sources.get(number))
                for number, to, via in re.findall(r"(?m)^route(\d+)=([^,]+),(.+)$", text)
            ]
        self._sync()

    def _activate(self, key: str, dev: str) -> None:
        profile = self.kernel.profiles[key]
        link = self.state["links"][dev]
        self.kernel.active[dev] = key
        self.kernel.addresses[dev] = list(profile["addresses"])
        self.set_mtu(dev, profile.get("mtu", 1500))
        self._routes_gone(dev)
        metric = str(100 + link["index"] % 40)
        add = self.state["routes"].append
        for address in profile["addresses"]:
            own = IPv4Interface(address)
            add(
                {
                    "to": str(own.network),
                    "via": None,
                    "dev": dev,
                    "src": str(own.ip),
                    "proto": "kernel",
                    "metric": metric,
                }
            )
        for to, via, src in profile.get("routes", ()):
            add(
                {
                    "to": to.removesuffix("/32"),
                    "via": via,
                    "dev": dev,
                    "src": src,
                    "proto": "static",
                    "metric": metric,
                }
            )
        self._sync()
        self._dispatch(dev)

    def _deactivate(self, dev: str) -> None:
        super()._deactivate(dev)
        self._routes_gone(dev)
        self._sync()

    def set_mtu(self, dev: str, mtu: int) -> None:
        super().set_mtu(dev, mtu)
        self.state["links"][dev]["mtu"] = mtu

    def _routes_gone(self, dev: str, *, all_of: bool = False) -> None:
        keep = ("214",) if not all_of else ()
        self.state["routes"] = [
            route for route in self.state["routes"] if route["dev"] != dev or route["proto"] in keep
        ]

    def _dispatch(self, dev: str) -> None:
        """Run the dispatcher's script, which NetworkManager does not wait for here."""
        script = self.root / DISPATCHER
        if script.exists():
            self._job_later(
                lambda: subprocess.run(
                    ["bash", str(script), dev, "up"],
                    env=self.env(),
                    check=False,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )

    def _job_later(self, work: Any) -> None:
        def quietly() -> None:
            try:
                work()
            except RefusalError:
                return  # a job that was not waited for: its unit says that it failed

        job = threading.Thread(target=quietly, daemon=True)
        self._jobs.append(job)
        job.start()

    def nmcli(self, argv: list[str]) -> str:
        if argv[:2] != ["-t", "-f"]:
            answer = super().nmcli(argv)
            self._sync()
            return answer
        fields, words = argv[2].split(","), argv[3:]
        kernel = self.kernel
        rows = []
        if words == ["device", "status"]:
            for dev in (MANAGEMENT, *self.functions):
                key = kernel.active.get(dev)
                state = "connected" if key else "disconnected"
                name = kernel.profiles[key]["id"] if key else ""
                rows.append({"DEVICE": dev, "TYPE": "ethernet", "STATE": state, "CONNECTION": name})
        else:
            device_of = {key: dev for dev, key in kernel.active.items()}
            for key, profile in kernel.profiles.items():
                if "--active" in words and key not in device_of:
                    continue
                rows.append(
                    {
                        "NAME": profile["id"],
                        "UUID": profile.get("uuid", key),
                        "TYPE": "802-3-ethernet",
                        "DEVICE": device_of.get(key, ""),
                        "FILENAME": profile["file"] or "",
                    }
                )
        return "".join(":".join(row[f].replace(":", r"\:") for f in fields) + "\n" for row in rows)

    # ---- the kernel --------------------------------------------------------------------------------------

    def ip(self, argv: list[str]) -> str:
        words = [word for word in argv if not word.startswith("-")]
        if argv == ["-V"]:
            return "ip utility, iproute2-6.1.0, libbpf 1.2.2\n"
        if words[:2] == ["link", "set"] and "mtu" in words:
            self.log.append(["ip", *argv])
            self.set_mtu(words[words.index("dev") + 1], int(words[words.index("mtu") + 1]))
            return ""
        if words[:2] == ["addr", "flush"]:
            dev = words[words.index("dev") + 1]
            self.log.append(["ip", *argv])
            self.kernel.addresses[dev] = []
            self._routes_gone(dev)
            self._sync()
            return ""
        if "-j" not in argv:
            return standin.ip(self.state, argv)
        if words[0] == "neigh" or "-6" in argv:
            return "[]"
        if words[0] == "route":
            return json.dumps(printed.routes(self.state, default_alone="default" in words))
        chosen = words[words.index("dev") + 1] if "dev" in words else None
        return json.dumps(printed.links(self.state, chosen))

    def tc(self, argv: list[str]) -> str:
        if argv[:1] == ["-j"]:
            if "qdisc" in argv:
                return json.dumps(printed.qdiscs(self.state))
            dev = argv[argv.index("dev") + 1]
            return json.dumps(printed.filters(self.state, dev))
        return standin.tc(self.state, argv)

    def devlink(self, argv: list[str]) -> str:
        if argv[:1] == ["-j"]:
            return json.dumps(printed.devlink(self.state, argv[1:]))
        before = {dev: self.state["links"][dev]["index"] for dev in self.functions}
        answer = standin.devlink(self.state, argv)
        for dev in self.functions:
            if self.state["links"][dev]["index"] != before[dev]:
                # The device is made anew: NetworkManager takes it up again with the profile that it had.
                self.kernel.addresses[dev] = []
                self._routes_gone(dev, all_of=True)
                key = self.kernel.active.get(dev)
                if key is not None:
                    self._activate(key, dev)
                else:
                    self._sync()
        return answer

    def rdma(self, argv: list[str]) -> str:
        if "-j" not in argv:
            return standin.rdma(self.state, argv)
        if "link" in argv:
            return json.dumps(printed.rdma_links(self.state))
        return json.dumps(printed.resources(self.state["rdma"][argv[-1]]))

    def ethtool(self, argv: list[str]) -> str:
        if argv[0] == "-K":
            return super().ethtool(argv)
        dev = argv[-1]
        if argv[0] == "-S":
            return "NIC statistics:\n     rx_packets: 0\n     tx_packets: 0\n"
        on = self.kernel.offload.get(dev, False)
        entry = {"active": on, "fixed": False, "requested": on}
        return json.dumps([{"ifname": dev, "hw-tc-offload": entry}])

    def iptables(self, argv: list[str]) -> str:
        if "-S" in argv:
            rules = [f"-A DOCKER-USER {rule}" for rule in self.state["docker_user"]]
            return "".join(f"{line}\n" for line in ("-P FORWARD DROP", "-N DOCKER-USER", *rules))
        return standin.iptables(self.state, argv)

    def nft(self, argv: list[str]) -> str:
        return standin.nft(self.state, argv)

    def udevadm(self, argv: list[str]) -> str:
        return standin.udevadm(self.state, argv)

    # ---- systemd -----------------------------------------------------------------------------------------

    def systemctl(self, argv: list[str]) -> str:
        words = [word for word in argv if not word.startswith("--")]
        if words[0] == "show":
            asked = next(word for word in argv if word.startswith("--property=")).partition("=")[2].split(",")
            units = self._shown(words[1:])
            if "--value" in argv:
                return "\n\n".join(str(unit[asked[0]]) for unit in units) + "\n"
            blocks = ["\n".join(f"{key}={unit[key]}" for key in asked) for unit in units]
            return "\n\n".join(blocks) + "\n"
        if "--no-block" in argv and words[0] in ("start", "stop", "reload", "restart"):
            self.log.append(["systemctl", *argv])
            for unit in words[1:]:
                if words[0] != "stop":
                    self._unit_text(unit)
                self._job_later(lambda verb=words[0], unit=unit: self._job(verb, unit))
            return ""
        return super().systemctl(argv)

    def _shown(self, names: list[str]) -> list[dict[str, str]]:
        known = [*self.unit_texts, *self.kernel.units]
        found: dict[str, None] = {}
        for name in names:
            if "*" in name:
                pattern = re.escape(name).replace(r"\*", ".*")
                loaded = [unit for unit in known if re.fullmatch(pattern, unit) and "@." not in unit]
                found.update(dict.fromkeys(sorted(set(loaded))))
            else:
                found[name] = None
        return [self._properties(unit) for unit in found]

    def _properties(self, unit: str) -> dict[str, str]:
        template = re.sub(r"@.+\.service$", "@.service", unit)
        text = self.unit_texts.get(unit, self.unit_texts.get(template))
        place = next(
            (
                f"/{f}/{n}"
                for f in world.UNIT_FOLDERS
                for n in (unit, template)
                if (self.root / f / n).exists()
            ),
            "",
        )
        active = self._state(unit)
        enabled = any((self.root / "etc/systemd/system").glob(f"*.wants/{unit}"))
        return {
            "Id": unit,
            "LoadState": "loaded" if text is not None else "not-found",
            "ActiveState": active,
            "SubState": "exited" if active == "active" else "dead",
            "UnitFileState": ("enabled" if enabled else "disabled") if text is not None else "",
            "Result": "success",
            "MainPID": str(self.state["pids"].get(unit, 0)),
            "NRestarts": "0",
            "ExecMainStatus": "0",
            "ActiveEnterTimestampMonotonic": "0",
            "FragmentPath": place,
            "NeedDaemonReload": "no",
        }

    def _start_marker(self, unit: str) -> None:
        device = unit.partition("@")[2].removesuffix(".service")
        self._marker_gone(unit)
        arguments = None
        for word in re.findall(r"(?m)^EnvironmentFile=(.+)$", self._unit_text(unit)):
            path = self.root / word.lstrip("-/")
            if path.exists():
                arguments = re.findall(r'(?m)^MARKER_ARGS="(.*)"$', path.read_text())[0]
            elif not word.startswith("-"):
                raise RefusalError(f"Failed to start {unit}: {path} is not there")
        if arguments is None:
            raise RefusalError(f"Job for {unit} failed: no arguments")
        self._next_pid += 1
        pid = self._next_pid
        words = ["/usr/local/lib/fabric-plan/fabric-plan-marker", *arguments.split()]
        self.write(f"/proc/{pid}/cmdline", "\0".join(words) + "\0")
        self.state["pids"][unit] = pid
        context = f"dev {device} ctxn {pid} pid {pid} comm fabric-plan-mar"
        self.state["rdma"]["ctx"].append(context)
        self.kernel.marker_args[unit] = arguments

    def _marker_gone(self, unit: str) -> None:
        pid = self.state["pids"].pop(unit, None)
        if pid is not None:
            (self.root / f"proc/{pid}/cmdline").unlink()
            (self.root / f"proc/{pid}").rmdir()
            contexts = self.state["rdma"]["ctx"]
            contexts[:] = [line for line in contexts if f" pid {pid} " not in line]

    def _job(self, verb: str, unit: str) -> None:
        if verb == "stop" and "@" in unit:
            self._marker_gone(unit)
        super()._job(verb, unit)

    def _spawn(self, command: list[str]) -> Process:
        return Outside(command, self.env())


def queue_pair_of(device: str, pid: int) -> str:
    """Return what ``rdma resource show qp`` prints of an engine's queue pair."""
    return (
        KERNEL_QUEUE_PAIR.format(rdma=device)
        .replace("GSI", "RC")
        .replace("comm [ib_core]", f"pid {pid} comm engine")
    )
