"""Where files are tried, and what units and scripts of a trial call."""

from __future__ import annotations

import re
from functools import cache

import pytest

from fabric_plan import resources
from fabric_plan.node.transaction.bundle import Entry
from fabric_plan.node.transaction.places import RECOVER, trial_place, tried
from fabric_plan.render.tree import render
from tests.golden_trees import ROOT
from tests.planner.test_ring4 import planned

TRIAL = "/run/fabric-plan/trial/7"


@cache
def entries() -> tuple[Entry, ...]:
    """Every file of a node of the example ring."""
    plan = planned((ROOT / "inventories" / "ring4.yaml").read_text())
    files = render(plan, resources.layers(), resources.templates()).files["spark1"]
    return tuple(Entry(file.path, file.mode, file.content.encode()) for file in files)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/etc/netplan/40-sparkring-plane1.yaml", "/run/netplan/40-sparkring-plane1.yaml"),
        ("/etc/sysctl.d/90-fabric-plan.conf", "/run/sysctl.d/90-fabric-plan.trial.conf"),
        (
            "/etc/NetworkManager/conf.d/90-fabric-plan.conf",
            "/run/NetworkManager/conf.d/90-fabric-plan.trial.conf",
        ),
        ("/etc/NetworkManager/dispatcher.d/90-fabric-plan", None),
        (
            "/etc/systemd/system/fabric-plan-mesh.service",
            "/run/systemd/system.control/fabric-plan-mesh.service",
        ),
        ("/etc/systemd/system/multi-user.target.wants/fabric-plan-mesh.service", None),
        ("/etc/fabric-plan/markers/rocep1s0f0.env", "/run/fabric-plan/markers/rocep1s0f0.env"),
        ("/etc/fabric-plan/node.json", f"{TRIAL}/etc/fabric-plan/node.json"),
        ("/usr/local/lib/fabric-plan/mesh-up.sh", f"{TRIAL}/usr/local/lib/fabric-plan/mesh-up.sh"),
        *((path, None) for path in RECOVER),
    ],
)
def test_where_a_file_is_tried(path: str, place: str | None) -> None:
    assert trial_place(path, TRIAL) == place


def test_the_name_in_run_is_read_after_the_one_in_etc() -> None:
    """sysctl.d reads by name whatever the folder, and the last one counts."""
    assert "90-fabric-plan.conf" < "90-fabric-plan.trial.conf" < "91-other.conf"


def test_units_of_a_trial_run_its_scripts_through_bash() -> None:
    units = {
        item.place: item.content.decode()
        for item in tried(entries(), TRIAL, {})
        if "system.control" in item.place
    }
    assert len(units) == 4
    for place, text in units.items():
        for line in re.findall(r"(?m)^Exec\w+=(.+)$", text):
            if "fabric-plan-marker " in line:
                # The marker is a program that is installed beside the plan, and never tried.
                assert line.startswith("/usr/local/lib/fabric-plan/fabric-plan-marker ")
            else:
                assert line.startswith(f"/bin/bash {TRIAL}/usr/local/lib/fabric-plan/"), (place, line)
    marker = units["/run/systemd/system.control/fabric-plan-marker@.service"]
    assert re.findall(r"(?m)^EnvironmentFile=(.+)$", marker) == [
        "-/etc/fabric-plan/markers/%i.env",
        "-/run/fabric-plan/markers/%i.env",
    ]


def test_an_installed_unit_that_calls_a_tried_script_is_tried_too() -> None:
    (mesh,) = [entry for entry in entries() if entry.path.endswith("/mesh-up.sh")]
    unit = "[Service]\nExecStart=/usr/local/lib/fabric-plan/mesh-up.sh\n"
    other = (
        "[Service]\nEnvironmentFile=/etc/fabric-plan/x\nExecStart=/usr/local/lib/fabric-plan/mesh-up.shx\n"
    )
    installed = {
        "/etc/systemd/system/fabric-plan-mesh.service": unit,
        "/etc/systemd/system/fabric-plan-other.service": other,
    }
    found = {item.place: item.content.decode() for item in tried((mesh,), TRIAL, installed)}
    assert found["/run/systemd/system.control/fabric-plan-mesh.service"] == (
        f"[Service]\nExecStart=/bin/bash {TRIAL}/usr/local/lib/fabric-plan/mesh-up.sh\n"
    )
    assert len(found) == 2


def test_a_definition_that_goes_is_shadowed_by_an_empty_one() -> None:
    gone = Entry("/etc/netplan/41-sparkring-plane2.yaml")
    (item,) = tried((gone,), TRIAL, {})
    assert (item.place, item.content) == ("/run/netplan/41-sparkring-plane2.yaml", b"network: {version: 2}\n")
