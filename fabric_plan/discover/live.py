"""Ask the nodes: their facts, and, where that is wanted, who hears whom over the cables."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fabric_plan.discover.evidence import Login
from fabric_plan.errors import FabricPlanError, NodeError
from fabric_plan.facts.load import facts_of
from fabric_plan.findings import Notice
from fabric_plan.inventory.schema import FULL_HOST_NAME, HOST_NAME
from fabric_plan.node.document import Facts
from fabric_plan.node.records import LldpNeighbour
from fabric_plan.transport.base import Connection, Target, Transport, each

COLLECT_LIMIT_S = 60.0
PROBE_S = 5.0
PROBE_LIMIT_S = PROBE_S + 25.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A node as the command line names it: ``[NAME=][USER@]HOST[:PORT]``."""

    name: str | None
    host: str
    user: str | None = None
    port: int | None = None

    @classmethod
    def parse(cls, word: str) -> Asked:
        """Read one argument. Raises `FabricPlanError` where it is none."""
        name, has_name, rest = word.rpartition("=")
        user, _, place = rest.rpartition("@")
        host, colon, port = place.partition(":")
        named = not has_name or HOST_NAME.fullmatch(name)
        if not named or not FULL_HOST_NAME.fullmatch(host) or (colon and not port.isdigit()):
            raise FabricPlanError(
                f"`{word}` is not a node",
                hint="write [NAME=][USER@]HOST[:PORT], for example spark1 or spark1=nvidia@192.168.1.11",
                id="not-a-node",
            )
        return cls(name or None, host, user or None, int(port) if colon else None)

    @property
    def target(self) -> Target:
        """Where the transport connects to."""
        return Target(self.name or self.host, self.host, self.user, self.port)


@dataclass(frozen=True, slots=True)
class Told:
    """What a node told: its name, how it was reached, its facts."""

    name: str
    login: Login
    facts: Facts


def ask(
    transport: Transport, nodes: Sequence[Asked], progress: Callable[[str], None]
) -> tuple[tuple[Told, ...], dict[str, Connection]]:
    """Collect the facts of `nodes` side by side; return them in that order, and the connections by node name.

    Raises the first node's error, naming the other nodes that failed too.
    """
    progress(f"asking {', '.join(node.host for node in nodes)}")

    def one(node: Asked) -> tuple[Told, Connection]:
        connection = transport.connect(node.target)
        facts = facts_of(connection.call("collect", {}, limit_s=COLLECT_LIMIT_S), node=node.target.name)
        login = Login(node.host, facts.ssh.dev if facts.ssh else None, node.user, node.port)
        return Told(_name(node, facts), login, facts), connection

    results = each({f"{i}": node for i, node in enumerate(nodes)}, one)
    errors = [result for result in results.values() if isinstance(result, FabricPlanError)]
    if errors:
        first = errors[0]
        also = [error.where for error in errors[1:] if error.where]
        if also:
            first.message = f"{first.message} (also: {', '.join(also)})"
        raise first
    told = [result for result in results.values() if not isinstance(result, FabricPlanError)]
    names = [one.name for one, _ in told]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise FabricPlanError(
            f"two of the nodes are called {', '.join(twice)}",
            hint="name them yourself: NAME=HOST",
            id="duplicate-node",
        )
    return tuple(one for one, _ in told), {one.name: connection for one, connection in told}


def _name(node: Asked, facts: Facts) -> str:
    """Return the name to give a node: what the user said, else the host name that it gives itself."""
    label = (facts.host.hostname or "").split(".")[0]
    return node.name or (label if HOST_NAME.fullmatch(label) else node.host.split(".")[0])


@dataclass(frozen=True, slots=True)
class Probed:
    """Whom a node heard, and what it did not probe."""

    heard: tuple[LldpNeighbour, ...] = ()
    notices: tuple[Notice, ...] = ()


def probe(
    connections: Mapping[str, Connection],
    functions: Mapping[str, Sequence[str]],
    progress: Callable[[str], None],
) -> dict[str, Probed]:
    """Let every node send a few LLDP frames on its `functions` and listen there; return the answers by node.

    Only frames of this run count. Raises `NodeError` where a node refuses, `TransportError` where one is
    lost.
    """
    progress(f"probing the cables for {PROBE_S:.0f} s: LLDP frames on the fabric functions alone")
    token = secrets.token_hex(8)

    def one(name: str) -> Probed:
        request = {"system": name, "token": token, "interfaces": list(functions[name]), "seconds": PROBE_S}
        reply = connections[name].call("probe-cables", request, limit_s=PROBE_LIMIT_S)
        heard, skipped = reply.get("heard"), reply.get("skipped")
        if not isinstance(heard, list) or not isinstance(skipped, dict):
            raise NodeError("the probe's answer makes no sense", where=name, hint=_SAME_VERSION)
        return Probed(
            heard=tuple(_neighbour(name, entry) for entry in heard),
            notices=tuple(
                Notice("not-probed", f"{name} {dev} was not probed: it {reason}")
                for dev, reason in sorted(skipped.items())
            ),
        )

    results = each({name: name for name in connections if functions.get(name)}, one)
    probed: dict[str, Probed] = {}
    for name, result in results.items():
        if isinstance(result, FabricPlanError):
            raise result
        probed[name] = result
    return probed


_SAME_VERSION = "the node program is of another version"


def _neighbour(node: str, entry: object) -> LldpNeighbour:
    if not isinstance(entry, dict) or not all(
        isinstance(entry.get(key), str) for key in ("dev", "system", "port")
    ):
        raise NodeError("the probe's answer makes no sense", where=node, hint=_SAME_VERSION)
    return LldpNeighbour(
        dev=entry["dev"],
        chassis_name=entry["system"],
        chassis_id=None,
        port_id=entry["port"],
        port_id_type="ifname",
        port_description=None,
    )
