"""``fabric-plan completion``: what a shell has to be told to complete verbs, options and their choices."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from fabric_plan.cli.console import Console
from fabric_plan.errors import ExitCode

EXAMPLE = "fabric-plan completion > ~/.local/share/bash-completion/completions/fabric-plan"

_HEAD = """\
# bash completion for fabric-plan; zsh reads it after `autoload -U bashcompinit; bashcompinit`.
_fabric_plan() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]} words=
    COMPREPLY=()
    if [[ $COMP_CWORD == 1 ]]; then
        words="VERBS --help --version"
    else
        case "$verb $before" in
"""
_MIDDLE = """\
        esac
        if [[ -z $words ]]; then
            case $verb in
"""
_TAIL = """\
            esac
        fi
    fi
    while IFS='' read -r line; do COMPREPLY+=("$line"); done < <(compgen -W "$words" -- "$word")
}
complete -o default -F _fabric_plan fabric-plan
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this verb's arguments: none."""


def run(options: argparse.Namespace, console: Console) -> ExitCode:
    """Print the script."""
    text = script()
    if console.json:
        console.document({"schema": "fabric-plan/completion/v1", "bash": text})
    else:
        console.say(text.rstrip("\n"))
    return ExitCode.OK


def script() -> str:
    """Return the completion script for bash."""
    return "".join(_lines())


def _lines() -> Iterator[str]:
    from fabric_plan.cli.grammar import commands

    known = tuple(commands())
    yield _HEAD.replace("VERBS", " ".join(command.name for command in known))
    for command in known:
        for argument in command.arguments:
            if argument.names and argument.choices:
                cases = "|".join(f'"{command.name} {name}"' for name in argument.names)
                yield f'            {cases}) words="{" ".join(argument.choices)}" ;;\n'
    yield _MIDDLE
    for command in known:
        words = [name for argument in command.arguments for name in argument.names]
        words += [c for argument in command.arguments if not argument.names for c in argument.choices]
        yield f'                {command.name}) words="{" ".join(words)}" ;;\n'
    yield _TAIL
