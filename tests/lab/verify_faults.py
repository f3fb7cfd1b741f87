"""Single faults for ``verify`` in the lab: what breaks, on which node, and the root that has to be said.

Nothing mends them: each starts from the kept state of four sound nodes.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from fabric_plan.checks.fabric import marks_for
from fabric_plan.cli.deploying import desired_states
from fabric_plan.nccl.library import MARKER
from fabric_plan.planner.model import Plan, Rule
from lab.driver import Lab

Act = Callable[[Lab], object]
NODE, PEER = "spark1", "spark2"
WRONG_MAC = "4c:bb:47:02:00:07"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libnccl.so.2"
PROBE = ("--probe",)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, and the place and id of what must be said. `words` go to ``verify`` besides."""

    name: str
    act: Act
    root: str
    interface: str | None = None
    node: str = NODE
    words: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name


def on(*commands: str, node: str = NODE) -> Act:
    """Run commands on a node; the first that fails ends the test."""
    return lambda lab: lab.ssh(node, " && ".join(commands))


def all_of(*acts: Act) -> Act:
    """Do several things in turn."""

    def act(lab: Lab) -> None:
        for one in acts:
            one(lab)

    return act


def settled(plan: Plan, name: str) -> Act:
    """Wait until a node that boots has its mesh and markers up, or has failed to."""
    markers = (f"fabric-plan-marker@{marker.rdma}" for marker in plan.node(name).markers)
    units = ["fabric-plan-mesh", *markers]
    ended = f"systemctl show -P ActiveState {' '.join(units)} | grep -cE '^(active|failed)$'"
    return lambda lab: lab.wait(name, "the mesh to settle", f'test "$({ended})" = {len(units)}', seconds=600)


def stand_in(*arguments: str) -> str:
    """A process that looks like a marker with these arguments and marks nothing."""
    sleep = "import signal; signal.pause()"
    words = shlex.join(["/usr/bin/python3", "-c", sleep, *arguments])
    return f"systemd-run -q -- bash -c {shlex.quote(f'exec -a fabric-plan-marker {words}')}"


def put(rule: Rule, **wrong: Any) -> str:
    """Put `rule` in place of what is there, with some fields wrong and the cookie of the right one."""
    words = [*replace(rule, **wrong).tc_words()[:-1], rule.cookie]
    return f"tc filter add dev {rule.dev} ingress {' '.join(words)}"


def rule_faults(rule: Rule, other: str) -> Iterator[Fault]:
    """Yield each field of a rule wrong in turn, and the rule gone."""
    gone = f"tc filter del dev {rule.dev} ingress pref {rule.pref}"
    fields: dict[str, dict[str, Any]] = {
        "tag": {"ethertype": 0x88B6},
        "source MAC": {"src_mac": WRONG_MAC},
        "any source MAC": {"src_mac": None},
        "destination MAC": {"dst_mac": WRONG_MAC},
        "EtherType rewrite": {"set_type": 0x88B6},
        "MAC rewrite": {"set_dst_mac": WRONG_MAC},
        "redirect": {"redirect": other},
        "priority": {"pref": 882},
    }
    for name, wrong in fields.items():
        yield Fault(f"rule: {name}", on(gone, put(rule, **wrong)), "rule", rule.dev)
    software = put(rule).replace(" skip_sw", "")
    yield Fault("rule: no skip_sw", on(gone, software), "rule", rule.dev)
    refused: Act = lambda lab: lab.fault(NODE, "rule_errno", rule.dev, "95")  # noqa: E731
    yield Fault("rule: not in hardware", all_of(refused, on(gone, software)), "rule", rule.dev)
    yield Fault("rule gone", on(gone), "rule", rule.dev)
    extra = put(rule, pref=899, ethertype=0x88B7)
    yield Fault("rule of ours that is not planned", on(extra), "rule-extra", rule.dev)


def network_faults(plan: Plan) -> Iterator[Fault]:
    """Yield faults of links, addresses, routes and settings."""
    node = plan.node(NODE)
    end = node.at("f0", 1)
    dev, rdma = end.function.netdev, end.function.rdma
    route = next(r for r in node.relay_routes if r.dev == dev)
    yield Fault("MTU on one end", on(f"ip link set {dev} mtu 1500"), "mtu", dev)
    yield Fault(
        "device down", on(f"nmcli device set {dev} managed no", f"ip link set {dev} down"), "link-up", dev
    )
    yield Fault("cable pulled", lambda lab: lab.fault(NODE, "cable", "f0", "0"), "carrier", dev)
    yield Fault("address gone", on(f"ip addr flush dev {dev}"), "address", dev)
    yield Fault("second address", on(f"ip addr add 10.99.0.1/24 dev {dev}"), "address-extra", dev)
    table = f"/sys/class/infiniband/{rdma}/ports/1/gids"
    mapped = '[[ $(cat "$g") == *:ffff:* ]]'
    hide = f'for g in {table}/*; do {mapped} && mount --bind /dev/null "$g"; done; :'
    yield Fault("GID missing", on(f"bash -c {shlex.quote(hide)}"), "gid", dev)
    gone = f"ip route del {route.to}"
    other = f"{str(route.via).rpartition('.')[0]}.99"
    yield Fault(
        "route replaced by a redirect",
        on(gone, f"ip route add {route.to} via {other} dev {dev} proto redirect src {route.src} metric 1"),
        "route",
        dev,
    )
    yield Fault("route gone", on(gone), "route", dev)
    conf = f"net.ipv4.conf.{dev}"
    for name, value in (("arp_ignore", 0), ("arp_announce", 0), ("send_redirects", 1)):
        yield Fault(f"sysctl {name}", on(f"sysctl -qw {conf}.{name}={value}"), "sysctl", dev)


def driver_faults(plan: Plan) -> Iterator[Fault]:
    """Yield faults of the NIC's driver."""
    node = plan.node(NODE)
    function = node.at("f0", 1).function
    param = f"devlink dev param set pci/{function.pci} name"
    rule = node.rules[0]
    pending = on(f"{param} hairpin_queue_size value 1024 cmode driverinit")
    yield Fault("hairpin value pending", pending, "hairpin", function.netdev)
    steering = on(f"{param} flow_steering_mode value smfs cmode runtime")
    yield Fault("wrong steering", steering, "steering", function.netdev)
    gone = f"tc filter del dev {rule.dev} ingress pref {rule.pref}"
    off = f"ethtool -K {rule.dev} hw-tc-offload off"
    yield Fault("offload off", on(gone, off), "offload", rule.dev)
    trust = on(f"dcb app add dev {rule.dev} dscp-prio 26:3")
    yield Fault("DSCP trust", trust, "trust", rule.dev)


def service_faults(plan: Plan) -> Iterator[Fault]:
    """Yield faults of markers, units and files."""
    node = plan.node(NODE)
    marker = node.markers[0]
    unmarked = next(
        f.function for f in node.functions if f.function.rdma not in {m.rdma for m in node.markers}
    )
    unit = f"fabric-plan-marker@{marker.rdma}.service"
    env, netplan = "/etc/fabric-plan/env/nccl.env", "/etc/netplan/99-vendor.yaml"
    mesh = "/etc/systemd/system/fabric-plan-mesh.service"
    yield Fault("marker dead", on(f"systemctl stop {unit}"), "marker", marker.netdev)
    wrong = stand_in("--device", marker.rdma, "--rule", "10.10.9.9=0x88b5", "--managed")
    yield Fault("marker with wrong arguments", on(f"systemctl stop {unit}", wrong), "marker", marker.netdev)
    yield Fault("two markers", on(stand_in("--device", marker.rdma)), "marker", marker.netdev)
    second = on(stand_in("--device", unmarked.rdma))
    yield Fault("marker where none is planned", second, "marker-extra", unmarked.netdev)
    yield Fault("unit disabled", on("systemctl disable -q fabric-plan-mesh"), "unit-enabled")
    refused: Act = lambda lab: lab.fault(NODE, "rule_errno", node.rules[0].dev, "95")  # noqa: E731
    again = "/usr/local/lib/fabric-plan/mesh-down.sh; systemctl restart fabric-plan-mesh; :"
    yield Fault("unit failed in this boot", all_of(refused, on(again)), "unit", None)
    yield Fault("file edited", on(f"echo >> {env}"), "file")
    yield Fault(
        "graph file edited", on("sed -i s/crossnic=/crossnik=/ /etc/fabric-plan/nccl/ring.xml"), "file"
    )
    yield Fault("unit file edited", on(f"echo '# edited' >> {mesh}"), "file")
    dev = node.at("f0", 1).function.netdev
    text = f"network: {{ethernets: {{{dev}: {{mtu: 1500}}}}}}"
    vendor = on(f"install -m 0600 /dev/null {netplan}", f"echo '{text}' > {netplan}")
    yield Fault("another netplan file", vendor, "netplan-conflict", dev)


def other_library(plan: Plan) -> Act:
    """Give every node what reads as a library that knows the planned environment, and one a byte more."""
    names = [mark for mark in marks_for(desired_states(plan)[NODE]) if mark != MARKER]
    text = shlex.quote("\n".join(["NCCL version 2.30.7+cuda13.0", *names]))

    def act(lab: Lab) -> None:
        lab.each(lambda name: lab.ssh(name, f"echo {text} > {LIBRARY}"))
        lab.ssh(NODE, f"echo >> {LIBRARY}")

    return act


def traffic_faults(plan: Plan) -> Iterator[Fault]:
    """Yield faults that only traffic shows, or what only traffic shows of them."""
    node = plan.node(NODE)
    rule, marker = node.rules[0], node.markers[0]
    dead = on(f"systemctl stop fabric-plan-marker@{marker.rdma}.service")
    yield Fault("dead marker, software forwards", dead, "marker", marker.netdev, words=PROBE)
    overflow: Act = lambda lab: lab.fault(NODE, "overflow", rule.dev, "200")  # noqa: E731
    yield Fault("queue overflow", overflow, "overflow", rule.dev, words=PROBE)
    devices = ", ".join(f'"{f.function.netdev}"' for f in node.functions if f.function.plane == 2)
    silent = (
        "nft add table inet silent",
        "nft 'add chain inet silent out { type filter hook output priority 0; }'",
        f"nft 'add rule inet silent out oifname {{ {devices} }} udp dport 4791 drop'",
    )
    yield Fault("one plane silent", on(*silent), "plane-share", words=PROBE)
    yield Fault(
        "cables swapped",
        lambda lab: lab.cable_swap(NODE),
        "cable",
        node.at("f0", 1).function.netdev,
        words=PROBE,
    )


def faults(plan: Plan) -> tuple[Fault, ...]:
    """Return every fault."""
    node = plan.node(NODE)
    rule = node.rules[0]
    other = node.at("f0", 1).function.netdev
    peer = plan.node(PEER).at("f0", 1).function
    # The card goes with the power, so the node boots: its own rules are then as planned, and all of it stale.
    swap: Act = lambda lab: lab.nic_swap(PEER, {peer.pci: "4c:bb:47:ff:00:09"})  # noqa: E731
    return (
        *rule_faults(rule, other),
        *network_faults(plan),
        *driver_faults(plan),
        *service_faults(plan),
        Fault("library differs", other_library(plan), "library"),
        Fault("peer NIC swapped", all_of(swap, settled(plan, PEER)), "identity", peer.netdev, PEER),
        *traffic_faults(plan),
    )
