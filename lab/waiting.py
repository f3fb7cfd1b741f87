"""Waiting with a deadline that says what it waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from lab.errors import LabError

T = TypeVar("T")


def wait_for(
    what: str,
    condition: Callable[[], T | None],
    *,
    seconds: float,
    every: float = 0.2,
    evidence: Callable[[], str] | None = None,
) -> T:
    """Poll `condition` until it is true and return what it gave; LabError after `seconds`, with `evidence`
    (a console's tail).
    """
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= end:
            tail = f"\n{evidence()}" if evidence else ""
            raise LabError(f"waited {seconds:.0f} s for {what} in vain{tail}")
        time.sleep(every)
