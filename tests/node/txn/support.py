"""A transaction as the controller drives it, against the node program in processes of its own."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from base64 import b64encode
from functools import cache
from pathlib import Path
from typing import Any

from fabric_plan import resources
from fabric_plan.inventory.load import load
from fabric_plan.planner.plan import plan_fabric
from fabric_plan.render.tree import render
from tests.node.txn.world import World

PROJECT = Path(__file__).resolve().parents[3]
F0, F1 = "enp1s0f0np0", "enp1s0f1np1"
DEADLINE_S = 30.0
TOKEN = "00" * 8


@cache
def recover_script() -> str:
    """Return recover.sh as a node gets it."""
    loaded = load((PROJECT / "inventories/pair.yaml").read_bytes(), "pair.yaml", resources.hardware_roles())
    plan = plan_fabric(loaded.fabric, loaded.notices)
    files = next(iter(render(plan, resources.layers(), resources.templates()).files.values()))
    return next(file.content for file in files if file.path.endswith("/recover.sh"))


RECOVER_UNIT = (
    "[Unit]\nDescription=recover\n[Service]\nExecStart=/usr/local/lib/fabric-plan/recover.sh --boot\n"
)
MARKER_UNIT = (
    "[Service]\nEnvironmentFile=/etc/fabric-plan/markers/%i.env\n"
    "EnvironmentFile=-/run/fabric-plan/markers/%i.env\nExecStart=/bin/true\n"
)
MESH_UNIT = (
    "[Service]\nExecStart=/usr/local/lib/fabric-plan/mesh-up.sh\n"
    "ExecReload=/usr/local/lib/fabric-plan/mesh-up.sh\n"
    "ExecStop=/usr/local/lib/fabric-plan/mesh-down.sh --force\n"
)
FORWARD_UNIT = (
    "[Service]\nExecStart=/usr/local/lib/fabric-plan/forward.sh start\n"
    "ExecStop=/usr/local/lib/fabric-plan/forward.sh stop\n"
)


def tree(version: str) -> dict[str, tuple[str, str]]:
    """Return the files of a plan, `version` in each: path to mode and content, links with no mode."""
    bash = "#!/bin/bash\nset -e\n"
    netplan = "".join(
        f"    {dev}:\n      renderer: NetworkManager\n      mtu: 9000\n"
        f"      addresses: [10.{version[1:]}.{n}.10/24]\n"
        for n, dev in enumerate((F0, F1))
    )
    units, lib = "/etc/systemd/system", "/usr/local/lib/fabric-plan"
    return {
        f"{lib}/recover.sh": ("0755", recover_script()),
        f"{units}/fabric-plan-recover.service": ("0644", f"# {version}\n{RECOVER_UNIT}"),
        f"{units}/sysinit.target.wants/fabric-plan-recover.service": (
            "",
            f"{units}/fabric-plan-recover.service",
        ),
        "/etc/netplan/40-sparkring-plane1.yaml": (
            "0600",
            f"network:\n  version: 2\n  ethernets:\n{netplan}",
        ),
        "/etc/NetworkManager/conf.d/90-fabric-plan.conf": (
            "0644",
            f"[device-{version}]\nignore-carrier=yes\n",
        ),
        "/etc/NetworkManager/dispatcher.d/90-fabric-plan": ("0755", f"{bash}# {version}\n"),
        "/etc/sysctl.d/90-fabric-plan.conf": (
            "0644",
            f"net/ipv4/conf/all/rp_filter = {version[1:]}\nnet/ipv4/conf/{F0}/forwarding = 1\n",
        ),
        "/etc/fabric-plan/node.json": ("0644", f'{{"digest": "{version}"}}\n'),
        "/etc/fabric-plan/markers/rocep1s0f0.env": ("0644", f"MARKER_ARGS={version}\n"),
        f"{lib}/mesh-up.sh": (
            "0755",
            f"{bash}fabric mesh {version}\nsystemctl start fabric-plan-marker@rocep1s0f0.service\n",
        ),
        f"{lib}/mesh-down.sh": (
            "0755",
            f'{bash}systemctl stop fabric-plan-marker@rocep1s0f0.service\nfabric mesh ""\n# {version}\n',
        ),
        f"{lib}/forward.sh": (
            "0755",
            f'{bash}case $1 in start) fabric forward {version} ;; *) fabric forward "" ;; esac\n',
        ),
        f"{lib}/hairpin.sh": ("0755", f"{bash}fabric hairpin $1 {version}\n"),
        f"{units}/fabric-plan-mesh.service": ("0644", f"# {version}\n{MESH_UNIT}"),
        f"{units}/fabric-plan-forward.service": ("0644", FORWARD_UNIT),
        f"{units}/fabric-plan-marker@.service": ("0644", MARKER_UNIT),
        f"{units}/multi-user.target.wants/fabric-plan-mesh.service": (
            "",
            f"{units}/fabric-plan-mesh.service",
        ),
        f"{units}/multi-user.target.wants/fabric-plan-forward.service": (
            "",
            f"{units}/fabric-plan-forward.service",
        ),
    }


STEPS: tuple[dict[str, Any], ...] = (
    {"kind": "place"},
    {"kind": "daemon-reload"},
    {"kind": "sysctl"},
    {"kind": "nm-conf"},
    {"kind": "netplan", "interfaces": []},
    {"kind": "netplan", "interfaces": [F0]},
    {"kind": "netplan", "interfaces": [F1]},
    {"kind": "hairpin", "netdev": F0},
    {"kind": "forward"},
    {"kind": "mesh"},
    {"kind": "markers", "devices": ["rocep1s0f0"]},
    {"kind": "units", "start": ["fabric-plan-forward.service", "fabric-plan-mesh.service"], "stop": []},
)
SYSCTLS = ("net/ipv4/conf/all/rp_filter", f"net/ipv4/conf/{F0}/forwarding")


def document(path: str, mode: str, content: str) -> dict[str, Any]:
    """Return a file as the controller hands it over."""
    if not mode:
        return {"path": path, "link": content}
    data = content.encode()
    return {
        "path": path,
        "mode": mode,
        "sha256": hashlib.sha256(data).hexdigest(),
        "content": b64encode(data).decode(),
    }


class RefusedError(Exception):
    """The node program said no."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.id = error["id"]
        self.error = error


class KilledError(Exception):
    """The node program died before it answered."""


class Driver:
    """The controller's side of one transaction on one node."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.token = ""
        self.run_id = ""

    def call(self, verb: str, request: dict[str, Any] | None = None, **environment: str) -> dict[str, Any]:
        """Run a verb to its end. Raises `RefusedError`, or `KilledError` where no answer came."""
        words = [verb, "--root", str(self.world.root)]
        process = self.world.spawner.start(words, self.world.env(**environment), json.dumps(request or {}))
        status = process.wait(DEADLINE_S)
        if status < 0:
            raise KilledError
        assert status == 0, process.stdout
        reply: dict[str, Any] = json.loads(process.stdout)
        assert reply["schema"] == "fabric-plan/reply/v1"
        if not reply["ok"]:
            raise RefusedError(reply["error"])
        return reply

    def begin(
        self, intent: str = "apply", holder: str = "tester@here", id: str = "", **environment: str
    ) -> dict[str, Any]:
        """Take the lease."""
        request = {
            "id": id or secrets.token_hex(8),
            "holder": holder,
            "lease_s": 180,
            "intent": intent,
            "digest": "d" * 64,
            "fabric": "home",
            "node": "spark1",
            "version": "1.0",
        }
        reply = self.call("begin", request, **environment)
        self.token = reply["token"]
        return reply

    def stage(self, files: list[dict[str, Any]], **environment: str) -> None:
        """Hand the files over."""
        request = {"token": self.token, "files": files, "sysctls": SYSCTLS, "interfaces": [F0, F1]}
        self.call("stage", request, **environment)

    def start(self, steps: tuple[dict[str, Any], ...], **environment: str) -> None:
        """Start steps under the node's own rollback."""
        self.run_id = secrets.token_hex(8)
        request = {"token": self.token, "id": self.run_id, "steps": list(steps), "arm_s": 180}
        self.call("run", request, **environment)

    def follow(self) -> dict[str, Any]:
        """Ask for the status until the steps have ended."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            status = self.call("status", {"token": self.token})
            if status["phase"] != "running":
                return status
            assert time.monotonic() < deadline, status
            # The service tells that it ended by ending.
            unit = next(reversed(self.world.services), None)
            if unit is not None:
                self.world.services[unit].wait(DEADLINE_S)

    def run(self, steps: tuple[dict[str, Any], ...] = STEPS, **environment: str) -> dict[str, Any]:
        """Start steps and follow them to their end."""
        self.start(steps, **environment)
        return self.follow()

    def ask(self, verb: str, **environment: str) -> dict[str, Any]:
        """Call a verb that takes the token alone."""
        return self.call(verb, {"token": self.token}, **environment)

    def apply(self, version: str, **environment: str) -> dict[str, Any]:
        """Bring the node to a version, all in one go, and give the lease back."""
        self.begin(**environment)
        return self.carry_on(version)

    def carry_on(self, version: str) -> dict[str, Any]:
        """Do what follows the begin of an apply."""
        self.stage(changes(self.world, tree(version)))
        status = self.run()
        assert status["phase"] == "trial", status
        reply = self.ask("confirm")
        self.ask("release")
        return reply


def changes(world: World, wanted: dict[str, tuple[str, str]]) -> list[dict[str, Any]]:
    """Return the files that differ from what lies on the node, and those of ours that vanish."""
    have = world.files()
    found = []
    for path, (mode, content) in wanted.items():
        if have.get(path) != (f"{mode} {content}" if mode else f"-> {content}"):
            found.append(document(path, mode, content))
    ours = [path for path in have if "fabric-plan" in path or "sparkring" in path]
    found += [{"path": path, "content": None} for path in ours if path not in wanted]
    return found


def expected(wanted: dict[str, tuple[str, str]]) -> dict[str, str]:
    """Return `World.files` as it is when `wanted` is in place, and nothing else."""
    return {p: f"{mode} {content}" if mode else f"-> {content}" for p, (mode, content) in wanted.items()}
