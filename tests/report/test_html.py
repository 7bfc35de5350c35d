from __future__ import annotations

import base64
import hashlib
import html
import re
import struct
import sys
from contextlib import contextmanager
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from daskmetrics.core.names import Suite
from daskmetrics.report import whereabouts, write
from daskmetrics.report._format import NO_PICTURES, answer_rows, candidate
from daskmetrics.report.figures import NAMES
from daskmetrics.report.page import page
from tests.browser import chromium, complaints
from tests.report.conftest import SWEEP, TASKS

VOID = {"meta", "img", "br"}


class Checker(HTMLParser):
    """Checks that every tag is closed; collects the tags and the loaded addresses."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.loaded: list[str] = []
        self.linked: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.loaded += [value for name, value in attrs if name in ("src", "action")]
        self.linked += [value for name, value in attrs if name == "href"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def written(finished):
    return write(finished).read_text(encoding="utf-8")


def scripts(text):
    return re.findall(r"<script>(.*?)</script>", text, re.DOTALL)


def test_the_page_is_valid_and_loads_nothing(finished, written):
    checked = Checker(written)
    assert not checked.tags & {"link", "iframe", "object", "embed", "form"}
    assert not checked.loaded
    assert checked.linked and all(
        (finished.folder.report / name).is_file() for name in checked.linked
    )
    rest = re.sub(r"<script.*?</script>", "", written, flags=re.DOTALL)
    assert not re.search(r"https?:|url\(|@import", rest)
    assert "{{" not in rest and "{%" not in rest


def test_the_policy_allows_no_script_but_the_two_of_the_page(written):
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', written)[1].replace(
        "&#39;", "'"
    )
    digests = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in scripts(written)
    ]
    assert policy.startswith("default-src 'none';") and len(digests) == 2
    assert policy.endswith("script-src " + " ".join(f"'sha256-{digest}'" for digest in digests))
    assert "unsafe-eval" not in policy and "connect-src" not in policy


def test_names_and_reasons_are_escaped(written):
    assert (
        "<script>alert" not in written
        and "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;" in written
    )


def test_the_page_begins_with_the_answer_one_picture_and_the_tasks_and_folds_the_rest(
    finished, written
):
    head = written[: written.index("<details>")]
    assert "<th>within its error</th>" in head
    for text in answer_rows(finished.answer).values():
        assert html.escape(text).replace("&#x27;", "&#39;") in head
    assert re.findall(r'<div id="figure-(.*?)">', head) == ["map"]
    assert re.findall(r"<summary>(.*?)</summary>", written) == [
        "By model",
        "All candidates",
        "More figures",
        "What a better score costs",
        "Which metrics predict quality here",
        "Work, cost and 3 missing values",
        "Settings and versions",
        "How to cite",
    ]
    for text in ("final_ln", "0.1.0", "seed", finished.start.key, "prefers-color-scheme"):
        assert text in written


def test_the_figures_are_png_files_too(finished, written):
    names = {file.stem for file in finished.folder.report.glob("*.png")}
    assert names | {"telemetry"} == NAMES  # a run of seconds has too few samples
    for name in names:
        png = (finished.folder.report / f"{name}.png").read_bytes()
        assert png.startswith(b"\x89PNG")
        assert struct.unpack(">I", png[16:20])[0] == 1500  # pixels wide
    assert not list(finished.folder.report.glob(".*"))


def test_an_unfinished_run_has_a_page(a_run):
    text = page(a_run(decisions=20), [])
    assert (
        Checker(text)
        and "No answer yet" in text
        and "This run is unfinished" in text
        and "scored so far" in text
    )


def test_a_run_without_tasks_has_a_page(a_run):
    run = a_run(tasks=())
    text = write(run).read_text(encoding="utf-8")
    assert Checker(text) and "Metrics only" in text and "All candidates" not in text
    assert sorted(p.stem for p in run.folder.report.glob("*.png")) == [
        "layers",
        "scores",
        "training",
    ]


def test_a_run_without_measured_checkpoints_has_a_page(a_run):
    names = tuple(f"{model}@step{step}" for model in ("tiny", "small") for step in (0, 1, 2, 4, 8))
    text = page(a_run(tasks=(), failing=names, trained=False), [])
    # no library without figures
    assert Checker(text) and "<figure" not in text and len(scripts(text)) == 1


def test_without_matplotlib_the_page_is_whole_and_says_what_is_not_written(finished, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name == "daskmetrics.report.figures"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for file in finished.folder.report.glob("*"):
        file.unlink()
    text = write(finished).read_text(encoding="utf-8")
    assert (
        Checker(text)
        and "daskmetrics[plot]" in text
        and not list(finished.folder.report.glob("*.png"))
    )
    assert f"figures     {NO_PICTURES[:60]}" in whereabouts(finished.folder)
    assert all(
        f'<div id="figure-{name}">' in text
        for name in ("map", "lines", "comparison", "search", "losses")
    )


def test_single_checkpoints_have_lines_and_files_of_other_figures_are_deleted(a_run):
    run = a_run(suites=(Suite("one", ("main",), (0, 1, 2, 3), 3),), budget=1.0, trained=False)
    text = write(run).read_text(encoding="utf-8")
    assert re.findall(r'<div id="figure-(.*?)">', text) == ["lines", "comparison", "search"]
    assert text.count("<tr data-arm=") == 4
    drawn = {file.stem for file in run.folder.report.glob("*.png")}
    assert drawn < NAMES - {"scores", "metrics"} and "No PNG" not in whereabouts(run.folder)
    for name in ("scores.png", "training.png", "training.svg", "mine.png"):
        (run.folder.report / name).write_bytes(b"old")
    write(run)
    assert {file.name for file in run.folder.report.glob("*.[ps][nv]g")} == {
        f"{name}.png" for name in drawn | {"mine"}
    }


def test_the_page_of_a_hostile_name(finished, monkeypatch):
    monkeypatch.setattr(finished, "start", replace(finished.start, name="<b>&"))
    assert "&lt;b&gt;&amp;" in page(finished, []) and "<b>&" not in page(finished, [])


def test_the_cards_of_a_notebook(finished):
    best = finished.best()
    card = best._repr_html_()
    assert candidate(best.arm) in card and "--save my-encoder" in card
    assert Checker(card) and Checker(finished._repr_html_())
    # the colours of the theme, and no network
    assert "color: inherit" in card and not re.search(r"https?:", card)


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a page without a network; it must not complain or ask for anything."""

    @contextmanager
    def open_page(text, **options):
        options = {"offline": True, "viewport": {"width": 1280, "height": 900}, **options}
        file = tmp_path / "index.html"
        file.write_text(text, encoding="utf-8")
        with browser.new_context(**options) as context:
            view = context.new_page()
            complained, asked = complaints(view), []
            view.on("request", lambda request: asked.append(request.url))
            view.goto(file.as_uri())
            if options.get("java_script_enabled", True):
                view.wait_for_selector("html[data-drawn]", state="attached")
                opening = "document.querySelectorAll('details').forEach(part => part.open = true)"
                view.evaluate(opening)
            yield view
        assert not complained
        assert all(url == file.as_uri() or url.startswith("data:") for url in asked)

    return open_page


PAPER = "getComputedStyle(document.body).backgroundColor"
LABEL = "figures.figure('map').below[0].axis_label_text_color"


@pytest.mark.browser
@pytest.mark.parametrize("width", [400, 1280])
def test_every_figure_is_drawn_and_fits_with_the_network_off(opened, written, width):
    with opened(written, viewport={"width": width, "height": 900}) as view:
        shown = view.evaluate("[document.scrollingElement.scrollWidth, innerWidth]")
        drawn = view.evaluate(
            "[...document.querySelectorAll('figure[data-name]')].map(each => each.offsetHeight)"
        )
    assert len(drawn) == 5 and min(drawn) > 200
    assert shown[0] <= shown[1]


@pytest.mark.browser
def test_without_javascript_the_page_shows_whole_tables_and_names_the_pictures(opened, written):
    with opened(written, java_script_enabled=False) as view:
        assert view.locator("noscript .notice").is_visible()
        view.locator("summary", has_text="All candidates").click()
        assert view.locator("table.sortable tbody tr").first.is_visible()
        assert not any(part.is_visible() for part in view.locator(".interactive").all())


@pytest.mark.browser
def test_the_leaderboard_sorts_by_any_column(opened, written):
    with opened(written) as view:
        column = "[...document.querySelectorAll('table.sortable tbody tr')].map(row => row.cells[{}].dataset.value)"
        head = view.locator("table.sortable th").nth(3)
        head.locator("button").click()
        falling = [float(value) for value in view.evaluate(column.format(3)) if value]
        assert head.get_attribute("aria-sort") == "descending" and falling == sorted(
            falling, reverse=True
        )
        head.locator("button").click()
        assert [float(value) for value in view.evaluate(column.format(3)) if value] == falling[::-1]
        view.locator("table.sortable th button").nth(2).click()
        means = view.evaluate(column.format(2))
        assert (
            "" in means
            and "" not in means[: means.index("")]
            and set(means[means.index("") :]) == {""}
        )


@pytest.mark.browser
def test_a_reader_chooses_model_and_quantities_and_selections_are_linked(opened, finished, written):
    with opened(written) as view:
        view.select_option("#choose-model", "tiny")
        view.select_option("#choose-shown", "curvature")
        view.select_option("#choose-against", "stdlib:order")
        assert view.evaluate("figures.document.get_model_by_name('one').group") == "tiny"
        assert (
            view.evaluate("figures.figure('comparison').below[0].axis_label")
            == "stdlib:order, accuracy"
        )
        values = view.evaluate(
            "Object.fromEntries([...figures.source.data.value].map((v, i) => [figures.names[i], v]))"
        )
        stored = finished.metrics["curvature"].sel(model="tiny", checkpoint="step8", layer=1).item()
        assert (
            values["tiny@step8/1"] == pytest.approx(stored, rel=1e-4)
            and values["small@step0/0"] != values["small@step0/0"]
        )
        view.locator("#figure-map").scroll_into_view_if_needed()
        box = view.locator("#figure-map").bounding_box()
        view.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        view.locator(".bk-Tooltip").get_by_text("tiny@step").wait_for()
        row = view.locator("tr[data-arm^=small]").first
        row.click()
        arm = row.get_attribute("data-arm")
        assert view.evaluate("figures.names[figures.source.selected.indices[0]]") == arm
        assert (
            arm in view.locator("#selected").text_content()
            and view.input_value("#choose-model") == "small"
        )
        assert view.evaluate(
            "figures.figure('map').renderers[0].data_source === figures.figure('comparison').renderers[0].data_source"
        )


@pytest.mark.browser
def test_the_page_has_the_colours_of_the_scheme_and_follows_a_change(opened, written):
    with opened(written, color_scheme="light") as view:
        light = view.evaluate(f"[{PAPER}, {LABEL}]")
        view.emulate_media(color_scheme="dark")
        frame = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        # a page learns of the change with its next frame
        dark = view.evaluate(f"{frame}.then(() => [{PAPER}, {LABEL}])")
    with opened(written, color_scheme="dark") as view:
        assert view.evaluate(f"[{PAPER}, {LABEL}]") == dark
    assert light == ["rgb(255, 255, 255)", "#1c2128"]
    assert dark == ["rgb(20, 24, 29)", "#e3e7ec"]


@pytest.mark.browser
def test_the_page_refuses_other_scripts_and_connections(browser, tmp_path, written):
    (tmp_path / "index.html").write_text(written, encoding="utf-8")
    with browser.new_context() as context:
        view = context.new_page()
        refused = complaints(view)
        view.goto((tmp_path / "index.html").as_uri())
        view.evaluate(
            "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'}))"
        )
        assert view.evaluate("window.ran") is None
        sent = view.evaluate("fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')")
        assert sent == "refused"
    assert len(refused) >= 2 and all("Content Security Policy" in text for text in refused[:2])


@pytest.mark.browser
def test_each_of_several_models_has_a_line_that_is_named(opened, a_run, width=400):
    suites = (Suite("tiny", ("main",), (0, 1, 2), 2), Suite("small", ("main",), (0, 1, 2, 3), 3))
    run = a_run(suites=suites, tasks=TASKS[:1], budget=1.0, trained=False, settings=SWEEP)
    with opened(page(run, []), viewport={"width": width, "height": 900}) as view:
        names = view.evaluate("figures.figure('lines').renderers[0].data_source.data.label")
        drawn = view.evaluate("figures.figure('lines').renderers[1].data_source.data.y")
        legend = view.evaluate("figures.figure('lines').left[0].axis_label")
        view.evaluate("document.querySelector('option').textContent = 'a_long_name'.repeat(9)")
        assert view.evaluate("document.documentElement.scrollWidth") <= width
    assert list(names) == ["tiny", "small"] and len(drawn) == 7
    assert legend.startswith(TASKS[0])
