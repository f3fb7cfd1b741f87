"""Read a serving log for what NCCL says about the ring, and say what each line means and how to mend it.

NCCL's plan of channels looks right when traffic goes elsewhere; what tells are a few other lines. A line
that ought to be there and is not is *not proven*, never good.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What a finding says of the run."""

    GOOD = "good"
    BAD = "bad"
    NOT_PROVEN = "not proven"


@dataclass(frozen=True, slots=True)
class LogFinding:
    """What was read, in which lines (from 1; the first few), how often, what it means and how to mend it."""

    id: str
    verdict: Verdict
    text: str
    means: str
    mend: str
    lines: tuple[int, ...]
    count: int


@dataclass(frozen=True, slots=True)
class _Sign:
    """A line whose mere presence says something."""

    id: str
    verdict: Verdict
    pattern: re.Pattern[str]
    means: str
    mend: str = ""


def _bad(id_: str, pattern: str, means: str, mend: str) -> _Sign:
    return _Sign(id_, Verdict.BAD, re.compile(pattern), means, mend)


def _good(id_: str, pattern: str, means: str) -> _Sign:
    return _Sign(id_, Verdict.GOOD, re.compile(pattern), means)


_SIGNS: tuple[_Sign, ...] = (
    _good("rings-connected", r"Connected all rings", "every channel of the ring reached its two neighbours"),
    _good(
        "trees-disabled",
        r"(?:Tree|PAT) transport setup disabled by NCCL_SWITCHLESS_RING_ONLY",
        "the patched library is loaded and skips what a ring cannot connect",
    ),
    _good("network-ib", r"Using network IB\b", "collectives go over RDMA"),
    _bad(
        "trees-connected",
        r"Connected all trees|Connected binomial trees",
        "trees are connected, which a ring of cables does not carry",
        "stock: NCCL_ALGO=Ring, NCCL_CUMEM_ENABLE=1 and NCCL_RUNTIME_CONNECT=1 at every rank; "
        "patched: NCCL_SWITCHLESS_RING_ONLY=1",
    ),
    _bad(
        "tree-connect",
        r"ncclTransport(?:Tree|Pat)Connect",
        "a tree was being connected: ranks that share no cable cannot reach each other over RDMA",
        "stock: NCCL_ALGO=Ring, and NCCL_CUMEM_ENABLE=1 at every rank (one without it is enough to fail); "
        "patched: is it the library that is loaded?",
    ),
    _bad(
        "graph-unreadable",
        r"XML (?:Parse|Mismatch|Graph has wrong|Import Channel)|Error : XML|Could not open XML graph file"
        r"|Attribute \w+ of node \w+ not found",
        "NCCL cannot read its graph file",
        "fabric-plan nccl check FILE says where; render it again",
    ),
    _bad(
        "cross-nic-off",
        r"NCCL_CROSS_NIC set (?:by environment )?to 0\b",
        "with 0 NCCL drops the graph file and says nothing",
        "set NCCL_CROSS_NIC=1",
    ),
    _bad(
        "bad-advice",
        r"HINT: To confirm, you can set NCCL_CROSS_NIC=0",
        "NCCL's own hint after a time-out. On a ring it is wrong: 0 drops the graph file in silence",
        "leave NCCL_CROSS_NIC=1; look at the addresses, routes and GIDs of the two devices instead",
    ),
    _bad(
        "unreachable",
        r"connect to \S+ failed : (?:Network is unreachable|No route to host)",
        "none of the rank's cables leads to that address: the wrong device listens, or a tree was asked for",
        "is NCCL_GRAPH_FILE this rank's own ring.xml, and NCCL_ALGO=Ring set at every rank?",
    ),
    _bad(
        "queue-pair",
        r"ibv_modify_qp failed with (?:110|101|113)\b",
        "no hardware address was found for the other end: the sender's device is not on the receiver's cable",
        "a stock library before 2.30.7 does not choose by subnet; else look at NCCL_IB_SUBNET_PREFIX_LEN "
        "and at addresses and ARP on that cable",
    ),
    _bad(
        "wrong-gid",
        r"ibv_modify_qp failed with 22\b|local GID (?:N/A|::,|fe80:)|remote GID (?:N/A|::\s*$|fe80:)",
        "a queue pair was made with a GID that is not the device's RoCE v2 address",
        "unset NCCL_IB_GID_INDEX (an index drifts when a neighbour reboots); is the function addressed?",
    ),
    _bad(
        "gid-table",
        r"GID table changed",
        "addresses of a function went and came back under a running job",
        "fabric-plan's ignore-carrier file keeps them through a neighbour's reboot: is it in place?",
    ),
    _bad(
        "no-device",
        r"NET/IB : No device found",
        "NCCL kept no RDMA device",
        "do the names in NCCL_IB_HCA exist on this node, and is their link up?",
    ),
    _bad(
        "sockets",
        r"Using network Socket",
        "collectives go over TCP, on the management network",
        "is the RDMA library there, /dev/infiniband in the container, and NCCL_IB_HCA right?",
    ),
    _bad(
        "merged",
        r"Made virtual device \[\d+\] name=\S+\+\S+",
        "two functions are one device to NCCL: which peer each faces is lost",
        "set NCCL_IB_MERGE_NICS=0",
    ),
    _bad(
        "completion",
        r"Got completion from peer",
        "a transfer failed in the hardware: a cable, a relay without its rule, a queue that overflows",
        "fabric-plan verify --probe looks at links, rules and drop counters",
    ),
    _bad(
        "async-fatal",
        r"async fatal event",
        "the device reported a fatal event",
        "fabric-plan verify looks at the links",
    ),
    _bad(
        "library-differs",
        r"NCCL version mismatch with remote peer|mismatch(?:ed)? NCCL version",
        "ranks run different libraries",
        "install one library on every node and compare its SHA-256",
    ),
    _bad(
        "two-runtimes",
        r"Duplicate NCCL runtime found",
        "two NCCL libraries are on the search path",
        "put the patched library in the place of the packaged one instead of beside it",
    ),
)

# How many line numbers a finding names.
_KEPT = 5

Lines = list[tuple[int, str]]


# What is wrong on a ring alone: in a pair and behind a switch a tree finds its way.
_TREES = ("trees-connected", "tree-channels")


def check_log(text: str, devices: int | None = None, *, trees: bool = False) -> tuple[LogFinding, ...]:
    """Return what a log says, bad first, then not proven, then good.

    `devices`: how many a node has, where known; `trees`: whether trees may be connected on this fabric.
    """
    lines = list(enumerate(text.splitlines(), start=1))
    found = [finding for sign in _SIGNS for finding in _sign(sign, lines)]
    for derive in _DERIVED:
        found += derive(lines, devices)
    found = [finding for finding in found if not (trees and finding.id in _TREES)]
    order = (Verdict.BAD, Verdict.NOT_PROVEN, Verdict.GOOD)
    return tuple(sorted(found, key=lambda finding: (order.index(finding.verdict), finding.lines[:1])))


def _sign(sign: _Sign, lines: Lines) -> Iterator[LogFinding]:
    numbers = [(number, line) for number, line in lines if sign.pattern.search(line)]
    # What the patch switched off is named by the same words as what failed.
    numbers = [
        (number, line)
        for number, line in numbers
        if sign.verdict is Verdict.GOOD or "disabled by" not in line
    ]
    if numbers:
        yield _finding(
            sign.id,
            sign.verdict,
            _told(numbers[0][1]),
            sign.means,
            sign.mend,
            [number for number, _ in numbers],
        )


def _told(line: str) -> str:
    """The part of a log line that NCCL wrote, without host, process and place."""
    return re.sub(r"^.*?NCCL (?:INFO|WARN) ", "", line).strip()[:160]


def _finding(id_: str, verdict: Verdict, text: str, means: str, mend: str, at: Iterable[int]) -> LogFinding:
    numbers = tuple(at)
    return LogFinding(id_, verdict, text, means, mend, numbers[:_KEPT], len(numbers))


def _matches(lines: Lines, pattern: str) -> list[tuple[int, re.Match[str]]]:
    compiled = re.compile(pattern)
    return [(number, match) for number, line in lines if (match := compiled.search(line))]


def _advertised(lines: Lines, devices: int | None) -> Iterator[LogFinding]:
    by_count: dict[tuple[int, int], list[int]] = {}
    for number, match in _matches(lines, r"ListenerRouting.*\badvertised=(\d+)(?: observed=(\d+))?"):
        advertised = int(match[1])
        wanted = devices if devices is not None else int(match[2] or advertised)
        by_count.setdefault((advertised, wanted), []).append(number)
    for (advertised, wanted), at in sorted(by_count.items()):
        text = f"advertised={advertised} of {wanted} devices"
        if advertised < wanted:
            yield _finding(
                "advertised",
                Verdict.BAD,
                text,
                "devices past that are not published: no peer reaches them, the second plane moves nothing",
                "address the second plane; patched library, NCCL_IB_EXTENDED_IPV4_GIDS=1 at every rank",
                at,
            )
        else:
            yield _finding("advertised", Verdict.GOOD, text, "every device is published to the peers", "", at)


def _domains(lines: Lines) -> dict[int, str]:
    """Return the PCI root, or failing that the plane by name, of each device that the log numbers."""
    found: dict[int, str] = {}
    for _, match in _matches(lines, r"NET/IB : Using(.*)"):
        for index, name in re.findall(r"\[(\d+)\]([A-Za-z0-9_]+)", match[1]):
            domain = re.match(r"roce(P\d+)?p", name)
            if domain:
                found[int(index)] = domain[1] or "P0"
    path = r"NET/IB: \[\d+\] (\w+):\S* .*pciPath=\S*?(pci[0-9a-f]{4}:[0-9a-f]{2})"
    names = {match[1]: match[2] for _, match in _matches(lines, path)}
    for _, match in _matches(lines, r"NET/IB : Using(.*)"):
        for index, name in re.findall(r"\[(\d+)\]([A-Za-z0-9_]+)", match[1]):
            if name in names:
                found[int(index)] = names[name]
    return found


def _overrides(lines: Lines, devices: int | None) -> Iterator[LogFinding]:
    domains = _domains(lines)
    half = (devices or 4) // 2
    good: list[tuple[int, str]] = []
    collapsed: dict[str, list[int]] = {}
    for number, match in _matches(lines, r"overriding dev (\d+) with dev (\d+)( preserving PCI root)?"):
        chosen, instead = int(match[1]), int(match[2])
        planes = [domains.get(dev, str(dev >= half)) for dev in (chosen, instead)]
        if match[3] or planes[0] == planes[1]:
            good.append((number, match[0]))
        else:
            collapsed.setdefault(match[0], []).append(number)
    for text, at in sorted(collapsed.items()):
        yield _finding(
            "collapsed",
            Verdict.BAD,
            text,
            "a channel of one plane was moved to the other: that plane's device carries nothing",
            "is every function addressed, and a prefix of its own? Patched: NCCL_IB_PRESERVE_PCI_DOMAIN=1",
            at,
        )
    if good:
        means = "a send took the port that faces its peer, in the same plane"
        yield _finding("same-plane", Verdict.GOOD, good[0][1], means, "", [number for number, _ in good])


def _graphs(lines: Lines, devices: int | None) -> Iterator[LogFinding]:
    """The number of channels that were loaded is whatever stood in memory where none were: what is in use
    tells.
    """
    named = _matches(lines, r"NCCL_GRAPH_FILE set by environment to (\S+)")
    loaded = _matches(lines, r"^(.*)Search ([01]) : (-?\d+) channels loaded from XML graph")
    used = _matches(lines, r"^(.*)Pattern [34], crossNic \d+, nChannels (\d+)")
    right: list[tuple[int, str]] = []
    wrong: list[tuple[int, str]] = []
    for number, match in loaded:
        following = next((use[2] for at, use in used if at > number and use[1] == match[1]), match[3])
        same = int(match[3]) > 0 and match[3] == following
        (right if same else wrong).append((number, _told(match[0])))
    if wrong:
        yield _finding(
            "graph-ignored",
            Verdict.BAD,
            wrong[0][1],
            "other channels are in use than the file has: the graph is not in it, or was dropped",
            "fabric-plan nccl check FILE; NCCL_CROSS_NIC has to be 1",
            [number for number, _ in wrong],
        )
    elif right:
        numbers = [number for number, _ in right]
        yield _finding("graph-loaded", Verdict.GOOD, right[0][1], "the graph file is in force", "", numbers)
    elif named:
        yield _finding(
            "graph-not-proven",
            Verdict.NOT_PROVEN,
            f"{named[0][1][1]} is named, and nothing says that it was loaded",
            "GRAPH is not among the subsystems that are logged, or the start ended before",
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH while validating",
            [number for number, _ in named],
        )


def _far_channels(lines: Lines, devices: int | None) -> Iterator[LogFinding]:
    ranks = {int(match[1]) for _, match in _matches(lines, r"\bnranks (\d+)\b")}
    if len(ranks) != 1 or (count := ranks.pop()) < 3:
        return
    far: list[tuple[int, str]] = []
    for number, match in _matches(lines, r"Channel \d+/0 : (\d+)\[\w+\] -> (\d+)\[\w+\]"):
        if (int(match[2]) - int(match[1])) % count != 1:
            far.append((number, match[0]))
    if far:
        yield _finding(
            "tree-channels",
            Verdict.BAD,
            far[0][1],
            "a channel that is not the ring's: a tree is being connected",
            "NCCL_ALGO=Ring at every rank; stock: NCCL_CUMEM_ENABLE=1 and NCCL_RUNTIME_CONNECT=1 too",
            [number for number, _ in far],
        )


# Why no ring was connected, by whether NCCL warned and whether its start came to an end.
_RINGLESS = {
    (True, True): (Verdict.BAD, "the start failed before the ring was whole", "mend what is named above"),
    (False, True): (
        Verdict.NOT_PROVEN,
        "rings are connected with the first collective, and only INIT says so",
        "look again after the first request, with INIT among NCCL_DEBUG_SUBSYS",
    ),
    (False, False): (
        Verdict.NOT_PROVEN,
        "the start goes on, or the process died without a word: a graph without typeintra does that",
        "fabric-plan nccl check FILE",
    ),
}


def _absent(lines: Lines, devices: int | None) -> Iterator[LogFinding]:
    if not _matches(lines, r"\bNCCL (?:INFO|WARN|version)"):
        yield _finding(
            "nothing-logged",
            Verdict.NOT_PROVEN,
            "no line of NCCL's in this log",
            "NCCL says nothing unless it is asked",
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH",
            (),
        )
        return
    started = [number for number, _ in _matches(lines, r"Init START|Init COMPLETE")]
    if not _matches(lines, r"Connected all rings"):
        failed = bool(_matches(lines, r"NCCL WARN"))
        ended = failed or bool(_matches(lines, r"Init COMPLETE"))
        verdict, means, mend = _RINGLESS[failed, ended]
        yield _finding("rings-missing", verdict, "no ring was connected", means, mend, started)
    if _matches(lines, r"Using network IB\b") and not _matches(
        lines, r"ListenerRouting|Subnet-aware routing"
    ):
        yield _finding(
            "routing-not-logged",
            Verdict.NOT_PROVEN,
            "no routing record",
            "only NET logs which device a connection took: the plan of channels proves nothing",
            "add NET to NCCL_DEBUG_SUBSYS while validating",
            (),
        )


_DERIVED: tuple[Callable[[Lines, int | None], Iterator[LogFinding]], ...] = (
    _advertised,
    _overrides,
    _graphs,
    _far_channels,
    _absent,
)
