"""Bounded traffic on our own functions: pings to the far end of a cable, and perftest's server and client.

Three verbs, each of which ends by itself: ``probe-ping``, ``probe-serve`` (waits for one client and ends with
it, or at its limit) and ``probe-run``. A request names devices and addresses; those that are not on an RDMA
function of this node are refused, and so is a control connection over the fabric.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from ipaddress import AddressValueError, IPv4Address, IPv4Interface
from typing import Any

from .collect import network, rdma
from .parsers import perftest
from .reading import excerpt
from .records import Gid, Interfaces
from .tools import Tools
from .transaction import fields
from .transaction.refusal import RefusalError
from .tree import Tree

SCHEMA = "fabric-plan/reply/v1"
TESTS = ("ib_write_bw", "ib_write_lat")
PORTS = (18515, 18999)
MAX_SIZE = 8 << 20
MAX_ITERATIONS = 1_000_000
MAX_SECONDS = 20
MAX_LIMIT_S = 600
MAX_PINGS = 64
MAX_FLOW_LABEL = (1 << 20) - 1

# A client may be there before its server; perftest itself tries once.
WAIT_S = 15.0
RETRY_S = 0.2
_NOT_YET = re.compile(r"Couldn't connect|Unable to (?:open|init)|Connection refused|Failed to exchange", re.I)
_SUMMARY = re.compile(r"(\d+) packets transmitted, (\d+) (?:packets )?received")

Reply = dict[str, Any]


class _Probe:
    """What this node's functions are, read once a verb."""

    def __init__(self, tree: Tree, tools: Tools) -> None:
        self.tree, self.tools = tree, tools
        found = network.interfaces(tools).value
        if found is None:
            raise RefusalError("not-readable", "the addresses of this node cannot be read")
        self.interfaces: Interfaces = found
        self.functions = set(rdma.function_netdevs(tree))

    def nets(self) -> dict[IPv4Address, IPv4Interface]:
        """Return the addresses on our functions with their networks."""
        return {
            IPv4Address(a.address): IPv4Interface(f"{a.address}/{a.prefix}")
            for a in self.interfaces.addresses
            if a.family == "inet" and a.dev in self.functions
        }

    def own(self, request: Mapping[str, Any], key: str) -> IPv4Interface:
        """Return an address of ours that the request names."""
        address = _address(request, key)
        found = self.nets().get(address)
        if found is None:
            raise RefusalError("not-ours", f"{address} is on no RDMA function of this node")
        return found

    def gid(self, device: str, address: IPv4Address) -> Gid:
        """Return the RoCE v2 GID of an address on a device; the index drifts, so the address decides."""
        for gid in rdma.gids(self.tree).value or ():
            if gid.device == device and gid.address == str(address) and gid.type == "v2":
                return gid
        raise RefusalError("no-gid", f"{device} has no RoCE v2 GID of {address}")


def ping(probe: _Probe, request: Mapping[str, Any]) -> Reply:
    """Ping the far ends of cables with frames that may not be fragmented."""
    wanted = request.get("pings")
    count = fields.number(request, "count", 1, 10)
    size = fields.number(request, "size", 0, 65507)
    if not isinstance(wanted, list) or not 0 < len(wanted) <= MAX_PINGS:
        raise fields.bad("pings", wanted)
    pairs = []
    for pair in wanted:
        if not isinstance(pair, dict) or pair.keys() != {"source", "to"}:
            raise fields.bad("pings", pair)
        source, to = probe.own(pair, "source"), _address(pair, "to")
        if to not in source.network or to == source.ip:
            raise RefusalError("not-ours", f"{to} is not at the far end of {source}")
        pairs.append((source.ip, to))
    if probe.tools.find("ping") is None:
        raise RefusalError("no-ping", "ping is not installed", "install iputils-ping")
    return {"results": [_ping(probe.tools, source, to, count, size) for source, to in pairs]}


def _ping(tools: Tools, source: IPv4Address, to: IPv4Address, count: int, size: int) -> Reply:
    words = ["-n", "-q", "-M", "do", "-s", str(size), "-c", str(count), "-i", "0.2", "-W", "2"]
    output = tools.run(["ping", *words, "-I", str(source), str(to)])
    match = _SUMMARY.search(output.stdout)
    received = int(match[2]) if match else 0
    said = output.reason or output.stderr.strip() or output.stdout.strip()
    return {
        "source": str(source),
        "to": str(to),
        "sent": count,
        "received": received,
        "words": "" if received == count else excerpt(said),
    }


def serve(probe: _Probe, request: Mapping[str, Any]) -> Reply:
    """Be perftest's server for one client."""
    argv, _ = _perftest(probe, request)
    output = probe.tools.run(argv)
    if output.status != 0:
        raise RefusalError("perftest", _last(output.reason, output.stdout, output.stderr))
    return {}


def run(probe: _Probe, request: Mapping[str, Any]) -> Reply:
    """Be perftest's client and return what it measured; waits a little for a server that is not there yet."""
    argv, nets = _perftest(probe, request)
    peer = _address(request, "peer")
    if any(peer in net.network for net in nets.values()):
        raise RefusalError("control-on-fabric", f"the control connection to {peer} would cross the fabric")
    began = time.monotonic()
    while True:
        output = probe.tools.run([*argv, str(peer)])
        words = f"{output.stdout}\n{output.stderr}"
        waited = time.monotonic() - began
        if output.status == 0 or waited > WAIT_S or not _NOT_YET.search(words):
            break
        time.sleep(RETRY_S)
    if output.status != 0:
        said = _last(output.reason, output.stdout, output.stderr)
        raise RefusalError("no-control" if _NOT_YET.search(words) else "perftest", said)
    read = perftest.results(output.stdout)
    if read.value is None or not read.value.rows:
        raise RefusalError("perftest", f"no result in what perftest printed: {excerpt(output.stdout[-200:])}")
    return {"values": dict(read.value.rows[-1].values), "settings": dict(read.value.settings)}


def _perftest(
    probe: _Probe, request: Mapping[str, Any]
) -> tuple[list[str], dict[IPv4Address, IPv4Interface]]:
    """Return the command that both sides share, checked, and our networks."""
    test = request.get("test")
    if test not in TESTS:
        raise fields.bad("test", test)
    device = request.get("device")
    if not isinstance(device, str) or not fields.RDMA.match(device):
        raise fields.bad("device", device)
    gid = probe.gid(device, probe.own(request, "address").ip)
    argv = [str(test), "-d", device, "-x", str(gid.index), "-F"]
    argv += ["-p", str(fields.number(request, "port", *PORTS))]
    argv += ["-s", str(fields.number(request, "size", 1, MAX_SIZE))]
    if test == "ib_write_bw":
        argv.append("--report_gbits")
    if request.get("seconds") is not None:
        argv += ["-D", str(fields.number(request, "seconds", 1, MAX_SECONDS))]
    else:
        argv += ["-n", str(fields.number(request, "iterations", 5, MAX_ITERATIONS))]
    if request.get("flow_label") is not None:
        argv.append(f"--flow_label={fields.number(request, 'flow_label', 0, MAX_FLOW_LABEL)}")
    if probe.tools.find(str(test)) is None:
        raise RefusalError("no-perftest", f"{test} is not installed", "install perftest")
    return argv, probe.nets()


def _address(request: Mapping[str, Any], key: str) -> IPv4Address:
    value = request.get(key)
    try:
        if isinstance(value, str):
            return IPv4Address(value)
    except AddressValueError:
        pass
    raise fields.bad(key, value)


def _last(reason: str | None, *texts: str) -> str:
    lines = [line.strip() for text in texts for line in text.splitlines() if line.strip(" -*\t")]
    return excerpt("; ".join([*([reason] if reason else []), *lines[-3:]])) or "perftest said nothing"


_COMMON = ("test", "device", "address", "port", "size", "iterations", "seconds", "flow_label", "limit_s")
KEYS: Mapping[str, tuple[Callable[[_Probe, Mapping[str, Any]], Reply], tuple[str, ...]]] = {
    "probe-ping": (ping, ("pings", "count", "size", "limit_s")),
    "probe-serve": (serve, _COMMON),
    "probe-run": (run, (*_COMMON, "peer")),
}


def answer(verb: str, request: str, tree: Tree, tools: Tools) -> str:
    """Carry a verb out and return its reply as JSON; a refusal is a reply too."""
    act, known = KEYS[verb]
    try:
        document = fields.load(request, known)
        limit_s = float(fields.number(document, "limit_s", 1, MAX_LIMIT_S))
        body: Reply = {"ok": True, **act(_Probe(tree, Tools(limit_s, tools.own_path)), document)}
    except RefusalError as refusal:
        body = {"ok": False, "error": refusal.document()}
    return json.dumps({"schema": SCHEMA, **body}, sort_keys=True)
