"""Render a plan: every artefact of every layer, for every node, as bytes with a path and a mode.

Pure: templates come in as text. The same plan gives the same bytes everywhere, since nothing here knows a
clock, a host or a user.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, TemplateError

from fabric_plan.errors import RoleError
from fabric_plan.nccl.env import rocenante_fixed
from fabric_plan.nccl.lint import refuse_wrong
from fabric_plan.nccl.views import env_views, graph_views
from fabric_plan.planner.model import NodePlan, Plan
from fabric_plan.planner.sysctl import sysctls
from fabric_plan.render.document import digest, dump, node_document, plan_core
from fabric_plan.render.script_views import (
    OursView,
    forward_view,
    hairpin_view,
    managed_functions,
    marker_unit_view,
    marker_views,
    mesh_view,
)
from fabric_plan.render.templates import Templates
from fabric_plan.render.views import NETPLAN_NUMBER, netplan_view
from fabric_plan.roles import Artefact, Layer


@dataclass(frozen=True, slots=True)
class RenderedFile:
    """One file of one node: an absolute path, a mode in octal text, its content, and the role data it came
    from.
    """

    path: str
    mode: str
    content: str
    layer: str
    artefact: Artefact

    @property
    def sha256(self) -> str:
        """The digest of the bytes on disk."""
        return hashlib.sha256(self.content.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered plan: its digest and the files by node name, nodes in rank order, files by path."""

    digest: str
    files: Mapping[str, tuple[RenderedFile, ...]]


def _yaml_scalar(value: object) -> str:
    """Write a string so that every YAML version reads it as that string: JSON's quoting is valid YAML."""
    return json.dumps(str(value), ensure_ascii=True)


def _environment(templates: Templates) -> Environment:
    env = templates.environment(autoescape=False)
    env.filters["sh"] = lambda value: shlex.quote(str(value))
    env.filters["yaml"] = _yaml_scalar
    return env


Item = dict[str, Any]


def _planes(plan: Plan, node: NodePlan) -> Iterable[Item]:
    for plane in plan.fabric.managed:
        view = netplan_view(plan, node, plane)
        if view.interfaces:
            yield {"plane": plane, "number": NETPLAN_NUMBER + plane, "netplan": view}


def _markers(plan: Plan, node: NodePlan) -> Iterable[Item]:
    for view in marker_views(plan, node):
        yield {"rdma": view.rdma, "marker": view}


def _once(plan: Plan, node: NodePlan) -> Iterable[Item]:
    yield {}


def _graphs(plan: Plan, node: NodePlan) -> Iterable[Item]:
    return ({"graph": view} for view in graph_views(plan, node))


def _envs(plan: Plan, node: NodePlan) -> Iterable[Item]:
    return ({"env": view} for view in env_views(plan, node))


# What an artefact is repeated for: the names that its path and its template may use in each round.
REPEATS: dict[str, Callable[[Plan, NodePlan], Iterable[Item]]] = {
    "node": _once,
    "plane": _planes,
    "marker": _markers,
    "graph": _graphs,
    "env": _envs,
}


def _check_graph(plan: Plan, node: NodePlan, item: Item, content: str) -> None:
    refuse_wrong(content, plan, node, item["graph"].kind)


# What is read again once it is rendered, because its reader would not complain.
CHECKS: dict[str, Callable[[Plan, NodePlan, Item, str], None]] = {"graph": _check_graph}

# What has to be in the plan for an artefact to be there at all.
CONDITIONS: dict[str, Callable[[Plan, NodePlan], bool]] = {
    "always": lambda plan, node: True,
    "mesh": lambda plan, node: plan.mesh,
    "transit": lambda plan, node: bool(forward_view(plan, node).pairs),
    "managed": lambda plan, node: bool(plan.fabric.managed),
    "nccl": lambda plan, node: plan.nccl_prefix is not None,
}


def _node_views(plan: Plan, node: NodePlan) -> Item:
    return {
        "sysctls": sysctls(plan, node),
        "ours": OursView(),
        "carrier": [function for function in managed_functions(node) if function.address],
        "hairpin": hairpin_view(plan, node),
        "forward": forward_view(plan, node),
        "mesh": mesh_view(plan, node, rocenante_fixed(plan, node)),
        "marker_unit": marker_unit_view(plan),
    }


def render(plan: Plan, layers: Iterable[Layer], templates: Templates) -> Rendered:
    """Render every file of every node. Raises `RoleError` where a template asks for something that no view
    offers.
    """
    env = _environment(templates)
    core = plan_core(plan)
    plan_digest = digest(core)
    ordered = tuple(layers)
    files: dict[str, tuple[RenderedFile, ...]] = {}
    for node in plan.nodes:
        views = {
            "fabric": plan.fabric.name,
            "node": node.name,
            "node_json": dump(node_document(core, plan_digest, node.name)).rstrip("\n"),
            **_node_views(plan, node),
        }
        rendered = [
            _checked(env, plan, node, layer, artefact, views, item)
            for layer in ordered
            for artefact in layer.artefacts
            if CONDITIONS[artefact.when](plan, node)
            for item in REPEATS[artefact.each](plan, node)
        ]
        files[node.name] = tuple(sorted(rendered, key=lambda file: file.path))
    return Rendered(plan_digest, files)


def _checked(
    env: Environment, plan: Plan, node: NodePlan, layer: Layer, artefact: Artefact, views: Item, item: Item
) -> RenderedFile:
    file = _file(env, layer, artefact, {**views, **item})
    check = CHECKS.get(artefact.each)
    if check:
        check(plan, node, item, file.content)
    return file


def _file(env: Environment, layer: Layer, artefact: Artefact, context: Item) -> RenderedFile:
    try:
        content = env.get_template(artefact.template).render(context)
    except TemplateError as error:
        raise RoleError(f"template {artefact.template}: {error}", where=f"layer {layer.layer}") from None
    return RenderedFile(artefact.path.format_map(context), artefact.mode, content, layer.layer, artefact)
