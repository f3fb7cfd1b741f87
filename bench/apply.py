"""Apply against its peers: OpenSSH alone, Ansible and pyinfra, on the same four loopback servers in one run.

The nodes are stand-ins with a state (`tests.apply.machine`), so no figure says how long a card takes; what is
compared is what each tool needs to find that nothing differs, over real SSH.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.apply.chain import Chain, four_machines
from tests.scripts.support import plan_of, rendered

ROUNDS = 5
PEERS = ("ansible-core", "pyinfra")
UNITS = ("fabric-plan-hairpin.service", "fabric-plan-forward.service", "fabric-plan-mesh.service")
ALLOWED_OF_SSH = 1.5
ALLOWED_MORE_S = 1.0
ALLOWED_S = 2.0
TARGET_RATIO = 5.0


def seconds(work: Callable[[], object]) -> float:
    """Return how long `work` took."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def median(work: Callable[[], object]) -> float:
    """Return the median of some rounds, after one that warms caches."""
    work()
    return statistics.median(seconds(work) for _ in range(ROUNDS))


def must(command: list[str], where: Path | None = None, **more: str) -> None:
    """Run a command that has to succeed; what it says is shown where it does not."""
    done = subprocess.run(
        command,
        cwd=where,
        env={**os.environ, **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command[:4])} ended with {done.returncode}\n{done.stdout}{done.stderr}")


def slowest_ssh(chain: Chain) -> float:
    """Return how long the slowest of four parallel ``ssh NODE true`` of OpenSSH took."""
    times: list[float] = []

    def one(port: int) -> None:
        command = ["ssh", "-F", str(chain.cluster.config), "-p", str(port), "127.0.0.1", "true"]
        times.append(seconds(lambda: must(command)))

    threads = [threading.Thread(target=one, args=(node.port,)) for node in chain.cluster.nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(times)


def ours(chain: Chain, verb: str, *words: str) -> None:
    """Run our command line."""
    result = chain.run(verb, *words)
    if result.status != 0:
        raise SystemExit(str(result))


def write_trees(chain: Chain, folder: Path) -> dict[str, list[str]]:
    """Write each node's files below `folder`; return their paths by node."""
    plan = plan_of(chain.inventory.read_text(), "mesh.yaml")
    paths = {}
    for name in chain.machines:
        paths[name] = sorted(rendered(plan, name))
        for path, file in rendered(plan, name).items():
            target = folder / name / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(file.content)
            target.chmod(int(file.mode, 8))
    return paths


def ansible(chain: Chain, folder: Path, programs: Path) -> Callable[[], None]:
    """Return a run of Ansible that copies the same files and asks for the same units."""
    cluster = chain.cluster
    hosts = [
        f"{node.name} ansible_host=127.0.0.1 ansible_port={node.port} root={chain.machines[node.name].root}"
        for node in cluster.nodes
    ]
    (folder / "hosts.ini").write_text(
        "[all]\n" + "\n".join(hosts) + f"\n[all:vars]\nansible_ssh_common_args=-F {cluster.config}\n"
        f"ansible_python_interpreter={sys.executable}\n"
    )
    (folder / "ansible.cfg").write_text("[defaults]\nforks=4\n[ssh_connection]\npipelining=True\n")
    (folder / "play.yaml").write_text(
        "- hosts: all\n  gather_facts: false\n  tasks:\n"
        f"    - copy: {{src: '{folder}/{{{{ inventory_hostname }}}}/', dest: '{{{{ root }}}}/', "
        "mode: preserve}\n"
        "    - command: systemctl is-active {{ item }}\n      changed_when: false\n"
        f"      loop: {list(UNITS)}\n"
    )
    command = [str(programs / "ansible-playbook"), "-i", "hosts.ini", "play.yaml"]
    return lambda: must(command, folder, HOME=str(chain.home), ANSIBLE_CONFIG=str(folder / "ansible.cfg"))


def pyinfra(chain: Chain, folder: Path, programs: Path, paths: Mapping[str, list[str]]) -> Callable[[], None]:
    """Return a run of pyinfra that does the same."""
    data = [
        (
            node.name,
            {
                "ssh_hostname": "127.0.0.1",
                "ssh_port": node.port,
                "ssh_key": str(chain.cluster.key),
                "ssh_known_hosts_file": str(chain.cluster.known_hosts),
                "root": str(chain.machines[node.name].root),
                "paths": paths[node.name],
            },
        )
        for node in chain.cluster.nodes
    ]
    (folder / "nodes.py").write_text(f"nodes = {data!r}\n")
    (folder / "deploy.py").write_text(
        "import os\nfrom pyinfra import host\nfrom pyinfra.operations import files, server\n"
        "for path in host.data.paths:\n"
        f"    source = {str(folder)!r} + '/' + host.name + path\n"
        "    mode = oct(os.stat(source).st_mode & 0o777)[2:]\n"
        "    files.put(src=source, dest=host.data.root + path, mode=mode, create_remote_dir=False)\n"
        f"server.shell(commands=['systemctl is-active ' + unit for unit in {UNITS!r}])\n"
    )
    command = [str(programs / "pyinfra"), "-y", "nodes.py", "deploy.py"]
    return lambda: must(command, folder, HOME=str(chain.home))


def main() -> None:
    """Print the table."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="fpb-") as scratch, four_machines() as chain:
        folder = Path(scratch)
        must([sys.executable, "-m", "venv", str(folder / "venv")])
        programs = folder / "venv/bin"
        must([str(programs / "python"), "-m", "pip", "install", "-q", *PEERS])
        paths = write_trees(chain, folder)
        slowest = statistics.median(slowest_ssh(chain) for _ in range(ROUNDS))
        rows = {"slowest of four parallel `ssh true` (OpenSSH)": slowest}
        first = seconds(lambda: ours(chain, "apply", "--yes", "--allow-disruption"))
        chain.rest()
        rows["fabric-plan collect: the facts of four nodes"] = median(lambda: ours(chain, "collect"))
        no_change = median(lambda: ours(chain, "apply"))
        rows["fabric-plan apply, no change"] = no_change
        rows["fabric-plan apply, the first"] = first
        rows["ansible-core, no change"] = median(ansible(chain, folder, programs))
        rows["pyinfra, no change"] = median(pyinfra(chain, folder, programs, paths))
    print(f"{'':50} {'median':>9}   to the no-change apply")
    for label, found in rows.items():
        print(f"{label:50} {found:7.2f} s   {found / no_change:5.1f} x")
    bound = ALLOWED_OF_SSH * slowest + ALLOWED_MORE_S
    verdict = "held" if no_change <= min(bound, ALLOWED_S) else "NOT held"
    print(f"budget: 1.5 x slowest ssh + 1 s = {bound:.2f} s, and under {ALLOWED_S:.0f} s: {verdict}")
    worst = min(rows["ansible-core, no change"], rows["pyinfra, no change"]) / no_change
    print(f"target: {TARGET_RATIO:.0f} x or better than both peers: {worst:.1f} x")
    cores = len(os.sched_getaffinity(0))
    print(
        f"{ROUNDS} rounds each; {cores} cores; load when this began {load:.1f}, now {os.getloadavg()[0]:.1f}"
        + (
            "; the machine was busy with other work, so the times say less than the ratios"
            if load > cores
            else ""
        )
    )
