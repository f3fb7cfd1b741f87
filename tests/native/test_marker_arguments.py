"""The command line: what is accepted, and what is refused before any device is touched."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import fabric_plan
from tests.native.harness import BOTH_FORMS, DEVICE, NO_LEAK_CHECK, Home, errno_env

RULE = ("--rule", "10.10.2.11=0x88b5")
USAGE = 64

REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "nothing": ((), "no --device"),
    "no rule": (("--device", DEVICE), "no rule"),
    "no device": (RULE, "no --device"),
    "unknown option": (("--device", DEVICE, *RULE, "--attach"), "unknown argument: '--attach'"),
    "abbreviated option": (("--dev", DEVICE, *RULE), "unknown argument: '--dev'"),
    "stray word": (("--device", DEVICE, *RULE, "more"), "unknown argument: 'more'"),
    "value missing": ((*RULE, "--device"), "no value after: '--device'"),
    "flag with a value": (("--device", DEVICE, *RULE, "--managed=yes"), "unknown argument"),
    "device twice": (("--device", DEVICE, "--device", DEVICE, *RULE), "--device given twice"),
    "device empty": (("--device", "", *RULE), "not the name of an RDMA device"),
    "device with a slash": (("--device", "../rocep1s0f0", *RULE), "not the name of an RDMA device"),
    "device hidden": (("--device", ".rocep1s0f0", *RULE), "not the name of an RDMA device"),
    "device too long": (("--device", "r" * 64, *RULE), "not the name of an RDMA device"),
    "rule without tag": (("--device", DEVICE, "--rule", "10.10.2.11"), "no '='"),
    "rule with empty tag": (("--device", DEVICE, "--rule", "10.10.2.11="), "not an EtherType"),
    "rule with decimal tag": (("--device", DEVICE, "--rule", "10.10.2.11=34997"), "not an EtherType"),
    "rule with bare 0x": (("--device", DEVICE, "--rule", "10.10.2.11=0x"), "not an EtherType"),
    "rule with signed tag": (("--device", DEVICE, "--rule", "10.10.2.11=0x-1"), "not an EtherType"),
    "rule with trailing text": (("--device", DEVICE, "--rule", "10.10.2.11=0x88b5 "), "not an EtherType"),
    "tag below": (("--device", DEVICE, "--rule", "10.10.2.11=0x88b4"), "EtherType out of range"),
    "tag above": (("--device", DEVICE, "--rule", "10.10.2.11=0x88b9"), "EtherType out of range"),
    "tag is IPv4": (("--device", DEVICE, "--rule", "10.10.2.11=0x0800"), "EtherType out of range"),
    "tag overflows": (("--device", DEVICE, "--rule", "10.10.2.11=0x" + "f" * 40), "not an EtherType"),
    "tag wraps": (("--device", DEVICE, "--rule", "10.10.2.11=0x188b5"), "EtherType out of range"),
    "address short": (("--device", DEVICE, "--rule", "10.10.2=0x88b5"), "not an IPv4 address"),
    "address long": (("--device", DEVICE, "--rule", "10.10.2.11.1=0x88b5"), "not an IPv4 address"),
    "address octet": (("--device", DEVICE, "--rule", "10.10.2.256=0x88b5"), "not an IPv4 address"),
    "address octal": (("--device", DEVICE, "--rule", "10.10.2.011=0x88b5"), "not an IPv4 address"),
    "address with prefix": (("--device", DEVICE, "--rule", "10.10.2.11/32=0x88b5"), "not an IPv4 address"),
    "address IPv6": (("--device", DEVICE, "--rule", "fd00::1=0x88b5"), "not an IPv4 address"),
    "address empty": (("--device", DEVICE, "--rule", "=0x88b5"), "not an IPv4 address"),
    "address zero": (("--device", DEVICE, "--rule", "0.0.0.0=0x88b5"), "not the address of a host"),
    "address loopback": (("--device", DEVICE, "--rule", "127.0.0.1=0x88b5"), "not the address of a host"),
    "address multicast": (("--device", DEVICE, "--rule", "224.0.0.1=0x88b5"), "not the address of a host"),
    "address broadcast": (
        ("--device", DEVICE, "--rule", "255.255.255.255=0x88b5"),
        "not the address of a host",
    ),
    "destination twice": (("--device", DEVICE, *RULE, *RULE), "destination given twice"),
    "destination with two tags": (
        ("--device", DEVICE, *RULE, "--rule", "10.10.2.11=0x88b6"),
        "destination given twice",
    ),
    "port without tag": (("--device", DEVICE, "--source-port", "65535"), "no '='"),
    "port zero": (("--device", DEVICE, "--source-port", "0=0x88b5"), "no RDMA packet carries"),
    "port below": (("--device", DEVICE, "--source-port", "49151=0x88b5"), "no RDMA packet carries"),
    "port above": (("--device", DEVICE, "--source-port", "65536=0x88b5"), "no RDMA packet carries"),
    "port too long": (("--device", DEVICE, "--source-port", "6553565535=0x88b5"), "not a port"),
    "port hexadecimal": (("--device", DEVICE, "--source-port", "0xffff=0x88b5"), "not a port"),
    "port signed": (("--device", DEVICE, "--source-port", "-1=0x88b5"), "not a port"),
    "port empty": (("--device", DEVICE, "--source-port", "=0x88b5"), "not a port"),
    "port twice": (
        ("--device", DEVICE, "--source-port", "65535=0x88b5", "--source-port", "65534=0x88b5"),
        "--source-port given twice",
    ),
    "state directory relative": (("--device", DEVICE, *RULE, "--state-dir", "state"), "not an absolute path"),
    "state directory twice": (
        ("--device", DEVICE, *RULE, "--state-dir", "/run/a", "--state-dir", "/run/a"),
        "--state-dir given twice",
    ),
    "too many rules": (
        ("--device", DEVICE, *(f"--rule=10.10.{i // 250}.{i % 250}=0x88b5" for i in range(65))),
        "more than 64 --rule arguments",
    ),
}


@pytest.mark.parametrize(("arguments", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_refuses_with_a_hint_and_touches_nothing(plain: Home, arguments: tuple[str, ...], says: str) -> None:
    outcome = plain.run(*arguments, exact=True)
    first, hint = outcome.stderr.splitlines()
    assert (outcome.code, outcome.stdout, outcome.calls) == (USAGE, "", [])
    assert first.startswith("fabric-plan-marker: ") and says in first
    assert hint.startswith("  hint: ") and len(hint) > len("  hint: ")


@pytest.mark.parametrize(
    "arguments",
    [
        (f"--device={DEVICE}", "--rule=10.10.2.11=0x88b5"),
        ("--device", DEVICE, "--rule", "10.10.2.11=0x88B5", "--managed"),
        ("--device", DEVICE, "--source-port", "49152=0x88b6"),
        BOTH_FORMS,
        ("--device", DEVICE, *(f"--rule=10.10.{i // 250}.{i % 250}=0x88b5" for i in range(64))),
    ],
    ids=["with equals signs", "upper case", "source port alone", "both forms", "as many as fit"],
)
def test_check_accepts(plain: Home, arguments: tuple[str, ...]) -> None:
    outcome = plain.run(*arguments, "--check")
    assert outcome.code == 0, outcome.stderr
    assert outcome.stderr.endswith("arguments and device are right; nothing was installed\n")
    assert outcome.names() == [
        "get_device_list",
        "open_device",
        "free_device_list",
        "query_port",
        "close_device",
    ]
    assert not plain.state_dir.exists()


@pytest.mark.parametrize(
    ("tag", "warns"), [("0x88b5", False), ("0x88b6", False), ("0x88b7", True), ("0x88b8", True)]
)
@pytest.mark.parametrize("form", [("--rule", "10.10.2.11"), ("--source-port", "65535")])
def test_warns_of_tags_that_belong_to_others(
    plain: Home, form: tuple[str, str], tag: str, warns: bool
) -> None:
    outcome = plain.run("--device", DEVICE, form[0], f"{form[1]}={tag}", "--check")
    assert outcome.code == 0
    assert (f"{DEVICE}: warning: EtherType {tag} is registered to others" in outcome.stderr) is warns


@pytest.mark.parametrize(
    ("device", "says", "hint"),
    [
        ("rocep1s0f9", "no such RDMA device; there are: rocep1s0f0, roceP2p1s0f0, rxe0, ib0", "rdma dev"),
        ("rxe0", "not a device of the mlx5 driver", "ConnectX"),
        ("ib0", "port 1 is not Ethernet", "mlxconfig"),
    ],
)
def test_check_refuses_devices_that_cannot_carry_rules(
    plain: Home, device: str, says: str, hint: str
) -> None:
    outcome = plain.run("--device", device, *RULE, "--check")
    assert outcome.code == 69
    assert f"fabric-plan-marker: {device}: {says}" in outcome.stderr
    assert hint in outcome.stderr.splitlines()[-1]
    assert outcome.names().count("open_device") == outcome.names().count("close_device")


def test_names_that_do_not_fit_are_cut(plain: Home) -> None:
    many = " ".join(f"{'d' * 60}{i}:mlx5:ethernet" for i in range(20))
    outcome = plain.run("--device", DEVICE, *RULE, "--check", env={"STANDIN_DEVICES": many})
    assert outcome.code == 69 and "d" * 60 + "0, " in outcome.stderr


def test_says_so_when_there_is_no_device_at_all(plain: Home) -> None:
    assert (
        "there are: none"
        in plain.run("--device", DEVICE, *RULE, "--check", env={"STANDIN_DEVICES": ""}).stderr
    )


@pytest.mark.parametrize(
    ("call", "error", "code"),
    [
        (1, "ENOSYS", 69),
        (2, "ENODEV", 69),
        (2, "EACCES", 77),
        (2, "EPERM", 77),
        (4, "EIO", 69),
        (5, "EIO", 70),
    ],
)
def test_check_names_the_call_that_failed(plain: Home, call: int, error: str, code: int) -> None:
    number = int(getattr(errno, error))
    outcome = plain.run(*BOTH_FORMS, "--check", env=errno_env(call, error=number) | NO_LEAK_CHECK)
    assert outcome.code == code
    assert f"{os.strerror(number)} ({error})" in outcome.stderr and "  hint: " in outcome.stderr


def test_help_and_version(plain: Home) -> None:
    version = plain.run("--version", exact=True)
    assert (version.code, version.stdout) == (0, f"fabric-plan-marker {fabric_plan.__version__}\n")
    text = plain.run("--help", exact=True)
    assert text.code == 0
    for word in ("--device", "--rule", "--source-port", "--managed", "--state-dir", "--check"):
        assert word in text.stdout
    for code in (0, 64, 69, 70, 71, 73, 74, 75, 76, 77):
        assert f" {code} " in text.stdout.replace("\n", " ")
    full = plain.run("--help", exact=True, prefix=("sh", "-c", 'exec "$0" "$@" >/dev/full'))
    assert full.code == 71


def test_help_and_the_page_list_the_same_exit_codes(plain: Home) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "marker.md").read_text(encoding="utf-8")
    table = {int(line.split("|")[1]) for line in page.splitlines() if line.startswith(("| 0 ", "| 6", "| 7"))}
    assert table == {0, 64, 69, 70, 71, 73, 74, 75, 76, 77}
