"""Work beside the main line, in a process of its own: what computes, while this process waits for nodes."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable
from typing import NoReturn, TypeVar

T = TypeVar("T")


def beside(work: Callable[[], T]) -> Callable[[], T]:
    """Begin `work` in a copy of this process; the returned function waits for it, once, and returns what it
    returned. `work` is pure, and its result can be pickled.

    Where the copy cannot say a result, `work` is done here, and raises here what it has to raise. So it is
    where this process has threads: its copy may inherit a lock that nobody opens any more.
    """
    if threading.active_count() > 1:
        return work
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(source)
        _answer(work, sink)
    os.close(sink)

    def wait() -> T:
        with open(source, "rb") as stream:  # noqa: PTH123 - a descriptor
            answer = stream.read()
        _, status = os.waitpid(child, 0)
        if status != 0:
            return work()
        result: T = pickle.loads(answer)  # noqa: S301 - our own process wrote it
        return result

    return wait


def _answer(work: Callable[[], object], sink: int) -> NoReturn:
    """Do the work, write its result, and end without anything that the original does at its end."""
    status = 1
    try:
        answer = pickle.dumps(work(), pickle.HIGHEST_PROTOCOL)
        with open(sink, "wb") as stream:
            stream.write(answer)
        status = 0
    finally:
        os._exit(status)
