"""All checks of a fabric in one go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fabric_plan.checks.fabric import cable_checks, library_checks
from fabric_plan.checks.model import Check, Layer, Verdict, Verification
from fabric_plan.checks.network import network_checks
from fabric_plan.checks.node import conflict_checks, file_checks, unit_checks
from fabric_plan.checks.offload import offload_checks
from fabric_plan.checks.roots import find_roots
from fabric_plan.checks.scene import Scene, View
from fabric_plan.checks.texts import TEXTS

_LAYERS = {layer: place for place, layer in enumerate(Layer)}


def verify(scene: Scene, *, since_boot: bool = False, more: Iterable[Check] = ()) -> Verification:
    """Return every check of a scene, `more` (a probe's) among them, and the findings by their roots."""
    checks = [*_checks(scene, since_boot=since_boot), *more]
    nodes = {node: place for place, node in enumerate(scene.desired)}
    checks.sort(key=lambda c: (nodes.get(c.node, len(nodes)), _LAYERS[c.layer]))
    return Verification(tuple(checks), find_roots(checks))


def _checks(scene: Scene, *, since_boot: bool) -> Iterator[Check]:
    views = {node: View(scene, node) for node in scene.desired if node in scene.facts}
    for node in scene.desired:
        view = views.get(node)
        if view is None:
            yield _facts(node, Verdict.NOT_PROVEN, scene.failed.get(node, "no facts of this node"))
            continue
        yield _facts(node, Verdict.PASS, f"taken in {view.facts.took_ms} ms")
        yield from network_checks(view)
        yield from cable_checks(view)
        yield from offload_checks(view)
        yield from unit_checks(view, since_boot=since_boot)
        yield from file_checks(view)
        yield from conflict_checks(view)
    yield from library_checks(scene, views)


def _facts(node: str, verdict: Verdict, read: str) -> Check:
    text = TEXTS["facts"]
    return Check("facts", text.layer, node, None, "", verdict, read, "the node answers", text.mend)
