"""Ansible and pyinfra, doing what they can of an apply: the same files on the same servers, and the same
units asked for. They live in an environment of their own below build/, never in that of this project.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.apply.chain import PROJECT, Chain

REQUIREMENTS = Path(__file__).with_name("peers.txt")
PLACE = PROJECT / "build/bench-peers"
UNITS = ("fabric-plan-hairpin.service", "fabric-plan-forward.service", "fabric-plan-mesh.service")


class MissingError(Exception):
    """A peer cannot be had here; the message says why."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A tool to compare with: `run` does its whole work once and returns what it printed; `unchanged` stands
    in that when nothing had to be changed.
    """

    name: str
    run: Callable[[], str]
    unchanged: str


def said_by(command: list[str], where: Path | None = None, **more: str) -> str:
    """Run a command that has to succeed and return what it printed. Raises `MissingError`."""
    done = subprocess.run(
        command,
        cwd=where,
        env={**os.environ, **more},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        last = "\n".join(done.stdout.splitlines()[-12:])
        raise MissingError(f"{' '.join(command[:4])} ended with {done.returncode}:\n{last}")
    return done.stdout


def install() -> Path:
    """Return the folder of the peers' programs, installed by pip where they are not yet. Raises
    `MissingError`.
    """
    stamp = PLACE / "installed.txt"
    wanted = f"{sys.version}\n{REQUIREMENTS.read_text()}"
    if not stamp.exists() or stamp.read_text() != wanted:
        said_by([sys.executable, "-m", "venv", "--clear", str(PLACE)])
        pip = [str(PLACE / "bin/python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        said_by([*pip, "-r", str(REQUIREMENTS)])
        stamp.write_text(wanted)
    return PLACE / "bin"


def ansible(chain: Chain, programs: Path, trees: Path, work: Path) -> Peer:
    """Return Ansible with what speeds it up: pipelining, kept connections, no facts, all nodes at once."""
    cluster = chain.cluster
    work.mkdir()
    hosts = [
        f"{node.name} ansible_host=127.0.0.1 ansible_port={node.port} target={work / node.name} "
        f"machine={chain.machines[node.name].address}"
        for node in cluster.nodes
    ]
    lines = ["[all]", *hosts, "[all:vars]", f"ansible_ssh_common_args=-F {cluster.config}"]
    lines.append(f"ansible_python_interpreter={sys.executable}")
    (work / "hosts.ini").write_text("\n".join(lines) + "\n")
    (work / "ansible.cfg").write_text("[defaults]\nforks=4\n[ssh_connection]\npipelining=True\n")
    (work / "play.yaml").write_text(
        "- hosts: all\n  gather_facts: false\n  tasks:\n"
        f"    - copy: {{src: '{trees}/{{{{ inventory_hostname }}}}/', dest: '{{{{ target }}}}/', "
        "mode: preserve}\n"
        "    - shell: systemctl is-active --quiet {{ item }} || systemctl start {{ item }}\n"
        f"      changed_when: false\n      loop: {list(UNITS)}\n"
        "      environment: {STANDIN_SOCKET: '{{ machine }}'}\n"
    )
    command = [str(programs / "ansible-playbook"), "-i", "hosts.ini", "play.yaml"]
    more = {"HOME": str(chain.home), "ANSIBLE_CONFIG": str(work / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    return Peer("ansible-core", lambda: said_by(command, work, **more), "changed=0")


def pyinfra(chain: Chain, programs: Path, trees: Path, work: Path, paths: Mapping[str, list[str]]) -> Peer:
    """Return pyinfra, which puts file by file and connects to all nodes at once."""
    work.mkdir()
    data = [
        (
            node.name,
            {
                "ssh_hostname": "127.0.0.1",
                "ssh_port": node.port,
                "ssh_key": str(chain.cluster.key),
                "ssh_known_hosts_file": str(chain.cluster.known_hosts),
                "target": str(work / node.name),
                "machine": chain.machines[node.name].address,
                "paths": paths[node.name],
            },
        )
        for node in chain.cluster.nodes
    ]
    (work / "nodes.py").write_text(f"nodes = {data!r}\n")
    (work / "deploy.py").write_text(
        "import os\nfrom pyinfra import host\nfrom pyinfra.operations import files\n"
        "from pyinfra.facts.server import Command\n"
        "for path in host.data.paths:\n"
        f"    source = {str(trees)!r} + '/' + host.name + path\n"
        "    mode = oct(os.stat(source).st_mode & 0o777)[2:]\n"
        "    files.put(src=source, dest=host.data.target + path, mode=mode)\n"
        "systemctl = 'STANDIN_SOCKET=' + host.data.machine + ' systemctl '\n"
        f"for unit in {UNITS!r}:\n"
        "    ask, start = systemctl + 'is-active --quiet ' + unit, systemctl + 'start ' + unit\n"
        "    host.get_fact(Command, ask + ' || ' + start)\n"
    )
    command = [str(programs / "pyinfra"), "-y", "nodes.py", "deploy.py"]
    return Peer("pyinfra", lambda: said_by(command, work, HOME=str(chain.home)), "No changes")
