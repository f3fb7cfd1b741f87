"""The transport against real SSH servers: what works, and what each failure says."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from fabric_plan.errors import FabricPlanError, NodeError, TransportError
from fabric_plan.facts import load_facts
from fabric_plan.transport.base import Limits, Target, each
from fabric_plan.transport.exchange import Rights, Sudo
from fabric_plan.transport.program import program
from fabric_plan.transport.ssh import Ssh
from tests.ssh.nodes import LOOPBACK, Cluster, SshNode, write_key
from tests.ssh.wire import Wire

LIMIT_S = 120.0
# Generous for a busy machine, and short where a test waits for it to pass.
LIMITS = Limits(connect_s=60.0)
HASTY = Limits(connect_s=60.0, pulse_s=0.2, dead_s=1.0)


def ssh(cluster: Cluster, limits: Limits = LIMITS, rights: Rights | None = None) -> Ssh:
    return Ssh(str(cluster.config), rights or Rights(), limits)


def ask(transport: Ssh, target: Target, limit_s: float = LIMIT_S, verb: str = "collect") -> dict[str, Any]:
    connection = transport.connect(target)
    try:
        return connection.call(verb, {}, limit_s=limit_s)
    finally:
        connection.close()


def refused(work: Callable[[], object]) -> TransportError:
    """Return the error that `work` has to raise, one that a person can read."""
    with pytest.raises(TransportError) as caught:
        work()
    error = caught.value
    assert error.where == "spark1"
    assert len(error.lines()) <= 3 and all("Traceback" not in line for line in error.lines())
    return error


def programs(node: SshNode) -> list[Path]:
    return sorted((node.root / "var/cache/fabric-plan").glob("*"))


def test_facts_and_the_program_travels_once(two_nodes: Cluster) -> None:
    node = two_nodes.nodes[0]
    connection = ssh(two_nodes).connect(node.target)
    facts = load_facts(json.dumps(connection.call("collect", {}, limit_s=LIMIT_S)).encode(), node=node.name)
    assert facts.host.euid == os.geteuid()
    (kept,) = programs(node)
    assert kept.name.startswith(program().digest[:32])
    before = kept.stat()
    connection.call("collect", {}, limit_s=LIMIT_S)
    assert kept.stat().st_mtime_ns == before.st_mtime_ns and kept.stat().st_ino == before.st_ino
    connection.close()
    connection.close()
    assert programs(two_nodes.nodes[1]) == []


def test_a_damaged_program_is_sent_again(two_nodes: Cluster) -> None:
    node = two_nodes.nodes[0]
    ask(ssh(two_nodes), node.target)
    (kept,) = programs(node)
    kept.write_bytes(kept.read_bytes()[:-1] + b"x")
    ask(ssh(two_nodes), node.target)
    assert [sha256(path.read_bytes()).hexdigest() in path.name for path in programs(node)].count(True) == 1


def test_only_a_few_programs_are_kept(two_nodes: Cluster) -> None:
    folder = two_nodes.nodes[0].root / "var/cache/fabric-plan"
    folder.mkdir(mode=0o700)
    for age in range(9):
        (folder / f"{age}.pyz").write_text("old")
        os.utime(folder / f"{age}.pyz", (1000 - age, 1000 - age))
    ask(ssh(two_nodes), two_nodes.nodes[0].target)
    names = {path.name for path in folder.iterdir()}
    assert len(names) == 5 and names > {"0.pyz", "1.pyz", "2.pyz", "3.pyz"}


def test_a_cache_that_others_may_write_is_refused(two_nodes: Cluster) -> None:
    folder = two_nodes.nodes[0].root / "var/cache/fabric-plan"
    folder.mkdir()
    folder.chmod(0o777)
    error = refused(lambda: ask(ssh(two_nodes), two_nodes.nodes[0].target))
    assert "others may write to it" in error.message


def test_what_the_program_refuses_is_an_error_of_the_node(two_nodes: Cluster) -> None:
    connection = ssh(two_nodes).connect(two_nodes.nodes[0].target)
    with pytest.raises(NodeError, match="the request is an object of these keys"):
        connection.call("collect", {"nonsense": 1}, limit_s=LIMIT_S)
    with pytest.raises(NodeError, match="usage:"):
        connection.call("no-such-verb", {}, limit_s=LIMIT_S)
    assert connection.call("collect", {}, limit_s=LIMIT_S)["schema"]
    connection.close()


def test_an_unknown_host(two_nodes: Cluster) -> None:
    two_nodes.known_hosts.write_text("")
    node = two_nodes.nodes[0]
    error = refused(lambda: ask(ssh(two_nodes), node.target))
    assert error.id == "host-key-unknown"
    assert fingerprint_of(node) in error.message
    assert f"ssh -p {node.port}" in (error.hint or "") and str(two_nodes.known_hosts) in (error.hint or "")
    assert programs(node) == [] and two_nodes.known_hosts.read_text() == ""


def test_a_changed_host_key(two_nodes: Cluster) -> None:
    node = two_nodes.nodes[0]
    old = fingerprint_of(node)
    node.new_host_key()
    error = refused(lambda: ask(ssh(two_nodes), node.target))
    assert error.id == "host-key-changed"
    assert f"{two_nodes.known_hosts}:1 " in error.message
    assert old in error.message and fingerprint_of(node) in error.message
    assert f"ssh-keygen -f {two_nodes.known_hosts} -R '[{LOOPBACK}]:{node.port}'" in (error.hint or "")
    assert programs(node) == []


def test_a_revoked_host_key(two_nodes: Cluster) -> None:
    node = two_nodes.nodes[0]
    two_nodes.known_hosts.write_text(
        two_nodes.known_hosts.read_text() + f"@revoked [{LOOPBACK}]:{node.port} {node.host_key}\n"
    )
    error = refused(lambda: ask(ssh(two_nodes), node.target))
    assert error.id == "host-key-revoked" and f"{two_nodes.known_hosts}:3" in error.message


@pytest.mark.parametrize("form", ["hashed", "alias", "pattern", "without-port"])
def test_forms_of_known_hosts(two_nodes: Cluster, form: str) -> None:
    node = two_nodes.nodes[0]
    if form == "hashed":
        subprocess.run(
            ["ssh-keygen", "-q", "-H", "-f", two_nodes.known_hosts], check=True, capture_output=True
        )
        assert LOOPBACK not in two_nodes.known_hosts.read_text()
    elif form == "alias":
        two_nodes.known_hosts.write_text(f"home-spark {node.host_key}\n")
        two_nodes.configure("HostKeyAlias home-spark")
    elif form == "pattern":
        two_nodes.known_hosts.write_text(f"!127.0.0.2,[127.0.0.*]:{node.port} {node.host_key}\n")
    else:
        two_nodes.known_hosts.write_text(f"{LOOPBACK} {node.host_key}\n")
    assert ask(ssh(two_nodes), node.target)["schema"]


def test_a_refused_key(two_nodes: Cluster) -> None:
    write_key(two_nodes.key)
    error = refused(lambda: ask(ssh(two_nodes), two_nodes.nodes[0].target))
    assert "refused the user" in error.message and str(two_nodes.key) in error.message
    assert "ssh-copy-id" in (error.hint or "")


def test_a_key_file_that_is_not_there_or_locked(two_nodes: Cluster, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", locked], check=True, capture_output=True
    )
    two_nodes.configure(f"IdentityFile {tmp_path}/absent", f"IdentityFile {locked}")
    assert ask(ssh(two_nodes), two_nodes.nodes[0].target)["schema"]
    two_nodes.key.unlink()
    error = refused(lambda: ask(ssh(two_nodes), two_nodes.nodes[0].target))
    assert (
        f"{locked} has a passphrase" in error.message and f"{tmp_path}/absent is not there" in error.message
    )


def test_the_agent(two_nodes: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with agent(tmp_path / "agent", two_nodes.key) as place:
        two_nodes.key.unlink()
        monkeypatch.setenv("SSH_AUTH_SOCK", str(place))
        assert ask(ssh(two_nodes), two_nodes.nodes[0].target)["schema"]


@contextmanager
def agent(place: Path, key: Path) -> Iterator[Path]:
    process = subprocess.Popen(
        ["ssh-agent", "-D", "-a", str(place)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(1000):
            if place.exists():
                break
            threading.Event().wait(0.01)
        environment = {**os.environ, "SSH_AUTH_SOCK": str(place)}
        subprocess.run(["ssh-add", "-q", key], check=True, env=environment, capture_output=True)
        yield place
    finally:
        process.kill()
        process.wait()


def test_nobody_listens(two_nodes: Cluster) -> None:
    two_nodes.nodes[0].kill()
    error = refused(lambda: ask(ssh(two_nodes), two_nodes.nodes[0].target))
    assert "Connection refused" in error.message


def test_what_listens_is_no_ssh_server(two_nodes: Cluster) -> None:
    node = two_nodes.nodes[0]
    node.kill()
    with socket.create_server((LOOPBACK, node.port)):
        transport = ssh(two_nodes, Limits(connect_s=0.5))
        error = refused(lambda: ask(transport, node.target))
    assert "within 0.5 s" in error.message


@pytest.mark.parametrize("jumps_to", ["none", "jump"])
def test_proxy_jump(two_nodes: Cluster, jumps_to: str) -> None:
    jump, node = two_nodes.nodes
    two_nodes.configure(
        *(f"Host {LOOPBACK}", "  ProxyJump jump"),
        *("Host jump", f"  HostName {LOOPBACK}", f"  Port {jump.port}", f"  ProxyJump {jumps_to}"),
    )
    target = Target("spark2", LOOPBACK, None, node.port)
    assert ask(ssh(two_nodes), target)["schema"]
    assert "direct-tcpip" in jump.log.read_text() or "Accepted publickey" in jump.log.read_text()
    jump.new_host_key()
    with pytest.raises(TransportError) as caught:
        ask(ssh(two_nodes), target)
    assert caught.value.id == "host-key-changed" and "jump host" in caught.value.message
    jump.kill()
    with pytest.raises(TransportError, match=r"jump host 127.0.0.1 port .*: Connection refused"):
        ask(ssh(two_nodes), target)


def test_proxy_command(two_nodes: Cluster) -> None:
    jump, node = two_nodes.nodes
    through = f"ssh -F {two_nodes.config}.jump -p {jump.port} -W %h:%p {LOOPBACK}"
    two_nodes.config.with_name("ssh_config.jump").write_text(two_nodes.config.read_text())
    two_nodes.configure("Host spark2", f"  HostName {LOOPBACK}", f"  ProxyCommand {through}", "Host *")
    target = Target("spark2", "spark2", None, node.port)
    assert ask(ssh(two_nodes), target)["schema"]
    jump.kill()
    with pytest.raises(TransportError, match="did not greet"):
        ask(ssh(two_nodes), target)


def test_the_known_type_of_several_host_keys_is_asked_for(two_nodes: Cluster) -> None:
    node = two_nodes.nodes[0]
    second = node.base / "second_key"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", second], check=True, capture_output=True
    )
    config = node.base / "sshd_config"
    config.write_text(f"HostKey {second}\n{config.read_text()}")
    node.restart()
    public = " ".join(second.with_name("second_key.pub").read_text().split()[:2])
    two_nodes.known_hosts.write_text(f"[{LOOPBACK}]:{node.port} {public}\n")
    assert ask(ssh(two_nodes), node.target)["schema"]


@pytest.mark.parametrize(
    "greeting",
    [b"", b"\0" * 99, b"SSH-2.0-x\r\n" + b"\0" * 64, b"SSH-1.5-old\r\n", b"SSH-2.0-x\r\n\xff\xff\xff\xff"],
)
def test_a_server_that_makes_no_sense(two_nodes: Cluster, greeting: bytes) -> None:
    node = two_nodes.nodes[0]
    node.kill()
    with socket.create_server((LOOPBACK, node.port)) as server:

        def serve() -> None:
            client, _ = server.accept()
            with client:
                client.sendall(greeting)

        threading.Thread(target=serve, daemon=True).start()
        refused(lambda: ask(ssh(two_nodes), node.target))


def test_a_jump_host_that_cannot_reach_the_node(two_nodes: Cluster) -> None:
    jump, node = two_nodes.nodes
    two_nodes.configure(
        *(f"Host {LOOPBACK}", "  ProxyJump jump"),
        *("Host jump", f"  HostName {LOOPBACK}", f"  Port {jump.port}", "  ProxyJump none"),
    )
    node.kill()
    with pytest.raises(TransportError, match=r"the jump host before .* cannot reach it"):
        ask(ssh(two_nodes), Target("spark2", LOOPBACK, None, node.port))


def test_the_configuration_is_read_as_openssh_does(two_nodes: Cluster, tmp_path: Path) -> None:
    node = two_nodes.nodes[0]
    included = tmp_path / "more.conf"
    included.write_text(f"Host spark1\n  HostName {LOOPBACK}\n  Port {node.port}\n")
    two_nodes.configure(f"Include {tmp_path}/*.conf")
    assert ask(ssh(two_nodes), Target("spark1", "spark1"))["schema"]
    two_nodes.config.write_text("Nonsense")
    with pytest.raises(TransportError) as caught:
        ask(ssh(two_nodes), node.target)
    assert caught.value.where == str(two_nodes.config)
    with pytest.raises(TransportError, match="cannot be read: No such file"):
        ask(Ssh(str(tmp_path / "absent")), node.target)


def fingerprint_of(node: SshNode) -> str:
    words = subprocess.run(
        ["ssh-keygen", "-l", "-f", node.base / "host_key.pub"], check=True, capture_output=True, text=True
    ).stdout
    return words.split()[1]


# What the node's own state does to the exchange.


def not_root(node: SshNode) -> None:
    node.tool("id", "echo 1000")


def test_sudo_where_the_user_is_not_root(two_nodes: Cluster) -> None:
    node = two_nodes.nodes[0]
    not_root(node)
    node.tool("sudo", f'printf "%s " "$@" >> {node.base}/sudo.log', 'shift 2; exec "$@"')
    assert ask(ssh(two_nodes), node.target)["schema"]
    assert (node.base / "sudo.log").read_text().startswith("-n -- python3 -I -S -X utf8 -c ")


def test_sudo_refused(two_nodes: Cluster) -> None:
    node = two_nodes.nodes[0]
    not_root(node)
    node.tool("sudo", "echo 'sudo: a password is required' >&2", "exit 1")
    error = refused(lambda: ask(ssh(two_nodes), node.target))
    assert error.message == "sudo was refused: sudo: a password is required"
    assert "--ask-sudo-password" in (error.hint or "")
    assert programs(node) == []


def test_without_sudo(two_nodes: Cluster) -> None:
    node = two_nodes.nodes[0]
    not_root(node)
    for name in ("sh", "bash"):
        (node.tools / name).symlink_to(f"/bin/{name}")
    node.restrict_path()
    error = refused(lambda: ask(ssh(two_nodes), node.target))
    assert "there is no sudo" in error.message
    assert ask(ssh(two_nodes, rights=Rights(Sudo.NEVER)), node.target)["schema"]


ASKING_SUDO = r"""
printf '%s\n' "$*" >> "$BASE/sudo.log"; env >> "$BASE/sudo.log"
[ "$1" = -S ] || { echo 'sudo: a password is required' >&2; exit 1; }
prompt=$3; shift 4
for turn in 1 2 3; do
  printf %s "$prompt" >&2
  IFS= read -r password || exit 1
  [ "$password" = 'correct horse' ] && exec "$@"
  echo 'Sorry, try again.' >&2
done
exit 1
"""


def test_sudo_with_a_password(two_nodes: Cluster) -> None:
    node = two_nodes.nodes[0]
    not_root(node)
    node.tool("sudo", f"BASE={node.base}", ASKING_SUDO)
    right = Rights(Sudo.PASSWORD, "correct horse")
    assert ask(ssh(two_nodes, rights=right), node.target)["schema"]
    assert "correct" not in repr(right) and "correct" not in repr(ssh(two_nodes, rights=right))
    error = refused(lambda: ask(ssh(two_nodes, rights=Rights(Sudo.PASSWORD, "battery")), node.target))
    assert "did not take the password" in error.message
    for word in ("correct", "battery"):
        assert word not in (node.base / "sudo.log").read_text() + node.log.read_text()
        assert word not in str(error.lines())


def test_a_password_that_sudo_does_not_ask_for(two_nodes: Cluster) -> None:
    node = two_nodes.nodes[0]
    not_root(node)
    node.tool("sudo", "shift 4", 'exec "$@"')
    rights = Rights(Sudo.PASSWORD, "correct horse")
    assert ask(ssh(two_nodes, rights=rights), node.target)["schema"]
    (node.tools / "id").unlink()
    assert ask(ssh(two_nodes, rights=rights), node.target)["schema"]


def test_no_python(two_nodes: Cluster) -> None:
    node = two_nodes.nodes[0]
    (node.tools / "python3").unlink()
    for name in ("sh", "bash"):
        (node.tools / name).symlink_to(f"/bin/{name}")
    node.restrict_path()
    error = refused(lambda: ask(ssh(two_nodes), node.target))
    assert error.message == "there is no python3"


def test_an_old_python(two_nodes: Cluster) -> None:
    node = two_nodes.nodes[0]
    node.tool("python3", 'while [ "$1" != -c ]; do shift; done', 'echo "$3 go 3.8"', "exec cat > /dev/null")
    error = refused(lambda: ask(ssh(two_nodes), node.target))
    assert "python3 is 3.8" in error.message


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small disk")
def test_a_full_disk(two_nodes: Cluster) -> None:
    node = two_nodes.nodes[0]
    cache = node.root / "var/cache"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", cache], check=True)
    try:
        error = refused(lambda: ask(ssh(two_nodes), node.target))
        assert "No space left on device" in error.message and "make room" in (error.hint or "")
        assert programs(node) == []
    finally:
        subprocess.run(["umount", "-l", cache], check=True)


def test_a_node_that_hangs(two_nodes: Cluster) -> None:
    node = two_nodes.nodes[0]
    node.tool("python3", "exec sleep 600")
    error = refused(lambda: ask(ssh(two_nodes, HASTY), node.target, limit_s=3.0))
    assert error.message == "no answer within 3 s" and "something hangs on the node" in (error.hint or "")


def test_a_frozen_node(two_nodes: Cluster) -> None:
    node = two_nodes.nodes[0]
    connection = ssh(two_nodes, HASTY).connect(node.target)
    node.stop()
    try:
        error = refused(lambda: connection.call("collect", {}, limit_s=LIMIT_S))
    finally:
        node.cont()
    assert "the connection is dead: nothing started within 1 s" in error.message
    refused(lambda: connection.call("collect", {}, limit_s=LIMIT_S))
    assert ask(ssh(two_nodes), node.target)["schema"]


def test_a_connection_that_dies_in_the_middle(two_nodes: Cluster) -> None:
    node = two_nodes.nodes[0]
    started = node.base / "started"
    node.tool("python3", f"echo > {started}", "exec sleep 600")
    two_nodes.known_hosts.write_text(f"* {node.host_key}\n")
    with Wire(node.port) as wire:
        connection = ssh(two_nodes, HASTY).connect(Target("spark1", LOOPBACK, None, wire.port))
        threading.Thread(target=wire.freeze_when, args=(started.exists,), daemon=True).start()
        error = refused(lambda: connection.call("collect", {}, limit_s=LIMIT_S))
    assert "the connection is dead" in error.message


def test_a_connection_that_is_cut_in_the_middle(two_nodes: Cluster) -> None:
    node = two_nodes.nodes[0]
    started = node.base / "started"
    node.tool("python3", f"echo > {started}", "exec sleep 600")
    two_nodes.known_hosts.write_text(f"* {node.host_key}\n")
    with Wire(node.port) as wire:
        connection = ssh(two_nodes).connect(Target("spark1", LOOPBACK, None, wire.port))
        threading.Thread(target=wire.cut_when, args=(started.exists,), daemon=True).start()
        error = refused(lambda: connection.call("collect", {}, limit_s=LIMIT_S))
    assert "the connection broke in the middle" in error.message


def test_a_program_that_is_killed(two_nodes: Cluster) -> None:
    node = two_nodes.nodes[0]
    node.tool("python3", 'while [ "$1" != -c ]; do shift; done', 'echo "$3 go 3.12"', "kill -9 $$")
    error = refused(lambda: ask(ssh(two_nodes), node.target))
    assert "was cut off" in error.message


def test_noise_of_a_login_script_is_passed_over(two_nodes: Cluster) -> None:
    node = two_nodes.nodes[0]
    (node.home / ".bashrc").write_text("echo Welcome to spark1; echo news >&2; printf 'no end of line'\n")
    assert ask(ssh(two_nodes), node.target)["schema"]


def test_a_login_script_that_does_not_let_us_through(two_nodes: Cluster) -> None:
    node = two_nodes.nodes[0]
    (node.home / ".bashrc").write_text("echo This account is closed.; exit 1\n")
    error = refused(lambda: ask(ssh(two_nodes), node.target))
    assert "was not started: This account is closed." in error.message


def test_noise_without_end(two_nodes: Cluster) -> None:
    node = two_nodes.nodes[0]
    (node.home / ".bashrc").write_text("exec yes\n")
    error = refused(lambda: ask(ssh(two_nodes), node.target))
    assert "none of them from the node program" in error.message


def test_an_answer_that_is_no_json_or_too_large(two_nodes: Cluster) -> None:
    node = two_nodes.nodes[0]
    head = ['while [ "$1" != -c ]; do shift; done', 'echo "$3 go 3.12"']
    node.tool("python3", *head, 'printf "$3 done 0 4 0\\nNaN\\n"')
    assert "is no JSON" in refused(lambda: ask(ssh(two_nodes), node.target)).message
    node.tool("python3", *head, 'echo "$3 done 0 99999999999 0"')
    assert "too large" in refused(lambda: ask(ssh(two_nodes), node.target)).message


def test_one_of_several_fails(four_nodes: Cluster) -> None:
    four_nodes.nodes[2].kill()
    transport = ssh(four_nodes)
    targets = {node.name: node.target for node in four_nodes.nodes}
    results = each(targets, lambda target: ask(transport, target)["schema"])
    assert list(results) == ["spark1", "spark2", "spark3", "spark4"]
    failed = results.pop("spark3")
    assert isinstance(failed, FabricPlanError) and failed.where == "spark3"
    assert set(results.values()) == {"fabric-plan/facts/v1"}
