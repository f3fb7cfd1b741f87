"""One call of the node program over any pair of streams: what is sent, what is waited for, what went wrong.

The node's shell starts Python (through sudo where the user is not root), Python executes the loader, the
loader runs the program. Loader and request go out at once, so a node that has the program answers after one
round trip; one that has not asks for it. Everything meant for us begins with a mark drawn for this call: what
a login script prints before it is passed over.
"""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NoReturn, Protocol, cast

from fabric_plan.errors import NodeError, TransportError
from fabric_plan.facts.load import MAX_DOCUMENT_BYTES
from fabric_plan.transport.program import loader, program

OLDEST_PYTHON = (3, 9)
MAX_NOISE_BYTES = 1 << 20
MAX_REQUEST_BYTES = 8 << 20
_EXCERPT = 200

# No single quote, newline or exclamation mark in these two: the login shell may be any, csh and fish too.
_START = (
    'import sys;print(sys.argv[1],"go","%d.%d"%sys.version_info[:2],flush=True);'
    "exec(sys.stdin.buffer.read(int(sys.argv[2])))"
)
_SHELL = (
    'c=$1 h=$2 m=$3; shift 2; LC_ALL=C; export LC_ALL; p="python3 -I -S -X utf8 -c"; '
    'command -v python3 >/dev/null 2>&1 || { echo "$m no-python"; exit 1; }; '
    'if [ "$h" = never ] || [ "$(id -u)" = 0 ]; then exec $p "$c" "$@"; fi; '
    'command -v sudo >/dev/null 2>&1 || { echo "$m no-sudo"; exit 1; }; '
    'echo "$m sudo"; '
    'if [ "$h" = password ]; then exec sudo -S -p "$m password" -- $p "$c" "$@"; fi; '
    'exec sudo -n -- $p "$c" "$@"'
)


class Sudo(StrEnum):
    """How the program becomes root where the user is not: ``sudo -n``, sudo with a password, or not at
    all.
    """

    SILENT = "silent"
    PASSWORD = "password"  # noqa: S105 - the name of a way, not a password
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Rights:
    """How the program becomes root; the password goes to sudo's standard input and nowhere else."""

    sudo: Sudo = Sudo.SILENT
    password: str = field(default="", repr=False)


class Pipe(Protocol):
    """The streams of a command that was started on a node. Every wait is bounded, and ends in a
    `TransportError` of its own.
    """

    def send(self, data: bytes) -> None:
        """Write to standard input; a reader that went away is no error, since its last words follow."""

    def receive(self) -> tuple[bytes, bytes]:
        """Wait for more of standard output and standard error; both empty when the command has ended."""


class Exchange:
    """One call, to be run over a pipe on which `command` was started."""

    def __init__(self, node: str, verb: str, request: Mapping[str, Any], rights: Rights) -> None:
        self.node = node
        self._rights = rights
        self._request = json.dumps(request, separators=(",", ":")).encode()
        if len(self._request) > MAX_REQUEST_BYTES:
            raise TransportError(
                f"a request of {len(self._request)} bytes, {MAX_REQUEST_BYTES} at most", where=node
            )
        self._mark = f"fp{secrets.token_hex(8)}"
        sizes = [str(len(program().content)), str(len(self._request))]
        self.words = [
            *("/bin/sh", "-c", _SHELL, "sh", _START, str(rights.sudo)),
            *(self._mark, str(len(loader())), verb, program().digest, *sizes),
        ]
        self._out = bytearray()
        self._err = bytearray()
        self._through_sudo = False
        self._going = False

    @property
    def command(self) -> str:
        """The command line for a login shell."""
        return f"exec {shlex.join(self.words)}"

    def run(self, pipe: Pipe) -> dict[str, Any]:
        """Return the JSON object that the verb answered. Raises `TransportError` or `NodeError`."""
        waits_for_prompt = self._rights.sudo is Sudo.PASSWORD
        if not waits_for_prompt:
            self._send_request(pipe)
        while True:
            word, rest = self._next(pipe)
            if word == "go":
                self._going = True
                self._check_python(rest)
                if waits_for_prompt:
                    self._send_request(pipe)
            elif word == "sudo":
                self._through_sudo = True
                if waits_for_prompt:
                    self._give_password(pipe)
            elif word == "need":
                pipe.send(program().content)
            elif word == "done":
                return self._answer(pipe, rest)
            elif word in _REFUSALS:
                message, hint = _REFUSALS[word]
                raise TransportError(message.format(rest), where=self.node, hint=hint)

    def _send_request(self, pipe: Pipe) -> None:
        pipe.send(loader() + self._request)

    def _give_password(self, pipe: Pipe) -> None:
        """Answer sudo's prompt; where sudo asks for nothing, the program's first word comes instead."""
        prompt = f"{self._mark} password".encode()
        while prompt not in self._err:
            if self._mark.encode() in self._out:
                return
            self._more(pipe)
        pipe.send(self._rights.password.encode() + b"\n")
        while self._mark.encode() not in self._out:
            if self._err.count(prompt) > 1:
                raise TransportError(
                    "sudo did not take the password",
                    where=self.node,
                    hint="it is the password of the user on the node",
                )
            self._more(pipe)

    def _more(self, pipe: Pipe) -> None:
        """Wait for more of either stream. Raises when there will be none, or far too much."""
        out, err = pipe.receive()
        self._out += out
        self._err += err
        del self._err[:-MAX_NOISE_BYTES]
        if not out and not err:
            self._explain_end()

    def _next(self, pipe: Pipe) -> tuple[str, str]:
        """Return the next word for us, and what follows on its line."""
        mark = f"{self._mark} ".encode()
        while True:
            at = self._out.find(mark)
            end = self._out.find(b"\n", at) if at >= 0 else -1
            if end >= 0:
                line = self._out[at + len(mark) : end].decode("utf-8", "replace")
                del self._out[: end + 1]
                word, _, rest = line.partition(" ")
                return word, rest
            if len(self._out) > MAX_NOISE_BYTES:
                raise TransportError(
                    f"more than {MAX_NOISE_BYTES} bytes came, and none of them from the node program: "
                    f"{_excerpt(self._out)}",
                    where=self.node,
                    hint="does a login script print without end?",
                )
            self._more(pipe)

    def _check_python(self, version: str) -> None:
        major, _, minor = version.partition(".")
        if major.isdigit() and minor.isdigit() and (int(major), int(minor)) >= OLDEST_PYTHON:
            return
        raise TransportError(
            f"python3 is {version[:20]}, and 3.9 is the oldest that will do",
            where=self.node,
            hint="install a newer Python 3 on the node",
        )

    def _answer(self, pipe: Pipe, sizes: str) -> dict[str, Any]:
        status, out_size, err_size = _three_numbers(sizes)
        if status < 0 or out_size > MAX_DOCUMENT_BYTES or err_size > MAX_DOCUMENT_BYTES:
            raise TransportError(
                f"an answer that is too large or makes no sense ({_excerpt(sizes.encode())})", where=self.node
            )
        while len(self._out) < out_size + err_size:
            self._more(pipe)
        out = bytes(self._out[:out_size])
        err = bytes(self._out[out_size : out_size + err_size])
        if status != 0:
            last = err.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise NodeError(
                f"the node program failed: {last[:_EXCERPT] or f'status {status}'}", where=self.node
            )
        try:
            document = json.loads(out, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise TransportError(f"the answer is no JSON: {error}", where=self.node) from None
        if not isinstance(document, dict):
            raise TransportError("the answer is no JSON object", where=self.node)
        return cast("dict[str, Any]", document)

    def _explain_end(self) -> NoReturn:
        """Raise what the last words of a command that ended too early mean."""
        said = _excerpt(self._err.rstrip().rpartition(b"\n")[2])
        if self._going:
            raise TransportError(
                f"the node program was cut off: {said or 'without a word'}",
                where=self.node,
                hint="was it killed there, or is the node short of memory?",
            )
        if self._through_sudo:
            raise TransportError(
                f"sudo was refused: {said or 'without a word'}",
                where=self.node,
                hint="does this user have the right to sudo there?"
                if self._rights.sudo is Sudo.PASSWORD
                else "let the user sudo without a password, or add --ask-sudo-password",
            )
        noise = _excerpt(self._out) or said
        raise TransportError(
            f"the node program was not started: {noise or 'nothing was said'}",
            where=self.node,
            hint="does the account have a shell, and does its login script run through?",
        )


# What a node may say instead of running the program, and what that means.
_REFUSALS = {
    "no-python": ("there is no python3", "install python3 on the node; it needs nothing else"),
    "no-sudo": ("the user is not root, and there is no sudo", "log in as root, or install sudo"),
    "cache": ("{}", "make room there, or put the rights of that folder right"),
}


def _excerpt(data: bytes | bytearray) -> str:
    """Return the last characters of what came, on one line."""
    words = bytes(data[-4 * _EXCERPT :]).decode("utf-8", "replace").split()
    return " ".join(words)[-_EXCERPT:]


def _three_numbers(words: str) -> tuple[int, int, int]:
    """Return three sizes; -1 for each where they are not that."""
    numbers = words.split()
    if len(numbers) != 3 or not all(word.isascii() and word.isdigit() and len(word) < 12 for word in numbers):
        return -1, -1, -1
    first, second, third = map(int, numbers)
    return first, second, third


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")
