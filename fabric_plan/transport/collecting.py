"""What a node is asked for its facts, and how long this kind of host may take to answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fabric_plan.transport.base import Target

LIMIT_S = 20.0

# What the node program allows one tool and the whole, where nothing else is said.
TOOL_LIMIT_S = 2.0
ALL_LIMIT_S = 4.5


def question(
    target: Target, interfaces: Iterable[str], **more: Iterable[str]
) -> tuple[dict[str, Any], float]:
    """Return the request for ``collect`` and its limit in seconds; without `interfaces` it is about every
    RDMA device. `more` are further lists that the node program knows.
    """
    named = {"interfaces": list(interfaces), **{key: list(values) for key, values in more.items()}}
    request: dict[str, Any] = {key: values for key, values in named.items() if values}
    if target.patience > 1:
        request |= {
            "tool_limit_s": TOOL_LIMIT_S * target.patience,
            "all_limit_s": ALL_LIMIT_S * target.patience,
        }
    return request, LIMIT_S * target.patience
