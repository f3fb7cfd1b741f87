"""What the engine repeats the templates of this layer for: a graph file for each communicator, an environment
for each consumer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fabric_plan.nccl.env import EnvLine, nccl_env, nccl_notes, rocenante_env
from fabric_plan.nccl.graph import GraphView, graph_view, kinds
from fabric_plan.planner.model import NodePlan, Plan


@dataclass(frozen=True, slots=True)
class EnvView:
    """One environment file: `name` is the file's stem, `notes` are comments at its head."""

    name: str
    title: str
    rank: int
    notes: tuple[str, ...]
    lines: tuple[EnvLine, ...]


def graph_views(plan: Plan, node: NodePlan) -> Iterator[GraphView]:
    """Yield every graph file of `node`."""
    for kind in kinds(plan, node):
        yield graph_view(plan, node, kind)


def env_views(plan: Plan, node: NodePlan) -> Iterator[EnvView]:
    """Yield every environment file of `node`; NCCL's only where a prefix tells the functions apart."""
    nccl = nccl_env(plan, node)
    if nccl:
        yield EnvView("nccl", "NCCL", node.rank, nccl_notes(plan), nccl)
    yield EnvView("rocenante", "RoCEnante", node.rank, (), rocenante_env(plan, node))
