"""Ask the nodes: their facts, and, where that is wanted, who hears whom over the cables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fabric_plan.discover.evidence import Login
from fabric_plan.errors import FabricPlanError
from fabric_plan.facts.load import facts_of
from fabric_plan.findings import Notice
from fabric_plan.inventory.schema import FULL_HOST_NAME, HOST_NAME
from fabric_plan.node.document import Facts
from fabric_plan.node.records import LldpNeighbour
from fabric_plan.transport.base import Connection, Target, Transport, each
from fabric_plan.transport.hearing import HEAR_S, hear

COLLECT_LIMIT_S = 60.0


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

    Raises `NodeError` where a node refuses, `TransportError` where one is lost.
    """
    progress(f"probing the cables for {HEAR_S:.0f} s: LLDP frames on the fabric functions alone")

    def call(name: str, verb: str, request: Mapping[str, Any], limit_s: float) -> Mapping[str, Any]:
        return connections[name].call(verb, request, limit_s=limit_s)

    probed: dict[str, Probed] = {}
    wanted = {name: functions.get(name, ()) for name in connections}
    for name, found in hear(call, wanted).items():
        if isinstance(found, FabricPlanError):
            raise found
        probed[name] = Probed(
            found.heard,
            tuple(
                Notice("not-probed", f"{name} {dev} was not probed: it {reason}")
                for dev, reason in sorted(found.skipped.items())
            ),
        )
    return probed
