"""The words hold: links lead somewhere, commands parse, examples load, tables list what is there."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabric_plan.cli.main import VERBS, parser
from fabric_plan.explain import listed
from fabric_plan.inventory.load import load
from fabric_plan.inventory.schema import Inventory
from fabric_plan.planner.plan import plan_fabric
from fabric_plan.resources import hardware_roles, layers, meanings

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = {verb.name for verb in VERBS}


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def sub(verb: str) -> argparse.ArgumentParser:
    top = parser(verb)
    action = next(a for a in top._actions if isinstance(a, argparse._SubParsersAction))
    found = action.choices[verb]
    assert isinstance(found, argparse.ArgumentParser)
    return found


def inline(text: str) -> Iterator[str]:
    """Yield every code span that is a command of ours."""
    prose = re.sub(r"^(?:```.*?^```|    .*?$)", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from (span for span in re.findall(r"`([^`\n]+)`", prose) if span.startswith("fabric-plan "))


def blocks(text: str) -> Iterator[str]:
    """Yield every whole command line of ours in a block of code."""
    for line in re.findall(r"^(?: {4,}|\$ )((?:sudo )?fabric-plan .*)$", text, re.MULTILINE):
        yield line.removeprefix("sudo ").split("  #")[0].split(" | ")[0].split(" > ")[0]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not re.match(r"[a-z]+:", target):
            file, _, anchor = target.partition("#")
            there = (page.parent / file).resolve() if file else page
            assert there.exists(), target
            if anchor:
                heads = re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE)
                assert anchor in {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in heads}, target


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_in_the_text_are_known(page: Path) -> None:
    for command in inline(page.read_text()):
        words = shlex.split(command)[1:]
        if words[0].startswith("-") or words[0] == "VERB":
            continue
        assert words[0] in NAMES, command
        known = sub(words[0])._option_string_actions
        assert not {w.split("=")[0] for w in words[1:] if w.startswith("-") and w != "-"} - set(known), (
            command
        )


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_in_blocks_parse(page: Path) -> None:
    for command in blocks(page.read_text()):
        words = shlex.split(command)[1:]
        parser(words[0]).parse_args(words)


@pytest.mark.parametrize("verb", sorted(NAMES))
def test_examples_of_help_parse(verb: str) -> None:
    module = next(v for v in VERBS if v.name == verb).load()
    for line in module.EXAMPLE.splitlines():
        parser(verb).parse_args(shlex.split(line.strip().split(" > ")[0])[1:])


def test_each_verb_of_the_lab_has_an_example() -> None:
    action = next(a for a in sub("lab")._actions if isinstance(a, argparse._SubParsersAction))
    for name, verb in action.choices.items():
        found = re.match(r"example:\n  fabric-plan (lab \S+.*)", verb.epilog or "")
        assert found, name
        assert parser("lab").parse_args(shlex.split(found[1])).lab_verb == name


def test_commands_in_explanations_are_known() -> None:
    for one in listed(meanings()):
        for command in inline(f"{one.meaning.why} {one.meaning.mend}"):
            verb, *words = shlex.split(command)[1:]
            known = sub(verb)._option_string_actions
            assert not {w for w in words if w.startswith("-")} - set(known), f"{one.id}: {command}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_inventories_in_the_text_load(page: Path) -> None:
    for example in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        if "nodes:" in example and "cables:" in example:
            plan_fabric(load(example, "home.yaml", hardware_roles()).fabric)


def test_the_reference_has_every_key_of_an_inventory() -> None:
    text = (ROOT / "docs/reference/inventory.md").read_text()
    for key in Inventory.model_fields:
        assert re.search(rf"^\| .*`{key}\b", text, re.MULTILINE) or key in ("nodes", "cables", "rails"), key
    for field in (
        "pool",
        "prefix",
        "queue_size",
        "num_queues",
        "paths",
        "library",
        "channels",
        "mgmt_netdev",
    ):
        assert field in text


def test_the_reference_has_every_artefact() -> None:
    text = (ROOT / "docs/reference/files.md").read_text()
    for layer in layers():
        for artefact in layer.artefacts:
            stem = artefact.path.rsplit("/", 1)[-1]
            name = re.sub(r"\{[^}]*\}", "*", stem)
            shown = {"*.env": "env", "*.xml": "*.xml", "*-sparkring-plane*.yaml": "40-sparkring-plane1.yaml"}
            assert shown.get(name, name) in text, artefact.path


def test_every_page_is_reachable() -> None:
    """A reader who follows links from README.md comes to every page."""
    seen, todo = {ROOT / "README.md"}, [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        for target in re.findall(r"\]\(([^)#\s]+\.md)", page.read_text()):
            there = (page.parent / target).resolve()
            if there not in seen:
                seen.add(there)
                todo.append(there)
    assert set(PAGES) == seen


def test_nothing_is_pointed_at_that_does_not_travel() -> None:
    wrong = [
        named(path)
        for folder in ("fabric_plan", "roles", "templates")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix in (".py", ".yaml", ".j2")
        for word in re.findall(r"\b(?:FABRIC|DESIGN|MODELS)\.md", path.read_text())
        if word
    ]
    assert wrong == []
