"""One rank of a test: bare NCCL and the CUDA driver through ctypes, nothing else, so that no framework sets a
variable.

``python rank.py LIBNCCL RANK RANKS``. Prints one JSON line a step and exits 0 when every result was right.
NCCL_COMM_ID is the rendezvous. Results are exact: small whole numbers in float32, different on every rank
and in every place.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from array import array
from typing import Any, NoReturn

FLOAT32, SUM = 7, 0
PEER_DEADLINE = 40.0
COUNTS = (256, 1 << 20)


def say(step: str, **more: Any) -> None:
    print(json.dumps({"step": step, **more}), flush=True)


def stop(step: str, error: str) -> NoReturn:
    say(step, error=error)
    sys.stdout.flush()
    # NCCL's threads may be in the middle of something: leave without its destructors.
    ctypes.CDLL(None)._exit(3)
    raise SystemExit(3)


class Cuda:
    """The few driver calls that are needed."""

    def __init__(self) -> None:
        self.lib = ctypes.CDLL("libcuda.so.1")
        self("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self("cuDeviceGet", ctypes.byref(device), 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self("cuCtxSetCurrent", context)
        self.stream = ctypes.c_void_p()
        self("cuStreamCreate", ctypes.byref(self.stream), 1)

    def __call__(self, name: str, *arguments: Any) -> None:
        result = getattr(self.lib, name)(*arguments)
        if result:
            stop(name, f"CUDA error {result}")

    def buffer(self, values: array[float]) -> ctypes.c_void_p:
        size, pointer = len(values) * values.itemsize, ctypes.c_void_p()
        self("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        self("cuMemcpyHtoD_v2", pointer, ctypes.c_char_p(values.tobytes()), ctypes.c_size_t(size))
        return pointer

    def read(self, pointer: ctypes.c_void_p, count: int) -> array[float]:
        raw = ctypes.create_string_buffer(count * 4)
        self("cuMemcpyDtoH_v2", raw, pointer, ctypes.c_size_t(count * 4))
        values = array("f")
        values.frombytes(raw.raw)
        return values


class Nccl:
    """A communicator of `ranks` ranks."""

    def __init__(self, path: str, cuda: Cuda, rank: int, ranks: int) -> None:
        self.lib, self.cuda = ctypes.CDLL(path), cuda
        self.lib.ncclGetErrorString.restype = ctypes.c_char_p
        version = ctypes.c_int()
        self.call("version", self.lib.ncclGetVersion(ctypes.byref(version)))
        say("version", value=f"{version.value // 10000}.{version.value // 100 % 100}.{version.value % 100}")

        class UniqueId(ctypes.Structure):
            _fields_ = [("internal", ctypes.c_byte * 128)]

        unique, self.comm = UniqueId(), ctypes.c_void_p()
        self.call("id", self.lib.ncclGetUniqueId(ctypes.byref(unique)))
        self.lib.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int]
        self.call("init", self.lib.ncclCommInitRank(ctypes.byref(self.comm), ranks, unique, rank))
        say("init")

    def call(self, step: str, result: int) -> None:
        if result:
            stop(step, self.lib.ncclGetErrorString(result).decode())

    def run(self, step: str, result: int) -> None:
        """Wait for what was just enqueued: to its end, to an error, or to the deadline."""
        self.call(step, result)
        end = time.monotonic() + PEER_DEADLINE
        state = ctypes.c_int()
        while self.cuda.lib.cuStreamQuery(self.cuda.stream):
            self.call(step, self.lib.ncclCommGetAsyncError(self.comm, ctypes.byref(state)))
            if state.value not in (0, 7):
                stop(step, self.lib.ncclGetErrorString(state).decode())
            if time.monotonic() > end:
                stop(step, "the operation did not end")
            time.sleep(0.002)

    def all_reduce(self, rank: int, ranks: int, count: int) -> None:
        mine = array("f", ((i % 1000) * (rank + 1) for i in range(count)))
        source, target = self.cuda.buffer(mine), self.cuda.buffer(array("f", [-1.0]) * count)
        size = ctypes.c_size_t(count)
        step = f"all_reduce {count}"
        self.run(
            step, self.lib.ncclAllReduce(source, target, size, FLOAT32, SUM, self.comm, self.cuda.stream)
        )
        factor = ranks * (ranks + 1) // 2
        if self.cuda.read(target, count) != array("f", ((i % 1000) * factor for i in range(count))):
            stop(step, "wrong sum")
        say(step)

    def all_gather(self, rank: int, ranks: int, count: int) -> None:
        mine = array("f", ((i + 7 * rank) % 4093 for i in range(count)))
        source, target = self.cuda.buffer(mine), self.cuda.buffer(array("f", [-1.0]) * (count * ranks))
        step = f"all_gather {count}"
        result = self.lib.ncclAllGather(
            source, target, ctypes.c_size_t(count), FLOAT32, self.comm, self.cuda.stream
        )
        self.run(step, result)
        want = array("f", ((i + 7 * r) % 4093 for r in range(ranks) for i in range(count)))
        if self.cuda.read(target, count * ranks) != want:
            stop(step, "wrong blocks")
        say(step)


def main() -> None:
    path, rank, ranks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    cuda = Cuda()
    nccl = Nccl(path, cuda, rank, ranks)
    for count in COUNTS:
        nccl.all_reduce(rank, ranks, count)
        nccl.all_gather(rank, ranks, count)
    say("done")
    sys.stdout.flush()
    ctypes.CDLL(None)._exit(0)


if __name__ == "__main__":
    main()
