"""Look again and again, and say what changed, until stopped."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fabric_plan.checks.drift import Event, Look, drift
from fabric_plan.checks.metrics import prometheus
from fabric_plan.checks.run import verify
from fabric_plan.checks.scene import Scene
from fabric_plan.compare.desired import Desired
from fabric_plan.errors import FabricPlanError
from fabric_plan.node.document import Library
from fabric_plan.planner.model import Plan
from fabric_plan.verify.nodes import Nodes

SCHEMA = "fabric-plan/watch/v1"


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return True


@dataclass(slots=True)
class Watch:
    """A watch over `nodes`, once in `period_s` seconds. `tell` hears of each look and what changed;
    `textfile` is replaced whole at each. `wait` says whether to go on; tests replace it.
    """

    plan: Plan
    desired: Mapping[str, Desired]
    nodes: Nodes
    period_s: float
    tell: Callable[[Look, tuple[Event, ...], float], None]
    textfile: Path | None = None
    wait: Callable[[float], bool] = _sleep
    clock: Callable[[], float] = time.time

    def run(self) -> None:
        """Look until `wait` says that it is enough, or an interrupt comes."""
        before: Look | None = None
        libraries: dict[str, Mapping[str, Library]] = {}
        while True:
            began = self.clock()
            facts, failed = self.nodes.collect(known=libraries)
            for name, found in facts.items():
                libraries.setdefault(name, found.libraries)
                facts[name] = replace(found, libraries=libraries[name])
            scene = Scene.of(self.plan, self.desired, facts, failed)
            now = Look(scene, verify(scene))
            self.tell(now, tuple(drift(before, now)), began)
            if self.textfile is not None:
                replace_text(self.textfile, prometheus(now, began))
            before = now
            if not self.wait(max(0.0, self.period_s - (self.clock() - began))):
                return


def replace_text(path: Path, text: str) -> None:
    """Put `text` at `path`, whole or not at all, readable for all. Raises `FabricPlanError`."""
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise FabricPlanError(f"cannot write: {error.strerror}", where=str(path)) from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise FabricPlanError(f"cannot write: {error.strerror}", where=str(path)) from None
