"""One node in a directory: its rendered scripts, and the tools that they call as stand-ins with a state."""

from __future__ import annotations

import copy
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Any

from fabric_plan import resources
from fabric_plan.inventory.load import load
from fabric_plan.planner.model import NodePlan, Plan, Rule
from fabric_plan.planner.plan import plan_fabric
from fabric_plan.render.tree import RenderedFile, render
from tests.scripts.standin import Standin, write_sysfs

REPO = Path(__file__).resolve().parents[2]
BOOT_ID = "0b1f8ad6-5f2c-4c8e-9f0e-1f1e6f3f2a10"
MESH_UNIT = "fabric-plan-mesh.service"
KERNEL_QUEUE_PAIR = "link {rdma}/1 lqpn 1 type GSI state RTS sq-psn 0 comm [ib_core]"

State = dict[str, Any]


def plan_of(text: str, name: str = "test.yaml") -> Plan:
    """Plan an inventory given as text."""
    loaded = load(text.encode(), name, resources.hardware_roles())
    return plan_fabric(loaded.fabric, loaded.notices)


@cache
def ring4() -> Plan:
    """The example ring, as it stands in the repository."""
    return plan_of((REPO / "inventories/ring4.yaml").read_text())


def rendered(plan: Plan, node: str) -> dict[str, RenderedFile]:
    """Every file of one node, by path."""
    if id(plan) not in _RENDERED:
        files = render(plan, resources.layers(), resources.templates()).files
        trees = {name: {file.path: file for file in tree} for name, tree in files.items()}
        _RENDERED[id(plan)] = (plan, trees)
    return _RENDERED[id(plan)][1][node]


_RENDERED: dict[int, tuple[Plan, dict[str, dict[str, RenderedFile]]]] = {}


def gid_of(address: IPv4Interface) -> str:
    """The GID of an IPv4 address as sysfs prints it."""
    a, b, c, d = address.ip.packed
    return f"0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}"


def new_state(node: NodePlan, root: Path) -> State:
    """A node after its boot: links up, NetworkManager done, the driver's defaults, nothing of ours."""
    state: State = {
        "links": {},
        "next_index": 40,
        "qdiscs": {},
        "filters": [],
        "routes": [],
        "devlink": {},
        "rdma": {"qp": [], "ctx": []},
        "units": {},
        "system": "running",
        "pids": {},
        "docker_user": None,
        "docker_nftables": False,
        "forward_policy": "ACCEPT",
        "faults": {},
        "log": [],
        "broken": [],
        "die_after": None,
        "root": str(root),
    }
    for index, planned in enumerate(node.functions):
        function = planned.function
        empty = "0000:0000:0000:0000:0000:0000:0000:0000"
        mapped = gid_of(planned.address) if planned.address else empty
        local = f"fe80:0000:0000:0000:4ebb:47ff:fe01:000{index}"
        state["links"][function.netdev] = {
            "index": 5 + index,
            "present": True,
            "carrier": planned.cabled,
            "mac": function.mac,
            "addresses": [str(planned.address)] if planned.address else [],
            "rdma": function.rdma,
            "pci": function.pci,
            "gids": [
                [local, "IB/RoCE v1"],
                [local, "RoCE v2"],
                [mapped, "IB/RoCE v1"],
                [mapped, "RoCE v2"],
                [empty, ""],
            ],
        }
        params = {"hairpin_num_queues": [2, 2], "hairpin_queue_size": [1024, 1024]}
        state["devlink"][function.pci] = {"params": params, "reloads": 0, "failed": False}
        state["rdma"]["qp"].append(KERNEL_QUEUE_PAIR.format(rdma=function.rdma))
        if planned.address:
            state["routes"].append(
                _route(str(planned.address.network), None, function.netdev, str(planned.address.ip), "kernel")
            )
    for kernel in node.kernel_routes:
        state["routes"].append(_route(str(kernel.to), str(kernel.via), kernel.dev, None, "static"))
    for relay in node.relay_routes:
        to = str(relay.to.network_address)
        state["routes"].append(_route(to, str(relay.via), relay.dev, str(relay.src), "static"))
    return state


def _route(to: str, via: str | None, dev: str, src: str | None, proto: str) -> dict[str, Any]:
    return {"to": to, "via": via, "dev": dev, "src": src, "proto": proto, "metric": "100"}


class Host:
    """The node `name` of `plan` under `home`."""

    def __init__(self, home: Path, plan: Plan, name: str) -> None:
        self.plan = plan
        self.node = plan.node(name)
        self.root = home / "root"
        self.run_dir = self.root / "run/fabric-plan"
        self.root.mkdir(parents=True)
        for path, file in rendered(plan, name).items():
            self.put(path, file.content, int(file.mode, 8))
        self.put("/proc/sys/kernel/random/boot_id", BOOT_ID + "\n")
        self.state = new_state(self.node, self.root)
        write_sysfs(self.state)
        self.tools = Standin(home, self.state)

    def put(self, path: str, content: str, mode: int = 0o644) -> Path:
        """Write one file of the node."""
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
        target.chmod(mode)
        return target

    @contextmanager
    def edit(self) -> Iterator[State]:
        """Change the state from outside."""
        yield self.state
        write_sysfs(self.state)

    def fault(self, name: str, key: str, hits: int | bool = True) -> None:
        """Make the stand-ins go wrong: always, or as many times as `hits`."""
        self.state["faults"].setdefault(name, {})[key] = hits

    def no_faults(self) -> None:
        """Take every fault away."""
        self.state["faults"].clear()

    def calls(self) -> list[list[str]]:
        """Return the calls that changed something since the last time this was asked."""
        log: list[list[str]] = self.state["log"][:]
        self.state["log"].clear()
        assert not self.state["broken"], self.state["broken"]
        return log

    def kernel(self) -> State:
        """A copy of what the kernel and systemd hold, to compare with later."""
        return copy.deepcopy(
            {key: self.state[key] for key in ("links", "qdiscs", "filters", "routes", "docker_user")}
        )

    def script(self, name: str) -> Path:
        """The path of one script of ours."""
        return self.root / "usr/local/lib/fabric-plan" / name

    def run(
        self, script: str | Path, *arguments: str, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a script to its end and return what it said, both streams in `stdout`."""
        path = script if isinstance(script, Path) else self.script(script)
        return subprocess.run(
            ["bash", str(path), *arguments],
            env={
                "PATH": f"{self.tools.bin}:{os.environ['PATH']}",
                "FABRIC_PLAN_ROOT": str(self.root),
                "FABRIC_PLAN_WAIT": "0",
                "FABRIC_PLAN_LOCK_WAIT": "5",
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
            start_new_session=True,
        )

    def up(self, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run mesh-up.sh."""
        return self.run("mesh-up.sh", **environment)

    @property
    def rule(self) -> Rule:
        """The first rule of this node."""
        return self.node.rules[0]

    def environment(self) -> dict[str, str]:
        """The effective environment that mesh-up.sh wrote."""
        text = (self.run_dir / "rocenante.env").read_text()
        return dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))


def where(rule: Rule) -> str:
    """How stand-in faults and our scripts name the place of a rule."""
    return f"{rule.dev} {rule.pref} 0x{rule.handle:x}"
