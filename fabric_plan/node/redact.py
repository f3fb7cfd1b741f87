"""Take secrets out of a netplan definition before it leaves the node.

A definition may hold Wi-Fi passwords and tunnel keys, and the facts document is what people attach to a bug
report. The standard library reads no YAML, so this works on the text: a secret's value is replaced where it
plainly stands behind its key on one line, and the whole text is withheld where it does not.
"""

from __future__ import annotations

import re

PLACEHOLDER = "REDACTED"

# The last part of a key counts, so that NetworkManager's passed-through ``wifi-security.psk`` is one too.
_KEY = re.compile(
    r"""(?ix) (?<![\w-]) (?: [\w-]*password | psk | [\w-]*passphrase | private(?:-key)? | preshared(?:-key)?
    | shared | key | wep-key\d? | pin | [\w-]*secret | token | leap-[\w-]+ ) ["']? \s* :"""
)
_VALUE = re.compile(
    r"""(?x) [ \t]* (?P<value> "(?:[^"\\\n]|\\.)*" | '(?:[^'\n]|'')*' | [^\s"'{}\[\],|>&*!\#][^\n,{}\[\]]* )
    (?= [ \t]* (?: [,}\n] | $ ) )"""
)


def redact(text: str) -> str | None:
    """Return the text with its secrets replaced; None when a secret stands there in a form not known here."""
    pieces: list[str] = []
    at = 0
    for key in _KEY.finditer(text):
        if key.start() < at:
            continue
        value = _VALUE.match(text, key.end())
        # A plain value may go on in a deeper line.
        if value is None or _goes_on(text, key.start(), value.end()):
            return None
        pieces += [text[at : value.start("value")], PLACEHOLDER]
        at = value.end()
    return "".join([*pieces, text[at:]])


def _goes_on(text: str, start: int, end: int) -> bool:
    """Tell whether the line behind a value is indented deeper than the value's own, so may be part of it."""
    line_start = text.rfind("\n", 0, start) + 1
    own = len(text[line_start:start]) - len(text[line_start:start].lstrip(" -"))
    rest = text[end:].partition("\n")[2]
    following = next((line for line in rest.splitlines() if line.strip()), "")
    indent = len(following) - len(following.lstrip(" \t"))
    return indent > own and re.search(r":(\s|$)", following) is None
