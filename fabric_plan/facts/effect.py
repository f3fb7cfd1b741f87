"""What is in effect in the driver, as far as it is proven (devlink's parameter alone proves nothing)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fabric_plan.facts.questions import link_of
from fabric_plan.node.document import Facts

HAIRPIN_NOTES = "/run/fabric-plan/hairpin"
RULE_NOTES = "/run/fabric-plan/rules"


@dataclass(frozen=True, slots=True)
class Effect:
    """Queue size (entries) and number of queues that are proven to be in effect, or None; `words` says what
    was read. `pending` is true where the values shown are proven not to be in effect yet.
    """

    values: tuple[int, int] | None
    words: str
    pending: bool = False


@dataclass(frozen=True, slots=True)
class RuleNote:
    """What mesh-up noted when a rule went in: its cookie, the device that it sends to and that device's
    number then.
    """

    cookie: str
    redirect: str
    ifindex: int


def values_in_effect(facts: Facts, pci: str, netdev: str) -> Effect:
    """Return the hairpin values of a function that are in effect.

    Best proof first: the driver's own table of live hairpins; else a reload since the values were set, in
    this boot, of this very incarnation of the function.
    """
    state = facts.devlink.get(pci)
    if state is None:
        return Effect(None, "devlink says nothing")
    live = [
        (hairpin.num_packets, hairpin.num_channels)
        for hairpin in state.hairpins.value or ()
        if hairpin.num_packets is not None and hairpin.num_channels is not None
    ]
    if live:
        least = min(pair[0] for pair in live), min(pair[1] for pair in live)
        return Effect(least, f"{least[0]} entries, {least[1]} queues in effect (driver's table)")
    shown = _shown(facts, pci)
    words = f"{shown[0] or '?'} entries, {shown[1] or '?'} queues set, not proven in effect"
    note = _words(facts, f"{HAIRPIN_NOTES}/{pci}")
    reloads = state.reloads.value
    if reloads is None or reloads.failed:
        return Effect(None, words)
    done = reloads.own.get("driver_reinit", {}).get("unspecified", 0)
    if len(note) != 5:
        return Effect(None, words)
    boot, count, size, queues, ifindex = note
    link = link_of(facts, name=netdev)
    same = link is not None and str(link.ifindex) == ifindex
    if boot == facts.host.boot_id and done > int(count) and same and shown == (size, queues):
        return Effect(
            (int(size), int(queues)),
            f"{size} entries, {queues} queues in effect ({done} reloads since the probe)",
        )
    # Set in this boot and never reloaded since: the card still runs on what it had before.
    pending = boot == facts.host.boot_id and done <= int(count)
    return Effect(None, f"{words}: no reload since they were set" if pending else words, pending)


def _shown(facts: Facts, pci: str) -> tuple[str | None, str | None]:
    params = facts.devlink[pci].params.value or {}

    def value(name: str) -> str | None:
        return params[name].values.get("driverinit") if name in params else None

    return value("hairpin_queue_size"), value("hairpin_num_queues")


def _words(facts: Facts, path: str) -> list[str]:
    file = (facts.files.value or {}).get(path)
    found = (file.text or "").split() if file else []
    return found if len(found) == 5 and all(word.isdigit() for word in found[1:]) else []


def rule_notes(facts: Facts) -> Mapping[tuple[str, int, int], RuleNote]:
    """Return mesh-up's notes by (device, preference, handle); lines that are none are left out."""
    file = (facts.files.value or {}).get(RULE_NOTES)
    notes = {}
    for line in (file.text or "").splitlines() if file else ():
        words = line.split()
        try:
            dev, pref, handle, cookie, redirect, ifindex = words
            notes[dev, int(pref), int(handle, 0)] = RuleNote(cookie, redirect, int(ifindex))
        except ValueError:
            continue
    return notes
