"""Whether KVM really runs the lab's kernel here: there are machines whose /dev/kvm opens and then cannot."""

from __future__ import annotations

import subprocess

from lab import host
from lab.build import Artifacts

PROBE_SECONDS = 12


def kvm_boots(artifacts: Artifacts) -> bool:
    """Boot kernel and initramfs under KVM as far as the initramfs's first words."""
    argv = [
        "qemu-system-x86_64",
        "-accel",
        "kvm",
        "-cpu",
        "host",
        "-M",
        "q35",
        "-m",
        "256",
        "-nodefaults",
        "-no-user-config",
    ]
    argv += ["-display", "none", "-no-reboot", "-serial", "stdio", "-action", "panic=exit-failure"]
    argv += ["-kernel", str(artifacts.kernel), "-initrd", str(artifacts.initramfs)]
    argv += ["-append", "console=ttyS0 panic=-1 mitigations=off lab.probe"]
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=host.environment(),
    )
    try:
        out, _ = process.communicate(timeout=PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        out, _ = process.communicate()
    return b"LAB-PROBE" in out


def choose(artifacts: Artifacts) -> str:
    """`kvm` where it works, else `tcg`. The answer is kept with the image, so that the probe runs once."""
    if not host.kvm_usable():
        return "tcg"
    kept = artifacts.image.parent / "accelerator"
    if not kept.exists():
        with host.stage("probe of KVM"):
            kept.write_text("kvm" if kvm_boots(artifacts) else "tcg")
    return kept.read_text()
