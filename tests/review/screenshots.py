"""Take the pictures of docs/: ``make screenshots``."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.golden_trees import ROOT
from tests.review.browser import Seen, chromium, why_not
from tests.review.pages import page_of

FOLDER = ROOT / "docs" / "images"
# By name of the file: the example, the colours, and the path to open.
PICTURES = {
    "review-ring4": ("ring4", "light", "spark1 to spark3, plane 1 through spark2"),
    "review-ring8": ("ring8", "dark", "spark1 to spark4, plane 1 through spark2, spark3"),
}


def take(folder: Path, browser: Any) -> list[Path]:
    """Write every picture into `folder` and return their paths."""
    taken = []
    with TemporaryDirectory() as pages:
        for name, (example, scheme, path) in PICTURES.items():
            seen = Seen(browser, Path(pages))
            tab = seen.open(page_of(example), scheme=scheme, width=1240)
            tab.locator("details.path", has_text=path).first.locator("summary").click()
            tab.mouse.move(0, 0)
            tab.evaluate("window.scrollTo(0, 0)")
            file = folder / f"{name}.png"
            tab.screenshot(path=file)
            seen.close()
            taken.append(file)
    return taken


if __name__ == "__main__":
    reason = why_not()
    if reason:
        sys.exit(reason)
    FOLDER.mkdir(exist_ok=True)
    with chromium() as started:
        for file in take(FOLDER, started):
            print(f"{file.relative_to(ROOT)}: {file.stat().st_size} bytes")
