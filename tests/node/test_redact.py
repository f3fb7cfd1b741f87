"""No secret of a netplan definition leaves the node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_plan.node.redact import PLACEHOLDER, redact

PLAIN = """network:
  version: 2
  ethernets:
    enp1s0f0np0:
      addresses: [10.10.0.10/24]
      mtu: 9000
"""


def test_a_definition_without_secrets_is_unchanged() -> None:
    assert redact(PLAIN) == PLAIN
    ordinary = "  wifis:\n    wlan0:\n      access-points:\n        x: {auth: {key-management: psk}}\n"
    assert redact(ordinary) == ordinary


@pytest.mark.parametrize(
    "text",
    [
        'password: "S3CRET word"',
        "password: S3CRET word",
        "'password': 'S3CRET'",
        '"password": "S3CRET, with } and \\" in it"',
        "home: {password: S3CRET, hidden: true}",
        'auth: {key-management: psk, password: "S3CRET"}',
        "key: S3CRET=",
        "keys:\n    private: S3CRET\n    shared: S3CRET",
        'wifi-security.psk: "S3CRET"',
        '802-1x.private-key-password: "S3CRET"',
        "PASSWORD: S3CRET",
        "password:    S3CRET   # S3CRET",
        "client-secret: S3CRET",
        '{"password":"S3CRET"}',
        '{"password":S3CRET}',
        "? password\n: S3CRET",
    ],
)
def test_secrets_are_replaced(text: str) -> None:
    result = redact(f"{PLAIN}{text}\n  next: kept\n")
    assert result is not None
    assert "S3CRET" not in result
    assert PLACEHOLDER in result and "next: kept" in result and result.startswith(PLAIN)


@pytest.mark.parametrize(
    "text",
    [
        "password: |\n  S3CRET\n",
        "password: >-\n  S3CRET\n",
        "password:\n  S3CRET\n",
        "password: &anchor S3CRET\n",
        'password: "S3C\n  RET"\n',
        "password: S3C\n  RET\n",
        "password: S3C\n  RET:more\n",
        "password: !!str S3CRET\n",
        "password: [S3CRET]\n",
        "keys: {private: {a: S3CRET}}\n",
    ],
)
def test_a_secret_in_another_form_withholds_the_text(text: str) -> None:
    assert redact(PLAIN + text) is None


@given(
    key=st.sampled_from(["password", "psk", "key", "private-key", "wifi-security.psk", "pin"]),
    quote=st.sampled_from(["", '"', "'"]),
    secret=st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=6, max_size=20),
    around=st.sampled_from(["{}", "  {}", "a: {{{}}}", "a: {{b: c, {}, d: e}}", "- {}"]),
)
def test_no_plain_secret_survives(key: str, quote: str, secret: str, around: str) -> None:
    secret = "S3" + secret
    result = redact(PLAIN + around.format(f"{key}: {quote}{secret}{quote}") + "\n")
    assert result is None or secret not in result
