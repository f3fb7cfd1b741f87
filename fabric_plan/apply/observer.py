"""What an apply tells while it runs: an observer for the terminal, a silent one for pipes and tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Observer:
    """`stage` begins a part of the apply, `progress` is one word of one node. Threads call both."""

    stage: Callable[[str], None] = lambda text: None
    progress: Callable[[str, str], None] = lambda node, word: None


SILENT = Observer()
