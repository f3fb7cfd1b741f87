"""A mesh needs the marker's program, which apply does not bring."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fabric_plan.compare.diff import diff
from fabric_plan.compare.preflight import preflight
from fabric_plan.node.document import Facts
from tests.compare.test_diff import F0, LIVE, WANT, link
from tests.facts_builder import MARKER_PROGRAM, read


def ids(facts: Facts) -> list[str]:
    changed = link(F0, mtu=1500)(facts)
    return [
        finding.id
        for finding in preflight(
            {"spark1": WANT}, {"spark1": changed}, {"spark1": diff(WANT, changed)}, take_over=False
        )
    ]


def test_a_node_without_the_program_is_refused() -> None:
    files = {path: file for path, file in (LIVE.files.value or {}).items() if path != MARKER_PROGRAM}
    assert ids(LIVE) == []
    assert ids(replace(LIVE, files=read(files))) == ["marker-missing"]


@pytest.mark.parametrize("start", ["ExecStart=/opt/marker $MARKER_ARGS", ""])
def test_a_program_elsewhere_is_its_owners_business(start: str) -> None:
    unit = "/etc/systemd/system/fabric-plan-marker@.service"
    files = tuple(replace(file, content=start) if file.path == unit else file for file in WANT.files)
    want = replace(WANT, files=files)
    facts = replace(LIVE, files=read({}))
    found = preflight({"spark1": want}, {"spark1": facts}, {"spark1": diff(want, facts)}, take_over=False)
    assert "marker-missing" not in {finding.id for finding in found}
