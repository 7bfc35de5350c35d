from __future__ import annotations

import os
import re
import struct
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from daskmetrics.report import write
from daskmetrics.report._html import page
from tests.browser import chromium, complaints

VOID = {"meta", "img", "br"}


class Checker(HTMLParser):
    """Checks that every tag is closed; collects the tags and the loaded addresses."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.loaded: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.loaded += [value for name, value in attrs if name in ("src", "href", "action")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def written(finished):
    return write(finished).read_text(encoding="utf-8")


def test_the_page_is_valid_and_loads_nothing(finished, written):
    checked = Checker(written)
    assert not checked.tags & {"script", "link", "iframe"}
    assert checked.loaded and all(source.startswith("data:image/png;base64,") for source in checked.loaded)
    assert not re.search(r"https?:|url\(|@import", written)
    assert "{{" not in written and "{%" not in written


def test_names_and_reasons_are_escaped(written):
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;" in written


def test_the_answer_is_at_the_top_of_the_page(finished, written):
    headings = re.findall(r"<h2>(.*?)</h2>", written)
    assert headings == [
        "Scores by task",
        "The best arm of every kind and task",
        "Leading arms",
        "Load the arm",
        "Trade-offs",
        "Figures",
        "Work and cost",
        "Missing values",
        "Settings and versions",
        "How to cite",
    ]
    best = finished.best()
    assert len(finished.verdict.tied) > 1 and best.arm in finished.verdict.tied
    for said in (f">{finished.verdict.answer}<", finished.verdict.headline, finished.verdict.basis):
        assert written.index(said) < written.index("Scores by task")
    for text in ("final_ln", "0.1.0", "seed", finished.start.key, "are computed from", "prefers-color-scheme"):
        assert text in written


def test_the_figures_are_png_files_too(finished, written):
    for name in ("scores", "metrics", "layers", "predictors", "agreement", "path", "training"):
        png = (finished.folder.report / f"{name}.png").read_bytes()
        assert png.startswith(b"\x89PNG")
        assert struct.unpack(">I", png[16:20])[0] == 1500  # pixels wide
    assert not list(finished.folder.report.glob(".*"))


def test_an_unfinished_run_has_a_page(a_run):
    text = write(a_run(decisions=20)).read_text(encoding="utf-8")
    assert Checker(text) and "No answer yet" in text and "This run is unfinished" in text and "Leader so far" in text


def test_a_run_without_tasks_has_a_page(a_run):
    run = a_run(tasks=())
    text = write(run).read_text(encoding="utf-8")
    assert Checker(text) and "Metrics only" in text and "Scores by task" not in text
    assert sorted(p.stem for p in run.folder.report.glob("*.png")) == ["layers", "metrics", "training"]


def test_a_run_without_measured_checkpoints_has_a_page(a_run):
    names = tuple(f"{model}@step{step}" for model in ("tiny", "small") for step in (0, 1, 2, 4, 8))
    text = write(a_run(tasks=(), failing=names, trained=False)).read_text(encoding="utf-8")
    assert Checker(text) and "<figure>" not in text


def test_without_matplotlib_the_page_names_the_extra(finished, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.startswith("daskmetrics.report.plots")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    (finished.folder.report / "index.html").unlink(missing_ok=True)
    text = write(finished).read_text(encoding="utf-8")
    assert Checker(text) and "daskmetrics[plot]" in text and "<figure>" not in text


def test_the_page_of_a_hostile_name(finished, monkeypatch):
    monkeypatch.setattr(finished, "start", replace(finished.start, name="<b>&"))
    assert "&lt;b&gt;&amp;" in page(finished, []) and "<b>&" not in page(finished, [])


def test_warnings_about_the_data_are_at_the_top_of_the_page(finished, monkeypatch):
    monkeypatch.setattr(finished, "start", replace(finished.start, warnings=["file:own.csv: 3 texts are <empty>."]))
    assert '<p class="notice">file:own.csv: 3 texts are &lt;empty&gt;.</p>' in page(finished, [])


def test_the_cards_of_a_notebook(finished):
    best = finished.best()
    card = best._repr_html_()
    assert str(best.arm) in card and "embed(texts)" in card
    assert Checker(card) and Checker(finished._repr_html_()) and finished.headline in finished._repr_html_()
    assert "color: inherit" in card and not re.search(r"https?:", card)  # the colours of the theme, and no network


def test_a_page_is_written_again_only_after_new_entries(finished):
    page = finished.folder.report / "index.html"
    page.unlink(missing_ok=True)
    write(finished)
    written = page.stat().st_mtime_ns
    write(finished)
    assert page.stat().st_mtime_ns == written
    os.utime(finished.folder.journal)
    write(finished)
    assert page.stat().st_mtime_ns > written


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280, 1920])
def test_the_page_opens_from_a_file_with_the_network_off(finished, tmp_path, scheme, width):
    page_file = write(finished)
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
    assert not complained and len(images) == 8 and all(image == 1500 for image in images)
    assert all(url.startswith(("file:", "data:")) for url in asked)
    assert shown[0] <= shown[1]
    assert paper == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 24, 29)")
