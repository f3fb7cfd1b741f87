"""The live state beside the plan: differences of files and settings, what apply would disrupt, how long."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from fabric_plan.cli.main import main
from fabric_plan.compare.offload import RELOAD, RELOAD_SECONDS
from fabric_plan.facts.saved import collection
from fabric_plan.node.document import Facts, File
from fabric_plan.node.reading import Reading
from fabric_plan.node.records import Hairpin
from fabric_plan.report.live import Live, disruptions
from fabric_plan.report.review import review
from fabric_plan.resources import layers, templates
from fabric_plan.simulate.prove import prove
from tests.checks.sound import Mutate, broken, sound
from tests.facts_builder import desired, rendered, with_file
from tests.facts_builder import read as read_whole
from tests.golden_trees import ROOT
from tests.review.pages import example
from tests.review.test_page import Reader, read

INVENTORY = str(ROOT / "inventories" / "ring4.yaml")
OLD = "/etc/netplan/40-sparkring-plane1.yaml"
P0, P1 = "0000:01:00.0", "0000:01:00.1"

Captured = pytest.CaptureFixture[str]


def facts_of(changes: dict[str, Mutate]) -> dict[str, Facts]:
    return dict(broken(sound(example("ring4")), changes).facts)


def live(facts: dict[str, Facts]) -> Live:
    wants = {name: want for name, want in desired(example("ring4")).items() if name in facts}
    return Live.of(wants, facts, dict.fromkeys(facts, "2026-09-21 08:26 UTC"))


def page(facts: dict[str, Facts]) -> Reader:
    plan = example("ring4")
    return read(review(plan, rendered(plan), prove(plan), layers(), templates(), live=live(facts)))


def mtu_1500(facts: Facts) -> Facts:
    found = (facts.netplan.value or {})[OLD]
    text = (found.text or "").replace("mtu: 9000", "mtu: 1500")
    return with_file(facts, OLD, replace(found, text=text, sha256="0" * 64))


def small_queues(*places: str) -> Mutate:
    """Have the functions at these PCI addresses show a hairpin of the driver's default size."""
    live: Reading[tuple[Hairpin, ...]] = read_whole((Hairpin(1, 0, 1, 4, 1024),))

    def change(facts: Facts) -> Facts:
        shown = {pci: replace(facts.devlink[pci], hairpins=live) for pci in places}
        return replace(facts, devlink={**facts.devlink, **shown})

    return change


def saved(facts: dict[str, Facts], path: Path) -> str:
    documents = {name: json.loads(json.dumps(found, default=vars)) for name, found in facts.items()}
    path.write_text(json.dumps(collection(documents, {})))
    return str(path)


def words(reader: Reader) -> str:
    return " ".join(reader.text.split())


def test_a_fabric_as_planned_has_no_difference() -> None:
    text = words(page(facts_of({})))
    assert text.count("no difference") == 4
    assert "Apply would disrupt nobody." in text
    assert "Against the live state" not in text


def test_a_file_shows_what_is_there_and_what_comes() -> None:
    found = page(facts_of({"spark2": mtu_1500}))
    assert "-      mtu: 1500" in found.text and "+      mtu: 9000" in found.text
    assert "spark2: 1 differences, 0 of them disrupt" in words(found)
    assert words(found).count("Against the live state:") == 1


def test_a_file_whose_content_is_not_known_says_so() -> None:
    def unread(facts: Facts) -> Facts:
        return with_file(facts, OLD, File("file", "0600", 0, 0, 1 << 20, "0" * 64))

    text = words(page(facts_of({"spark2": unread})))
    assert "It differs from the live state, whose content the facts do not hold." in text


def test_secrets_that_were_taken_out_are_no_difference() -> None:
    def redacted(facts: Facts) -> Facts:
        found = (facts.netplan.value or {})[OLD]
        return with_file(facts, OLD, replace(found, text="***", redacted=True))

    assert "Against the live state" not in words(page(facts_of({"spark2": redacted})))


def test_a_changed_file_without_its_secrets_is_not_compared_line_by_line() -> None:
    def redacted(facts: Facts) -> Facts:
        found = (facts.netplan.value or {})[OLD]
        return with_file(facts, OLD, replace(found, text="***", sha256="0" * 64, redacted=True))

    text = words(page(facts_of({"spark2": redacted})))
    assert "whose content the facts do not hold" in text and "***" not in text


def test_a_file_of_ours_that_goes_is_named_and_nobody_elses() -> None:
    def more(facts: Facts) -> Facts:
        facts = with_file(facts, "/etc/fabric-plan/left", File("file", "0644", 0, 0, 1, "0" * 64, text="x"))
        return with_file(
            facts, "/etc/netplan/01-other.yaml", File("file", "0600", 0, 0, 1, "1" * 64, text="x")
        )

    text = words(page(facts_of({"spark3": more})))
    assert "Gone against the live state: /etc/fabric-plan/left." in text


def test_reloads_are_counted_and_their_time_added_up() -> None:
    facts = facts_of({"spark1": small_queues(P0, P1), "spark3": small_queues(P0)})
    (found,) = disruptions(live(facts).steps)
    least, most = RELOAD_SECONDS
    assert found == {
        "words": RELOAD,
        "count": 3,
        "nodes": {"spark1": 2, "spark3": 1},
        "seconds": [3 * least, 3 * most],
    }
    text = words(page(facts))
    assert f"3 times: {RELOAD} (spark1: 2, spark3: 1); 12 to 24 s in all" in text
    assert re.search(r"In this order spark1: hairpin \w+ spark1: hairpin \w+ spark3: hairpin", text)


def test_what_apply_would_refuse_stands_there() -> None:
    def busy(facts: Facts) -> Facts:
        facts = small_queues(P0)(facts)
        usage = replace(facts.rdma.usage, in_use=True, reasons=("python3 has 4 queue pairs",))
        return replace(facts, rdma=replace(facts.rdma, usage=usage))

    text = words(page(facts_of({"spark1": busy})))
    assert "refuse: spark1: RDMA is in use: python3 has 4 queue pairs [rdma-in-use]" in text


def test_a_node_without_facts_is_not_proven() -> None:
    facts = facts_of({})
    del facts["spark4"]
    text = words(page(facts))
    assert "There are no facts of spark4: what apply would do there is not known." in text
    assert text.count("no difference") == 3


def test_the_command_writes_page_and_words(tmp_path: Path, capsys: Captured) -> None:
    facts = saved(facts_of({"spark1": small_queues(P0)}), tmp_path / "facts.json")
    out = tmp_path / "live.html"
    for _ in range(2):  # a page that is there is written anew
        assert main(["review", facts, "-i", INVENTORY, "-o", str(out)]) == 0
    said = capsys.readouterr().out
    assert "1 times: reloads the driver" in said and "4 to 8 s in all" in said
    assert "2026-09-21" in said and "beside the live state" in out.read_text()


def test_facts_may_come_in_several_files(tmp_path: Path, capsys: Captured) -> None:
    facts = facts_of({})
    one = saved({"spark1": facts["spark1"]}, tmp_path / "one.json")
    two = saved({"spark2": facts["spark2"]}, tmp_path / "two.json")
    words = ["review", one, two, "-i", INVENTORY, "-o", str(tmp_path / "p.html"), "--json"]
    assert main(words) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document["nodes"]) == ["spark1", "spark2"] and document["missing"] == ["spark3", "spark4"]
    assert main(["review", one, one, "-i", INVENTORY, "-o", str(tmp_path / "p.html")]) == 1
    assert "has facts of spark1, and so has a file before it" in capsys.readouterr().err


def test_it_replaces_pages_alone(tmp_path: Path, capsys: Captured) -> None:
    facts = saved(facts_of({}), tmp_path / "facts.json")
    (tmp_path / "notes.txt").write_text("mine")
    for name in ("notes.txt", ""):
        assert main(["review", facts, "-i", INVENTORY, "-o", str(tmp_path / name)]) == 1
        assert "is there and is no page" in capsys.readouterr().err
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_facts_of_strangers_are_refused(tmp_path: Path, capsys: Captured) -> None:
    facts = facts_of({})
    path = saved({"other": facts["spark1"]}, tmp_path / "facts.json")
    assert main(["review", path, "-i", INVENTORY, "-o", str(tmp_path / "p.html")]) == 1
    assert "facts of other, none of whom is a node of this inventory" in capsys.readouterr().err
    assert not (tmp_path / "p.html").exists()
