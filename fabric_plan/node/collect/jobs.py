"""Questions in parallel under one deadline: one that has not answered by then is not waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")


class Job(Generic[T]):
    """A question in its own thread: a daemon, so that one stuck in the kernel does not hold up the end."""

    def __init__(self, work: Callable[[], T], failed: Callable[[str], T], deadline: float) -> None:
        self._failed = failed
        self._deadline = deadline
        self._answer: list[T] = []
        self._fault = ""
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], T]) -> None:
        try:
            self._answer.append(work())
        except Exception as error:
            # A fault in one question must not take the others along; it stands in the document instead.
            self._fault = f"internal fault: {type(error).__name__}: {error}"

    def result(self) -> T:
        """Return the answer, or what the job's `failed` makes of the reason for its absence."""
        self._thread.join(max(0.0, self._deadline - time.monotonic()))
        if self._answer:
            return self._answer[0]
        return self._failed(self._fault or "no answer within the time for all facts")


class Jobs:
    """Starts jobs that share a deadline, in seconds from now."""

    def __init__(self, limit_s: float) -> None:
        self.deadline = time.monotonic() + limit_s

    def start(self, work: Callable[[], T], failed: Callable[[str], T]) -> Job[T]:
        """Start a question; `failed` makes an answer of the reason why there is none."""
        return Job(work, failed, self.deadline)

    def start_each(
        self, keys: Iterable[str], work: Callable[[str], T], failed: Callable[[str], T]
    ) -> dict[str, Job[T]]:
        """Start the same question about each key."""
        return {key: self.start(partial(work, key), failed) for key in keys}


def results(jobs: Mapping[str, Job[T]]) -> dict[str, T]:
    """Return the answers by key."""
    return {key: job.result() for key, job in jobs.items()}
