"""Review pages of plans, for the tests."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from fabric_plan.planner.model import Plan
from fabric_plan.report.review import Against, review
from fabric_plan.resources import layers, templates
from fabric_plan.simulate.prove import prove
from tests.facts_builder import rendered
from tests.golden_trees import ROOT
from tests.planner.test_ring4 import planned


@cache
def example(name: str) -> Plan:
    """Return the plan of a file in inventories/."""
    return planned((ROOT / "inventories" / f"{name}.yaml").read_text())


@cache
def page_of(name: str) -> str:
    """Return the page of a file in inventories/."""
    return page(example(name))


def page(plan: Plan, against: Against | None = None) -> str:
    return review(plan, rendered(plan), prove(plan), layers(), templates(), against=against)


def ring(count: int) -> Plan:
    """Return a ring of `count` nodes without a mesh."""
    nodes = "\n".join(f"  - {{name: n{i}}}" for i in range(count))
    cables = "\n".join(f"  - ends: [n{i}.f0, n{(i + 1) % count}.f1]" for i in range(count))
    return planned(f"nodes:\n{nodes}\ncables:\n{cables}\n")


HOSTILE = "</script><img src=x onerror=alert(1)>'\"&{{7*7}}"


def hostile() -> Plan:
    """Return a plan whose fabric has a name that no inventory would be allowed."""
    plan = example("ring4")
    notice = replace(plan.notices[0], text=HOSTILE, where=HOSTILE, hint=HOSTILE)
    return replace(plan, fabric=replace(plan.fabric, name=HOSTILE), notices=(notice,))
