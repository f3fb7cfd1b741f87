"""The review page in a real browser: paths light up, nothing is fetched, nothing is wrong for axe."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabric_plan.report.review import review
from fabric_plan.resources import layers, templates
from fabric_plan.simulate.prove import prove
from tests.facts_builder import rendered
from tests.review.browser import Seen, chromium, why_not
from tests.review.pages import HOSTILE, example, hostile, page, page_of, ring
from tests.review.screenshots import FOLDER, PICTURES, take
from tests.review.test_live import facts_of, live, mtu_1500, small_queues

pytestmark = [pytest.mark.browser, pytest.mark.skipif(bool(why_not()), reason=why_not() or "")]


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with chromium() as found:
        yield found


@pytest.fixture
def see(browser: object, tmp_path: Path) -> Iterator[Seen]:
    seen = Seen(browser, tmp_path)
    yield seen
    seen.close()
    assert seen.errors == []
    assert seen.asked == [seen.url]


def test_a_path_lights_up_with_all_that_it_uses(see: Seen) -> None:
    tab = see.open(page_of("ring4"))
    path = tab.locator("details.path", has_text="spark1 to spark3, plane 1 through spark2")
    path.locator("summary").hover()
    lit = set(tab.eval_on_selector_all(".lit", "all => all.map(one => one.getAttribute('class'))"))
    wires = {one.split()[2] for one in lit if one.startswith("cable")}
    assert wires == {"c0-1", "c1-1"}
    assert {one.split()[1] for one in lit if one.startswith("node")} == {"n0", "n1", "n2"}
    assert sum(one.startswith("r1-") for one in lit) == 1 and sum(one.startswith("t0-") for one in lit) == 1
    tab.mouse.move(0, 0)
    assert tab.locator(".lit").count() == 0
    path.locator("summary").click()
    tab.mouse.move(0, 0)
    assert tab.locator(".cable.lit").count() == 2
    assert "spark2, rule 881" in path.inner_text()
    tab.keyboard.press("Escape")
    assert tab.locator(".lit").count() == 0


def test_a_cable_is_chosen_with_the_keyboard(see: Seen) -> None:
    tab = see.open(page_of("ring4"))
    cable = tab.locator(".cable.c1-1")
    cable.focus()
    tab.keyboard.press("Enter")
    assert cable.get_attribute("aria-pressed") == "true"
    tab.locator(".cable.c0-1").focus()
    tab.locator(".skip").focus()
    # Both directions of the direct path, and of the two relayed ones that cross it.
    expected = tab.eval_on_selector_all(
        "details.path", "all => all.filter(one => one.dataset.lights.split(' ').includes('c1-1')).length"
    )
    assert tab.locator("details.path.lit").count() == expected > 2
    assert str(expected) in tab.locator("#lit").inner_text()
    cable.focus()
    tab.keyboard.press("Space")
    assert cable.get_attribute("aria-pressed") == "false"


@pytest.mark.parametrize("width", [1280, 480])
def test_lighting_a_path_moves_nothing(see: Seen, width: int) -> None:
    # What moves away from under the pointer goes out again, comes back, and flickers for ever.
    tab = see.open(page_of("ring8"), width=width)
    tab.eval_on_selector_all("details.group", "all => all.forEach(one => one.open = true)")
    summary = tab.locator("details.path > summary").nth(3)
    summary.scroll_into_view_if_needed()
    tab.mouse.move(0, 0)
    where = summary.bounding_box()
    summary.hover()
    assert tab.locator("details.path.lit").count() == 1
    assert tab.locator("#lit").inner_text()
    assert summary.bounding_box() == where


def test_a_file_shows_its_content(see: Seen) -> None:
    tab = see.open(page_of("ring4"))
    tab.locator("details.node-part > summary").first.click()
    file = tab.locator("details.file", has_text="mesh-up.sh").first
    file.locator("summary").click()
    shown = file.locator(".content")
    shown.wait_for()
    text = shown.text_content() or ""
    assert text.startswith("#!/bin/bash") and "nothing below is data" in text


@pytest.mark.parametrize(("name", "scheme"), [("ring4", "light"), ("ring4", "dark"), ("ring8", "light")])
def test_axe_finds_nothing(see: Seen, name: str, scheme: str) -> None:
    tab = see.open(page_of(name), scheme=scheme)
    tab.eval_on_selector_all("details.group, details.node-part", "all => all.forEach(one => one.open = true)")
    tab.locator("details.path").first.locator("summary").click()
    assert see.axe() == []


def test_a_plan_of_64_nodes_stays_usable(see: Seen) -> None:
    tab = see.open(page(ring(64)))
    assert tab.locator(".node").count() == 64
    tab.locator("details.group > summary").nth(40).click()
    path = tab.locator("details.group").nth(40).locator("details.path").first
    path.locator("summary").click()
    assert tab.locator(".cable.lit").count() == 1


def test_a_hostile_plan_runs_nothing(see: Seen) -> None:
    tab = see.open(page(hostile()))
    assert HOSTILE in tab.title()
    assert tab.locator("img").count() == 0


def test_the_live_state_stands_beside_the_plan(see: Seen) -> None:
    facts = facts_of({"spark1": small_queues("0000:01:00.0"), "spark2": mtu_1500})
    plan = example("ring4")
    tab = see.open(review(plan, rendered(plan), prove(plan), layers(), templates(), live=live(facts)))
    part = tab.locator("details.node-part", has_text="spark2:").first
    assert "1 differences" in part.locator("summary").first.inner_text()
    part.locator("summary").first.click()
    file = part.locator("details.file", has_text="40-sparkring-plane1.yaml").first
    file.locator("summary").click()
    assert "mtu: 1500" in file.locator(".diff .del").first.inner_text()
    entry = tab.locator("details.live", has_text="spark1:")
    entry.locator("summary").click()
    assert entry.locator("table").is_visible()
    assert see.axe() == []


def test_it_prints(see: Seen) -> None:
    tab = see.open(page_of("ring4"))
    tab.emulate_media(media="print")
    assert not tab.locator("nav").is_visible()
    assert tab.pdf().startswith(b"%PDF")


@pytest.mark.parametrize("name", ["ring4", "ring8", "triangle", "line4", "switched4"])
def test_no_text_of_the_drawing_lies_on_another(see: Seen, name: str) -> None:
    tab = see.open(page_of(name))
    over = tab.evaluate(
        """() => {
          const all = [...document.querySelectorAll('svg text')];
          const boxes = all.map(one => [one.textContent, one.getBoundingClientRect()]);
          const found = [];
          boxes.forEach(([a, p], i) => boxes.slice(i + 1).forEach(([b, q]) => {
            const w = Math.min(p.right, q.right) - Math.max(p.left, q.left);
            const h = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
            if (w > 2 && h > 3) found.push(`${a} / ${b}`);
          }));
          return found;
        }"""
    )
    assert over == []


def size(picture: Path) -> tuple[int, int]:
    """Return width and height from a PNG's header."""
    width, height = struct.unpack(">II", picture.read_bytes()[16:24])
    return width, height


def test_the_pictures_of_docs_can_be_taken(browser: object, tmp_path: Path) -> None:
    taken = take(tmp_path, browser)
    assert [file.stem for file in taken] == list(PICTURES)
    for file in taken:
        assert size(file) == size(FOLDER / file.name), "make screenshots"


def test_the_pictures_of_docs_show_what_there_is() -> None:
    for name, (inventory, scheme, path) in PICTURES.items():
        assert (FOLDER / f"{name}.png").exists(), "make screenshots"
        assert f"<summary>{path}</summary>" in page_of(inventory)
        assert scheme in ("light", "dark")
