"""A real headless Chromium for tests that look at pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--disable-sync",
)


@contextmanager
def chromium() -> Iterator[Any]:
    """The system's Chromium, driven by playwright; the test is skipped where either is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright (extra 'dev')")
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("needs chromium on the PATH")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        yield browser
        browser.close()


def complaints(page: Any) -> list[str]:
    """What the page complains of from now on: errors and warnings of its scripts."""
    found: list[str] = []
    page.on(
        "console",
        lambda said: found.append(said.text) if said.type in ("error", "warning") else None,
    )
    page.on("pageerror", lambda error: found.append(str(error)))
    return found
