"""What reaches the driver: bytes of the match, words of the action, and the order of both ways."""

from __future__ import annotations

import ipaddress
import struct

from tests.native.harness import BOTH_FORMS, DEVICE, Home, created, destroyed, nothing_left

RDMA_TX = 4
SET = 1

# The outer headers of a match, field by field, with the width in bits; the offsets follow from it.
LAYOUT = (
    ("source_mac", 48),
    ("ethertype", 16),
    ("destination_mac", 48),
    ("first_vlan", 16),
    ("ip_protocol", 8),
    ("dscp_ecn", 8),
    ("tags_fragment_version", 8),
    ("tcp_flags", 8),
    ("tcp_source_port", 16),
    ("tcp_destination_port", 16),
    ("ihl_and_ttl", 32),
    ("udp_source_port", 16),
    ("udp_destination_port", 16),
    ("source_address", 128),
    ("destination_address", 96),
    ("destination_ipv4", 32),
)


def outer_headers(**fields: int) -> str:
    """The 64 bytes in hexadecimal, zero but for `fields`."""
    return "".join(f"{fields.pop(name, 0):0{bits // 4}x}" for name, bits in LAYOUT)


def ipv4(text: str) -> int:
    return int(ipaddress.IPv4Address(text))


def test_layout_puts_the_fields_where_the_device_has_them() -> None:
    offsets = {name: sum(bits for _, bits in LAYOUT[:i]) // 8 for i, (name, _) in enumerate(LAYOUT)}
    assert [offsets[name] for name in ("ethertype", "udp_source_port", "destination_ipv4")] == [6, 28, 60]
    assert sum(bits for _, bits in LAYOUT) == 64 * 8


def test_both_forms_make_two_matchers_two_actions_and_three_rules(home: Home) -> None:
    with home.holding(*BOTH_FORMS) as marker:
        calls = {
            name: [c for c in home.calls() if c["call"] == name] for name in {c["call"] for c in home.calls()}
        }
        outcome = marker.stop()
    assert outcome.code == 0
    by_destination, by_source_port = calls["create_flow_matcher"]
    for matcher in (by_destination, by_source_port):
        assert (matcher["type"], matcher["flags"], matcher["criteria"], matcher["comp_mask"]) == (0, 0, 1, 1)
        assert matcher["ft_type"] == RDMA_TX
    assert by_destination["priority"] == 0
    assert by_destination["mask"] == outer_headers(ethertype=0xFFFF, destination_ipv4=0xFFFFFFFF)
    assert by_source_port["priority"] == 1
    assert by_source_port["mask"] == outer_headers(ethertype=0xFFFF, udp_source_port=0xFFFF)

    one_relay, two_relays = calls["create_modify_header"]
    for action, tag in ((one_relay, 0x88B5), (two_relays, 0x88B6)):
        assert action["ft_type"] == RDMA_TX
        control, value = struct.unpack(">II", bytes.fromhex(action["actions"]))
        assert (control >> 28, control >> 16 & 0xFFF, control >> 8 & 0x1F, control & 0x1F) == (
            SET,
            0x03,
            0,
            16,
        )
        assert value == tag

    assert [(flow["matcher"], flow["value"], flow["action"]) for flow in calls["create_flow"]] == [
        (
            by_destination["id"],
            outer_headers(ethertype=0x0800, destination_ipv4=ipv4("10.10.2.11")),
            one_relay["id"],
        ),
        (
            by_destination["id"],
            outer_headers(ethertype=0x0800, destination_ipv4=ipv4("10.10.4.11")),
            two_relays["id"],
        ),
        (by_source_port["id"], outer_headers(ethertype=0x0800, udp_source_port=65535), one_relay["id"]),
    ]
    # Type 3 is a flow action; nothing else rides on the rule.
    assert {(flow["action_count"], flow["action_type"]) for flow in calls["create_flow"]} == {(1, 3)}


def test_order_there_and_back(home: Home) -> None:
    with home.holding(*BOTH_FORMS) as marker:
        outcome = marker.stop()
    assert outcome.names() == [
        *("get_device_list", "open_device", "free_device_list", "query_port"),
        *("create_flow_matcher", "create_flow_matcher", "create_modify_header", "create_modify_header"),
        *("create_flow", "create_flow", "create_flow"),
        *("destroy_flow", "destroy_flow", "destroy_flow"),
        *("destroy_flow_action", "destroy_flow_action", "destroy_flow_matcher", "destroy_flow_matcher"),
        "close_device",
    ]
    assert created(outcome.calls) == [1, 2, 3, 4, 5, 6, 7]
    assert destroyed(outcome.calls) == [7, 6, 5, 4, 3, 2, 1]


def test_destinations_alone(home: Home) -> None:
    with home.holding("--device", DEVICE, "--rule", "192.0.2.255=0x88b8") as marker:
        outcome = marker.stop()
    assert [call["priority"] for call in outcome.calls if call["call"] == "create_flow_matcher"] == [0]
    assert [call["actions"] for call in outcome.calls if call["call"] == "create_modify_header"] == [
        "10030010000088b8"
    ]
    assert nothing_left(outcome.calls)


def test_source_port_alone(home: Home) -> None:
    with home.holding("--device", DEVICE, "--source-port", "65535=0x88b5") as marker:
        assert marker.messages == [f"READY=1\nSTATUS=Holding 1 rule on {DEVICE}"]
        outcome = marker.stop()
    assert [call["priority"] for call in outcome.calls if call["call"] == "create_flow_matcher"] == [1]
    assert outcome.names().count("create_flow") == 1
    assert nothing_left(outcome.calls)


def test_as_many_rules_as_fit(home: Home) -> None:
    tags = ("0x88b5", "0x88b6", "0x88b7", "0x88b8")
    rules = [f"--rule=10.10.{i}.11={tags[i % 4]}" for i in range(64)]
    with home.holding("--device", DEVICE, *rules, "--source-port", "49152=0x88b7") as marker:
        assert "Holding 65 rules" in marker.messages[0]
        outcome = marker.stop()
    assert outcome.names().count("create_modify_header") == 4
    values = [call["value"] for call in outcome.calls if call["call"] == "create_flow"]
    assert values[:64] == [
        outer_headers(ethertype=0x0800, destination_ipv4=ipv4(f"10.10.{i}.11")) for i in range(64)
    ]
    assert nothing_left(outcome.calls)
