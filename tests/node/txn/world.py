"""One node as a program sees it: a root directory, and stand-ins for its tools that keep a live state.

Small clients on PATH (``netplan``, ``nmcli``, ``systemctl``, ``systemd-run``, ``ip``, ``rdma``, ``ethtool``
and ``fabric``, which the test's own scripts call) ask the `World` of the test over a socket. It does what
the real tools do as far as a transaction can tell: netplan writes profiles from the files of three folders,
/run over /etc; NetworkManager keeps what it loaded whatever the files say later; systemd runs the units that
it read at its last daemon-reload, system.control over /etc, and its transient services and timers.
"""

from __future__ import annotations

import contextlib
import copy
import fnmatch
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.node.txn.processes import Outside, Process, Spawner

MANAGEMENT = "enP7s7"
PROFILES = "run/NetworkManager/system-connections"
UNIT_FOLDERS = ("etc/systemd/system", "run/systemd/system.control")

# The client as a script, where no C compiler is at hand; a transaction calls dozens of tools.
CLIENT = """#!{python} -IS
import _socket, os, sys
channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
channel.connect(os.environ["STANDIN_SOCKET"])
channel.send(b"\\0".join(os.fsencode(word) for word in [os.path.basename(sys.argv[0]), *sys.argv[1:]]))
channel.shutdown(_socket.SHUT_WR)
answer = b""
while part := channel.recv(65536):
    answer += part
if not answer:
    sys.exit(99)
status, out, err = answer.split(b"\\0")
os.write(1, out)
os.write(2, err)
sys.exit(int(status))
"""
TOOLS = ("netplan", "nmcli", "systemctl", "systemd-run", "ip", "rdma", "ethtool", "fabric")


def install_tools(folder: Path) -> None:
    """Put the clients into a folder that goes on PATH."""
    compiler = shutil.which("cc")
    client = folder / TOOLS[0]
    if compiler:
        source = Path(__file__).with_name("client.c")
        subprocess.run([compiler, "-O1", "-o", str(client), str(source)], check=True)
    else:
        client.write_text(CLIENT.format(python=sys.executable))
        client.chmod(0o755)
    for tool in TOOLS[1:]:
        (folder / tool).hardlink_to(client)


class RefusalError(Exception):
    """The tool ends with these words and this status."""

    def __init__(self, words: str, status: int = 1) -> None:
        super().__init__(words)
        self.words = words
        self.status = status


@dataclass
class Kernel:
    """What the node's kernel, NetworkManager and systemd hold: what a transaction must leave whole."""

    addresses: dict[str, list[str]]
    profiles: dict[str, dict[str, Any]]
    active: dict[str, str]
    nm_conf: list[str] = field(default_factory=list)
    units: dict[str, str] = field(default_factory=dict)
    marker_args: dict[str, str] = field(default_factory=dict)
    rules: str = ""
    forwarding: str = ""
    offload: dict[str, bool] = field(default_factory=dict)
    hairpin: dict[str, str] = field(default_factory=dict)
    mtus: dict[str, int] = field(default_factory=dict)


class World:
    """The node below `home`; `kernel` is its live state, `log` the calls that changed something."""

    def __init__(self, home: Path, functions: tuple[str, ...], spawner: Spawner) -> None:
        self.home = home
        self.spawner = spawner
        self.root = home / "root"
        self.bin = spawner.folder
        self.functions = functions
        self.log: list[list[str]] = []
        self.broken: list[str] = []
        self.faults: dict[str, str] = {}
        self.contexts: list[dict[str, Any]] = []
        self.unit_texts: dict[str, str] = {}
        self.timers: dict[str, list[str]] = {}
        self.services: dict[str, Process] = {}
        self.environment: dict[str, str] = {}
        self.during: dict[str, Callable[[], None]] = {}
        wired = {"id": "Wired connection 1", "iface": None, "addresses": ["192.168.1.11/24"], "file": None}
        self.kernel = Kernel(
            addresses={MANAGEMENT: ["192.168.1.11/24"], **{dev: [] for dev in functions}},
            profiles={"wired": wired},
            active={MANAGEMENT: "wired"},
        )
        self._late_rows: list[str] = []
        for dev in functions:
            self.set_mtu(dev, 1500)
        self._kept: dict[str, tuple[Kernel, dict[str, str]]] = {}
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.address = str(home / "s")
        self._socket.bind(self.address)
        self._socket.listen(64)
        for path in ("etc/netplan", "etc/systemd/system", "run", "var/lib", "usr/local/lib", "proc/sys/net"):
            (self.root / path).mkdir(parents=True)
        for dev in ("all", *functions):
            for name in ("rp_filter", "forwarding"):
                self.write(f"/proc/sys/net/ipv4/conf/{dev}/{name}", "0\n")
        self.write("/sys/class/infiniband/rocep1s0f0/ports/1/state", "4: ACTIVE\n")
        self.write("/proc/1/cmdline", "init")
        threading.Thread(target=self._serve, daemon=True).start()

    # ---- files and processes ---------------------------------------------------------------------------

    def keep(self, name: str = "kept") -> None:
        """Keep the node as it is now, to come back to."""
        kept = self.home / name
        if kept.exists():
            shutil.rmtree(kept)
        shutil.copytree(self.root, kept, symlinks=True)
        self._kept[name] = (copy.deepcopy(self.kernel), dict(self.unit_texts))

    def come_back(self, name: str = "kept") -> None:
        """Be the node that was kept."""
        for process in self.services.values():
            process.kill()
        shutil.rmtree(self.root)
        shutil.copytree(self.home / name, self.root, symlinks=True)
        kernel, unit_texts = self._kept[name]
        self.kernel, self.unit_texts = copy.deepcopy(kernel), dict(unit_texts)
        for kept in (self.services, self.timers, self.faults, self.environment, self.during):
            kept.clear()
        self.log.clear()
        self.contexts.clear()

    def write(self, path: str, content: str, mode: int = 0o644) -> None:
        """Put a file below the root."""
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
        place.chmod(mode)

    def env(self, **more: str) -> dict[str, str]:
        """Return the environment of every process of this node."""
        return {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "STANDIN_SOCKET": self.address,
            "FABRIC_PLAN_ROOT": str(self.root),
            "FABRIC_PLAN_LOCK_WAIT": "5",
            **self.environment,
            **more,
        }

    def close(self) -> None:
        """Answer nobody any more, and end what still runs."""
        self._closed.set()
        for process in self.services.values():
            process.kill()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def reboot(self) -> None:
        """Lose /run and everything live, then boot: recover.sh where it is enabled, netplan, our units."""
        with self._lock:
            for process in self.services.values():
                process.kill()
            self.services.clear()
            self.timers.clear()
            shutil.rmtree(self.root / "run")
            (self.root / "run").mkdir()
            kernel = self.kernel
            kernel.units.clear()
            kernel.marker_args.clear()
            kernel.rules = kernel.forwarding = ""
            kernel.profiles = {"wired": kernel.profiles["wired"]}
            kernel.active = {MANAGEMENT: "wired"}
            for dev in self.functions:
                self.set_mtu(dev, 1500)
            kernel.addresses = {MANAGEMENT: ["192.168.1.11/24"], **{dev: [] for dev in self.functions}}
            for setting in (self.root / "proc/sys/net/ipv4/conf").glob("*/*"):
                setting.write_text("0\n")
            self._daemon_reload()
        enabled = self.root / "etc/systemd/system/sysinit.target.wants/fabric-plan-recover.service"
        pending = [self.root / "var/lib/fabric-plan" / name for name in ("journal", "stage")]
        if enabled.is_symlink() and any(path.exists() for path in pending):
            self._exec("fabric-plan-recover.service", "ExecStart")
        self.netplan([])
        for path in self._profile_files():
            self._load(path)
        for key, profile in list(self.kernel.profiles.items()):
            if key != "wired":
                self._activate(key, profile["iface"])
        self._read_nm_conf()
        self._daemon_reload()
        for conf in sorted((self.root / "etc/sysctl.d").glob("*.conf")):
            for line in conf.read_text().splitlines():
                name, _, value = line.partition(" = ")
                self.write(f"/proc/sys/{name}", value + "\n")
        for link in sorted((self.root / "etc/systemd/system").glob("multi-user.target.wants/*")):
            self.systemctl(["start", link.name])

    def live(self) -> Kernel:
        """Return a copy of the live state, with the sysctl values in it, to compare with later."""
        kernel = copy.deepcopy(self.kernel)
        # An UUID is drawn anew for each load of a file; that is no difference.
        for profile in kernel.profiles.values():
            profile.pop("uuid", None)
        kernel.profiles = {profile["id"]: profile for profile in kernel.profiles.values()}
        kernel.active = {dev: self.kernel.profiles[key]["id"] for dev, key in self.kernel.active.items()}
        kernel.units = {unit: word for unit, word in kernel.units.items() if word == "active"}
        kernel.nm_conf = sorted(set(kernel.nm_conf))
        return kernel

    def sysctls(self) -> dict[str, str]:
        """Return the kernel settings."""
        base = self.root / "proc/sys/net/ipv4/conf"
        return {str(path.relative_to(base)): path.read_text().strip() for path in base.glob("*/*")}

    def files(self) -> dict[str, str]:
        """Return what lies under /etc and /usr, links as their targets."""
        found = {}
        for top in ("etc", "usr"):
            for path in sorted((self.root / top).rglob("*")):
                name = "/" + str(path.relative_to(self.root))
                if path.is_symlink():
                    found[name] = f"-> {path.readlink()}"
                elif path.is_file():
                    found[name] = f"{path.stat().st_mode & 0o777:04o} {path.read_text()}"
        return found

    # ---- the socket --------------------------------------------------------------------------------------

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
            while part := channel.recv(65536):
                request += part
            tool, *argv = request.decode().split("\0")
            try:
                answer = (0, self._tool(tool, argv), "")
            except RefusalError as refusal:
                streams = (refusal.words + "\n", "") if tool == "systemctl" else ("", refusal.words + "\n")
                answer = (refusal.status, *streams)
            except Exception as error:
                self.broken.append(f"{tool} {argv}: {error!r}")
                answer = (99, "", f"{error!r}\n")
            with contextlib.suppress(OSError):
                channel.sendall("\0".join(map(str, answer)).encode())

    def _tool(self, tool: str, argv: list[str]) -> str:
        words = " ".join([tool, *argv])
        for pattern, what in list(self.faults.items()):
            if re.search(pattern, words):
                if what == "hang":
                    self._closed.wait()
                if what.startswith("once "):
                    del self.faults[pattern]
                    what = what.removeprefix("once ")
                raise RefusalError(what)
        for pattern, act in list(self.during.items()):
            if re.search(pattern, words):
                del self.during[pattern]
                act()
        answer: str = getattr(self, tool.replace("-", "_"))(argv)
        return answer

    # ---- netplan -----------------------------------------------------------------------------------------

    def netplan(self, argv: list[str]) -> str:
        root = Path(argv[argv.index("--root-dir") + 1]) if "--root-dir" in argv else self.root
        if root == self.root:
            self.log.append(["netplan", *argv])
        files: dict[str, Path] = {}
        for folder in ("lib/netplan", "etc/netplan", "run/netplan"):
            for path in sorted((root / folder).glob("*.yaml")):
                files[path.name] = path
        ethernets: dict[str, dict[str, Any]] = {}
        renderer = ""
        for _, path in sorted(files.items()):
            if "\0" in path.read_text():
                raise RefusalError(f"{path}: Invalid YAML: control characters are not allowed", 78)
            network = yaml.safe_load(path.read_text())["network"]
            renderer = network.get("renderer", renderer)
            for name, stanza in network.get("ethernets", {}).items():
                merged = ethernets.setdefault(name, {"addresses": []})
                merged["addresses"] += stanza.get("addresses", [])
                merged["renderer"] = stanza.get("renderer", merged.get("renderer"))
                merged["mtu"] = stanza.get("mtu", merged.get("mtu"))
        profiles = root / PROFILES
        networkd = root / "run/systemd/network"
        for backend in (profiles, networkd):
            backend.mkdir(parents=True, exist_ok=True)
            for made in backend.glob("*netplan-*"):
                made.unlink()
        for dev, stanza in ethernets.items():
            if (stanza["renderer"] or renderer or "networkd") == "NetworkManager":
                lines = [f"[connection]\nid=netplan-{dev}\ninterface-name={dev}\n"]
                lines += [f"[ethernet]\nmtu={stanza['mtu']}\n"] if stanza["mtu"] else []
                lines += ["[ipv4]\nmethod=manual\n"]
                lines += [f"address{n}={address}\n" for n, address in enumerate(stanza["addresses"], 1)]
                (profiles / f"netplan-{dev}.nmconnection").write_text("".join(lines))
            else:
                (networkd / f"10-netplan-{dev}.network").write_text(f"[Match]\nName={dev}\n{stanza}\n")
        return ""

    # ---- NetworkManager ------------------------------------------------------------------------------------

    def _profile_files(self) -> list[Path]:
        return sorted((self.root / PROFILES).glob("*.nmconnection"))

    def _load(self, path: Path) -> None:
        """Load a profile's file, or forget the profile whose file is gone."""
        key = path.name
        if not path.exists():
            if key not in self.kernel.profiles:
                raise RefusalError(f"Could not load file '{path}'")
            users = [dev for dev, active in self.kernel.active.items() if active == key]
            # It is listed once more on its way, though an order to disconnect it is refused already.
            self._late_rows = [self._row(dev) for dev in users]
            del self.kernel.profiles[key]
            for dev in users:
                self._deactivate(dev)
            return
        text = path.read_text()
        self.kernel.profiles[key] = {
            "id": re.findall(r"(?m)^id=(.+)$", text)[0],
            "iface": re.findall(r"(?m)^interface-name=(.+)$", text)[0],
            "addresses": re.findall(r"(?m)^address\d+=(.+)$", text),
            "mtu": int((re.findall(r"(?m)^mtu=(\d+)$", text) or ["1500"])[0]),
            "file": path.name,
            "uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, str(path))),
        }

    def _row(self, dev: str) -> str:
        key = self.kernel.active[dev]
        profile = self.kernel.profiles[key]
        cells = [profile["id"], profile.get("uuid", key), "802-3-ethernet", dev, profile["file"] or ""]
        return ":".join(cell.replace(":", r"\:") for cell in cells)

    def set_mtu(self, dev: str, mtu: int) -> None:
        """Give a function an MTU, which stays when its profile goes."""
        self.kernel.mtus[dev] = mtu
        place = self.root / "sys/class/net" / dev / "mtu"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{mtu}\n")

    def _activate(self, key: str, dev: str) -> None:
        self.kernel.active[dev] = key
        self.kernel.addresses[dev] = list(self.kernel.profiles[key]["addresses"])
        if dev != MANAGEMENT:
            self.set_mtu(dev, self.kernel.profiles[key].get("mtu", 1500))
        if self.kernel.units.get("fabric-plan-mesh.service") == "active":
            # What the dispatcher does: a function that came up gets the mesh looked at again.
            self.systemctl(["reload", "fabric-plan-mesh.service"])

    def _deactivate(self, dev: str) -> None:
        self.kernel.active.pop(dev, None)
        self.kernel.addresses[dev] = []

    def _read_nm_conf(self) -> None:
        """NetworkManager's own order: a file in /etc hides its namesake in /run."""
        found: dict[str, Path] = {}
        for folder in ("run/NetworkManager/conf.d", "etc/NetworkManager/conf.d"):
            found.update({path.name: path for path in (self.root / folder).glob("*.conf")})
        self.kernel.nm_conf = [
            line for path in found.values() for line in path.read_text().splitlines() if line.startswith("[")
        ]

    def nmcli(self, argv: list[str]) -> str:
        words = [word for word in argv if word not in ("-t", "--wait", "30")]
        kernel = self.kernel
        if words[0] == "-f":
            rows = [*map(self._row, kernel.active), *self._late_rows]
            self._late_rows = []
            return "".join(row + "\n" for row in rows)
        self.log.append(["nmcli", *argv])
        if words == ["general", "reload", "conf"]:
            self._read_nm_conf()
        elif words[:2] == ["connection", "load"]:
            self._load(Path(words[2]))
        elif words[:2] == ["connection", "up"]:
            how, name, dev = words[2], words[3], words[5]
            found = [
                key
                for key, profile in kernel.profiles.items()
                if (profile["id"] if how == "id" else profile.get("uuid", key)) == name
            ]
            if not found:
                raise RefusalError(f"Error: unknown connection '{name}'.", 10)
            self._activate(found[0], dev)
        elif words[:2] == ["device", "disconnect"]:
            if words[2] not in kernel.active:
                raise RefusalError(f"Error: Device '{words[2]}' is not active.", 6)
            self._deactivate(words[2])
        else:
            raise AssertionError(f"nmcli {argv}")
        return ""

    # ---- the kernel ----------------------------------------------------------------------------------------

    def ip(self, argv: list[str]) -> str:
        words = [word for word in argv if word != "-j"]
        if words == ["route", "show", "default"]:
            return json.dumps([{"dst": "default", "gateway": "192.168.1.1", "dev": MANAGEMENT}])
        dev = words[words.index("dev") + 1]
        if words[:2] == ["addr", "show"]:
            pairs = [address.split("/") for address in self.kernel.addresses[dev]]
            info = [{"family": "inet", "local": a, "prefixlen": int(n), "scope": "global"} for a, n in pairs]
            return json.dumps([{"ifname": dev, "addr_info": info}])
        self.log.append(["ip", *argv])
        if words[:2] == ["link", "set"]:
            self.set_mtu(dev, int(words[words.index("mtu") + 1]))
            return ""
        assert words[:2] == ["addr", "flush"], argv
        self.kernel.addresses[dev] = []
        return ""

    def rdma(self, argv: list[str]) -> str:
        if "-j" not in argv:
            raise RefusalError("no such option")
        kind = argv[-1]
        if kind == "ctx":
            return json.dumps(self.contexts)
        kernel_pair = {"ifindex": 0, "ifname": "rocep1s0f0", "port": 1, "lqpn": 1, "type": "GSI"}
        return json.dumps([{**kernel_pair, "state": "RTS", "sq-psn": 0, "comm": "ib_core"}])

    def ethtool(self, argv: list[str]) -> str:
        self.log.append(["ethtool", *argv])
        self.kernel.offload[argv[1]] = argv[-1] == "on"
        return ""

    def fabric(self, argv: list[str]) -> str:
        """What the test's own scripts do: one word for each script and what it puts in place."""
        self.log.append(["fabric", *argv])
        kind, *rest = argv
        if kind == "mesh":
            self.kernel.rules = rest[0]
        elif kind == "forward":
            self.kernel.forwarding = rest[0]
        elif kind == "hairpin":
            dev, value = rest
            self.kernel.hairpin[dev] = value
            # The device is made anew, and NetworkManager takes it up again.
            key = self.kernel.active.get(dev)
            self.kernel.addresses[dev] = []
            if key is not None:
                self._activate(key, dev)
        else:
            raise AssertionError(argv)
        return ""

    # ---- systemd -----------------------------------------------------------------------------------------

    def _daemon_reload(self) -> None:
        self.unit_texts = {}
        for folder in UNIT_FOLDERS:
            for path in sorted((self.root / folder).glob("*.service")):
                self.unit_texts[path.name] = path.read_text()

    def _unit_text(self, unit: str) -> str:
        template = re.sub(r"@.+\.service$", "@.service", unit)
        text = self.unit_texts.get(unit, self.unit_texts.get(template))
        if text is None:
            raise RefusalError(f"Failed to start {unit}: Unit {unit} not found.", 5)
        return text.replace("%i", unit.partition("@")[2].removesuffix(".service"))

    def _exec(self, unit: str, key: str) -> None:
        for command in re.findall(rf"(?m)^{key}=(.+)$", self._unit_text(unit)):
            words = [
                str(self.root) + w if w.startswith(("/usr/local/", "/run/")) else w for w in command.split()
            ]
            if words[0].startswith(str(self.root)):
                words.insert(0, "bash")
            done = subprocess.run(
                words,
                env=self.env(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=60,
                check=False,
            )
            if done.returncode:
                raise RefusalError(f"Job for {unit} failed: {done.stdout}")

    def systemctl(self, argv: list[str]) -> str:
        words = [word for word in argv if not word.startswith("--")]
        verb, *units = words
        kernel = self.kernel
        if verb == "is-active":
            word = self._state(units[0])
            if word != "active":
                raise RefusalError("" if "--quiet" in argv else word, 3)
            return "" if "--quiet" in argv else word + "\n"
        if verb == "list-units":
            pattern = re.escape(units[0]).replace(r"\*", ".*")
            names = [unit for unit in [*kernel.units, *self.services] if re.fullmatch(pattern, unit)]
            return "".join(f"{unit} loaded active x x\n" for unit in names if self._state(unit) == "active")
        self.log.append(["systemctl", *argv])
        if verb == "daemon-reload":
            self._daemon_reload()
            return ""
        for unit in units:
            self._job(verb, unit)
        return ""

    def _state(self, unit: str) -> str:
        process = self.services.get(unit)
        if process is not None:
            return "active" if process.poll() is None else "inactive"
        return self.kernel.units.get(unit, "inactive")

    def _job(self, verb: str, unit: str) -> None:
        units = self.kernel.units
        if unit.endswith(".timer"):
            for name in fnmatch.filter(self.timers, unit):
                del self.timers[name]
            return
        if unit in self.services:
            self.services[unit].kill(signal.SIGTERM)
            try:
                self.services[unit].wait(5)
            except subprocess.TimeoutExpired:
                self.services[unit].kill()
                self.services[unit].wait(5)
            return
        if unit in ("systemd-sysctl.service",):
            return
        up = units.get(unit) == "active"
        if verb == "stop":
            if up:
                units[unit] = "inactive"
                self.kernel.marker_args.pop(unit, None)
                if "@" not in unit:
                    self._exec(unit, "ExecStop")
            return
        if verb == "start" and up:
            return
        if verb == "reload" and up:
            self._exec(unit, "ExecReload")
            return
        if "@" in unit:
            self._start_marker(unit)
        else:
            self._exec(unit, "ExecStart")
        units[unit] = "active"

    def _start_marker(self, unit: str) -> None:
        arguments = None
        for word in re.findall(r"(?m)^EnvironmentFile=(.+)$", self._unit_text(unit)):
            path = self.root / word.lstrip("-/")
            if path.exists():
                arguments = path.read_text().strip()
            elif not word.startswith("-"):
                raise RefusalError(f"Failed to start {unit}: {path} is not there")
        if arguments is None:
            raise RefusalError(f"Job for {unit} failed: no arguments")
        self.kernel.marker_args[unit] = arguments

    def systemd_run(self, argv: list[str]) -> str:
        self.log.append(["systemd-run", *argv[:3]])
        unit = next(word.partition("=")[2] for word in argv if word.startswith("--unit="))
        command = argv[next(n for n, word in enumerate(argv) if word.startswith("/")) :]
        if any(word.startswith("--on-active=") for word in argv):
            if f"{unit}.timer" in self.timers:
                raise RefusalError(f"Failed to start transient timer unit: {unit}.timer was already loaded")
            self.timers[f"{unit}.timer"] = command
        else:
            self.services[unit] = self._spawn(command)
        return ""

    def _spawn(self, command: list[str]) -> Process:
        """Start the node program as systemd would, by the words with which it calls itself again."""
        if command[3].endswith(".pyz"):
            assert command[1:3] == ["-I", "-S"], command
            return Outside(command, self.env())
        assert command[:3] == [sys.executable, "-I", "-c"] and command[5] == "fabric_plan.node", command
        return self.spawner.start(command[6:], self.env())

    def fire(self, *, stale: list[str] | None = None) -> int:
        """Let the armed timer run out, or run the command of one that was replaced; return its status."""
        if stale is None:
            (name,) = self.timers
            stale = self.timers.pop(name)
        return self._spawn(stale).wait(60)
