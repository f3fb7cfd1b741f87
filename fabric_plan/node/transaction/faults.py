"""Named points where tests cut this program or fill the disk: a closed table, and inert on a real node.

`FABRIC_PLAN_CRASH_AT=NAME` kills the process at that point, `FABRIC_PLAN_ENOSPC_AT=NAME` lets it find no
room there; ``NAME:3`` means the third time it comes by. Both are looked at only below ``--root``.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping

# In the order in which an apply passes them.
POINTS = (
    "begin.lease",
    "stage.trial",
    "stage.generation",
    "stage.state",
    "run.armed",
    "run.state",
    "run.started",
    "execute.began",
    "execute.step-noted",
    "place.file",
    "execute.step-done",
    "execute.ended",
    "confirm.decided",
    "commit.after",
    "commit.recover",
    "commit.file",
    "commit.list",
    "commit.point",
    "commit.pointed",
    "commit.replayed",
    "finish.taken-away",
    "finish.told",
    "finish.recover-removed",
    "finish.pruned",
    "finish.disarmed",
    "undo.decided",
    "undo.stopped",
    "undo.units-stopped",
    "undo.taken-away",
    "undo.told",
    "undo.sysctl",
    "undo.interfaces",
    "undo.mesh",
    "undo.recover",
    "undo.result",
    "undo.ended",
    "release.forgotten",
)


class Faults:
    """The armed points, and how often each was passed."""

    def __init__(self) -> None:
        self._crash = ""
        self._full = ""
        self._passed: dict[str, int] = {}

    def arm(self, environment: Mapping[str, str]) -> None:
        """Take the points from the environment; called only below ``--root``."""
        self._crash = environment.get("FABRIC_PLAN_CRASH_AT", "")
        self._full = environment.get("FABRIC_PLAN_ENOSPC_AT", "")

    def point(self, name: str) -> None:
        """Pass a point. Raises OSError where it is armed to find no room."""
        if not self._crash and not self._full:
            return
        if name not in POINTS:
            raise AssertionError(f"{name} is in no table of points")
        self._passed[name] = self._passed.get(name, 0) + 1
        here = {f"{name}:{self._passed[name]}"} | ({name} if self._passed[name] == 1 else set())
        if self._crash in here:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._full in here:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


FAULTS = Faults()
point = FAULTS.point
