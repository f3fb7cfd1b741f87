"""The command line as data: every verb with its arguments, for the man page and for shell completion."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from fabric_plan.cli.main import VERBS, parser


@dataclass(frozen=True, slots=True)
class Argument:
    """One option or operand. `names` is empty for an operand; `takes` what it wants, empty for a switch."""

    names: tuple[str, ...]
    takes: str
    choices: tuple[str, ...]
    help: str


@dataclass(frozen=True, slots=True)
class Command:
    """One verb with everything that its help says."""

    name: str
    help: str
    examples: tuple[str, ...]
    arguments: tuple[Argument, ...]


def commands() -> Iterator[Command]:
    """Yield every verb in the order of the help. Imports all of their modules."""
    for verb in VERBS:
        examples = tuple(line.strip() for line in verb.load().EXAMPLE.splitlines())
        yield Command(verb.name, verb.help, examples, tuple(_arguments(_sub(verb.name))))


def _sub(name: str) -> argparse.ArgumentParser:
    for action in parser(name)._actions:
        if isinstance(action, argparse._SubParsersAction):
            found = action.choices[name]
            assert isinstance(found, argparse.ArgumentParser)
            return found
    raise KeyError(name)


def _arguments(sub: argparse.ArgumentParser) -> Iterator[Argument]:
    for action in sub._actions:
        choices = tuple(str(choice) for choice in action.choices or ())
        takes = "" if action.nargs == 0 else str(action.metavar or "|".join(choices) or action.dest.upper())
        text = (action.help or "") % {"default": action.default, "prog": sub.prog}
        yield Argument(tuple(action.option_strings), takes, choices, text)
