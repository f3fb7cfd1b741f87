"""What of the planned mesh stands: an undo owes a node what it had before the trial and no more than that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..collect import network
from ..collect.jobs import Jobs
from ..collect.offload import start_tc
from . import store
from .node import Node

PLAN = "/etc/fabric-plan/node.json"
READ_LIMIT_S = 15.0

# What makes a live rule the planned one, by the names that both of them have for it.
RULE = ("dev", "cookie", "protocol", "src_mac", "dst_mac", "set_type", "set_dst_mac", "redirect")
ROUTE = ("to", "via", "dev")


def standing(node: Node) -> dict[str, list[str]] | None:
    """Return in words the rules and routes that the generation in place plans and that are live ("planned"),
    and the other rules with a cookie on its functions ("others"). None where that cannot be read.
    """
    plan = store.read_json(node.place(PLAN))
    try:
        return None if plan is None else _standing(node, plan)
    except (KeyError, TypeError, AttributeError):
        return None


def kept(before: dict[str, list[str]] | None, now: dict[str, list[str]] | None) -> bool:
    """Tell whether all that stood before stands now, and no rule beside the plan that did not."""
    if before is None or now is None:
        return False
    return set(before["planned"]) <= set(now["planned"]) and set(now["others"]) <= set(before["others"])


def _standing(node: Node, plan: dict[str, Any]) -> dict[str, list[str]] | None:
    devices = [function["netdev"] for function in plan["functions"]]
    live = start_tc(Jobs(READ_LIMIT_S * node.tools.patience), node.tools, devices)()
    routes = network.routes(node.tools)
    if not routes.complete or not all(live[dev].rules.complete for dev in devices):
        return None
    rules = [rule for dev in devices for rule in live[dev].rules.value or () if rule.cookie]
    stand = {_words(vars(rule), RULE) for rule in rules if rule.skip_sw and rule.in_hw}
    stand |= {_words(vars(route), ROUTE) for route in routes.value or () if route.table == "main"}
    planned = {_words(rule, RULE) for rule in plan["rules"]}
    planned |= {_words(route, ROUTE) for route in (*plan["kernel_routes"], *plan["relay_routes"])}
    known = {_words(rule, RULE[:2]) for rule in plan["rules"]}
    return {
        "planned": sorted(stand & planned),
        "others": sorted({_words(vars(rule), RULE[:2]) for rule in rules} - known),
    }


def _words(facts: Mapping[str, Any], names: Sequence[str]) -> str:
    return " ".join(str(facts[name]) for name in names)
