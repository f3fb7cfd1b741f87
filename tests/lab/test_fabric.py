"""The fabric without any of the tool's files: cables, the shared segment, and a hairpin written by hand."""

from __future__ import annotations

import pytest

from lab.driver import Lab
from lab.spec import Function, Node
from tests.lab import traffic


def address(cable: int, plane: int, end: int) -> str:
    """The address that these tests give one end of a cable."""
    return f"10.77.{10 * plane + cable}.{end}"


def give_addresses(lab: Lab, cables: int, *, arp: str) -> None:
    """Take fabric functions from NetworkManager and give them addresses; `arp` is more shell, with $dev
    set.
    """
    commands: dict[str, list[str]] = {name: [] for name in lab.names}
    for i, cable in enumerate(lab.spec.cables[:cables]):
        for number, end in ((1, cable.a), (2, cable.b)):
            for function in lab.spec.node(end.node).functions:
                if function.port == end.port:
                    own = address(i, function.plane, number)
                    commands[end.node].append(
                        f"dev={function.netdev}; nmcli device set $dev managed no; "
                        f"ip link set $dev mtu 9000 up; ip address add {own}/24 dev $dev; {arp}"
                    )
    lab.each(lambda name: lab.ssh(name, "; ".join(commands[name])) if commands[name] else None)


CONF = "net.ipv4.conf.$dev"
STRICT_ARP = f"sysctl -qw {CONF}.arp_ignore=1 {CONF}.arp_announce=2 {CONF}.rp_filter=2"


def test_jumbo_frames_pass_every_cable_on_both_planes(lab: Lab) -> None:
    give_addresses(lab, len(lab.spec.cables), arp=STRICT_ARP)
    for i, cable in enumerate(lab.spec.cables):
        for plane in (1, 2):
            assert traffic.ping(lab, cable.a.node, address(i, plane, 2), "-s 8972", "-M do")


def wrong_answers(lab: Lab, node: Node, far: Node, port: str, cable: int, rounds: int) -> list[str]:
    """Resolve the far end's plane-1 address from the node's plane-1 function anew; return the wrong MACs."""
    function = node.function(port, 1)
    right = far.function(lab.spec.cables[cable].b.port, 1).mac
    target = address(cable, 1, 2)
    seen = traffic.resolved(lab, node.name, function.netdev, target, rounds)
    return [mac for mac in seen if mac != right]


def test_the_wrong_plane_answers_unless_arp_is_pinned(lab: Lab) -> None:
    cable = lab.spec.cables[0]
    a, b = lab.spec.node(cable.a.node), lab.spec.node(cable.b.node)
    give_addresses(lab, 1, arp="true")
    assert wrong_answers(lab, a, b, cable.a.port, 0, 10)
    for node, end in ((a, cable.a), (b, cable.b)):
        for function in node.functions:
            if function.port == end.port:
                lab.ssh(node.name, f"dev={function.netdev}; {STRICT_ARP}")
    assert wrong_answers(lab, a, b, cable.a.port, 0, 10) == []


def test_twins_can_talk(lab: Lab) -> None:
    node = lab.spec.nodes[0]
    one, two = node.function("f0", 1), node.function("f0", 2)
    steps = [
        f"nmcli device set {one.netdev} managed no",
        f"nmcli device set {two.netdev} managed no",
        "ip netns add twin",
        f"ip link set {two.netdev} netns twin",
        f"ip -n twin address add 10.78.0.2/24 dev {two.netdev}",
        f"ip -n twin link set {two.netdev} up",
        f"ip address add 10.78.0.1/24 dev {one.netdev}",
        f"ip link set {one.netdev} up",
    ]
    lab.ssh(node.name, " && ".join(steps))
    assert traffic.ping(lab, node.name, "10.78.0.2")


def through(lab: Lab) -> tuple[Node, Function, Node, Function, Function, Node, Function]:
    """One plane-1 way over a relay: the first cable into the relay and another one out of it."""
    cable = lab.spec.cables[0]
    relay = lab.spec.node(cable.b.node)
    start = lab.spec.node(cable.a.node)
    other = next(port for port in ("f0", "f1") if port != cable.b.port)
    beyond = lab.spec.far_end(type(cable.b)(relay.name, other))
    assert beyond is not None
    far = lab.spec.node(beyond.node)
    return (
        start, start.function(cable.a.port, 1),
        relay, relay.function(cable.b.port, 1), relay.function(other, 1),
        far, far.function(beyond.port, 1),
    )  # fmt: skip


def rule(ingress: Function, source: Function, target: Function, egress: Function) -> str:
    """A relay's rule as tc takes it."""
    return (
        f"tc filter add dev {ingress.netdev} ingress protocol 0x88b5 pref 881 handle 1 flower skip_sw "
        f"src_mac {source.mac} dst_mac {ingress.mac} action pedit ex munge eth type set 0x0800 "
        f"munge eth dst set {target.mac} pipe action mirred egress redirect dev {egress.netdev}"
    )


BY_DESTINATION = "sparkring-relay-marker --device {device} --rule {far}=0x88b5 --managed"
BY_SOURCE_PORT = (
    "mlx5-rdma-tx-rewrite-probe --device {device} --source-port 65535 "
    "--replacement-ethertype 0x88b5 --attach --managed"
)
# soft-RoCE takes the UDP source port from it
LABEL_OF_PORT_65535 = "--flow_label=16383"


def prepare_hairpin(lab: Lab, marker: str = BY_DESTINATION) -> None:
    """Addresses, routes and markers for one way over a relay, and its two rules, all by hand."""
    start, out, relay, first, second, far, arrival = through(lab)
    for node, own, mine, theirs, gateway in (
        (start, out, "10.79.0.1", "10.79.0.2", first),
        (far, arrival, "10.79.0.2", "10.79.0.1", second),
    ):
        lab.ssh(
            node.name,
            f"dev={own.netdev}; nmcli device set $dev managed no; ip link set $dev mtu 9000 up; "
            f"ip address add {mine}/32 dev $dev; ip route add {theirs}/32 dev $dev src {mine}; "
            f"ip neigh replace {theirs} lladdr {gateway.mac} dev $dev nud permanent; "
            f"systemd-run -q --unit=marker {marker.format(device=own.rdma, far=theirs)}",
        )
        lab.wait(node.name, "the marker", "nft list tables | grep -q rdma_tx")
    for function in (first, second):
        lab.ssh(
            relay.name,
            f"nmcli device set {function.netdev} managed no; ip link set {function.netdev} mtu 9000 up; "
            f"tc qdisc add dev {function.netdev} clsact",
        )
    lab.ssh(relay.name, f"{rule(first, out, arrival, second)} && {rule(second, arrival, out, first)}")


@pytest.mark.parametrize(
    ("marker", "options"),
    [(BY_DESTINATION, ""), (BY_SOURCE_PORT, LABEL_OF_PORT_65535)],
    ids=["marked by destination", "marked by source port"],
)
def test_a_rule_written_by_hand_forwards_rdma_in_hardware(lab: Lab, marker: str, options: str) -> None:
    prepare_hairpin(lab, marker)
    start, out, relay, first, second, far, arrival = through(lab)
    for function in (first, second):
        (entry,) = traffic.filters(lab, relay.name, function.netdev)
        assert entry["options"]["in_hw"] and entry["options"]["skip_sw"]
    table = lab.out(relay.name, f"cat /sys/kernel/debug/mlx5/{first.pci}/nic/fs/tc/hairpin_table_dump")
    assert table.endswith("refcnt 1 num_channels 4 num_packets 1024")
    before = traffic.forwarded(lab, relay.name)
    ends = (start.name, out.rdma, "10.79.0.1"), (far.name, arrival.rdma, "10.79.0.2")
    traffic.rdma_write(lab, *ends, options=options)
    assert traffic.hardware_packets(lab, relay.name, first.netdev) >= 100
    assert traffic.hardware_packets(lab, relay.name, second.netdev) >= 100
    assert traffic.forwarded(lab, relay.name) == before


def test_a_second_marker_on_a_device_is_refused_and_rules_end_with_their_owner(lab: Lab) -> None:
    name, function = lab.names[0], lab.spec.nodes[0].functions[0]
    marker = BY_SOURCE_PORT.format(device=function.rdma)
    lab.ssh(name, f"systemd-run -q --unit=marker {marker}")
    tables = "nft list tables | grep -q rdma_tx"
    lab.wait(name, "the marker", tables)
    assert lab.ssh(name, marker, check=False).code == 75
    lab.ssh(name, "systemctl kill --signal=KILL marker")
    lab.wait(name, "the killed marker's rules to go", f"! {tables}")
