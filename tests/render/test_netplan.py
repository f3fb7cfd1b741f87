"""netplan reads what is rendered: the planned backends come out, and no other interface changes its own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fabric_plan.planner.model import Plan
from tests.facts_builder import rendered
from tests.golden_trees import ROOT
from tests.planner.test_ring4 import planned

NETPLAN = shutil.which("netplan", path="/usr/sbin:/usr/bin")
pytestmark = pytest.mark.skipif(
    NETPLAN is None, reason="netplan is not installed (apt-get install netplan.io)"
)

RING4 = (ROOT / "inventories" / "ring4.yaml").read_text()
MANAGEMENT = """
network:
  version: 2
  ethernets:
    enP7s7:
      dhcp4: true
"""


def generate(
    root: Path, plan: Plan | None, node: str = "spark1", management: str = MANAGEMENT
) -> dict[str, str]:
    """Generate in `root` and return the backend files by path."""
    etc = root / "etc/netplan"
    etc.mkdir(parents=True)
    (etc / "50-cloud-init.yaml").write_text(management)
    for file in rendered(plan).files[node] if plan else ():
        if file.path.startswith("/etc/netplan/"):
            (root / file.path[1:]).write_text(file.content)
    for path in etc.iterdir():
        path.chmod(0o600)
    assert NETPLAN is not None
    done = subprocess.run(
        [NETPLAN, "generate", "--root-dir", str(root)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == ""
    backends = root / "run"
    return {
        str(path.relative_to(root)): path.read_text()
        for path in sorted(backends.rglob("*"))
        if path.is_file() and path.suffix in (".network", ".nmconnection")
    }


def test_the_management_port_keeps_its_backend(tmp_path: Path) -> None:
    without = generate(tmp_path / "a", None)
    with_ours = generate(tmp_path / "b", planned(RING4))
    assert list(without) == ["run/systemd/network/10-netplan-enP7s7.network"]
    assert {path: with_ours[path] for path in without} == without
    rest = sorted(set(with_ours) - set(without))
    assert rest == sorted(
        f"run/NetworkManager/system-connections/netplan-{netdev}.nmconnection"
        for netdev in ("enP2p1s0f0np0", "enP2p1s0f1np1", "enp1s0f0np0", "enp1s0f1np1")
    )


def test_a_global_renderer_would_move_it(tmp_path: Path) -> None:
    """What the rendered files avoid: the check above can fail."""
    without = generate(tmp_path / "a", None)
    moved = generate(
        tmp_path / "b",
        None,
        management=MANAGEMENT.replace("version: 2", "version: 2\n  renderer: NetworkManager"),
    )
    assert set(without) != set(moved)


def test_addresses_routes_and_mtu_reach_networkmanager(tmp_path: Path) -> None:
    found = generate(tmp_path / "a", planned(RING4))
    text = found["run/NetworkManager/system-connections/netplan-enP2p1s0f1np1.nmconnection"]
    assert "address1=10.10.7.11/24" in text
    assert "mtu=9000" in text
    assert "=10.10.5.0/24,10.10.7.10" in text
    assert "=10.10.5.10/32,10.10.7.10" in text
    assert "src=10.10.7.11" in text


@pytest.mark.parametrize(("prefix", "mesh"), [(24, "off"), (30, "universal"), (31, "opposite")])
def test_every_form_generates(tmp_path: Path, prefix: int, mesh: str) -> None:
    text = RING4.replace("paths: opposite", f"paths: {mesh}") + f"addressing: {{prefix: {prefix}}}\n"
    plan = planned(text)
    assert len(generate(tmp_path, plan, "spark3")) == 5
