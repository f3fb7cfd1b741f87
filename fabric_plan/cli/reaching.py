"""What every verb that talks to nodes shares: the options that say how, and facts saved by an earlier run."""

from __future__ import annotations

import argparse
import getpass
import socket
import sys
from collections.abc import Iterable
from pathlib import Path

from fabric_plan.errors import FabricPlanError, UsageError
from fabric_plan.facts.saved import read_collection
from fabric_plan.node.document import Facts
from fabric_plan.transport.base import Transport
from fabric_plan.transport.exchange import Rights, Sudo
from fabric_plan.transport.local import Local
from fabric_plan.transport.ssh import Ssh


def add_reaching(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how nodes are reached."""
    parser.add_argument("--local", action="store_true", help="this machine is the node: no connection")
    parser.add_argument(
        "--ssh-config", metavar="FILE", help="instead of ~/.ssh/config and the system's, as `ssh -F`"
    )
    parser.add_argument(
        "--ask-sudo-password",
        action="store_true",
        help="ask once for the password of sudo on the nodes (one line of stdin where that is no terminal)",
    )


def transport_of(options: argparse.Namespace) -> Transport:
    """Return the transport that the options mean; asks for sudo's password where they say so."""
    rights = Rights(Sudo.PASSWORD, _password(options)) if options.ask_sudo_password else Rights()
    return Local(rights) if options.local else Ssh(options.ssh_config, rights)


def _password(options: argparse.Namespace) -> str:
    if sys.stdin.isatty():
        return getpass.getpass("password for sudo on the nodes: ")
    if options.inventory == "-":
        raise UsageError("the inventory and sudo's password cannot both come from stdin")
    return sys.stdin.readline().rstrip("\n")


def this_node(known: Iterable[str], chosen: list[str]) -> str:
    """Return the name of the node that ``--local`` means: the one that ``--node`` names, else the one that is
    called like this machine. Raises `UsageError` where that is none.
    """
    names = list(known)
    if len(chosen) == 1 and chosen[0] in names:
        return chosen[0]
    here = socket.gethostname().partition(".")[0]
    if not chosen and here in names:
        return here
    raise UsageError(
        f"which node is this machine, called {here}?", hint=f"say --node with one of {', '.join(names)}"
    )


def saved_facts(name: str) -> dict[str, Facts]:
    """Return the facts by node that ``collect -o`` wrote to the file or folder `name`."""
    path = Path(name)
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise FabricPlanError("holds no facts", where=name, hint="`fabric-plan collect -o` writes them")
    facts: dict[str, Facts] = {}
    for file in files:
        try:
            content = file.read_bytes()
        except OSError as error:
            raise FabricPlanError(
                f"cannot be read: {error.strerror}",
                where=str(file),
                hint="`fabric-plan collect -o` writes facts",
            ) from None
        facts.update(read_collection(content, where=str(file), alone=file.stem))
    return facts
