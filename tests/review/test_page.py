"""The review page without a browser: complete, escaped, self-contained, the same bytes each time."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fabric_plan.cli.main import main
from fabric_plan.report.review import Against
from fabric_plan.report.words import route_of, rule_of
from tests.facts_builder import rendered
from tests.golden_trees import ROOT
from tests.review.pages import HOSTILE, example, hostile, page, page_of

EXAMPLES = sorted(path.stem for path in (ROOT / "inventories").glob("*.yaml"))
VOID = {"meta", "link", "br", "img"}


class Reader(HTMLParser):
    """Notes tags and attributes, and holds that what is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.classes: set[str] = set()
        self.ids: list[str] = []
        self.lights: list[str] = []
        self.targets: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "class":
                self.classes |= set((value or "").split())
            elif name == "id":
                self.ids.append(value or "")
            elif name == "data-lights":
                self.lights += (value or "").split()
            elif name in ("href", "src"):
                self.targets.append(value or "")
            assert not name.startswith("on"), name

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    assert reader.open == []
    return reader


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_has_a_whole_page(name: str) -> None:
    html = page_of(name)
    found = read(html)
    assert html == page(example(name))
    assert set(found.lights) <= found.classes
    assert len(found.ids) == len(set(found.ids))
    assert all(target.startswith(("#", "data:,")) for target in found.targets)
    assert not re.search(r"https?://|@import|url\(", html.split('<script type="application/json"')[0])


@pytest.mark.parametrize("name", EXAMPLES)
def test_addresses_rules_routes_and_warnings_are_told(name: str) -> None:
    plan, found = example(name), read(page_of(name))
    for node in plan.nodes:
        for planned in node.functions:
            assert planned.address is None or str(planned.address) in found.text
    for notice in plan.notices:
        assert notice.text in found.text and f"[{notice.id}]" in found.text
    rules = sum(len(node.rules) for node in plan.nodes)
    assert len({light for light in found.lights if light.startswith("r")}) == rules
    assert len({one for one in found.classes if re.fullmatch(r"r\d+-\d+", one)}) == rules


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_relayed_path_has_its_route_and_a_rule_at_each_relay(name: str) -> None:
    plan = example(name)
    for path in plan.paths:
        assert (route_of(plan, path) is None) == path.direct, str(path)
        assert all(rule_of(plan, path, i) for i in range(len(path.through))), str(path)


def test_a_rule_is_told_as_people_say_it() -> None:
    assert re.search(
        r"frames tagged 0x88b5 from spark1 come in by f1 and leave by f0 to spark3, as plain IPv4",
        page_of("ring4"),
    )


def test_every_file_is_there_whole() -> None:
    plan, html = example("ring4"), page_of("ring4")
    stored = re.search(r'<script type="application/json" id="pieces">(.*?)</script>', html, re.DOTALL)
    assert stored
    pieces = json.loads(stored[1])
    shown = {
        (path, "".join(pieces[int(number)] for number in numbers.split()))
        for numbers, path in re.findall(
            r'<details class="file" data-pieces="([\d ]+)">\s*<summary><code>([^<]+)</code>', html
        )
    }
    assert shown == {(f.path, f.content) for files in rendered(plan).files.values() for f in files}


def test_what_a_plan_says_is_never_markup() -> None:
    html = page(hostile())
    found = read(html)
    assert "img" not in set(re.findall(r"<(\w+)", html))
    assert found.text.count(HOSTILE) >= 4  # heading, title, text, hint
    assert "49" not in re.findall(r"<h1>(.*?)</h1>", html)[0]
    assert html.count("</script>") == 2


def test_a_change_shows_its_difference_and_whom_it_disturbs() -> None:
    plan = example("ring4")
    before = {
        name: {file.path: file.content for file in files} for name, files in rendered(plan).files.items()
    }
    assert page(plan, Against("the render before", before)) == page(plan)
    old = "/etc/netplan/40-sparkring-plane1.yaml"
    before["spark2"][old] = before["spark2"][old].replace("mtu: 9000", "mtu: 1500")
    before["spark3"]["/etc/fabric-plan/old"] = "gone"
    del before["spark4"]["/etc/fabric-plan/node.json"]
    found = read(page(plan, Against("the render before", before)))
    assert "-      mtu: 1500" in found.text and "+      mtu: 9000" in found.text
    assert "Changed on spark2 against the render before" in " ".join(found.text.split())
    assert "Gone against the render before: /etc/fabric-plan/old." in found.text


def test_render_writes_it_and_a_second_render_the_same(tmp_path: Path) -> None:
    words = ["render", "-i", str(ROOT / "inventories" / "pair.yaml"), "-o", str(tmp_path / "b")]
    assert main(words) == 0
    first = (tmp_path / "b" / "review.html").read_bytes()
    assert main(words) == 0
    assert (tmp_path / "b" / "review.html").read_bytes() == first


def test_render_compares_with_what_stood_there(tmp_path: Path) -> None:
    text = (ROOT / "inventories" / "pair.yaml").read_text()
    inventory = tmp_path / "pair.yaml"
    for mtu in ("mtu: 4500\n", ""):
        inventory.write_text(text + mtu)
        assert main(["render", "-i", str(inventory), "-o", str(tmp_path / "b")]) == 0
    assert "-      mtu: 4500" in (tmp_path / "b" / "review.html").read_text()
