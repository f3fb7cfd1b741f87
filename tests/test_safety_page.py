"""docs/safety.md names the test that holds each promise: those tests have to be there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", (ROOT / "docs" / "safety.md").read_text())


def test_the_page_names_tests() -> None:
    assert len(NAMED) > 20


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_the_named_test_is_there(path: str, name: str) -> None:
    assert re.search(rf"(?m)^def {name}\(", (ROOT / path).read_text())
