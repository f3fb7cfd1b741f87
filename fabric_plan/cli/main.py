"""Find the verb, load its module, run it, and turn errors into one to three lines and an exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import NoReturn, Protocol, cast

from fabric_plan import __version__
from fabric_plan.cli.console import Console
from fabric_plan.errors import ExitCode, FabricPlanError, printable


class VerbModule(Protocol):
    """What a verb's module offers: its arguments and its work."""

    EXAMPLE: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, Console], ExitCode]


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb of the command line; its module is imported when it is asked for, so that the others cost
    nothing.
    """

    name: str
    help: str

    def load(self) -> VerbModule:
        """Import the verb's module."""
        return cast(VerbModule, import_module(f"fabric_plan.cli.{self.name.replace('-', '_')}"))


VERBS: tuple[Verb, ...] = (
    Verb("discover", "make an inventory of live nodes over SSH, or of their saved facts, or say why not"),
    Verb("adopt", "make an inventory of what already configures the nodes, or say why not"),
    Verb("validate", "check an inventory and say every finding at once"),
    Verb("pin", "write the present subnets into an inventory, so that a new cable moves none"),
    Verb("render", "write every node's files, plan.json and the proof, for review"),
    Verb("collect", "ask every node once for its facts, to look at or to keep"),
    Verb("diff", "compare the nodes, or their saved facts, with the plan"),
    Verb("review", "write the review page with the live state of saved facts beside the plan"),
    Verb("apply", "put the plan on the nodes as one transaction, with the way back armed"),
    Verb("rollback", "bring the nodes back to the generation before"),
    Verb("remove", "take the mesh, plane 2 or everything of ours off the nodes"),
    Verb("verify", "hold the live nodes against the plan, and say pass only for what was seen"),
    Verb("history", "list the generations that the nodes keep"),
    Verb("prove", "walk every frame of the plan without writing anything"),
    Verb("explain", "say what the id of a warning, refusal or finding means, and how to mend it"),
    Verb("lab", "rehearse on virtual machines that behave like the nodes"),
    Verb("nccl", "lint a graph file, look into an NCCL library, or read a serving log"),
    Verb("completion", "print a script that lets bash or zsh complete verbs and options"),
)

EPILOG = """\
exit codes:
  0   done, no difference, every check passed
  1   an error: bad input, an unreachable node, a failed step
  2   differences (diff --detailed-exitcode), or checks that failed or were not proven (verify)
  64  wrong usage

`fabric-plan VERB --help` has an example of each.
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        sys.stderr.write(f"{self.prog}: {message}\n")
        sys.stderr.write(f"  hint: `{self.prog} --help` has the words, and an example\n")
        raise SystemExit(int(ExitCode.USAGE))


def _common(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("everywhere")
    group.add_argument(
        "--json", action="store_true", help="one JSON document on stdout, words for people on stderr"
    )
    group.add_argument("-v", "--verbose", action="store_true", help="say more")
    group.add_argument(
        "--no-color", action="store_true", help="no colours (NO_COLOR in the environment does the same)"
    )
    group.add_argument("--debug", action="store_true", help="show the traceback of an error")


def parser(chosen: str | None = None) -> argparse.ArgumentParser:
    """Return the parser. Only the `chosen` verb gets its arguments, since only its module is loaded."""
    top = _Parser(
        prog="fabric-plan",
        description="Plan, prove, apply and verify the switchless RDMA fabric of a few directly cabled "
        "hosts.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"fabric-plan {__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    for verb in VERBS:
        sub = verbs.add_parser(
            verb.name, help=verb.help, description=f"{verb.help[0].upper()}{verb.help[1:]}."
        )
        if verb.name == chosen:
            module = verb.load()
            sub.formatter_class = argparse.RawDescriptionHelpFormatter
            sub.epilog = f"example:\n  {module.EXAMPLE}"
            module.configure(sub)
            _common(sub)
            sub.set_defaults(run=module.run)
    return top


def _strange(word: str, names: set[str]) -> int:
    """Say that `word` is no verb, and which one may be meant."""
    from difflib import get_close_matches

    near = get_close_matches(word, sorted(names), n=2, cutoff=0.6)
    hint = f"did you mean {' or '.join(near)}?" if near else "`fabric-plan --help` lists the verbs"
    sys.stderr.write(f"fabric-plan: there is no verb `{printable(word)}`\n  hint: {hint}\n")
    return int(ExitCode.USAGE)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    names = {verb.name for verb in VERBS}
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    if chosen is not None and chosen not in names:
        return _strange(chosen, names)
    top = parser(chosen if chosen in names else None)
    options = top.parse_args(arguments)
    if options.verb is None:
        top.print_help(sys.stderr)
        return int(ExitCode.USAGE)
    console = Console(json=options.json, color=not options.no_color, verbose=options.verbose)
    try:
        return int(options.run(options, console))
    except FabricPlanError as error:
        if options.debug:
            raise
        console.error(error)
        return int(error.exit_code)
    except BrokenPipeError:
        # The reader went away (`| head`): nothing more can be said, and nothing went wrong.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.OK)
    except KeyboardInterrupt:
        console.note("interrupted")
        return 130
    except OSError as error:
        if options.debug:
            raise
        where = error.filename if isinstance(error.filename, str) else None
        console.error(FabricPlanError(error.strerror or str(error), where=where))
        return int(ExitCode.ERROR)
