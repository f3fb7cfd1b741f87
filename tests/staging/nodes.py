"""The nodes of an inventory through testinfra's ssh backend: reached, asked for facts, and judged.

Nothing but loopback is reached unless pytest-socket's ``--allow-hosts`` names it: ssh is a program of its
own, on which pytest-socket has no hold, so the suite asks ``ssh -G`` where a name leads and keeps to the same
list itself.
"""

from __future__ import annotations

import base64
import io
import json
import subprocess
import zipfile
from dataclasses import dataclass

import testinfra
from testinfra.host import Host

from fabric_plan.checks.fabric import marks_for
from fabric_plan.checks.model import Verification
from fabric_plan.checks.run import verify
from fabric_plan.checks.scene import Scene
from fabric_plan.cli.common import read_plan
from fabric_plan.cli.deploying import desired_states
from fabric_plan.compare.desired import Desired
from fabric_plan.errors import FabricPlanError
from fabric_plan.facts.load import load_facts
from fabric_plan.node.document import Facts
from fabric_plan.planner.model import Plan
from fabric_plan.topology.fabric import Node
from fabric_plan.transport.base import Target, each
from fabric_plan.transport.collecting import question
from fabric_plan.transport.program import program
from fabric_plan.verify.nodes import USUAL_LIBRARIES

PIECE = 48 << 10
SSH_LIMIT_S = 10


class UnreachedError(Exception):
    """A node is not to be reached from here, or cannot be."""


@dataclass(frozen=True)
class Staging:
    """Everything that is known after the nodes were asked; `failed` says why a node was not."""

    plan: Plan
    desired: dict[str, Desired]
    hosts: dict[str, Host]
    failed: dict[str, str]
    verification: Verification


def ask(inventory: str, hosts_config: str | None, allowed: list[str]) -> Staging:
    """Ask every node of `inventory` once, in parallel, and hold the answers against its plan."""
    plan = read_plan(inventory)
    desired = desired_states(plan)
    hosts: dict[str, Host] = {}

    def one(node: Node) -> Facts:
        hosts[node.name] = host = reach(node, hosts_config, allowed)
        return facts(host, node, desired[node.name], plan.pinned_files)

    answers = each({node.name: node for node in plan.fabric.nodes}, lambda node: _said(one, node))
    found = {name: answer for name, answer in answers.items() if isinstance(answer, Facts)}
    failed = {name: str(answer) for name, answer in answers.items() if not isinstance(answer, Facts)}
    scene = Scene.of(plan, desired, found, failed)
    return Staging(plan, desired, hosts, failed, verify(scene, since_boot=True))


def _said(work: object, node: Node) -> Facts | str:
    assert callable(work)
    try:
        answer = work(node)
    except (UnreachedError, FabricPlanError) as error:
        return str(error)
    assert isinstance(answer, Facts)
    return answer


def reach(node: Node, hosts_config: str | None, allowed: list[str]) -> Host:
    """Return the testinfra host of a node, as root. Raises `UnreachedError`."""
    leads = _leads_to(node, hosts_config)
    if leads not in allowed:
        raise UnreachedError(f"{node.name} is at {leads}: `--allow-hosts={leads}` permits to reach it")
    user = f"{node.ssh_user}@" if node.ssh_user else ""
    port = f":{node.ssh_port}" if node.ssh_port else ""
    spec = f"ssh://{user}{node.mgmt}{port}"
    timeout = int(SSH_LIMIT_S * node.hardware.patience)
    options = {"ssh_config": hosts_config, "ssh_extra_args": "-o BatchMode=yes", "timeout": timeout}
    host = testinfra.get_host(spec, **options)
    whoami = host.run("id -u")
    if whoami.rc != 0:
        raise UnreachedError(f"{node.name}: {whoami.stderr.strip()[-200:] or 'ssh failed'}")
    return host if whoami.stdout.strip() == "0" else testinfra.get_host(spec, sudo=True, **options)


def _leads_to(node: Node, hosts_config: str | None) -> str:
    """Return the host name that ssh would connect to; it connects nowhere to tell."""
    words = ["ssh", "-G", *(["-F", hosts_config] if hosts_config else []), "--", node.mgmt]
    said = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    return next((line.split()[1] for line in said.splitlines() if line.startswith("hostname ")), node.mgmt)


def facts(host: Host, node: Node, want: Desired, pinned: tuple[str, ...]) -> Facts:
    """Run the node program through ``host.run`` and return its facts, about `pinned` files too. Raises
    `UnreachedError`.
    """
    folder = _run(host, "mktemp -d").strip()
    try:
        text = base64.b64encode(_deflated(program().content)).decode()
        for start in range(0, len(text), PIECE):
            _run(host, f"printf %s '{text[start : start + PIECE]}' >> {folder}/text")
        request, _ = question(
            Target.of(node),
            (function.netdev for function in node.functions),
            paths=pinned,
            libraries=USUAL_LIBRARIES,
            marks=marks_for(want),
        )
        words = f"base64 -d {folder}/text > {folder}/program.pyz && printf %s '{json.dumps(request)}'"
        answer = _run(host, f"{words} | python3 {folder}/program.pyz collect")
    finally:
        host.run(f"rm -rf {folder}")
    return load_facts(answer.encode(), node=node.name)


def _run(host: Host, command: str) -> str:
    result = host.run(command)
    if result.rc != 0:
        raise UnreachedError(f"{command[:60]!r} ended with {result.rc}: {result.stderr.strip()[-200:]}")
    return str(result.stdout)


def _deflated(archive: bytes) -> bytes:
    """Return the same archive, compressed: it travels as text in a command line."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            new.writestr(entry.filename, old.read(entry))
    return out.getvalue()
