"""Debian's Chromium, driven by Playwright, with every message and request noted."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)


def why_not() -> str | None:
    """Return why there is no browser here; None where there is one."""
    if shutil.which("chromium") is None:
        return "chromium is not installed (make debian-packages)"
    if find_spec("playwright") is None or find_spec("axe_playwright_python") is None:
        return "playwright or axe-playwright-python is not installed"
    return None


@contextmanager
def chromium() -> Iterator[Any]:
    """Start the browser, and end it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


class Seen:
    """A tab that shows a page from a file; `errors` and `asked` are what it said and fetched."""

    def __init__(self, browser: Any, folder: Path) -> None:
        self.browser = browser
        self.folder = folder
        self.errors: list[str] = []
        self.asked: list[str] = []
        self.url = ""
        self.tab: Any = None

    def open(self, html: str, *, scheme: str = "light", width: int = 1280) -> Any:
        """Open `html`; messages of level error, page errors, dialogs and requests are noted."""
        file = self.folder / "review.html"
        file.write_text(html, encoding="utf-8")
        self.url = file.as_uri()
        context = self.browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
        self.tab = context.new_page()
        self.tab.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self.tab.on("dialog", self._dialog)
        self.tab.on("request", lambda request: self.asked.append(request.url))
        self.tab.goto(self.url)
        return self.tab

    def _dialog(self, dialog: Any) -> None:
        self.errors.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def axe(self) -> list[str]:
        """Return axe-core's violations in words."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.tab).response["violations"]
        return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found]

    def close(self) -> None:
        if self.tab is not None:
            self.tab.context.close()
