"""Write the man page from the help: ``make man``."""

from __future__ import annotations

from collections.abc import Iterator

from fabric_plan import __version__
from fabric_plan.cli.grammar import commands
from fabric_plan.cli.main import EPILOG
from tests.golden_trees import ROOT

PAGE = ROOT / "docs" / "man" / "fabric-plan.1"


def roff(text: str) -> str:
    """Return `text` so that roff prints it as it stands."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in escaped.splitlines())


def man() -> str:
    """Return the page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield f'.TH FABRIC-PLAN 1 "" "fabric-plan {__version__}" "User Commands"'
    yield from (".SH NAME", roff("fabric-plan - plan, prove, apply and verify a switchless RDMA fabric"))
    yield from (".SH SYNOPSIS", ".B fabric\\-plan", ".I VERB", "[options]")
    for command in commands():
        yield from (f'.SH "{command.name.upper()}"', roff(f"{command.help[0].upper()}{command.help[1:]}."))
        for argument in command.arguments:
            names = ", ".join(f"\\fB{roff(name)}\\fR" for name in argument.names)
            takes = f"\\fI{roff(argument.takes)}\\fR" if argument.takes else ""
            yield from (".TP", f"{names} {takes}".strip(), roff(argument.help))
        yield from (".PP", "Example:", ".EX", *(roff(example) for example in command.examples), ".EE")
    yield from (".SH EXIT STATUS", ".EX", roff(EPILOG.split("\n\n")[0].split("\n", 1)[1]), ".EE")


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(man())
