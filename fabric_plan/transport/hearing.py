"""Let nodes hear each other over their cables: a few LLDP frames of our own, on given functions alone."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fabric_plan.errors import FabricPlanError, NodeError
from fabric_plan.node.lldp import MAX_SECONDS
from fabric_plan.node.records import LldpNeighbour
from fabric_plan.transport.base import each

HEAR_S = 5.0
ANSWER_S = 25.0
_SAME_VERSION = "the node program is of another version"

# Calls a verb of the node program: the node's name, the verb, its request, the limit in seconds.
Call = Callable[[str, str, Mapping[str, Any], float], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Hearing:
    """Whom a node heard, and why nothing was sent on a device, by its name."""

    heard: tuple[LldpNeighbour, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)


def hear(
    call: Call, functions: Mapping[str, Sequence[str]], patience: float = 1.0
) -> dict[str, Hearing | FabricPlanError]:
    """Let every node send on its `functions` and listen there; return by node what it heard or its error.

    Only frames of this run count. `patience` is how much longer than usual the slowest node may take: all
    have to send while the others listen.
    """
    seconds = min(MAX_SECONDS, HEAR_S * patience)
    token = secrets.token_hex(8)

    def one(name: str) -> Hearing:
        request = {"system": name, "token": token, "interfaces": list(functions[name]), "seconds": seconds}
        reply = call(name, "probe-cables", request, seconds + ANSWER_S * patience)
        heard, skipped = reply.get("heard"), reply.get("skipped")
        if not isinstance(heard, list) or not isinstance(skipped, dict):
            raise _senseless(name)
        return Hearing(tuple(_neighbour(name, entry) for entry in heard), skipped)

    return each({name: name for name in functions if functions[name]}, one)


def _neighbour(node: str, entry: object) -> LldpNeighbour:
    if not isinstance(entry, dict) or not all(
        isinstance(entry.get(key), str) for key in ("dev", "system", "port")
    ):
        raise _senseless(node)
    return LldpNeighbour(
        dev=entry["dev"],
        chassis_name=entry["system"],
        chassis_id=None,
        port_id=entry["port"],
        port_id_type="ifname",
        port_description=None,
    )


def _senseless(node: str) -> NodeError:
    return NodeError("the probe's answer makes no sense", where=node, hint=_SAME_VERSION)
