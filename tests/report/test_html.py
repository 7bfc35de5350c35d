from __future__ import annotations

import base64
import hashlib
import re
import sys
from contextlib import contextmanager
from html.parser import HTMLParser

import pytest

from daskmetrics.answer.posterior import path_of
from daskmetrics.bandit.model import IncrementalPosterior
from daskmetrics.dashboard.drawing import LAYER
from daskmetrics.domain.names import Suite
from daskmetrics.report import write
from daskmetrics.report.figures import NAMES
from daskmetrics.report.page import page
from tests.browser import chromium, complaints
from tests.report.conftest import SMALL, STEPS, SUITES, TASKS

FIGURES = ["map", "lines", "comparison", "search", "expected-loss", "losses"]


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
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def written(finished):
    return write(finished).read_text(encoding="utf-8")


def scripts(text):
    return re.findall(r"<script>(.*?)</script>", text, re.DOTALL)


def drawn_in(text):
    return re.findall(r'<div id="figure-(.*?)">', text)


def test_the_page_is_valid_and_loads_nothing(finished, written):
    checked = Checker(written)
    assert not checked.tags & {"link", "iframe", "object", "embed", "form"}
    assert not checked.loaded and checked.linked
    assert all((finished.folder.report / name).is_file() for name in checked.linked)
    rest = re.sub(r"<script.*?</script>", "", written, flags=re.DOTALL)
    assert not re.search(r"https?:|url\(|@import", rest)
    assert "{{" not in rest and "{%" not in rest
    card = finished._repr_html_()
    # the colours of the theme of a notebook, and no network
    assert Checker(card) and "color: inherit" in card and not re.search(r"https?:", card)


def test_the_policy_allows_no_script_but_the_two_of_the_page(written):
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', written)[1]
    named = []
    for text in scripts(written):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        named.append(f"&#39;sha256-{digest}&#39;")
    assert policy.startswith("default-src &#39;none&#39;;") and len(named) == 2
    assert policy.endswith("script-src " + " ".join(named))
    assert "unsafe-eval" not in policy and "connect-src" not in policy


def test_the_page_begins_with_the_answer_and_folds_the_rest(finished, written):
    head = written[: written.index("<details>")]
    assert "<th>tied</th>" in head and drawn_in(head) == FIGURES[:1]
    assert drawn_in(written) == FIGURES
    folded = re.findall(r"<summary>(.*?)</summary>", written)
    assert folded[:2] == ["By model", "All candidates"] and len(folded) == 9
    for text in ("final_ln", "0.1.0", "seed", finished.plan.key):
        assert text in written
    files = {file.stem for file in finished.folder.report.glob("*.png")}
    assert files | {"telemetry"} == NAMES  # a run of seconds has too few samples


NOTHING_MEASURED = tuple(f"{suite.model}@{step}" for suite in SUITES for step in STEPS)


@pytest.mark.parametrize(
    ("story", "has", "lacks"),
    [
        ({"decisions": 20}, "No answer yet", "By task"),
        ({"tasks": ()}, "Metrics only", "All candidates"),
        ({"tasks": (), "failing": NOTHING_MEASURED, "trained": False}, "10 error", "<figure"),
    ],
    ids=["unfinished", "without tasks", "without measured checkpoints"],
)
def test_a_run_without_an_answer_has_a_page(a_run, story, has, lacks):
    text = page(a_run(**story), [])
    rest = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert Checker(text) and has in rest and lacks not in rest
    assert len(scripts(text)) == 1 + ("<figure" in rest)  # no library without figures


def test_page_and_pictures_compute_each_posterior_once(a_run, monkeypatch):
    run, computed = a_run(), []
    compute = IncrementalPosterior.posterior

    def counted(*arguments):
        computed.append(arguments)
        return compute(*arguments)

    monkeypatch.setattr(IncrementalPosterior, "posterior", counted)
    write(run)
    assert len(computed) == 1 + path_of(run)["loss"].count()


def test_without_matplotlib_the_page_says_what_is_missing(a_run, monkeypatch):
    for name in list(sys.modules):
        if name.partition(".")[0] == "matplotlib" or name == "daskmetrics.report.figures":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    run = a_run()
    text = write(run).read_text(encoding="utf-8")
    assert drawn_in(text) == FIGURES and not list(run.folder.report.glob("*.png"))
    assert "daskmetrics[plot]" in text


def test_single_checkpoints_have_lines_and_no_map(a_run):
    suite = Suite("one", ("main",), (0, 1, 2, 3), 3)
    run = a_run(suites=(suite,), tasks=TASKS[:1], budget=1.0, trained=False)
    run.folder.report.mkdir()
    old = {"scores.png", "training.png", "training.svg"}
    for name in (*old, "mine.png"):
        (run.folder.report / name).write_bytes(b"old")
    text = write(run).read_text(encoding="utf-8")
    assert drawn_in(text) == ["lines", "comparison", "search", "expected-loss"]
    assert text.count("<tr data-arm=") == 4
    files = {file.name for file in run.folder.report.iterdir()}
    assert "mine.png" in files and not files & old


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture
def opened(browser, finished, written):
    """Opens the page without a network; it must not complain or ask for anything."""

    @contextmanager
    def open_page(**options):
        options = {"offline": True, "viewport": {"width": 1280, "height": 900}, **options}
        file = finished.folder.report / "index.html"
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


@pytest.mark.browser
@pytest.mark.parametrize("width", [400, 1280])
def test_every_figure_is_drawn_and_fits_with_the_network_off(opened, width):
    with opened(viewport={"width": width, "height": 900}) as view:
        shown = view.evaluate("document.scrollingElement.scrollWidth")
        figures = "[...document.querySelectorAll('figure[data-name]')]"
        drawn = view.evaluate(f"{figures}.map(figure => figure.offsetHeight)")
    assert len(drawn) == len(FIGURES) and min(drawn) > 200 and shown <= width


@pytest.mark.browser
def test_without_javascript_the_page_shows_whole_tables(opened):
    with opened(java_script_enabled=False) as view:
        assert view.locator("noscript .notice").is_visible()
        view.locator("summary", has_text="All candidates").click()
        assert view.locator("table.sortable tbody tr").first.is_visible()
        assert not any(part.is_visible() for part in view.locator(".interactive").all())


@pytest.mark.browser
def test_the_leaderboard_sorts_by_any_column(opened):
    with opened() as view:

        def sorted_by(number):
            view.locator("table.sortable th button").nth(number).click()
            rows = "[...document.querySelectorAll('table.sortable tbody tr')]"
            values = view.evaluate(f"{rows}.map(row => row.cells[{number}].dataset.value)")
            known = [float(value) for value in values if value]
            assert values[len(known) :] == [""] * (len(values) - len(known))
            return known

        falling = sorted_by(3)
        assert falling == sorted(falling, reverse=True) and sorted_by(3) == falling[::-1]
        assert view.locator("table.sortable th").nth(3).get_attribute("aria-sort") == "ascending"


@pytest.mark.browser
def test_a_reader_chooses_model_and_quantities(opened, finished):
    with opened() as view:
        view.select_option("#choose-model", "tiny")
        view.select_option("#choose-shown", "curvature")
        view.select_option("#choose-against", "stdlib:order")
        axis = view.evaluate("figures.figure('comparison').below[0].axis_label")
        assert axis == "stdlib:order, accuracy"
        names = view.evaluate("figures.names")
        values = dict(zip(names, view.evaluate("[...figures.source.data.value]"), strict=True))
        stored = finished.metrics["curvature"].sel(model="tiny", checkpoint="step8", layer=1).item()
        assert values["tiny@step8/1"] == pytest.approx(stored, rel=1e-4)
        assert values["small@step0/0"] != values["small@step0/0"]
        view.locator("#figure-map").scroll_into_view_if_needed()
        box = view.locator("#figure-map").bounding_box()
        view.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        view.locator(".bk-Tooltip").get_by_text("tiny@step").wait_for()
        row = view.locator("tr[data-arm^=small]").first
        row.click()
        arm = row.get_attribute("data-arm")
        assert view.evaluate("figures.names[figures.source.selected.indices[0]]") == arm
        assert arm in view.locator("#selected").text_content()
        assert view.input_value("#choose-model") == "small"


@pytest.mark.browser
def test_figures_have_the_names_of_layers(browser, a_run):
    named = Suite("own", ("step4", "step8"), (0, 1), 1, layer_names=("stem", "head"))
    file = write(a_run(suites=(*SMALL.suites, named), tasks=SMALL.tasks, budget=1.0))
    with browser.new_context(offline=True) as context:
        view = context.new_page()
        complained = complaints(view)
        view.goto(file.as_uri())
        view.wait_for_selector("html[data-drawn]", state="attached")
        view.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
        for model, names in (("own", ["stem", "head"]), ("tiny", [])):
            view.select_option("#choose-model", model)
            axis = "figures.figure('lines').below[0].major_label_overrides"
            assert view.evaluate(f"[...{axis}.values()]") == names
            label = view.evaluate("figures.figure('lines').below[0].axis_label")
            assert label == ("layer" if names else LAYER)
        axis = "figures.figure('map').left[0].major_label_overrides"
        view.select_option("#choose-model", "own")
        assert view.evaluate(f"[...{axis}.values()]") == ["stem", "head"]
        row = view.locator("tr[data-arm='own@step8/head']")
        row.click()
        assert "Selected: own@step8/head." in view.locator("#selected").text_content()
        assert not complained


@pytest.mark.browser
def test_long_names_of_lines_stand_below_each_other(opened):
    figure = "figures.figure('lines')"
    columns = f"{figure}.above.find(part => part.type === 'Legend').ncols"
    with opened() as view:
        assert view.evaluate(f"[{columns}, {figure}.height]") == [3, 320]
        view.evaluate(f"figures.legend({figure}, Array(8).fill('x'.repeat(50)))")
        assert view.evaluate(f"[{columns}, {figure}.height]") == [1, 512]


@pytest.mark.browser
def test_the_page_follows_the_colour_scheme(opened):
    paper = "getComputedStyle(document.body).backgroundColor"
    colours = f"[{paper}, figures.figure('map').below[0].axis_label_text_color]"
    # a page learns of the change with its next frame
    frame = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
    with opened(color_scheme="light") as view:
        assert view.evaluate(colours) == ["rgb(255, 255, 255)", "#1c2128"]
        view.emulate_media(color_scheme="dark")
        dark = view.evaluate(f"{frame}.then(() => {colours})")
    assert dark == ["rgb(20, 24, 29)", "#e3e7ec"]


@pytest.mark.browser
def test_the_page_refuses_other_scripts_and_connections(browser, finished, written):
    script = "Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'})"
    with browser.new_context() as context:
        view = context.new_page()
        refused = complaints(view)
        view.goto((finished.folder.report / "index.html").as_uri())
        view.evaluate(f"document.body.append({script})")
        assert view.evaluate("window.ran") is None
        sent = view.evaluate("fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')")
        assert sent == "refused"
    assert len(refused) >= 2 and all("Content Security Policy" in text for text in refused[:2])
