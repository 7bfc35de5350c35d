"""The report as a reader opens it: from a file, in a real browser, with the network off."""

from __future__ import annotations

import pytest

from daskmetrics.report import write
from tests.browser import chromium, complaints


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280, 1920])
def test_it_opens_from_a_file_with_the_network_off(finished, tmp_path, scheme, width):
    page_file = write(finished.folder)
    with chromium() as browser:
        context = browser.new_context(offline=True, color_scheme=scheme, viewport={"width": width, "height": 900})
        page = context.new_page()
        complained, asked = complaints(page), []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(page_file.resolve().as_uri())
        page.screenshot(path=tmp_path / "report.png", full_page=True)
        images = page.evaluate("[...document.images].map(image => image.complete && image.naturalWidth)")
        shown = page.evaluate("[document.scrollingElement.scrollWidth, innerWidth]")
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert not complained and len(images) == 7 and all(image == 1500 for image in images)
    assert all(url.startswith(("file:", "data:")) for url in asked)
    assert shown[0] <= shown[1]
    assert paper == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 24, 29)")
