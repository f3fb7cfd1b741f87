"""Processes of the node program, forked from one that has it loaded: each is a process of its own, with its
own environment, and can be killed like any other, but costs no start of Python.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3]


class Process:
    """One run of the node program, the leader of a session of its own."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        first = b""
        while not first.endswith(b"\n"):
            first += channel.recv(1)
        self.pid = int(first)
        self._answer = b""
        self._ended = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with self._channel:
            while True:
                try:
                    part = self._channel.recv(65536)
                except OSError:
                    break
                if not part:
                    break
                self._answer += part
        self._ended.set()

    def poll(self) -> int | None:
        """Return None while it runs; then its status, -9 where it was killed."""
        return self._status() if self._ended.is_set() else None

    def wait(self, timeout: float) -> int:
        """Wait for its end. Raises `subprocess.TimeoutExpired`."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired("node program", timeout)
        return self._status()

    def _status(self) -> int:
        return int(self._answer.partition(b"\n")[0]) if b"\n" in self._answer else -signal.SIGKILL

    @property
    def stdout(self) -> str:
        """What it printed, once it has ended."""
        return self._answer.partition(b"\n")[2].decode()

    def kill(self, how: int = signal.SIGKILL) -> None:
        """Send a signal to it and to what it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, how)


class Outside(Process):
    """A command in a process of its own, with what a `Process` can; nobody reads what it prints."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            list(command),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Return None while it runs; then its status."""
        return self._process.poll()

    def wait(self, timeout: float) -> int:
        """Wait for its end. Raises `subprocess.TimeoutExpired`."""
        return self._process.wait(timeout)


class Spawner:
    """Starts runs of the node program; `folder` is for the tools that they find on PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "bin"
        self.folder.mkdir()
        self._address = str(folder / "z")
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.node.txn.processes", self._address],
            cwd=PROJECT,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
        )
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == b"ready\n"

    def start(self, words: Sequence[str], environment: Mapping[str, str], request: str = "") -> Process:
        """Start one run: the words behind the program's name, and its standard input."""
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        channel.connect(self._address)
        document = json.dumps([list(words), dict(environment), request]).encode()
        channel.sendall(len(document).to_bytes(4, "big") + document)
        return Process(channel)

    def close(self) -> None:
        """End the server; runs that live go on."""
        self._server.kill()
        self._server.wait()
        if self._server.stdout is not None:
            self._server.stdout.close()


def _child(channel: socket.socket) -> None:
    os.setsid()
    size = int.from_bytes(channel.recv(4, socket.MSG_WAITALL), "big")
    words, environment, request = json.loads(channel.recv(size, socket.MSG_WAITALL))
    channel.sendall(f"{os.getpid()}\n".encode())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(environment)
    # Standard input and output of a run are files that nobody else has.
    with os.fdopen(os.memfd_create("in"), "w+b") as given, os.fdopen(os.memfd_create("out"), "w+b") as made:
        given.write(request.encode())
        given.flush()
        os.lseek(given.fileno(), 0, os.SEEK_SET)
        os.dup2(given.fileno(), 0)
        os.dup2(made.fileno(), 1)
        from fabric_plan.node.__main__ import main

        status = main(words)
        sys.stdout.flush()
        os.lseek(made.fileno(), 0, os.SEEK_SET)
        channel.sendall(f"{status}\n".encode() + made.read())


def serve(address: str) -> None:
    """Fork one process for every connection."""
    import fabric_plan.node.__main__
    import fabric_plan.node.transaction.verbs  # noqa: F401 - what every run needs is loaded once

    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(address)
    server.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    os.dup2(2, 1)
    while True:
        channel, _ = server.accept()
        if os.fork() == 0:
            server.close()
            try:
                _child(channel)
            finally:
                os._exit(0)
        channel.close()


if __name__ == "__main__":
    serve(sys.argv[1])
