"""Traffic on the lab's nodes, and the counters that it moves."""

from __future__ import annotations

import json
from typing import Any

from lab.driver import Lab

PERFTEST_PORT = 18515


def gid_index(lab: Lab, node: str, device: str, address: str) -> int:
    """The index of the RoCE v2 GID that stands for `address`."""
    a, b, c, d = (int(part) for part in address.split("."))
    gid = f"0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}"
    found = lab.out(node, f"cd /sys/class/infiniband/{device}/ports/1/gids && grep -l {gid} * | head -1")
    assert found, f"{node}: {device} has no GID for {address}"
    return int(found)


def forwarded(lab: Lab, node: str) -> int:
    """IpForwDatagrams of a node."""
    header, values = lab.out(node, "grep ^Ip: /proc/net/snmp").splitlines()
    return int(values.split()[header.split().index("ForwDatagrams")])


def filters(lab: Lab, node: str, netdev: str) -> list[dict[str, Any]]:
    """The flower filters on a function's ingress, with statistics; without tc's header-only elements."""
    found: list[dict[str, Any]] = json.loads(
        lab.out(node, f"tc -j -s filter show dev {netdev} ingress") or "[]"
    )
    return [entry for entry in found if "handle" in entry.get("options", {})]


def hardware_packets(lab: Lab, node: str, netdev: str) -> int:
    """How many packets the rules of a function forwarded in the lab's hardware."""
    return sum(
        entry["options"]["actions"][-1]["stats"].get("hw_packets", 0) for entry in filters(lab, node, netdev)
    )


def rdma_write(
    lab: Lab, source: tuple[str, str, str], target: tuple[str, str, str], *, iterations: int = 100
) -> None:
    """ib_write_lat between (node, device, address) and another; the control connection takes the management
    LAN.

    Raises LabError when it fails.
    """
    (near, near_device, near_address), (far, far_device, far_address) = source, target
    far_gid = gid_index(lab, far, far_device, far_address)
    near_gid = gid_index(lab, near, near_device, near_address)
    lab.ssh(far, "systemctl stop -q probe-server; systemctl reset-failed -q probe-server", check=False)
    lab.ssh(
        far,
        "systemd-run -q --unit=probe-server --property=LimitMEMLOCK=infinity "
        f"ib_write_lat -F -d {far_device} -x {far_gid} -n {iterations}",
    )
    lab.wait(far, "perftest to listen", f"ss -Hltn sport = :{PERFTEST_PORT} | grep -q .")
    mgmt = lab.spec.node(far).mgmt.ip
    lab.ssh(
        near,
        f"timeout 200 ib_write_lat -F -d {near_device} -x {near_gid} -n {iterations} {mgmt}",
        seconds=220,
    )


def ping(lab: Lab, node: str, address: str, *options: str) -> bool:
    """Whether three pings get an answer."""
    return lab.ssh(node, f"ping -n -q -c 3 -i 0.3 -W 5 {' '.join(options)} {address}", check=False).ok


def resolved(lab: Lab, node: str, netdev: str, target: str, rounds: int) -> list[str]:
    """The MACs that as many fresh resolutions of `target` on `netdev` gave."""
    mac = "([0-9a-f]{2}:){5}[0-9a-f]{2}"
    seen = lab.out(
        node,
        f"for i in $(seq {rounds}); do ip neigh flush dev {netdev}; "
        f"ping -n -q -c 1 -W 5 {target} >/dev/null; sleep 0.2; "
        f"ip -o neigh show {target} dev {netdev} | grep -oE '{mac}'; done",
    ).split()
    assert len(seen) == rounds, f"{target} was not resolved each time: {seen}"
    return seen
