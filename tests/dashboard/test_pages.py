"""The pages of a real scheduler behind its private prefix, in a real browser."""

from __future__ import annotations

import io
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from distributed import get_worker
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families

import daskmetrics as dm
from benchmarks.dashboard import History
from daskmetrics.cluster import connect
from daskmetrics.config import Cluster, parse
from daskmetrics.dashboard import RUN_PAGE, Publisher
from daskmetrics.dashboard._plugin import NAME
from daskmetrics.dashboard._prometheus import COLLECTOR
from daskmetrics.dashboard._state import TrainingCurves
from daskmetrics.domain.events import RunFinished, UnitAsked
from daskmetrics.domain.names import Suite
from tests.browser import chromium, complaints
from tests.slurm.site import comes_true

STEPS = tuple(f"step{2**i}" for i in range(8))
SUITES = (Suite("tiny", STEPS, (0, 1, 2), 2), Suite("small", STEPS, tuple(range(7)), 6))
TASKS = ("stdlib:order", "stdlib:package")
GREY = (0xE9, 0xEC, 0xEF)  # of arms without a value


@pytest.fixture
def prefix(client):
    return client.dashboard_link.removesuffix("/status")


@pytest.fixture
def plugin(client):
    return client.cluster.scheduler.plugins[NAME]


@pytest.fixture(autouse=True)
def is_latest(plugin, monkeypatch):
    """/metrics shows the latest scheduler of the process: a test of another file may have left one."""
    monkeypatch.setattr(COLLECTOR, "plugins", [plugin])


@pytest.fixture
def history():
    return History(SUITES, TASKS)


def get(url: str) -> str:
    with urllib.request.urlopen(url) as answer:
        return answer.read().decode()


@contextmanager
def publishing(client, plugin, entries):
    """A publisher of a journal with these entries, once they have arrived."""
    with Publisher(client, entries) as publisher:
        assert comes_true(lambda: plugin.live is not None and plugin.live.name == "made-up")
        yield publisher


def test_the_page_is_in_the_menu_and_in_jupyterlabs_panel(prefix):
    assert "/individual-daskmetrics" in get(f"{prefix}/individual-plots.json")
    assert '<a href="individual-daskmetrics">' in get(f"{prefix}/individual-daskmetrics")
    for path in ("individual-daskmetrics", "metrics"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(f"{prefix.rpartition('/')[0]}/{path}")


def test_nothing_is_sent_to_a_scheduler_without_the_pages(client, plugin, history):
    handlers = client.cluster.scheduler.handlers
    receive = handlers.pop("daskmetrics_receive")
    try:
        with Publisher(client, history.opening()) as publisher:
            assert comes_true(lambda: publisher._task.done())
            publisher.send_computed(lambda: pytest.fail("no handler"))
    finally:
        handlers["daskmetrics_receive"] = receive


def test_a_publisher_sends_entries_that_prometheus_reads(client, plugin, prefix, history):
    entries = [*history.opening(), *list(history.measured())[:9]]
    with publishing(client, plugin, entries) as publisher:
        assert comes_true(lambda: plugin.live.done("measure") == 9)
        searched = list(history.searched())[:60]
        scored = sum(getattr(entry, "kind", None) == "score" for entry in searched)
        entries += [*list(history.measured())[9:], *searched]
        publisher.send_computed(lambda: history.posterior(10))
        assert comes_true(lambda: plugin.live.done("score") == scored and plugin.live.leader)
        text = get(f"{prefix}/metrics")
        entries.append(RunFinished("made-up", 1.0))
    assert plugin.live.phase == "finished"  # sent on exit
    families = {family.name: family for family in text_string_to_metric_families(text)}
    units = {}
    for sample in families["daskmetrics_units"].samples:
        units[sample.labels["kind"], sample.labels["state"]] = sample.value

    def value(name: str) -> float:
        return families[f"daskmetrics_{name}"].samples[0].value

    assert units["measure", "ok"] == 16 and units["score", "ok"] == value("cells_scored")
    assert value("best_score") == pytest.approx(plugin.live.best) and value("workers") == 2
    assert families["daskmetrics_cost_spent_seconds"].type == "counter"
    assert families.keys() >= {"daskmetrics_failures", "daskmetrics_eta_seconds"}
    assert "dask_scheduler_workers" in families  # beside Dask's own


def test_another_scheduler_has_its_own_page_and_metrics(prefix, client):
    lines: list[str] = []
    with connect(Cluster(workers=1), on_start=lines.append, page=RUN_PAGE) as other:
        (link,) = [line.partition(" ")[2] for line in lines if line.startswith("Dashboard: ")]
        assert "prefers-color-scheme: dark" in get(link)  # which no page of Dask has
        metrics = get(f"{other.dashboard_link.removesuffix('/status')}/metrics")
        assert "daskmetrics_workers 1.0" in metrics
    assert "daskmetrics_workers 2.0" in get(f"{prefix}/metrics")


def report_training(ranks: int, has_tokens: bool = True) -> None:
    for step in range(20):
        for rank in range(ranks):
            event = {
                "rank": rank,
                "step": step,
                "loss": 7 / (step + 1) + rank / 10,
                "tokens_per_second": 900.0 + rank if has_tokens else None,
            }
            get_worker().log_event("daskmetrics-train", event)


def test_trainings_and_the_cluster_are_received(client, plugin, prefix, tmp_path):
    models = [{"name": "mine", "train": {"width": 16, "depth": 1, "steps": 8, "vocabulary": 300}}]
    dm.train(client, parse({"name": "x", "models": models, "ddp": {"folder": str(tmp_path / "s")}}))
    client.submit(report_training, 3, pure=False).result()
    client.log_event("daskmetrics-cluster", {"text": "30 jobs run, 2 wait (Priority)"})
    assert comes_true(
        lambda: plugin.cluster and {"mine", "rank 2"} <= plugin.training.points.keys()
    )
    points = plugin.training.points["mine"]
    assert points[-1].step == 8 and all(0 < point.loss < 10 for point in points)
    assert plugin.training.points["rank 2"][-1][:3] == (19, pytest.approx(0.55), 902.0)
    assert 'daskmetrics_training_step{rank="rank 1"} 19.0' in get(f"{prefix}/metrics")


def grey(png: bytes) -> float:
    """Share of a screenshot that has the colour of arms without a value."""
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
    return float((pixels == GREY).all(axis=2).mean())


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture
def opened(browser, prefix):
    """Opens the page of the run, which must not complain; what the figures of Bokeh have."""

    @contextmanager
    def open_page(width: int = 1280, **options):
        page = browser.new_page(viewport={"width": width, "height": 1000}, **options)
        errors = complaints(page)
        page.goto(f"{prefix}/individual-daskmetrics")
        yield page
        # nothing is wider than the window
        assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
        page.close()
        assert not errors

    return open_page


@pytest.mark.browser
def test_the_page_shows_what_is_measured_now_and_every_new_value(client, plugin, history, opened):
    plugin.training = TrainingCurves()  # a training of a test before may have reported
    measured = list(history.measured())
    entries = [*history.opening(), UnitAsked(measured[0].key, measured[0].name, {})]
    with publishing(client, plugin, entries), opened() as page:
        page.get_by_text(f"now: {measured[0].name}").wait_for()
        page.get_by_text("4 metrics of tiny (8 checkpoints), small (8 checkpoints)").wait_for()
        assert page.locator("progress").get_attribute("max") == "16"
        assert page.locator(".bk-Figure canvas:visible").count() == 0  # no axes without a value
        entries += measured[:11]
        page.get_by_text("11 of 16").wait_for()
        page.locator(".bk-Figure canvas:visible").first.wait_for()
        page.wait_for_timeout(1500)
        partly = page.screenshot()
        entries += [*measured[11:], *history.searched(budget=1.0)]
        page.get_by_text("best mean score so far").wait_for(timeout=120_000)
        page.get_by_text("16 of 16").wait_for()
        page.wait_for_timeout(3000)
        full = page.screenshot()
        for text in ("Latest decisions", "small@step", "/s"):
            assert page.get_by_text(text).count()
    assert grey(partly) > 0.05 > 0.002 > grey(full)


def figures(page: Any, value: str) -> list[Any]:
    """A value of every figure of the page."""
    models = "Bokeh.documents[0]._all_models.values().toArray()"
    return page.evaluate(f"{models}.filter(m => m.type == 'Figure').map(figure => {value})")


@pytest.mark.browser
def test_a_single_checkpoint_has_a_line_for_each_task(client, plugin, opened):
    history = History((Suite("one", ("main",), (0, 1, 2), 2),), TASKS)
    entries = [*history.opening(), *history.measured(), *history.searched(budget=1.0)]
    with publishing(client, plugin, entries), opened(width=400, color_scheme="dark") as page:
        page.get_by_text("best mean score so far").wait_for()
        page.wait_for_timeout(1500)
        sources = "figure.renderers.map(drawn => drawn.data_source.data)"
        values = f"(([curves, bars]) => [curves.label, [...bars.low], [...bars.y]])({sources})"
        drawn = figures(page, f"figure.name == 'lines' && figure.visible && {values}")
        assert "Best so far" in figures(page, "figure.visible && figure.title.text")
        assert set(figures(page, "figure.border_fill_color")) == {"#14181d"}
    ((labels, low, y),) = filter(None, drawn)
    assert sorted(labels) == sorted(TASKS)
    np.testing.assert_allclose(np.subtract(y, low), 0.01, rtol=1e-3)


@pytest.mark.browser
def test_a_browser_that_closes_leaves_nothing_in_the_terminal(
    client, plugin, prefix, history, browser, capfd
):
    entries = [*history.opening(), *history.measured()]
    with publishing(client, plugin, entries):
        for wait in (50, 400, 1500):
            page = browser.new_page()
            page.goto(f"{prefix}/individual-daskmetrics", wait_until="commit")
            page.wait_for_timeout(wait)
            entries += list(history.searched())[:40]
            page.close()
        time.sleep(3)
    assert "Traceback" not in "".join(capfd.readouterr())


@pytest.mark.browser
@pytest.mark.parametrize(
    ("has_tokens", "text", "drawn"),
    [
        (True, "4 ranks, step 19, 3,606 tokens per second in total", 2),
        (False, "4 ranks, step 19", 1),
    ],
)
def test_without_a_run_the_page_draws_the_training_of_every_rank(
    client, plugin, opened, has_tokens, text, drawn
):
    plugin.training, plugin.live = TrainingCurves(), None
    plugin.items = {"items": 3, "counts": {"ok": 3}}  # of a map before
    client.submit(report_training, 4, has_tokens, pure=False).result()
    assert comes_true(lambda: "rank 3" in plugin.training.points)
    with opened() as page:
        page.get_by_text(text, exact=True).wait_for()
        page.locator(".bk-Figure:visible").nth(drawn - 1).wait_for()
        page.wait_for_timeout(1500)
        assert page.locator(".bk-Figure:visible").count() == drawn
