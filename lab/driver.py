"""The lab as a whole: build, up, save, restore, down, ssh, faults. One lab at a time lives in the run
directory.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lab import faults, hardware, host
from lab.accelerator import choose
from lab.build import Artifacts, build, digest
from lab.errors import LabError, LabUnavailableError
from lab.machine import Machine
from lab.remote import MEMORY_MIB, Remote, public_part
from lab.spec import PORTS, LabSpec
from lab.switch import READY, WIRING
from lab.waiting import wait_for

SPARE_MEMORY_MIB = 1024
# what a node writes beside its image: its kept states, and what it changes while it runs
DISK_MIB = 600
# the longest that another lab may build, in seconds
BUILD_S = 2400
FIRST_SSH_PORT = 22101
STATE = "lab.json"
CLEAN = "clean"
# an orderly reboot that needs no login manager to ask
REBOOT = "systemctl start reboot.target --no-block --job-mode=replace-irreversibly"
FAULT_ROOT = "/sys/kernel/debug/fakecx7"


@dataclass(slots=True, kw_only=True)
class Lab(Remote):
    """A lab in its run directory. Make one with `start` or `Lab.open`."""

    saves: Path
    boot_faults: dict[str, dict[str, str]] = field(default_factory=dict)
    swapped: dict[str, dict[str, str]] = field(default_factory=dict)
    """Cards that are not the spec's: node, PCI address, MAC."""

    # ---------------------------------------------------------- the set

    @staticmethod
    def open(run_dir: Path | None = None) -> Lab:
        """The lab that is up; LabError when none is."""
        directory = run_dir or host.run_dir()
        try:
            state = json.loads((directory / STATE).read_text())
        except FileNotFoundError:
            raise LabError("no lab is up", hint="make lab, or fabric-plan lab up -i INVENTORY") from None
        try:
            paths = {name: Path(state["artifacts"][name]) for name in ("kernel", "initramfs", "image")}
            return Lab(
                spec=LabSpec.from_json(state["spec"]),
                artifacts=Artifacts(
                    **paths, release=state["artifacts"]["release"], digest=state["artifacts"]["digest"]
                ),
                accelerator=state["accelerator"],
                run_dir=directory,
                saves=Path(state["saves"]),
                ports=tuple(state["ports"]),
                boot_faults=state["boot_faults"],
                swapped=state["swapped"],
            )
        except KeyError as missing:
            raise LabError(
                f"{directory / STATE} says nothing of {missing}: another version started this lab",
                hint="end it from the checkout that it was started from: make lab-down",
            ) from None

    def _remember(self) -> None:
        document: dict[str, Any] = {
            "spec": self.spec.to_json(),
            "artifacts": {name: str(getattr(self.artifacts, name)) for name in self.artifacts.__slots__},
            "accelerator": self.accelerator,
            "saves": str(self.saves),
            "ports": list(self.ports),
            "boot_faults": self.boot_faults,
            "swapped": self.swapped,
        }
        host.replace_text(self.run_dir / STATE, json.dumps(document, indent=1))

    # ------------------------------------------------------- preparation

    def write_hardware(self, name: str) -> None:
        """Write the table that the node's next boot reads."""
        authorized = public_part(self.client_key()).read_text()
        node_faults = self.boot_faults.get(name, {})
        planned, macs = self.spec.node(name), self.swapped.get(name, {})
        node = replace(
            planned, functions=tuple(replace(f, mac=macs.get(f.pci, f.mac)) for f in planned.functions)
        )
        content = hardware.table(
            node, host_key=self.host_key(name), authorized=authorized, faults=node_faults
        )
        disk = self.machine(name).hardware
        with disk.open("r+b" if disk.exists() else "w+b") as file:  # in place: a running QEMU has it open
            file.write(content)

    def _overlay(self, machine: Machine, backing: Path, backing_format: str) -> None:
        machine.disk.unlink(missing_ok=True)
        host.run(
            ["qemu-img", "create", "-q", "-f", "qcow2", "-F", backing_format, "-b", backing, machine.disk],
            seconds=30,
        )

    def _wiring(self) -> dict[str, Any]:
        sockets = {machine.node.name: machine.sockets() for machine in self.machines()}
        cables = [[sockets[end.node][end.port] for end in (cable.a, cable.b)] for cable in self.spec.cables]
        used = {name for cable in cables for name in cable}
        # a port without a cable has a wire that ends nowhere
        cables += [
            [s[port], f"{s[port]}.open"] for s in sockets.values() for port in PORTS if s[port] not in used
        ]
        return {"cables": cables, "lan": [s[kind] for s in sockets.values() for kind in ("lan", "gw")]}

    def _start_switch(self) -> None:
        host.replace_text(self.run_dir / WIRING, json.dumps(self._wiring()))
        # the sockets of a lab before may still lie there: only the switch knows when it listens
        ready = self.run_dir / READY
        ready.unlink(missing_ok=True)
        argv = [sys.executable, "-m", "lab.switch", str(self.run_dir)]
        pid = host.spawn(argv, log=self.run_dir / "switch.log", cwd=Path(__file__).parent.parent)
        (self.run_dir / "switch.pid").write_text(str(pid))
        wait_for(
            "the lab's wiring",
            ready.exists,
            seconds=60,
            evidence=lambda: (self.run_dir / "switch.log").read_text(),
        )

    def _switch(self) -> int | None:
        """The process of the lab's wiring; None where there is none."""
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.run_dir / "switch.pid").read_text())
            if b"lab.switch" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        return None

    def _plug(self, wiring: dict[str, Any]) -> None:
        """Change the wiring while it works."""
        host.replace_text(self.run_dir / WIRING, json.dumps(wiring))
        if pid := self._switch():
            os.kill(pid, signal.SIGHUP)

    # --------------------------------------------------------- lifecycle

    def up(self) -> None:
        """Bring the lab up in its clean state: resumed from a kept one, or booted and then kept."""
        self._start_switch()
        self.write_ssh_files()
        self._remember()
        if not self.has(CLEAN):
            with host.stage(f"boot of {len(self.names)} nodes ({self.accelerator})"):
                self.boot()
            with host.stage("save of the clean state"):
                self.save()
        with host.stage("restore of the clean state"):
            self.restore()

    def batches(self) -> list[tuple[str, ...]]:
        """The nodes in groups that boot at once: more emulated machines than processors would only keep one
        another waiting.
        """
        at_once = len(self.names) if self.accelerator == "kvm" else max(1, os.cpu_count() or 1)
        return [self.names[first : first + at_once] for first in range(0, len(self.names), at_once)]

    def boot(self) -> None:
        """Start every node from its factory image and wait until all are up and settled."""
        for batch in self.batches():
            for name in batch:
                self.write_hardware(name)
                self._overlay(self.machine(name), self.artifacts.image, "raw")
                self.machine(name).start()
            self.each(self.wait_ready, batch)

    def has(self, state: str = CLEAN) -> bool:
        """Whether that state of just this lab is kept."""
        return (self.saves / state / "complete").exists()

    def save(self, state: str = CLEAN) -> None:
        """Keep the running nodes as a state that `restore` returns to. Ends them.

        A state of that name is replaced once the new one is whole: until then the nodes' disks stand on it.
        """
        final = self.saves / state
        kept = final.with_name(f"{state}.{os.getpid()}.new")
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        self.each(lambda name: self.ssh(name, "sync; echo 3 > /proc/sys/vm/drop_caches"))
        self.drop_connections()
        for machine in self.machines():
            machine.start_saving(kept / f"{machine.node.name}.state")
        for machine in self.machines():
            machine.finish_saving()
            machine.stop()
            # flat, so that a state lives without the one that it grew from
            host.run(
                ["qemu-img", "rebase", "-f", "qcow2", "-F", "raw", "-b", self.artifacts.image, machine.disk],
                seconds=300,
            )
            shutil.move(machine.disk, kept / machine.disk.name)
            key = self.host_key(machine.node.name)
            for path in (machine.hardware, key, public_part(key)):
                shutil.copy(path, kept)
        (kept / "complete").touch()
        shutil.rmtree(final, ignore_errors=True)
        kept.rename(final)

    def restore(self, state: str = CLEAN) -> None:
        """Return every node to a kept state, whatever it is in now."""
        if not self.has(state):
            raise LabError(f"no state `{state}` is kept", hint="save the lab first")
        kept = self.saves / state
        self.drop_connections()
        self.boot_faults.clear()
        self.swapped.clear()
        self._plug(self._wiring())
        for machine in self.machines():
            machine.stop()
        for machine in self.machines():
            for path in kept.glob(f"{machine.node.name}.h*"):  # hardware, hostkey
                shutil.copy(path, self.run_dir)
            self._overlay(machine, kept / machine.disk.name, "qcow2")
            machine.start(kept / f"{machine.node.name}.state")
        for machine in self.machines():
            machine.resume()
        self.write_ssh_files()
        self._remember()
        # a resumed clock stands where it was saved
        self.each(lambda name: self.wait(name, "ssh", f"date -s @{int(time.time())} >/dev/null"))

    def down(self) -> None:
        """End every node and the management LAN; kept states and the consoles' last words stay."""
        self.drop_connections()
        for machine in self.machines():
            machine.stop()
            machine.disk.unlink(missing_ok=True)
        if pid := self._switch():
            os.kill(pid, signal.SIGTERM)
        (self.run_dir / STATE).unlink(missing_ok=True)

    # ------------------------------------------------------------ faults

    def reboot(self, *names: str) -> None:
        """Reboot nodes in an orderly way and wait until they are up again."""
        wanted = names or self.names
        marks = {name: len(self.machine(name).console.read_text(errors="replace")) for name in wanted}
        self.each(lambda name: self.ssh(name, REBOOT, check=False), wanted)
        self.drop_connections(wanted)
        self.each(lambda name: self.wait_ready(name, marks[name]), wanted)

    def power_cut(self, *names: str) -> None:
        """Reset nodes without warning and wait until they are up again."""
        marks = {name: len(self.machine(name).console.read_text(errors="replace")) for name in names}
        for name in names:
            self.machine(name).power_cycle()
        self.drop_connections(names)
        self.each(lambda name: self.wait_ready(name, marks[name]), names)

    def power_off(self, name: str) -> None:
        """Take a node's power away; its disk stays as it is."""
        self.drop_connections([name])
        self.machine(name).stop()

    def power_on(self, name: str) -> None:
        """Boot a node that is off."""
        machine = self.machine(name)
        if machine.pid():
            raise LabError(f"{name} is on")
        machine.start()
        self.wait_ready(name)

    def nic_swap(self, name: str, macs: Mapping[str, str]) -> None:
        """Power off, give functions (by PCI address) other MACs, power on. Lasts until `restore`."""
        there = [function.pci for function in self.spec.node(name).functions]
        if unknown := sorted(set(macs) - set(there)):
            raise LabError(f"{name} has no function {', '.join(unknown)}", hint=f"it has {', '.join(there)}")
        self.power_off(name)
        self.swapped.setdefault(name, {}).update(macs)
        self.write_hardware(name)
        self._remember()
        self.power_on(name)

    def cable_swap(self, name: str) -> None:
        """Exchange what is plugged into a node's two ports, back the next time. Ends with `restore`."""
        one, other = (self.machine(name).sockets()[port] for port in PORTS)
        wiring = json.loads((self.run_dir / WIRING).read_text())
        moved = {one: other, other: one}
        wiring["cables"] = [[moved.get(end, end) for end in cable] for cable in wiring["cables"]]
        self._plug(wiring)

    def fault(self, name: str, fault: str, target: str, value: str, *, at_boot: bool = False) -> None:
        """Set a function's or port's fault now, and with `at_boot` at every later boot too."""
        path = faults.debugfs_path(self.spec.node(name), fault, target)
        if at_boot:
            self.boot_faults.setdefault(name, {})[path] = value
            self.write_hardware(name)
            self._remember()
        self.ssh(name, f"echo {value} > {FAULT_ROOT}/{path}")


def _free_ports(count: int) -> tuple[int, ...]:
    """`count` ports on 127.0.0.1 that nobody listens on."""
    found: list[int] = []
    for port in range(FIRST_SSH_PORT, FIRST_SSH_PORT + 800):
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return tuple(found)
    raise LabError("no free ports on 127.0.0.1")


def check_room(spec: LabSpec, *directories: Path) -> None:
    """LabUnavailableError unless the nodes fit into memory, and what they write onto the disks."""
    nodes = len(spec.nodes)
    need, have = nodes * MEMORY_MIB + SPARE_MEMORY_MIB, host.free_memory_mib()
    if have < need:
        raise LabUnavailableError(f"{nodes} nodes need {need} MiB of memory, {have} MiB are free")
    for directory in directories:
        need, have = nodes * DISK_MIB, shutil.disk_usage(directory).free >> 20
        if have < need:
            raise LabUnavailableError(f"{nodes} nodes need {need} MiB in {directory}, {have} MiB are free")


def start(spec: LabSpec, *, accelerator: str | None = None, run_dir: Path | None = None) -> Lab:
    """Build what is missing and bring this lab up. LabError when another is up."""
    directory, cache = run_dir or host.run_dir(), host.cache_dir()
    with host.sole(directory / "lock", seconds=5):
        if (directory / STATE).exists():
            raise LabError("a lab is up already", hint="fabric-plan lab down")
        with host.sole(cache / "lock", seconds=BUILD_S):
            artifacts = build(cache)
        check_room(spec, directory, cache)
        chosen = accelerator or choose(artifacts)
        saves = cache / "saves" / _state_key(spec, artifacts, chosen)
        ports = _free_ports(len(spec.nodes))
        lab = Lab(
            spec=spec, artifacts=artifacts, accelerator=chosen, run_dir=directory, saves=saves, ports=ports
        )
        try:
            lab.up()
        except BaseException:
            lab.down()
            raise
        return lab


def _state_key(spec: LabSpec, artifacts: Artifacts, accelerator: str) -> str:
    """What a kept state hangs on: another image, machine or QEMU could not resume it."""
    sources = (Path(__file__), *(Path(__file__).with_name(name) for name in ("machine.py", "remote.py")))
    made_by = digest([*(source.read_bytes() for source in sources), host.qemu_version()])
    return f"{artifacts.digest}-{spec.digest()[:16]}-{accelerator}-{made_by[:8]}"
