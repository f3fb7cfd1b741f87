"""What is rendered passes the linters of its kind: shellcheck, bash itself, and systemd."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fabric_plan.inventory.schema import MarkerDialect
from fabric_plan.planner.model import Plan
from tests.scripts.support import Host, plan_of, rendered, ring4
from tests.scripts.test_odd_names import odd_names

PLANS: dict[str, Callable[[], Plan]] = {"ring4": ring4, "odd names": odd_names}


def needs(tool: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(tool) is None, reason=f"{tool} is not installed")


def write_scripts(plan: Plan, node: str, home: Path) -> list[Path]:
    scripts = []
    for path, file in rendered(plan, node).items():
        if file.content.startswith("#!"):
            target = home / path.replace("/", "_")
            target.write_text(file.content)
            scripts.append(target)
    assert len(scripts) == 6
    return scripts


@needs("shellcheck")
@pytest.mark.parametrize("plan", list(PLANS))
def test_shellcheck_has_nothing_to_say(plan: str, tmp_path: Path) -> None:
    fabric = PLANS[plan]()
    scripts = write_scripts(fabric, fabric.nodes[0].name, tmp_path)
    result = subprocess.run(["shellcheck", *map(str, scripts)], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "")


def test_scripts_differ_in_their_data_alone(tmp_path: Path) -> None:
    """What stands below the data block is the same on every node."""
    logic = set()
    for node in ring4().nodes:
        for name in ("mesh-up.sh", "mesh-down.sh", "hairpin.sh", "forward.sh", "recover.sh"):
            text = rendered(ring4(), node.name)[f"/usr/local/lib/fabric-plan/{name}"].content
            head, below = text.split("# ---- nothing below is data", 1)
            assert "-gt" not in head and "if " not in head.replace("notif ", "").split("----")[-1]
            logic.add((name, below))
    assert len(logic) == 5


def test_scripts_need_neither_python_nor_jq() -> None:
    for path, file in rendered(ring4(), "spark1").items():
        if file.content.startswith("#!"):
            assert file.content.startswith("#!/bin/bash\n"), path
            words = set(re.findall(r"[a-z0-9]+", re.sub(r"(?m)^\s*#.*$", "", file.content)))
            assert not words & {"python", "python3", "jq", "perl", "awk"}, path


# ---- units ----------------------------------------------------------------------------------------


def unit_files(plan: Plan, node: str) -> dict[str, str]:
    prefix = "/etc/systemd/system/"
    return {
        path.removeprefix(prefix): file.content
        for path, file in rendered(plan, node).items()
        if path.startswith(prefix)
    }


@needs("systemd-analyze")
@pytest.mark.parametrize("docker", [False, True])
def test_units_verify_without_a_warning(host: Host, tmp_path: Path, docker: bool) -> None:
    units = tmp_path / "units"
    units.mkdir()
    here = str(host.root / "usr/local/lib/fabric-plan")
    host.put("/usr/local/lib/fabric-plan/fabric-plan-marker", "#!/bin/sh\n", 0o755)
    for name, text in unit_files(ring4(), "spark1").items():
        (units / name).write_text(text.replace("/usr/local/lib/fabric-plan", here))
    if docker:
        (units / "docker.service").write_text("[Service]\nExecStart=/bin/sleep 1\n")
    names = [str(path) for path in sorted(units.glob("fabric-plan-*"))]
    result = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *names],
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{units}:"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


def setting(unit: str, key: str) -> list[str]:
    return [line.split("=", 1)[1] for line in unit.splitlines() if line.startswith(f"{key}=")]


def test_the_boot_order_holds_and_nothing_can_hold_up_the_network() -> None:
    units = unit_files(ring4(), "spark1")
    for early in ("recover", "hairpin"):
        unit = units[f"fabric-plan-{early}.service"]
        assert setting(unit, "DefaultDependencies") == ["no"]
        assert "network-pre.target" in setting(unit, "Before")[0].split()
        assert "network-pre.target" in setting(unit, "Wants")[0].split()
        assert "local-fs.target" in setting(unit, "After")[0].split()
    hairpin = units["fabric-plan-hairpin.service"]
    assert "fabric-plan-recover.service" in setting(hairpin, "After")[0].split()
    assert "systemd-udevd.service" in setting(hairpin, "After")[0].split()
    assert "docker.service" in setting(units["fabric-plan-forward.service"], "After")[0].split()
    assert "fabric-plan-forward.service" in setting(units["fabric-plan-mesh.service"], "After")[0].split()
    assert setting(units["fabric-plan-marker@.service"], "After") == ["fabric-plan-mesh.service"]
    # Order alone: nothing that the network needs may fail with one of ours.
    for text in units.values():
        assert (
            not setting(text, "Requires") and not setting(text, "RequiredBy") and not setting(text, "BindsTo")
        )


def test_every_unit_has_a_limit_of_time() -> None:
    for name, text in unit_files(ring4(), "spark1").items():
        (limit,) = setting(text, "TimeoutStartSec")
        assert 0 < int(limit) <= 300, name


def test_the_mesh_wants_its_markers_and_a_reload_takes_nothing_away() -> None:
    for node in ring4().nodes:
        mesh = unit_files(ring4(), node.name)["fabric-plan-mesh.service"]
        assert setting(mesh, "Wants") == [
            f"fabric-plan-marker@{marker.rdma}.service" for marker in node.markers
        ]
        assert setting(mesh, "ExecReload") == setting(mesh, "ExecStart")


# ---- markers --------------------------------------------------------------------------------------

DIALECTS = {
    MarkerDialect.BUILT_IN: (
        "/usr/local/lib/fabric-plan/fabric-plan-marker",
        "--device rocep1s0f0 --rule 10.10.2.11=0x88b5 --managed",
        "notify",
    ),
    MarkerDialect.REWRITE_PROBE: (
        "/usr/local/bin/mlx5-rdma-tx-rewrite-probe",
        "--device rocep1s0f0 --source-port 65535 --replacement-ethertype 0x88b5 --attach --managed",
        "exec",
    ),
    MarkerDialect.RELAY_MARKER: (
        "/usr/local/bin/sparkring-relay-marker",
        "--device rocep1s0f0 --rule 10.10.2.11=0x88b5 --managed",
        "exec",
    ),
}


def ring4_with(marker: str) -> Plan:
    text = (Path(__file__).parents[2] / "inventories/ring4.yaml").read_text()
    return plan_of(text.replace("{paths: opposite}", f"{{paths: opposite, marker: {marker}}}"))


@pytest.mark.parametrize("dialect", list(DIALECTS))
def test_each_dialect_gets_its_own_command_line(dialect: MarkerDialect) -> None:
    path, arguments, kind = DIALECTS[dialect]
    files = rendered(ring4_with(dialect.value), "spark1")
    unit = files["/etc/systemd/system/fabric-plan-marker@.service"].content
    assert setting(unit, "ExecStart") == [f"{path} $MARKER_ARGS"]
    assert setting(unit, "Type") == [kind]
    env = files["/etc/fabric-plan/markers/rocep1s0f0.env"].content
    assert setting(env, "MARKER_ARGS") == [f'"{arguments}"']


def test_the_path_of_the_marker_can_be_given() -> None:
    files = rendered(
        ring4_with(f"{{dialect: rewrite-probe, path: /opt/dsv41-mesh/bin/probe, sha256: '{0:064}'}}"),
        "spark1",
    )
    unit = files["/etc/systemd/system/fabric-plan-marker@.service"].content
    assert setting(unit, "ExecStart") == ["/opt/dsv41-mesh/bin/probe $MARKER_ARGS"]


@needs("systemd-analyze")
def test_the_marker_is_confined(tmp_path: Path) -> None:
    unit = tmp_path / "fabric-plan-marker@.service"
    text = unit_files(ring4(), "spark1")[unit.name]
    unit.write_text(text.replace("/usr/local/lib/fabric-plan/fabric-plan-marker", "/bin/true"))
    result = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=35", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-400:]
