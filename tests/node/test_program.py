"""The node program travels alone: standard library only, and Python 3.9 runs it."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fabric_plan.facts import load_facts

PROJECT = Path(__file__).parents[2]
PROGRAM = PROJECT / "fabric_plan" / "node"
SOURCES = sorted(PROGRAM.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PROGRAM)))
def test_source_is_python_3_9_and_imports_nothing_else(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    depth = len(path.relative_to(PROGRAM).parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert all(name.name.split(".")[0] in sys.stdlib_module_names for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                assert node.level <= depth, f"line {node.lineno} reaches out of the program"
            else:
                assert str(node.module).split(".")[0] in sys.stdlib_module_names


def old_python() -> str | None:
    """Return a Python 3.9, the oldest that has to do."""
    versions = Path.home() / ".pyenv" / "versions"
    places = [*sorted(str(path) for path in versions.glob("3.9*/bin/python3.9")), shutil.which("python3.9")]
    return next((place for place in places if place and "shims" not in place), None)


ALONE = (
    "import runpy, sys; sys.path.insert(0, sys.argv.pop()); runpy.run_module('alone', run_name='__main__')"
)


def test_it_runs_on_python_3_9_without_the_rest_of_the_package(tmp_path: Path) -> None:
    python = old_python()
    if python is None:
        pytest.skip("no Python 3.9 here")
    shutil.copytree(PROGRAM, tmp_path / "alone", ignore=shutil.ignore_patterns("__pycache__"))
    result = subprocess.run(
        [python, "-I", "-c", ALONE, "collect", str(tmp_path)],
        input=b"{}",
        capture_output=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr.decode()
    assert load_facts(result.stdout, node="here").host.python.startswith("3.9.")


SCRIPT = r"""
set -e
ip link add fa type veth peer name fb
ip addr add 10.66.0.10/24 dev fa
ip link set fa up; ip link set fb up
ip route add 10.66.9.11/32 via 10.66.0.11 dev fa proto 214 src 10.66.0.10
ip neigh add 10.66.0.11 lladdr 02:00:00:00:00:0b dev fa
tc qdisc add dev fa clsact
echo 2 > /proc/sys/net/ipv4/conf/fa/rp_filter
tc filter add dev fa ingress pref 881 protocol 0x88b5 handle 1 flower dst_mac 02:00:00:00:00:02 \
  action pedit ex munge eth dst set 02:00:00:00:00:03 munge eth type set 0x0800 pipe \
  action mirred egress redirect dev fb cookie 00112233 || echo no-flower >&2
exec "$PYTHON" -m fabric_plan.node collect
"""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_real_tools_in_a_network_namespace() -> None:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "PYTHON": sys.executable}
    result = subprocess.run(
        ["unshare", "-n", "bash", "-c", SCRIPT],
        input=b'{"interfaces": ["fa"]}',
        capture_output=True,
        env=environment,
        check=False,
    )
    assert result.returncode == 0, result.stderr.decode()
    facts = load_facts(result.stdout, node="here")
    assert facts.interfaces.complete and facts.interfaces.value is not None
    assert [(a.address, a.prefix) for a in facts.interfaces.value.addresses if a.dev == "fa"][:1] == [
        ("10.66.0.10", 24)
    ]
    assert {link.kind for link in facts.interfaces.value.links if link.name == "fa"} == {"veth"}
    assert facts.routes.complete
    relay = next(route for route in facts.routes.value or () if route.to == "10.66.9.11/32")
    assert (relay.via, relay.dev, relay.src, relay.protocol) == ("10.66.0.11", "fa", "10.66.0.10", "214")
    assert [n.mac for n in facts.neighbours.value or () if n.address == "10.66.0.11"] == ["02:00:00:00:00:0b"]
    assert [qdisc.kind for qdisc in facts.tc["fa"].qdiscs.value or ()][-1:] == ["clsact"]
    assert facts.sysctls["net.ipv4.conf.fa.rp_filter"] == "2"
    assert facts.tc["fa"].rules.complete
    if b"no-flower" in result.stderr:
        return  # this kernel has no flower classifier; all else was read
    (rule,) = facts.tc["fa"].rules.value or ()
    assert (
        rule.protocol,
        rule.pref,
        rule.set_type,
        rule.set_dst_mac,
        rule.redirect,
        rule.cookie,
        rule.other,
    ) == (
        "0x88b5",
        881,
        "0x0800",
        "02:00:00:00:00:03",
        "fb",
        "00112233",
        {},
    )
