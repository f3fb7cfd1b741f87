"""Every sample is read by the parser that claims it, wholly or with what is missing named."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabric_plan.node.parsers import (
    counters,
    devlink,
    ethtool,
    ip_json,
    ip_text,
    lldp,
    messages,
    names,
    netplan,
    network_manager,
    perftest,
    qos,
    rdma,
)
from fabric_plan.node.reading import EXCERPT_CHARS, Reading
from tests.node.sample_claims import CLAIMS, SAMPLES, Parser, filters, qdiscs

T = TypeVar("T")

READ = {name: claim for name, claim in CLAIMS.items() if claim is not None}
PARSERS: list[Parser] = list(dict.fromkeys(READ.values()))

# How many pieces of a sample its parser does not understand, and the first of them. These files are logs of
# several commands, listings or output cut off at its head: what is outside the parser's form is named.
UNREAD = {
    "hardware/devlink-eswitch-1.txt": (1, "a device that stands twice"),
    "hardware/hw-counters-2.txt": (31, "not a counter line"),
    "hardware/ibv_devinfo-2.txt": (12, "no device named before this line"),
    "netplan-trial-in-run.txt": (48, "not a destination"),
    "tc-cookie-and-devlink-reload.txt": (15, "not a filter line"),
}


def read(name: str) -> Reading[Any]:
    return READ[name]((SAMPLES / name).read_text())


def sample(name: str) -> Any:
    """Return what the claiming parser made of a sample, whose type depends on the name."""
    return read(name).value


def only(reading: Reading[tuple[T, ...]]) -> T:
    """Return the one item of a reading."""
    assert reading.value is not None
    (item,) = reading.value
    return item


def test_every_sample_is_claimed() -> None:
    found = {path.relative_to(SAMPLES).as_posix() for path in SAMPLES.rglob("*") if path.is_file()}
    assert found == set(CLAIMS)


@pytest.mark.parametrize("name", sorted(READ))
def test_sample_is_read_or_what_is_missing_is_named(name: str) -> None:
    reading = read(name)
    if name in UNREAD:
        assert (len(reading.unread), reading.unread[0].reason) == UNREAD[name]
        assert all(piece.excerpt for piece in reading.unread)
    else:
        assert reading.complete, reading.unread
        assert reading.value


def test_rule_in_json_is_one_normalised_record() -> None:
    (rule,) = sample("tc-filter-show-s.json")
    assert vars(rule) == {
        "dev": "enp1s0f0np0",
        "kind": "flower",
        "protocol": "0x88b5",
        "pref": 49,
        "handle": 257,
        "chain": 0,
        "parent": None,
        "src_mac": "4c:bb:47:01:00:01",
        "dst_mac": "4c:bb:47:02:00:00",
        "set_type": "0x0800",
        "set_dst_mac": "4c:bb:47:03:00:00",
        "redirect": "enp1s0f1np1",
        "skip_sw": True,
        "in_hw": True,
        "in_hw_count": 1,
        "cookie": None,
        "packets": 5847,
        "bytes": 20018322,
        "hw_packets": 5847,
        "hw_bytes": 20018322,
        "drops": 0,
        "other": {},
    }


def test_rule_in_text_has_the_same_meaning_as_in_json() -> None:
    reading = read("tc-cookie-and-devlink-reload.txt")
    (rule,) = sample("tc-cookie-and-devlink-reload.txt")
    assert (rule.protocol, rule.pref, rule.handle) == ("0x88b5", 49152, 1)
    assert (rule.src_mac, rule.dst_mac) == ("02:00:00:00:00:01", "02:00:00:00:00:02")
    assert (rule.set_type, rule.set_dst_mac) == ("0x0800", "02:00:00:00:00:03")
    assert (rule.redirect, rule.skip_sw, rule.in_hw) == ("enp1s0f1np1", True, True)
    assert rule.cookie == "00112233445566778899aabbccddeeff"
    assert (rule.packets, rule.hw_packets) == (None, None), "the output had no statistics"
    assert rule.other == {}
    # The log goes on with a grepped filter whose actions' first lines are missing: no rule is made of it.
    assert any("stands twice" in piece.reason for piece in reading.unread)


def test_devlink_lines_inside_a_log_are_read() -> None:
    lines = (SAMPLES / "tc-cookie-and-devlink-reload.txt").read_text().splitlines()
    texts = [line for line in lines if line.startswith("{")]
    device = "pci/0000:01:00.0"
    assert (devlink.params(texts[0]).value or {})[device][0].values == {"driverinit": "8192"}
    counts = [(devlink.reloads(text).value or {})[device].own["driver_reinit"] for text in texts[1:]]
    assert counts == [{"unspecified": 0}, {"unspecified": 1}]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tc-1.txt", {"protocol": "0x0806", "redirect": "eth0", "hw_packets": 1, "packets": 1, "other": {}}),
        ("tc-2.txt", {"cookie": "22bb33cc44dd55ee66ff778899aabb00", "hw_bytes": 5615833, "skip_sw": False}),
        ("tc-3.txt", {"set_dst_mac": "02:00:00:01:00:c1", "set_type": None, "packets": None, "in_hw": True}),
        ("tc-4.txt", {"set_dst_mac": None, "in_hw": False, "packets": 4864, "hw_packets": 0}),
        ("tc-6.txt", {"set_dst_mac": "02:00:00:02:00:f1", "redirect": "veth1", "handle": 1}),
        ("tc-8.json", {"redirect": None, "protocol": "0x0003", "in_hw": False}),
        ("tc-9.json", {"protocol": "0x0800", "in_hw": True, "in_hw_count": 1, "packets": None}),
        (
            "tc-10.json",
            {"parent": "ffff:", "handle": 7, "packets": 3, "hw_packets": 0, "redirect": "ifb-test0"},
        ),
    ],
)
def test_foreign_rules(name: str, expected: dict[str, Any]) -> None:
    (rule,) = sample(f"hardware/{name}")
    assert {key: getattr(rule, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("tc-2.txt", {"match ip_flags": "nofrag", "action 1 tunnel_key key_id": "98"}),
        ("tc-3.txt", {"match enc_dst_port": "6635", "action 1 mpls does": "mpls  pop protocol ip pipe"}),
        ("tc-4.txt", {"action 2 pedit ipv4+8": "set 3f000000 mask 00ffffff", "match ip_ttl": "64"}),
        (
            "tc-6.txt",
            {"skip_hw": "true", "action 2 mirred does": "mirred (Egress Mirror to device veth1) pipe"},
        ),
        ("tc-8.json", {"action 1 pedit ipv4+8": "add 01000000 mask 00ffffff", "action 1 pedit then": "pass"}),
        ("tc-9.json", {"match dst_ip": "198.18.10.2/24"}),
    ],
)
def test_what_is_more_than_a_forwarding_rule_is_kept(name: str, more: dict[str, str]) -> None:
    (rule,) = sample(f"hardware/{name}")
    assert more.items() <= rule.other.items()


def words(*keys: tuple[str, int, str, str, str]) -> str:
    """Return a filter in JSON with these pedit words and a redirect."""
    pedit = [dict(zip(("htype", "offset", "cmd", "val", "mask"), key, strict=True)) for key in keys]
    actions = [
        {"order": 1, "kind": "pedit", "control_action": {"type": "pipe"}, "keys": pedit},
        {"order": 2, "kind": "mirred", "mirred_action": "redirect", "direction": "egress", "to_dev": "b"},
    ]
    options = {"handle": "0x1f", "keys": {}, "in_hw": True, "actions": actions}
    return json.dumps([{"protocol": "[34998]", "pref": 1, "kind": "flower", "chain": 0, "options": options}])


@pytest.mark.parametrize(
    ("keys", "set_type", "set_dst_mac", "other"),
    [
        # The type in the upper half of the word at 12; the lower half is kept.
        ([("eth", 12, "set", "88b50000", "ffff")], "0x88b5", None, set()),
        # A keep-mask that keeps the type and overwrites what is behind it sets no type.
        ([("eth", 12, "set", "88b5", "ffff0000")], None, None, {"sets eth+14", "sets eth+15"}),
        # Half a MAC address is no new destination, and is named.
        ([("eth", 0, "set", "4cbb4703", "0")], None, None, {f"sets eth+{at}" for at in range(4)}),
        # The word at 4 reaches into the source address.
        (
            [("eth", 0, "set", "4cbb4703", "0"), ("eth", 4, "set", "1", "0")],
            None,
            "4c:bb:47:03:00:00",
            {"sets eth+6", "sets eth+7"},
        ),
        # A value under kept bits would be mixed in by exclusive or: no plain replacement.
        ([("eth", 12, "set", "8000001", "ffff")], None, None, {"action 1 pedit eth+12"}),
        # Single bits of a byte are kept.
        ([("eth", 12, "set", "8000000", "fffff")], None, None, {"action 1 pedit eth+12"}),
        ([("eth", 12, "add", "8000000", "ffff")], None, None, {"action 1 pedit eth+12"}),
        ([("ipv4", 16, "set", "a000001", "0")], None, None, {"action 1 pedit ipv4+16"}),
        ([("eth", -2, "set", "8000000", "ffff")], None, None, {"action 1 pedit eth-2"}),
        # The later word wins.
        (
            [("eth", 12, "set", "88b50000", "ffff"), ("eth", 12, "set", "8000000", "ffff")],
            "0x0800",
            None,
            set(),
        ),
    ],
)
def test_pedit_words(keys: Any, set_type: str | None, set_dst_mac: str | None, other: set[str]) -> None:
    rule = only(filters(words(*keys)))
    assert (rule.handle, rule.protocol, rule.redirect) == (31, "0x88b6", "b")
    assert (rule.set_type, rule.set_dst_mac, set(rule.other)) == (set_type, set_dst_mac, other)


@pytest.mark.parametrize(
    "change",
    [
        {"keys": {"dst_mac": "4c:bb:47:02:00:00/ff:ff:ff:00:00:00"}},
        {"keys": {"vlan_id": 5}},
        {"keys": {"eth_type": "0800"}},
        {"skip_hw": True},
        {"ct_state": "+trk"},
    ],
)
def test_a_rule_that_matches_otherwise_is_seen_as_such(change: dict[str, Any]) -> None:
    item = json.loads(words())
    item[0]["options"].update(change)
    rule = only(filters(json.dumps(item)))
    assert len(rule.other) == 1, rule.other
    assert rule.dst_mac is None


def test_different_cookies_are_no_cookie() -> None:
    item = json.loads(words())
    item[0]["options"]["actions"][0]["cookie"] = "aa"
    assert only(filters(json.dumps(item))).cookie == "aa"
    item[0]["options"]["actions"][1]["cookie"] = "bb"
    rule = only(filters(json.dumps(item)))
    assert (rule.cookie, rule.other["cookies"]) == (None, "aa bb")


def test_one_bad_filter_does_not_hide_the_others() -> None:
    good = json.loads(words())
    reading = filters(json.dumps([{"kind": 5}, *good]))
    assert len(reading.value or ()) == 1
    assert [piece.reason for piece in reading.unread] == ["kind is absent or not a string"]


def test_qdiscs_in_text_and_json() -> None:
    kinds = [(qdisc.kind, qdisc.parent) for qdisc in sample("tc-qdisc-show.json")]
    assert kinds == [("fq_codel", None), ("ingress", "ffff:fff1")]
    log = (SAMPLES / "netplan-trial-in-run.txt").read_text().splitlines()
    text = "\n".join(line for line in log if line.startswith("qdisc "))
    assert [(q.kind, q.handle, q.dev) for q in qdiscs(text).value or ()] == [
        ("fq_codel", "0:", "enp1s0f0np0"),
        ("clsact", "ffff:", "enp1s0f0np0"),
    ]


def test_devlink() -> None:
    reloads = sample("hardware/devlink-stats-1.txt")
    assert reloads == sample("hardware/devlink-stats-2.json")
    assert reloads["pci/0000:82:00.0"].own == {
        "driver_reinit": {"unspecified": 2},
        "fw_activate": {"unspecified": 1, "no_reset": 0},
    }
    params = sample("hardware/devlink-param-1.txt")["pci/0000:06:00.0"]
    assert [(param.name, param.values) for param in params] == [
        ("hairpin_num_queues", {"driverinit": "2"}),
        ("hairpin_queue_size", {"driverinit": "1024"}),
        ("esw_port_metadata", {"runtime": "true"}),
    ]
    assert [p.name for p in sample("hardware/devlink-param-2.txt")["pci/0000:06:00.0"]] == [
        "flow_steering_mode",
        "enable_roce",
    ]
    assert sample("devlink-dev-eswitch-show.json")["pci/0000:01:00.0"].mode is None
    assert sample("hardware/devlink-eswitch-2.txt")["pci/0000:08:00.0"].inline_mode == "none"
    info = sample("hardware/devlink-info-1.txt")
    assert info["pci/0000:08:00.1"].versions["running"]["fw.version"] == "28.41.1000"
    assert info["auxiliary/mlx5_core.eth.1"].driver == "mlx5_core.eth"
    assert (
        sample("hardware/devlink-info-2.txt")["pci/0000:00:06.0"].versions["stored"]["fw"] == "255.255.65535"
    )
    assert sample("devlink-port-show.json")["pci/0002:01:00.1/1"].netdev == "enP2p1s0f1np1"


def test_hairpin_table_of_the_driver() -> None:
    new = "Hairpin peer_vhca_id 2 prio 0 refcnt 4 num_channels 4 num_packets 8192\n"
    old = "Hairpin peer_vhca_id 2 prio 0 refcnt 4\n"
    first, second = devlink.hairpins(new + old).value or ()
    assert (first.num_channels, first.num_packets) == (4, 8192)
    assert (second.num_channels, second.num_packets) == (None, None)
    assert devlink.hairpins("").value == ()
    assert devlink.hairpins("Hairpin peer 2\n").value is None


def test_rdma_resources_tell_the_kernel_from_processes() -> None:
    pairs = sample("hardware/rdma-qp-1.txt")
    assert [(pair.type, pair.comm, pair.kernel) for pair in pairs] == [
        ("SMI", "ib_core", True),
        ("GSI", "ib_core", True),
        ("UD", "mlx5_ib", True),
        ("XRC_TGT", "ib_uverbs", True),
        ("XRC_INI", "ibv_xsrq_pingpong", False),
    ]
    (user,) = sample("hardware/rdma-qp-2.txt")
    assert (user.device, user.type, user.pid, user.kernel) == ("mlx5_bond_0", "RC", 61655, False)
    assert {pair.comm for pair in sample("rdma-resource-show-qp.json")} == {"ib_core"}
    context = rdma.contexts("dev rocep1s0f0 ctxn 3 pid 17 comm a b\n")
    assert vars((context.value or ())[0]) == {"device": "rocep1s0f0", "number": 3, "pid": 17, "comm": "a b"}


def test_a_resource_line_that_cannot_be_read_is_never_silent() -> None:
    reading = rdma.queue_pairs("link a/1 lqpn 7 type RC state RTS pid x comm y\nlink a/1 lqpn 1 type GSI\n")
    assert len(reading.value or ()) == 1 and len(reading.unread) == 1
    assert rdma.queue_pairs('[{"ifname":"a","lqpn":7}').value is None


def test_rdma_names() -> None:
    assert [link.netdev for link in sample("hardware/rdma-link-2.txt")] == [
        link.netdev for link in sample("hardware/rdma-link-1.txt")
    ]
    devices = sample("hardware/rdma-dev-1.txt")
    assert [(device.device, device.protocol, device.firmware) for device in devices] == [
        ("mlx5_0", "roce", "12.28.2006"),
        ("mlx5_1", "ib", "12.28.2006"),
        ("mlx5_2", "ib", "12.28.2006"),
        ("siw0", "iw", None),
    ]
    assert sample("hardware/rdma-dev-2.txt")[0].sys_image_guid == "025e:3003:000c:0020"
    first, *_ = sample("hardware/ibdev2netdev-2.txt")
    assert (first.device, first.netdev, first.up) == ("roceP2p1s0f0", "enP2p1s0f0np0", False)
    devinfo = sample("hardware/ibv_devinfo-1.txt")
    assert [device.port["active_mtu"] for device in devinfo] == [
        "1024 (3)",
        "4096 (5)",
        "1024 (3)",
        "4096 (5)",
    ]
    assert len({device.fields["sys_image_guid"] for device in devinfo}) == 1


def test_gids_with_and_without_an_address() -> None:
    gids = {(gid.device, gid.index): gid for gid in sample("hardware/show_gids-1.txt")}
    assert gids["roceP2p1s0f0", 3].address == "198.18.100.114"
    assert (gids["roceP2p1s0f0", 3].type, gids["roceP2p1s0f0", 3].netdev) == ("v2", "enP2p1s0f0np0")
    assert gids["rocep1s0f1", 1].address is None
    assert [gid.address for gid in sample("hardware/show_gids-2.txt")].count("192.0.2.1") == 2
    assert names.mapped_address("fe80:0000:0000:0000:005e:10ff:fe0a:1112") is None


def test_ip() -> None:
    (link,) = sample("ip-addr-show-d.json").links
    assert (link.pci, link.phys_port_name, link.mac, link.mtu) == (
        "0000:01:00.0",
        "p0",
        "4c:bb:47:02:00:00",
        9000,
    )
    assert link.carrier
    addresses = sample("hardware/ip-d-addr-1.json").addresses
    assert [(a.address, a.prefix, a.dynamic) for a in addresses[:2]] == [
        ("192.0.2.62", 24, True),
        ("2001:db8:1111:2222:5e:70ff:fe0a:1", 64, True),
    ]
    text = sample("hardware/ip-addr-1.txt")
    assert (text.links[0].mac, text.addresses[0].flags) == ("02:5e:10:0a:11:13", ("noprefixroute",))
    brief = sample("hardware/ip-br-addr-2.txt")
    assert [(a.dev, a.address, a.prefix) for a in brief.addresses] == [
        ("enP7s7", "192.0.2.100", 23),
        ("enp1s0f0np0", "198.18.5.1", 29),
        ("enP2p1s0f0np0", "198.18.5.9", 29),
    ]
    states = {link.name: link.state for link in sample("hardware/ip-br-addr-1.txt").links}
    assert states["enp1s0f0np0"] == "DOWN" and len(states) == 8
    macs = {link.name: link.mac for link in sample("hardware/ip-br-link-1.txt").links}
    assert macs["enP2p1s0f1np1"] == "02:5e:10:0a:11:17"
    resolved = sample("ip-neigh-show.json")
    assert (resolved[0].address, resolved[0].mac, resolved[0].states) == (
        "10.0.2.2",
        "52:55:0a:00:02:02",
        ("REACHABLE",),
    )
    (failed,) = ip_text.neighbours("10.10.0.11 dev enp1s0f0np0 FAILED\n").value or ()
    assert (failed.mac, failed.states) == (None, ("FAILED",))


def test_routes() -> None:
    routes = sample("ip-route-show.json")
    assert (routes[1].to, routes[1].type, routes[1].table) == ("10.0.2.15/32", "local", "local")
    assert [route.via for route in routes if route.to == "default"] == ["fe80::2"]
    assert sample("hardware/ip-route-2.json")[1].flags == ("linkdown",)
    trial = sample("netplan-trial-in-run.txt")
    relay = next(route for route in trial if route.to == "10.10.3.11/32")
    assert (relay.via, relay.src, relay.protocol, relay.metric) == ("10.10.1.11", "10.10.1.10", "static", 100)
    assert [route.protocol for route in trial if route.to == "10.77.0.0/16"] == ["214"]
    assert any("linkdown" in route.flags for route in trial)
    hops = [{"gateway": "10.1.0.1", "dev": "a"}, {"gateway": "10.2.0.1", "dev": "b"}]
    text = json.dumps([{"dst": "10.0.0.0/8", "flags": [], "nexthops": hops}])
    assert [(route.dev, route.via) for route in ip_json.routes(text).value or ()] == [
        ("a", "10.1.0.1"),
        ("b", "10.2.0.1"),
    ]


def test_ethtool() -> None:
    features = sample("ethtool-k.json")
    assert vars(features["hw-tc-offload"])["active"] is True
    refused = (
        ethtool.features("Features for eth0:\nhw-tc-offload: off [requested on]\nlro: off [fixed]\n").value
        or {}
    )
    assert (refused["hw-tc-offload"].active, refused["hw-tc-offload"].requested) == (False, True)
    assert refused["lro"].fixed
    assert sample("ethtool-S.txt")["hairpin_packets"] == 5847
    assert sample("hardware/ethtool-S-3.txt")["tx_global_pause_duration"] == 555665182


def test_counters_are_found_by_name() -> None:
    assert sample("proc-net-snmp.txt")["Ip.OutTransmits"] == 230
    assert sample("hardware/proc-net-snmp-1.txt")["Tcp.MaxConn"] == -1
    assert sample("hardware/nstat-1.txt")["TcpExtTcpTimeoutRehash"] == 494
    assert counters.nstat('{"kernel":{"IpForwDatagrams":27}}').value == {"IpForwDatagrams": 27}
    assert sample("hardware/hw-counters-1.txt")["np_ecn_marked_roce_packets"] == 21278189006
    shifted = "Ip: Forwarding ForwDatagrams\nIp: 1\n"
    assert counters.snmp(shifted).value is None


def test_network_manager() -> None:
    devices = {device.name: device for device in sample("hardware/nmcli-dev-1.txt")}
    assert devices["enP7s7"].connection == "Wired connection 3"
    assert devices["docker0"].state == "connected (externally)"
    assert devices["enP2p1s0f0np0"].connection is None
    connections = sample("hardware/nmcli-con-1.txt")
    assert [c.device for c in connections if c.name == "Wired connection 1"] == [None]
    terse = network_manager.connections(r"a\:b:u-1:802-3-ethernet:enp1s0f0np0:/run/x.nmconnection")
    (connection,) = terse.value or ()
    assert (connection.name, connection.uuid, connection.device) == ("a:b", "u-1", "enp1s0f0np0")
    assert sample("nmcli-dev-status.txt")[1].state == "disconnected"


def test_netplan_status() -> None:
    lo, enp1s0 = sample("hardware/netplan-status-1.txt")
    assert (lo.backend, lo.definition) == (None, None)
    assert (enp1s0.backend, enp1s0.definition, len(enp1s0.addresses), len(enp1s0.routes)) == (
        "networkd",
        "enp1s0",
        2,
        4,
    )
    words_of_it = {"type": "ethernet", "operstate": "UP", "backend": "NetworkManager", "id": "NM-1"}
    state = {**words_of_it, "addresses": [{"10.0.0.1": {"prefix": 24}}]}
    text = json.dumps({"netplan-global-state": {"online": True}, "eth0": state})
    (eth0,) = netplan.status(text).value or ()
    assert (eth0.backend, eth0.definition, eth0.addresses) == ("NetworkManager", "NM-1", ("10.0.0.1",))


def test_perftest() -> None:
    bandwidth = sample("hardware/ib_write_bw-2.txt")
    assert bandwidth.rows[0].values["BW average[Gb/sec]"] == 111.71
    assert bandwidth.settings["Number of qps"] == "4"
    endless = sample("hardware/ib_write_bw-1.txt")
    assert len(endless.rows) == 5 and "peak won't be measured" in endless.notes[0]
    assert sample("hardware/ib_write_bw-4.txt").rows[0].values["CPU_Util[%]"] == 5.07
    assert sample("hardware/ib_write_bw-5.txt").rows == ()
    latency = sample("hardware/ib_write_lat-1.txt").rows[0].values
    assert (latency["t_typical[usec]"], latency["99.9% percentile[usec]"]) == (1.47, 1.93)
    noisy = sample("hardware/ib_read_lat-1.txt")
    assert noisy.rows[0].values["t_avg[usec]"] == 1.80 and len(noisy.notes) == 1
    assert perftest.results("Couldn't connect to 192.0.2.1:18515\n").value is None


def test_lldp_one_and_several() -> None:
    (one,) = sample("hardware/lldp-1.json")
    assert (one.dev, one.chassis_name, one.port_description) == ("eth0", "ns-2.example.com", "eth1")
    document = json.loads((SAMPLES / "hardware/lldp-1.json").read_text())
    document["lldp"]["interface"] = [
        document["lldp"]["interface"],
        {"eth1": {"chassis": {"id": {"value": "x"}}}},
    ]
    several = lldp.neighbours(json.dumps(document)).value or ()
    assert [(neighbour.dev, neighbour.chassis_id) for neighbour in several] == [
        ("eth0", "00:00:00:00:00:02"),
        ("eth1", "x"),
    ]


def test_qos() -> None:
    assert vars(sample("hardware/mlnx_qos-1.txt")) == {
        "trust": "dscp",
        "dcbx": "Firmware controlled",
        "pfc": (3,),
    }
    tables = sample("hardware/dcb-1.txt").tables
    assert tables["prio-pfc"]["3"] == "on" and tables[""]["delay"] == "0"
    assert sample("hardware/dcb-2.txt").tables["dscp-prio"]["CS3"] == "2,3"
    assert qos.mlnx_qos("").value is None


def test_messages_tell_warnings_from_errors() -> None:
    found = sample("hardware/devlink-err-1.txt")
    assert [message.severity for message in found] == ["error"] * 5 + ["warning", "error"]
    assert found[-1].source == "mlx5_core" and "same switch HW" in found[-1].text
    assert "TC offload is disabled" in next(
        message.text
        for message in messages.messages((SAMPLES / "errors-from-the-kernel.txt").read_text()).value or ()
        if message.severity == "error"
    )


TEXTS = {name: (SAMPLES / name).read_text() for name in READ}
ODD = st.text(st.sampled_from('{}[]",:\\0 \t\n\r\x00\x1b/eE+-.9udlinkfter\ud800٣²'), max_size=6)


def check(reading: Reading[Any]) -> None:
    """A reading has a value or names what is missing, and goes into a document as it is."""
    assert reading.value is not None or reading.unread
    assert all(piece.reason and len(piece.excerpt) <= EXCERPT_CHARS for piece in reading.unread)
    json.dumps(reading, default=vars).encode()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), name=st.sampled_from(sorted(READ)))
def test_garbled_samples_never_raise(data: st.DataObject, name: str) -> None:
    text = TEXTS[name]
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 30)) | st.just(len(text)))
        text = text[:start] + data.draw(ODD) + text[end:]
    check(READ[name](text))


@settings(max_examples=150, deadline=None)
@given(
    text=st.text(max_size=80)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | ODD,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["kind", "options", "actions", "keys", "ifname", "dev", "lldp"]) | ODD,
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    ).map(json.dumps),
    parser=st.sampled_from(PARSERS),
)
def test_any_text_never_raises(text: str, parser: Parser) -> None:
    check(parser(text))


@pytest.mark.parametrize("name", sorted(READ))
def test_cut_off_samples_never_raise(name: str) -> None:
    text = TEXTS[name]
    for end in range(0, len(text), max(1, len(text) // 120)):
        check(READ[name](text[:end]))


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize(
    "text", ["[" * 100_000, "9" * 10_000, '{"a":' * 50_000, "[NaN]", '[{"ifname":1e999}]', "\x00" * 600]
)
def test_hostile_texts_never_raise(parser: Parser, text: str) -> None:
    check(parser(text))
