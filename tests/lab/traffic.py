"""Traffic on the lab's nodes, and the counters that it moves."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from lab.driver import Lab

PERFTEST_PORT = 18515

# After this long what has not arrived is lost; what arrives takes a few seconds.
LOST_S = 45


def listening(lab: Lab, node: str, device: str, address: str, port: int, words: str) -> None:
    """Start perftest's server for one run on `node`, and wait until it listens."""
    unit = f"probe-{port}"
    lab.ssh(
        node,
        f"systemctl stop -q {unit}; systemctl reset-failed -q {unit}; {with_gid(device, address)}; "
        f"systemd-run -q --unit={unit} --property=LimitMEMLOCK=infinity ib_write_lat {words} -x $gid && "
        f"timeout 100 sh -c 'until ss -Hltn sport = :{port} | grep -q .; do sleep 0.1; done'",
    )


def with_gid(device: str, address: str) -> str:
    """Shell that sets gid to the index of the RoCE v2 GID that stands for `address`, and ends without one."""
    a, b, c, d = (int(part) for part in address.split("."))
    gid = f"0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}"
    gids = f"/sys/class/infiniband/{device}/ports/1/gids"
    return (
        f"gid=$(cd {gids} && grep -l {gid} * | head -1); "
        f'[ -n "$gid" ] || {{ echo {device} has no GID of {address}; exit 3; }}'
    )


def forwarded(lab: Lab, node: str) -> int:
    """IpForwDatagrams of a node."""
    return _forwarded(lab.out(node, SNMP))


SNMP = "grep ^Ip: /proc/net/snmp"
# Fails where there is no journal to look into.
ORDERING_CYCLES = (
    "journalctl -b --no-pager | awk 'tolower($0) ~ /ordering cycle/ { print } END { exit NR < 100 }'"
)


def _forwarded(snmp: str) -> int:
    header, values = snmp.splitlines()
    return int(values.split()[header.split().index("ForwDatagrams")])


@dataclass(frozen=True, slots=True)
class Counters:
    """What the rules of a node's functions forwarded in the lab's hardware, in packets, and what its kernel
    did.
    """

    rules: dict[str, int]
    kernel: int


def counters(lab: Lab, node: str) -> Counters:
    """Read a node's counters in one go."""
    devices = [function.netdev for function in lab.spec.node(node).functions]
    show = "; ".join(f"tc -j -s filter show dev {dev} ingress; echo" for dev in devices)
    *rules, header, values = lab.out(node, f"{show}; {SNMP}").splitlines()
    found = [line for line in rules if line]
    assert len(found) == len(devices), found
    return Counters(
        {dev: _packets(_flower(line)) for dev, line in zip(devices, found, strict=True)},
        _forwarded(f"{header}\n{values}"),
    )


def filters(lab: Lab, node: str, netdev: str) -> list[dict[str, Any]]:
    """The flower filters on a function's ingress, with statistics; without tc's header-only elements."""
    return _flower(lab.out(node, f"tc -j -s filter show dev {netdev} ingress"))


def _flower(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(text or "[]")
    return [entry for entry in found if "handle" in entry.get("options", {})]


def hardware_packets(lab: Lab, node: str, netdev: str) -> int:
    """How many packets the rules of a function forwarded in the lab's hardware."""
    return _packets(filters(lab, node, netdev))


def _packets(rules: list[dict[str, Any]]) -> int:
    return sum(entry["options"]["actions"][-1]["stats"].get("hw_packets", 0) for entry in rules)


def rdma_write(
    lab: Lab,
    source: tuple[str, str, str],
    target: tuple[str, str, str],
    *,
    iterations: int = 100,
    port: int = PERFTEST_PORT,
    limit_s: int = 200,
    options: str = "",
) -> None:
    """ib_write_lat between (node, device, address) and another; the control connection takes the management
    LAN.

    Raises LabError when it fails, or takes longer than `limit_s`: a client waits for ever for what is lost.
    """
    (near, near_device, near_address), (far, far_device, far_address) = source, target
    words = f"-F -p {port} -n {iterations} {options} -d"
    listening(lab, far, far_device, far_address, port, f"{words} {far_device}")
    lab.ssh(
        near,
        f"{with_gid(near_device, near_address)}; "
        f"timeout {limit_s} ib_write_lat {words} {near_device} -x $gid {lab.spec.node(far).mgmt.ip}",
        seconds=limit_s + 20,
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
