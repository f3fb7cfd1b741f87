"""The EtherTypes that frames carry between relays (docs/fabric.md 5)."""

from __future__ import annotations

ETHERTYPE_IPV4 = 0x0800
TAG_BASE = 0x88B4
PREF_BASE = 880
MAX_RELAYS = 6
RESEARCH_RELAYS = 3

# 0x88b5 and 0x88b6 are the two that IEEE 802 keeps for local experiments; what follows belongs to somebody.
LOCAL_EXPERIMENTS = (0x88B5, 0x88B6)


def tag(relays: int) -> int:
    """Return the EtherType of a frame that has `relays` relays still to cross; plain IPv4 at none."""
    return TAG_BASE + relays if relays else ETHERTYPE_IPV4


def preference(relays: int) -> int:
    """Return the tc preference of the rules for that tag: the kernel takes one protocol a preference."""
    return PREF_BASE + relays
