"""Compare what a node has to look like with what it does look like.

Both sides are cleaned first, so that order, case and the many ways of writing a host route never count. What
could not be read is a change that says so, never a silent match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fabric_plan.compare.desired import Desired
from fabric_plan.compare.files import file_changes
from fabric_plan.compare.model import Change, Diff, Resource
from fabric_plan.compare.network import network_changes
from fabric_plan.compare.offload import offload_changes
from fabric_plan.node.document import Facts

_ORDER = {resource: place for place, resource in enumerate(Resource)}

_PARTS: tuple[Callable[[Desired, Facts], Iterator[Change]], ...] = (
    file_changes,
    network_changes,
    offload_changes,
)


def diff(desired: Desired, facts: Facts) -> Diff:
    """Return every difference of one node, in a stable order."""
    changes = {change for part in _PARTS for change in part(desired, facts)}
    return Diff(
        desired.node,
        tuple(sorted(changes, key=lambda c: (_ORDER[c.resource], c.name, c.have or "", c.want or ""))),
    )


# What a trial cannot have brought about yet: it changes what lives, and only the commit writes to /etc.
_COMMITTED = (Resource.FILE, Resource.UNIT, Resource.NETWORKMANAGER)


def live_changes(found: Diff) -> tuple[Change, ...]:
    """Return the differences that the steps of a trial must have mended."""
    return tuple(change for change in found.changes if change.counts and change.resource not in _COMMITTED)
