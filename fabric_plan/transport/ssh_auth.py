"""With which keys a connection may prove who the user is, in OpenSSH's order."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paramiko import Agent, PKey
from paramiko.auth_strategy import AuthFailure, AuthSource, AuthStrategy, InMemoryPrivateKey

DEFAULT_FILES = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")


class Keys(AuthStrategy):
    """The agent's keys, those that the configuration names first, then key files. Nothing asks the terminal:
    a key with a passphrase belongs into the agent.
    """

    def __init__(self, ssh_config: Any, fabric_config: Any, username: str) -> None:
        super().__init__(ssh_config=ssh_config)
        self._options = ssh_config
        self.username = username
        self.tried: list[str] = []

    def get_sources(self) -> Iterator[AuthSource]:
        """Yield the keys one by one; `tried` says in words what became of each."""
        named = self._options.get("identityfile")
        files = [Path(name).expanduser() for name in named or DEFAULT_FILES]
        only = self._options.get("identitiesonly", "no").lower() == "yes"
        agent = Agent()
        try:
            wanted = {blob for blob in map(_public, files) if blob}
            held = sorted(agent.get_keys(), key=lambda key: key.asbytes() not in wanted)
            for key in held:
                if key.asbytes() in wanted or not only:
                    self.tried.append(f"{key.comment or key.get_name()} from the agent")
                    yield InMemoryPrivateKey(self.username, key)
        finally:
            agent.close()
        done = {key.asbytes() for key in held}
        for file in files:
            if _public(file) not in done:
                yield from self._from_file(file, bool(named))

    def _from_file(self, file: Path, named: bool) -> Iterator[AuthSource]:
        try:
            key = PKey.from_path(file)
        except FileNotFoundError:
            if named:
                self.tried.append(f"{file} is not there")
        except Exception as error:  # the libraries underneath raise whatever they like for a bad file
            locked = "encrypt" in str(error) or "assword" in str(error)
            self.tried.append(f"{file} {'has a passphrase' if locked else 'cannot be read'}")
        else:
            self.tried.append(str(file))
            yield InMemoryPrivateKey(self.username, key)


def tried_keys(error: AuthFailure) -> list[str]:
    """Return in words what was tried before the server refused."""
    strategy = getattr(error.result, "strategy", None)
    return list(strategy.tried) if isinstance(strategy, Keys) else []


def _public(file: Path) -> bytes | None:
    """Return the public key that lies beside a key file, or None."""
    try:
        words = file.with_name(f"{file.name}.pub").read_text("utf-8", "replace").split()
        return b64decode(words[1]) if len(words) > 1 else None
    except (OSError, ValueError):
        return None
