"""The verb `lab`: `add_parser` hangs it under a program's subcommands, ``python -m lab`` runs it alone."""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fabric_plan.errors import ExitCode, FabricPlanError
from lab import driver, faults, host, spec
from lab.build import build
from lab.errors import LabError

if TYPE_CHECKING:
    SubParsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: SubParsers) -> argparse.ArgumentParser:
    """Add `lab` with its own verbs; the parsed arguments go to `run`."""
    parser = subparsers.add_parser("lab", help="rehearse on virtual machines that behave like the nodes")
    add_verbs(parser)
    return parser


def add_verbs(parser: argparse.ArgumentParser) -> None:
    """Add the lab's verbs to a parser."""
    verbs = parser.add_subparsers(dest="lab_verb", required=True, metavar="VERB")

    def verb(name: str, example: str, text: str, more: str = "") -> argparse.ArgumentParser:
        found = verbs.add_parser(
            name,
            help=text,
            epilog=f"example:\n  fabric-plan lab {example}{more}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name in ("up", "status"):
            found.add_argument(
                "--json", action="store_true", default=argparse.SUPPRESS, help="one JSON document on stdout"
            )
        return found

    verb("build", "build", "build kernel module and image, nothing else")
    up = verb(
        "up",
        "up -i inventories/ring4.yaml",
        "build what is missing and bring the nodes up in their clean state",
    )
    up.add_argument("-i", "--inventory", help="take nodes, MACs and cables from this inventory")
    up.add_argument(
        "--nodes", type=int, default=4, help="without an inventory: a ring of this many nodes (default 4)"
    )
    up.add_argument(
        "--style",
        type=spec.Style,
        choices=list(spec.Style),
        default=spec.Style.ALL_SAME,
        help="how that ring is cabled",
    )
    up.add_argument("--accel", choices=("kvm", "tcg"), help="default: kvm where /dev/kvm works")
    verb("status", "status", "which nodes are up, and how to reach them")
    verb("save", "save", "keep the present state as the one that restore returns to; the lab goes on from it")
    verb("restore", "restore", "return all nodes to the kept state")
    verb("down", "down", "end all nodes")
    ssh = verb("ssh", "ssh spark2 ip -br addr", "a shell or a command on a node")
    ssh.add_argument("node")
    ssh.add_argument("command", nargs=argparse.REMAINDER)
    console = verb("console", "console spark2", "what a node's console said last")
    console.add_argument("node")
    fault = verb("fault", "fault spark2 cable f0 0", "make something fail", f"\n\nfaults:\n{_fault_help()}")
    fault.add_argument("node")
    fault.add_argument("fault", choices=list(faults.FAULTS), metavar="FAULT")
    fault.add_argument("target", nargs="?", help="netdev, PCI address or port; nic-swap: PCI=MAC,...")
    fault.add_argument("value", nargs="?", help="default: the value that ends the fault")
    fault.add_argument("--at-boot", action="store_true", help="set it again at every boot")


def _fault_help() -> str:
    return "\n".join(
        f"{name:18} on a {f.scope}; {f.values or 'no value'}: {f.effect}" for name, f in faults.FAULTS.items()
    )


def _spec(args: argparse.Namespace) -> spec.LabSpec:
    if args.inventory is None:
        return spec.ring(args.nodes, args.style)
    from fabric_plan.cli.common import read_inventory

    return spec.from_fabric(read_inventory(args.inventory).fabric)


def _status(lab: driver.Lab, as_json: bool) -> ExitCode:
    rows = [
        {
            "node": m.node.name,
            "up": m.pid() is not None,
            "ssh": f"ssh -F {shlex.quote(str(lab.run_dir / 'ssh_config'))} root@{m.node.name}",
            "port": m.ssh_port,
        }
        for m in lab.machines()
    ]
    if as_json:
        print(
            json.dumps(
                {"schema": "fabric-plan/lab/v1", "accelerator": lab.accelerator, "nodes": rows}, indent=1
            )
        )
    else:
        for row in rows:
            print(f"{row['node']:16} {'up' if row['up'] else 'off':4} {row['ssh']}")
    return ExitCode.OK


def _fault(lab: driver.Lab, args: argparse.Namespace) -> ExitCode:
    known = faults.FAULTS[args.fault]
    match args.fault:
        case "power-cut":
            lab.power_cut(args.node)
        case "power-off":
            lab.power_off(args.node)
        case "power-on":
            lab.power_on(args.node)
        case "cable-swap":
            lab.cable_swap(args.node)
        case "nic-swap":
            if not args.target or "=" not in args.target:
                raise LabError("nic-swap takes PCI=MAC[,PCI=MAC...]")
            lab.nic_swap(args.node, dict(pair.split("=", 1) for pair in args.target.split(",")))
        case _:
            if not args.target:
                raise LabError(f"`{args.fault}` is set on a {known.scope}: name one")
            value = args.value or known.off
            if not value:
                raise LabError(f"`{args.fault}` takes a value: {known.values}")
            lab.fault(args.node, args.fault, args.target, value, at_boot=args.at_boot)
    return ExitCode.OK


def run(args: argparse.Namespace) -> ExitCode:
    """Do what the parsed arguments say; return the exit code. Raises FabricPlanError."""
    if args.lab_verb == "build":
        build(host.cache_dir())
        return ExitCode.OK
    if args.lab_verb == "up":
        lab = driver.start(_spec(args), accelerator=args.accel)
        return _status(lab, getattr(args, "json", False))
    lab = driver.Lab.open()
    match args.lab_verb:
        case "status":
            return _status(lab, getattr(args, "json", False))
        case "save":
            lab.save()
            lab.restore()
        case "restore":
            with host.stage("restore"):
                lab.restore()
        case "down":
            lab.down()
        case "ssh":
            code = subprocess.run([*lab.ssh_command(args.node), *args.command]).returncode
            return ExitCode.OK if code == 0 else ExitCode.ERROR
        case "console":
            print(lab.machine(args.node).log_tail())
        case "fault":
            return _fault(lab, args)
    return ExitCode.OK


def main(argv: Sequence[str] | None = None) -> int:
    """``python -m lab``."""
    parser = argparse.ArgumentParser(prog="lab", description=__doc__)
    add_verbs(parser)
    try:
        return run(parser.parse_args(argv))
    except FabricPlanError as error:
        print("\n".join(error.lines()), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
