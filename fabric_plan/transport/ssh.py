"""Nodes over SSH. What makes a connection is imported when the first one is made, and not before."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from fabric_plan.transport.base import Connection, Limits, Target
from fabric_plan.transport.exchange import Rights
from fabric_plan.transport.ssh_config import read_config


@dataclass(slots=True)
class Ssh:
    """The transport over SSH. `config_file` stands for the user's and the system's configuration, as with
    ``ssh -F``.
    """

    config_file: str | None = None
    rights: Rights = field(default_factory=Rights)
    limits: Limits = field(default_factory=Limits)
    _config: str | None = field(default=None, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def connect(self, target: Target) -> Connection:
        """Log in to a node; its host key must be known. Raises `TransportError`."""
        from fabric_plan.transport.ssh_session import open_session

        with self._lock:
            if self._config is None:
                self._config = read_config(self.config_file)
        return open_session(target, self._config, self.rights, self.limits)
