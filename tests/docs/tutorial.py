"""The tutorial's commands, as they are written."""

from __future__ import annotations

import re

from tests.golden_trees import ROOT

PAGE = ROOT / "docs" / "tutorial.md"


def commands() -> list[str]:
    """Return the one command of each numbered section."""
    return re.findall(r"^## \d+\. .*\n\n    (.+)$", PAGE.read_text(), re.MULTILINE)
