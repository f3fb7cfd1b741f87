"""The sets that a four-ring can choose from, side by side."""

from __future__ import annotations

from fabric_plan.report.summary import set_table
from tests.golden_trees import ROOT
from tests.planner.test_ring4 import planned

RING4 = (ROOT / "inventories" / "ring4.yaml").read_text()


def test_the_sets_of_a_four_ring_are_compared() -> None:
    header, rows = set_table(planned(RING4))
    assert header[:5] == ("path set", "relay routes", "rules", "most on a cable and plane", "least")
    assert rows == [
        ("opposite", "2", "2", "4", "0", "chosen"),
        ("balanced", "2", "2", "2", "2", ""),
        ("universal", "4", "4", "4", "4", ""),
    ]


def test_where_there_is_no_choice_nothing_is_compared() -> None:
    for text in (RING4 + "planes: {1: managed}\n", RING4.replace("paths: opposite", "paths: off")):
        assert set_table(planned(text))[1] == []
