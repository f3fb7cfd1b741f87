"""From packages to a bootable image, in four stages, each kept under the digest of what went into it."""

from __future__ import annotations

import gzip
import hashlib
import os
import shlex
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from lab import host
from lab.errors import LabError

HERE = Path(__file__).parent
MODULE = HERE / "module"
IMAGE = HERE / "image"
SUITE = "trixie"
IMAGE_MIB = 1900

# Parts of the kernel's module tree that a guest gets; everything else stays away.
MODULE_TREES = (
    "kernel/net",
    "kernel/lib",
    "kernel/crypto",
    "kernel/arch/x86/crypto",
    "kernel/drivers/infiniband/core",
    "kernel/drivers/infiniband/sw/rxe",
    "kernel/drivers/net/virtio_net.ko.xz",
    "kernel/drivers/net/net_failover.ko.xz",
    "kernel/drivers/net/veth.ko.xz",
    "kernel/drivers/net/dummy.ko.xz",
    "kernel/drivers/net/tun.ko.xz",
    "kernel/drivers/block/virtio_blk.ko.xz",
    "kernel/fs/ext4",
    "kernel/fs/jbd2",
    "kernel/fs/mbcache.ko.xz",
    "kernel/fs/configfs",
    "kernel/fs/autofs",
)
BOOT_MODULES = ("virtio_blk", "ext4", "crc32c_generic")
EXCLUDED_PATHS = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/i18n/*")


@dataclass(frozen=True, slots=True)
class Artifacts:
    """What a node boots from. `image` is a raw ext4 file system that nothing may write to."""

    kernel: Path
    initramfs: Path
    image: Path
    release: str
    digest: str


def digest(parts: Iterable[str | bytes]) -> str:
    """A short hash of texts and bytes, each told from its neighbours."""
    h = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        h.update(len(data).to_bytes(8, "big") + data)
    return h.hexdigest()[:20]


def _tree_parts(root: Path) -> list[str | bytes]:
    parts: list[str | bytes] = []
    for path in sorted(root.rglob("*")):
        if path.is_symlink():
            parts += [str(path.relative_to(root)), str(path.readlink())]
        elif path.is_file():
            parts += [f"{path.relative_to(root)} {path.stat().st_mode & 0o111}", path.read_bytes()]
    return parts


def _packages(name: str) -> list[str]:
    lines = (IMAGE / name).read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def _kept(cache: Path, name: str, make: Callable[[Path], None]) -> Path:
    """Return `cache`/`name`, made by `make` into a temporary neighbour first; interrupted work is never
    taken for a result.
    """
    final = cache / name
    if final.exists():
        return final
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=cache) as scratch:
        with host.stage(name.rpartition("-")[0]):
            out = Path(scratch) / "out"
            make(out)
        out.rename(final)
    return final


def _bootstrap(out: Path, packages: Sequence[str], *options: str) -> None:
    """A Debian tree as a tar file; as root, or through user namespaces as somebody else."""
    argv = [
        "mmdebstrap",
        f"--include={','.join(packages)}",
        "--format=tar",
        '--aptopt=APT::Install-Recommends "false"',
    ]
    argv += [f"--dpkgopt=path-exclude={path}" for path in EXCLUDED_PATHS]
    host.run([*argv, *options, SUITE, out], seconds=1200)


def _untar(tar: Path, out: Path) -> None:
    out.mkdir()
    host.run(["tar", "-xf", tar, "-C", out, "--no-same-owner", "--exclude=./dev/*"], seconds=300)


# ------------------------------------------------------------------ kernel


def _make_toolchain(out: Path) -> None:
    """Kernel, headers, compiler and busybox of the suite, unpacked: the newest that the archive has today."""
    tar = out.with_suffix(".tar")
    _bootstrap(tar, _packages("toolchain.txt"), "--variant=extract")
    _untar(tar, out)
    awk = out / "usr/bin/awk"  # what update-alternatives would have made
    if not awk.exists():
        awk.symlink_to("mawk")


def _release(toolchain: Path) -> str:
    releases = [
        path.name
        for path in (toolchain / "lib/modules").iterdir()
        if (toolchain / f"boot/vmlinuz-{path.name}").exists()
    ]
    if not releases:
        raise LabError(f"no kernel was unpacked into {toolchain}")
    return max(releases)


def _inside(root: Path, argv: Sequence[str]) -> list[str]:
    chroot = ["chroot", str(root), *argv]
    return chroot if host.is_root() else ["unshare", "--user", "--map-root-user", *chroot]


def _make_module(out: Path, toolchain: Path) -> None:
    release = _release(toolchain)
    with tempfile.TemporaryDirectory(prefix="module-", dir=toolchain) as scratch:
        source = Path(scratch)
        for path in MODULE.iterdir():
            if path.suffix in (".c", ".h") or path.name == "Kbuild":
                shutil.copy(path, source)
        headers = f"/usr/src/linux-headers-{release}"
        argv = [
            "make",
            "-C",
            headers,
            f"M=/{source.name}",
            f"-j{os.cpu_count()}",
            "CONFIG_DEBUG_INFO_BTF_MODULES=",
            "KCFLAGS=-Werror",
        ]
        host.run(_inside(toolchain, [*argv, "modules"]), seconds=300)
        host.run(_inside(toolchain, ["strip", "-g", f"/{source.name}/fakecx7.ko"]), seconds=60)
        shutil.move(source / "fakecx7.ko", out)


def _install_modules(root: Path, toolchain: Path, module: Path) -> None:
    """The guest's module tree, uncompressed: decompression is slow under emulation."""
    release = _release(toolchain)
    source, target = toolchain / "lib/modules" / release, root / "lib/modules" / release
    target.mkdir(parents=True)
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        shutil.copy(source / name, target)
    for name in MODULE_TREES:
        path = source / name
        if path.is_dir():
            shutil.copytree(path, target / name)
        elif path.exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target / name)
    compressed = [str(path) for path in target.rglob("*.ko.xz")]
    host.run(["xz", "-d", *compressed], seconds=120)
    (target / "extra").mkdir()
    shutil.copy(module, target / "extra/fakecx7.ko")
    host.run(["depmod", "-b", root, release], seconds=120)


# ------------------------------------------------------------------- image


def _make_rootfs(out: Path) -> None:
    _bootstrap(
        out,
        _packages("packages.txt"),
        "--variant=minbase",
        f"--customize-hook=copy-in {shlex.quote(str(IMAGE / 'customize.sh'))} /tmp",
        '--customize-hook=chroot "$1" /tmp/customize.sh',
        '--customize-hook=rm "$1/tmp/customize.sh"',
    )


def _boot_order(modules: Path) -> list[Path]:
    """The files that the initramfs loads, in an order in which each finds what it needs."""
    needs: dict[str, list[str]] = {}
    for line in (modules / "modules.dep").read_text().splitlines():
        path, _, rest = line.partition(":")
        needs[path] = rest.split()
    order: list[str] = []
    for wanted in BOOT_MODULES:
        for path in needs:
            if Path(path).name == f"{wanted}.ko":
                order += [p for p in [*reversed(needs[path]), path] if p not in order]
    return [modules / path for path in order]


def _make_initramfs(out: Path, toolchain: Path, modules: Path) -> None:
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        root = Path(scratch)
        for name in ("bin", "dev", "proc", "modules", "new"):
            (root / name).mkdir()
        shutil.copy(toolchain / "usr/bin/busybox", root / "bin/busybox")
        (root / "bin/sh").symlink_to("busybox")
        shutil.copy(IMAGE / "init", root / "init")
        order = _boot_order(modules)
        for path in order:
            shutil.copy(path, root / "modules" / path.name)
        (root / "modules/order").write_text("".join(f"{path.name}\n" for path in order))
        names = "".join(f"{path.relative_to(root)}\n" for path in sorted(root.rglob("*")))
        archive = out.with_suffix(".cpio")
        host.run(
            ["sh", "-c", f"cpio -o -H newc --quiet -R 0:0 > {shlex.quote(str(archive))}"],
            seconds=60,
            text=names,
            cwd=root,
        )
        out.write_bytes(gzip.compress(archive.read_bytes(), 1, mtime=0))


def _overlay(modules_root: Path, files: Path) -> bytes:
    """Our own files and the module tree as a tar that belongs to root."""

    def owned(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = 0
        info.uname = info.gname = "root"
        info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
        return info

    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in sorted(files.rglob("*")):
            if not path.is_dir() or path.is_symlink():
                tar.add(path, str(path.relative_to(files)), recursive=False, filter=owned)
        # /lib is a link to usr/lib in the guest
        tar.add(modules_root / "lib/modules", "usr/lib/modules", filter=owned)
    return buffer.getvalue()


def _make_image(out: Path, toolchain: Path, module: Path, rootfs: Path) -> None:
    out.mkdir()
    work = out.parent
    modules_root = work / "modules-root"
    _install_modules(modules_root, toolchain, module)
    release = _release(toolchain)
    shutil.copy(toolchain / f"boot/vmlinuz-{release}", out / "vmlinuz")
    (out / "release").write_text(release)
    _make_initramfs(out / "initramfs", toolchain, modules_root / "lib/modules" / release)
    (work / "overlay.tar").write_bytes(_overlay(modules_root, IMAGE / "files"))
    script = (
        "set -e; mkdir root; "
        f"tar -xpf {shlex.quote(str(rootfs))} -C root --numeric-owner --exclude='./dev/*'; "
        "tar -xpf overlay.tar -C root --numeric-owner; "
        f"truncate -s {IMAGE_MIB}M out/disk.raw; "
        "mke2fs -q -F -t ext4 -O ^has_journal -d root out/disk.raw; rm -rf root"
    )
    (work / "mkimage.sh").write_text(script)
    argv = ["sh", "mkimage.sh"]
    host.run(argv if host.is_root() else ["fakeroot", "--", *argv], seconds=600, cwd=work)
    (out / "initramfs.cpio").unlink(missing_ok=True)


def build(cache: Path) -> Artifacts:
    """Build what is not in `cache` yet and return it; LabError with the tail of what failed."""
    host.install_packages()
    own = Path(__file__).read_bytes()
    toolchain_id = digest([SUITE, *_packages("toolchain.txt")])
    toolchain = _kept(cache, f"toolchain-{toolchain_id}", _make_toolchain)
    module_id = digest([toolchain_id, *_tree_parts(MODULE)])
    module = _kept(cache, f"module-{module_id}", lambda out: _make_module(out, toolchain))
    rootfs_id = digest(
        [SUITE, *_packages("packages.txt"), (IMAGE / "customize.sh").read_bytes(), *EXCLUDED_PATHS]
    )
    rootfs = _kept(cache, f"rootfs-{rootfs_id}", _make_rootfs)
    image_id = digest([module_id, rootfs_id, own, *_tree_parts(IMAGE)])
    image = _kept(cache, f"image-{image_id}", lambda out: _make_image(out, toolchain, module, rootfs))
    return Artifacts(
        image / "vmlinuz", image / "initramfs", image / "disk.raw", (image / "release").read_text(), image_id
    )
