"""A fabric of which everything is as planned: scenes to break."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from fabric_plan.checks.fabric import planned_names
from fabric_plan.checks.scene import Scene
from fabric_plan.node.document import Facts, Library
from fabric_plan.node.records import Neighbour
from fabric_plan.planner.model import Plan
from tests.facts_builder import desired, live, read

LIBRARY = "/usr/lib/libnccl.so.2"

Mutate = Callable[[Facts], Facts]


def sound(plan: Plan) -> Scene:
    """Return the scene of a plan on which all has come about: neighbours known, one library everywhere."""
    want = desired(plan)
    first = Scene.of(plan, want, {})
    facts = {}
    for i, (name, state) in enumerate(want.items()):
        known = tuple(
            Neighbour(function.address.partition("/")[0], netdev, function.mac, ("STALE",))
            for (node, netdev), peers in first.peers.items()
            if node == name
            for peer in peers
            if (function := first.function(peer)) and function.address
        )
        library = Library("ab" * 32, 1, "2.30.7", marks=planned_names(state))
        facts[name] = replace(
            live(state, mgmt=f"192.168.1.{11 + i}"), neighbours=read(known), libraries={LIBRARY: library}
        )
    return replace(first, facts=facts)


def broken(scene: Scene, changes: Mapping[str, Mutate]) -> Scene:
    """Return a scene with some nodes' facts changed."""
    return replace(
        scene,
        facts={name: changes[name](f) if name in changes else f for name, f in scene.facts.items()},
    )
