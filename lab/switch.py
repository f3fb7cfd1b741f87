"""The lab's wiring in one process: patch cables between fabric ports, a switch for the management LAN.

Run as ``python -m lab.switch DIRECTORY``; ``DIRECTORY/wiring.json`` says {"cables": [[PORT, PORT], ...],
"lan": [PORT, ...]}. Every port is a listening unix socket ``DIRECTORY/PORT`` that one QEMU connects to
(frames with a length before them); ``DIRECTORY/switch.ready`` appears once all of them listen. SIGHUP: the
cables are read again, for plugs that somebody has moved. Frames for a
port that reads too slowly or is not connected are dropped, as on a wire.

LAN ports that begin with ``gw`` lead to the host's port forwarding (QEMU's user network). They get broadcasts
and what is addressed to them and no other traffic: QEMU's user network would answer that with a reset.
"""

from __future__ import annotations

import json
import selectors
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Any

READ = 1 << 18
MAX_FRAME = 1 << 16
MAX_BACKLOG = 1 << 24  # bytes that may wait for a port
GATEWAY = "gw"
READY = "switch.ready"
WIRING = "wiring.json"
LENGTH = struct.Struct(">I")


class Port:
    """One end of a wire: a listening socket, and the machine that is connected to it, if one is."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        path.unlink(missing_ok=True)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(1)
        self.machine: socket.socket | None = None
        self.incoming = bytearray()
        self.outgoing = bytearray()

    def accept(self) -> socket.socket:
        """Take a new machine; it replaces one that was there."""
        self.machine, _ = self.listener.accept()
        self.machine.setblocking(False)
        self.incoming.clear()
        self.outgoing.clear()
        return self.machine

    def read(self) -> list[bytes] | None:
        """Return the frames that have come in; None when the machine is gone."""
        assert self.machine is not None
        try:
            data = self.machine.recv(READ)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            return None
        self.incoming += data
        frames, start = [], 0
        while len(self.incoming) - start >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self.incoming, start)
            if size > MAX_FRAME:
                return None
            if len(self.incoming) - start - LENGTH.size < size:
                break
            begin = start + LENGTH.size
            frames.append(bytes(self.incoming[begin : begin + size]))
            start = begin + size
        del self.incoming[:start]
        return frames

    def send(self, frame: bytes) -> None:
        """Queue a frame for the machine, or drop it."""
        if self.machine is not None and len(self.outgoing) < MAX_BACKLOG:
            self.outgoing += LENGTH.pack(len(frame)) + frame

    def flush(self) -> bool:
        """Write what can be written; true while something waits."""
        if self.machine is not None and self.outgoing:
            try:
                sent = self.machine.send(self.outgoing)
            except BlockingIOError:
                sent = 0
            except OSError:
                sent = len(self.outgoing)  # reading will find out that it is gone
            del self.outgoing[:sent]
        return bool(self.outgoing)


class Switch:
    """All wires of a lab."""

    def __init__(self, directory: Path, cables: list[list[str]], lan: list[str]) -> None:
        names = [name for cable in cables for name in cable] + lan
        self._ports = {name: Port(directory / name) for name in names}
        self._far: dict[str, str] = {}
        self.plug(cables)
        self._lan = lan
        self._where: dict[bytes, str] = {}
        self._open = True
        self._selector = selectors.DefaultSelector()
        for port in self._ports.values():
            self._selector.register(port.listener, selectors.EVENT_READ, port)

    def plug(self, cables: list[list[str]]) -> None:
        """Let each cable join its two ports."""
        self._far = {a: b for cable in cables for a, b in (cable, cable[::-1])}

    def targets(self, source: str, frame: bytes) -> list[str]:
        """The ports that a frame from `source` goes to."""
        if source in self._far:
            return [self._far[source]]
        if len(frame) < 14:
            return []
        destination = frame[:6]
        self._where[frame[6:12]] = source
        multicast = bool(destination[0] & 1)
        known = None if multicast else self._where.get(destination)
        if known is not None:
            return [known] if known != source else []
        return [port for port in self._lan if port != source and (multicast or not port.startswith(GATEWAY))]

    def _watch(self, port: Port, waiting: bool) -> None:
        if port.machine is not None:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if waiting else 0)
            self._selector.modify(port.machine, events, port)

    def _disconnect(self, port: Port) -> None:
        if port.machine is not None:
            self._selector.unregister(port.machine)
            port.machine.close()
            port.machine = None

    def _serve(self, port: Port) -> None:
        frames = port.read()
        if frames is None:
            self._disconnect(port)
            return
        touched = set()
        for frame in frames:
            for name in self.targets(port.name, frame):
                self._ports[name].send(frame)
                touched.add(name)
        for name in touched:
            self._watch(self._ports[name], self._ports[name].flush())

    def connected(self) -> set[str]:
        """The ports that have a machine."""
        return {name for name, port in self._ports.items() if port.machine is not None}

    def close(self) -> None:
        """Let go of every socket; `serve` then returns."""
        self._open = False
        for port in self._ports.values():
            self._disconnect(port)
            port.listener.close()

    def serve(self) -> None:
        """Forward until `close`, or the end of the process."""
        while self._open:
            for key, events in self._selector.select(timeout=1):
                port: Port = key.data
                if key.fileobj is port.listener:
                    self._disconnect(port)
                    self._selector.register(port.accept(), selectors.EVENT_READ, port)
                elif port.machine is key.fileobj:
                    if events & selectors.EVENT_WRITE:
                        self._watch(port, port.flush())
                    if events & selectors.EVENT_READ:
                        self._serve(port)


def main(directory: Path) -> None:
    """Read the wiring and serve it."""

    def wiring() -> Any:
        return json.loads((directory / WIRING).read_text())

    switch = Switch(directory, wiring()["cables"], wiring()["lan"])
    signal.signal(signal.SIGHUP, lambda *_: switch.plug(wiring()["cables"]))
    (directory / READY).touch()
    switch.serve()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
