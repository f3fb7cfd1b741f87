"""``fabric-plan explain``: what an id in brackets means, why it matters and how to mend it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from fabric_plan.cli.console import Console
from fabric_plan.errors import ExitCode
from fabric_plan.explain import Explanation, explain, listed
from fabric_plan.resources import meanings

EXAMPLE = "fabric-plan explain half-bandwidth"
WIDTH = 96


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this verb's arguments."""
    parser.add_argument(
        "id", nargs="?", metavar="ID", help="the word in brackets behind a message; without it, list them"
    )


def run(options: argparse.Namespace, console: Console) -> ExitCode:
    """Explain one id, or list all."""
    known = listed(meanings())
    found = known if options.id is None else explain(known, options.id)
    if options.id is None:
        console.table(("area", "id", "what"), ((one.area, one.id, one.meaning.what) for one in found))
    else:
        for one in found:
            console.say(f"{one.id} ({one.area})", "head")
            for line in _lines(one):
                console.say(line)
    if console.json:
        console.document({"schema": "fabric-plan/explain/v1", "ids": [_document(one) for one in found]})
    return ExitCode.OK


def _lines(one: Explanation) -> Iterator[str]:
    meaning = one.meaning
    parts = (("what", meaning.what), ("why", meaning.why), ("mend", meaning.mend), ("figure", meaning.figure))
    for name, text in parts:
        if text:
            yield from wrap(text, WIDTH, initial_indent=f"  {name:<8}", subsequent_indent=" " * 10)


def _document(one: Explanation) -> dict[str, Any]:
    return {"area": one.area, "id": one.id, **one.meaning.model_dump()}
