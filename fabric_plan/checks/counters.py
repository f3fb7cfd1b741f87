"""Counters of a node that say what moves and what is lost, by what they count. Pure."""

from __future__ import annotations

from fabric_plan.compare.desired import DesiredFunction
from fabric_plan.node.document import Facts

FORWARDED = "Ip.ForwDatagrams"
OVERFLOW = "rx_out_of_buffer"
SEQUENCE = ("out_of_sequence", "packet_seq_err", "out_of_seq_request")

# Bytes that a function sent, best first: RDMA of the very function; the RDMA port, in words of four bytes and
# on some cards one counter for both twins; the wire.
ALIASED = "port_xmit_data"
SENT = ("tx_vport_rdma_unicast_bytes", ALIASED, "tx_bytes_phy")


def overflow(facts: Facts, netdev: str) -> int | None:
    """Return how often a receive queue of a device had no room; None where that is not counted."""
    state = facts.ethtool.get(netdev)
    return (state.counters.value or {}).get(OVERFLOW) if state else None


def sequence(facts: Facts, rdma: str) -> int | None:
    """Return how many packets of an RDMA device came out of order or were answered so."""
    port = next((p for p in facts.rdma.ports.value or () if p.device == rdma), None)
    found = [port.hw_counters[name] for name in SEQUENCE if name in port.hw_counters] if port else []
    return sum(found) if found else None


def sent(facts: Facts, netdev: str, rdma: str, name: str) -> int | None:
    """Return the bytes that a function sent, by the counter `name` of `SENT`."""
    if name == ALIASED:
        port = next((p for p in facts.rdma.ports.value or () if p.device == rdma), None)
        words = port.counters.get(name) if port else None
        return None if words is None else 4 * words
    state = facts.ethtool.get(netdev)
    return (state.counters.value or {}).get(name) if state else None


def sent_best(facts: Facts, function: DesiredFunction) -> int | None:
    """Return the bytes that a function sent by the best counter there is."""
    found = (sent(facts, function.netdev, function.rdma, name) for name in SENT)
    return next((count for count in found if count is not None), None)


def forwarded(facts: Facts) -> int | None:
    """Return how many packets the kernel forwarded."""
    return (facts.snmp.value or {}).get(FORWARDED)
