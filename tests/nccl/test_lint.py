"""The lint: each rule of NCCL's reader, with the place, and that no bytes whatever bring it down."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric_plan.nccl.graph import GraphKind
from fabric_plan.nccl.lint import lint, lint_against
from fabric_plan.nccl.xml import Effect
from fabric_plan.render.tree import render
from fabric_plan.resources import layers, templates
from tests.nccl.gpu_cases import LINT_CASES, Case
from tests.strategies import Sketch

PLAN = Sketch().plan()
FILES = {
    file.path.rsplit("/", 1)[1]: file.content for file in render(PLAN, layers(), templates()).files["n0"]
}
GOOD = FILES["ring.xml"]


def _sub(pattern: str, new: str, count: int = 1) -> Callable[[str], str]:
    return lambda text: re.sub(pattern, new, text, count=count, flags=re.S)


RULES: list[tuple[Callable[[str], str], Effect, int, str]] = [
    (lambda text: '<?xml version="1.0"?>\n' + text, Effect.FAILS, 1, "declaration"),
    (_sub(r"\n  <graph", "\n\t<graph"), Effect.FAILS, 2, "tab between tags"),
    (_sub(r" pattern=", "\npattern="), Effect.FAILS, 2, "newline inside the tag <graph>"),
    (_sub(r" pattern=", "\tpattern="), Effect.FAILS, 2, "tab inside the tag <graph>"),
    (_sub(r" pattern=", "  pattern="), Effect.SILENT, 0, ""),
    (_sub(r"<graph id", "<graph\tid"), Effect.FAILS, 2, "`=` where the name"),
    (_sub(r"<channel>", "<channel>x"), Effect.FAILS, 3, "text between tags"),
    (_sub(r"</graph>", "</graph >"), Effect.FAILS, 23, "closing tag of graph"),
    (_sub(r"</graph>", "</grph>"), Effect.FAILS, 23, "</grph> closes <graph>"),
    (_sub(r"</graphs>\n", ""), Effect.FAILS, 45, "never closed"),
    (lambda text: text[:300], Effect.FAILS, 9, "ends in the middle of a tag"),
    (_sub(r'dev="1"', "dev=1"), Effect.FAILS, 4, "without quotes"),
    (_sub(r'version="1"', 'version="2"'), Effect.FAILS, 1, "version of <graphs>"),
    (_sub(r' version="1"', ""), Effect.FAILS, 1, "version of <graphs>"),
    (_sub(r' id="0"', ""), Effect.FAILS, 2, "without an id"),
    *(
        (_sub(rf' {name}="[^"]*"', ""), effect, 2, f"graph 0 has no {name}")
        for name, effect in (
            ("crossnic", Effect.FAILS),
            ("pattern", Effect.FAILS),
            ("nchannels", Effect.FAILS),
            ("speedintra", Effect.FAILS),
            ("speedinter", Effect.FAILS),
            ("latencyinter", Effect.SILENT),
            ("typeintra", Effect.CRASHES),
            ("typeinter", Effect.CRASHES),
            ("samechannels", Effect.FAILS),
        )
    ),
    (_sub(r'<net dev="1"/>', "<net/>"), Effect.FAILS, 4, "a net without dev"),
    (_sub(r'<gpu dev="0"/>', "<gpu/>"), Effect.FAILS, 5, "a gpu without dev"),
    (lambda text: "", Effect.SILENT, 1, "no <graphs>"),
    (lambda text: "<!-- nothing -->\n", Effect.SILENT, 1, "no <graphs>"),
    (_sub(r'  <graph id="0".*?</graph>\n', ""), Effect.SILENT, 1, "no graph 0"),
    (_sub(r'  <graph id="1".*?</graph>\n', ""), Effect.SILENT, 1, "no graph 1"),
    (_sub(r'id="1"', 'id="0"'), Effect.SILENT, 24, "a second graph 0"),
    (_sub(r'id="1"', 'id="9"'), Effect.SILENT, 24, "graph id `9`"),
    (_sub(r'nchannels="4"', 'nchannels="8"'), Effect.SILENT, 2, "says 8 channels and has 4"),
    (_sub(r'nchannels="4"', 'nchannels="2"'), Effect.SILENT, 2, "says 2 channels and has 4"),
    (_sub(r'nchannels="4"', 'nchannels="0"'), Effect.SILENT, 2, "searches channels of its own"),
    (_sub(r'nchannels="4"', 'nchannels="four"'), Effect.SILENT, 2, "is not a number"),
    (_sub(r'nchannels="4"', 'nchannels="100"'), Effect.CRASHES, 2, "more than 64"),
    (_sub(r'pattern="4"', 'pattern="3"'), Effect.SILENT, 2, "a ring is pattern 4"),
    (_sub(r'typeintra="LOC"', 'typeintra="NEAR"'), Effect.SILENT, 2, "no link type"),
    (_sub(r'speedinter="12"', 'speedinter="fast"'), Effect.SILENT, 2, "is not a number"),
    (_sub(r'<net dev="1"/>\s*', ""), Effect.SILENT, 3, "one net"),
    (_sub(r'<net dev="."/>\s*(<gpu dev="0"/>)\s*<net dev="."/>', r"\1"), Effect.SILENT, 3, "without a net"),
    (_sub(r"</channel>", '<net dev="2"/></channel>'), Effect.SILENT, 7, "third net"),
    (_sub(r'<gpu dev="0"/>\s*', ""), Effect.SILENT, 3, "without a gpu"),
    (_sub(r'<gpu dev="0"/>', '<gpu dev="0"/><gpu dev="1"/>'), Effect.SILENT, 5, "second gpu"),
    (_sub(r'<net dev="1"/>', '<net dev="z"/>'), Effect.SILENT, 4, "not hexadecimal"),
    (_sub(r'<net dev="1"/>', '<net dev="1" dev="3"/>'), Effect.SILENT, 4, "written twice"),
    (_sub(r'<net dev="1"/>', '<net dev="3"/>'), Effect.SILENT, 24, "name different devices"),
    (_sub(r"<channel>", "<!-- never closed"), Effect.FAILS, 3, "comment that never ends"),
    (_sub(r'"LOC"', f'"{"L" * 300}"'), Effect.FAILS, 2, "more than 254"),
]


def test_what_is_rendered_is_clean() -> None:
    for name in ("ring.xml", "link-prev.xml", "link-next.xml"):
        assert lint(FILES[name].encode()) == ()


@pytest.mark.parametrize(("damage", "effect", "line", "said"), RULES)
def test_rule(damage: Callable[[str], str], effect: Effect, line: int, said: str) -> None:
    found = lint(damage(GOOD).encode())
    if not said:  # a second blank is an empty attribute: harmless
        assert found == ()
        return
    assert any(f.effect is effect and f.line == line and said in f.text and f.hint for f in found), found


@pytest.mark.parametrize(
    "harmless",
    [
        _sub(r"<channel>", "<!-- a note --><channel>"),
        _sub(r"\n", "\r\n", 0),
        _sub(r"/>", " />", 0),
        _sub(r'"', "'", 0),
        _sub(r"<channel>", "<unknown><deep>\n</deep></unknown><channel>"),
        _sub(r"\n *", "", 0),
    ],
)
def test_what_nccl_reads_as_meant_is_let_pass(harmless: Callable[[str], str]) -> None:
    assert lint(harmless(GOOD).encode()) == ()


@pytest.mark.parametrize("case", LINT_CASES, ids=lambda case: str(case.name))
def test_the_lint_says_what_was_seen_of_nccl(case: Case) -> None:
    """These files are run through NCCL itself where there is a GPU; here the lint has to say the same."""
    assert case.damage is not None
    found = lint_against(
        case.damage(FILES["link-next.xml"]).encode(), PLAN, PLAN.nodes[0], GraphKind.LINK_NEXT
    )
    if case.proves == "reads":
        assert found == ()
    else:
        assert case.proves in {str(finding.effect) for finding in found}


def test_a_file_of_another_node_or_communicator_is_told() -> None:
    swapped = FILES["ring.xml"].replace('<net dev="1"/>', '<net dev="x"/>')
    swapped = swapped.replace('<net dev="0"/>', '<net dev="1"/>').replace('<net dev="x"/>', '<net dev="0"/>')
    (first, *_) = lint_against(swapped.encode(), PLAN, PLAN.nodes[0], GraphKind.RING)
    assert first.text == "channel 0 is on rocep1s0f0, which does not face n3 (rank 3)"
    link = lint_against(FILES["link-next.xml"].encode(), PLAN, PLAN.nodes[0], GraphKind.LINK_PREV)
    assert link[0].text == "channel 0 is on rocep1s0f0, which does not face n3 (rank 3)"
    plane = FILES["ring.xml"].replace('<net dev="1"/>', '<net dev="3"/>')
    assert "is on plane 2, and on plane 1 elsewhere" in str(
        lint_against(plane.encode(), PLAN, PLAN.nodes[0], GraphKind.RING)
    )
    slow = FILES["ring.xml"].replace('speedinter="12"', 'speedinter="10"')
    assert "where the hardware role has 12" in str(
        lint_against(slow.encode(), PLAN, PLAN.nodes[0], GraphKind.RING)
    )
    far = FILES["ring.xml"].replace('<net dev="1"/>', '<net dev="a"/>')
    assert "names device 10; n0 has 4" in str(lint_against(far.encode(), PLAN, PLAN.nodes[0], GraphKind.RING))


@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(GOOD) - 1), st.sampled_from(("flip", "cut", "put")), st.integers(0, 255)
        ),
        min_size=1,
        max_size=4,
    )
)
def test_no_damage_brings_the_lint_down(edits: list[tuple[int, str, int]]) -> None:
    data = bytearray(GOOD.encode())
    for at, how, byte in edits:
        at = min(at, max(0, len(data) - 1))
        if how == "flip" and data:
            data[at] ^= byte
        elif how == "cut":
            del data[at : at + byte]
        else:
            data.insert(at, byte)
    for finding in (*lint(bytes(data)), *lint_against(bytes(data), PLAN, PLAN.nodes[0], GraphKind.RING)):
        assert finding.line >= 1
        assert finding.column >= 1


@settings(deadline=None, max_examples=200)
@given(
    st.binary(max_size=400) | st.text(alphabet="<>/=\"' \t\ngraphsnetdv01-!", max_size=300).map(str.encode)
)
def test_no_bytes_bring_the_lint_down(data: bytes) -> None:
    lint(data)


def test_a_deep_file_is_no_recursion() -> None:
    lint(b'<graphs version="1">' + b"<x>" * 50000)
    lint(b"<!---->" * 50000)
