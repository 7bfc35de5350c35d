from __future__ import annotations

import io
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from PIL import Image
from scipy.stats import spearmanr

from daskmetrics.core.names import Arm, Suite, grid
from daskmetrics.report import _analysis as analysis
from daskmetrics.report._analysis import rank_correlation
from daskmetrics.report.plots import _figures as figures
from daskmetrics.report.plots._canvas import round_values
from daskmetrics.report.plots._correlations import metric_against_score
from daskmetrics.report.plots._figures import pictures
from daskmetrics.report.plots._heatmaps import Marks, Quantity, heat_maps, plane
from daskmetrics.report.plots._lines import chosen

pytest.importorskip("matplotlib")

NAMES = ["scores", "metrics", "layers", "predictors", "agreement", "path", "training"]


def test_the_pictures_of_a_finished_run(finished):
    made = list(pictures(finished))
    assert [picture.name for picture in made] == NAMES
    assert all(picture.title and picture.caption and picture.png for picture in made)


def test_pictures_do_not_depend_on_when_they_are_made(finished):
    first, second = ([(picture.png, picture.svg) for picture in pictures(finished)] for _ in range(2))
    assert first == second


def test_an_svg_is_a_drawing_with_its_texts(finished):
    drawn = {picture.name: picture.svg.decode() for picture in pictures(finished)}
    assert all(ET.fromstring(text).tag.endswith("svg") for text in drawn.values())
    assert "nats" in drawn["layers"] and "prompt_entropy" in drawn["predictors"] and "<path" in drawn["path"]


@pytest.mark.parametrize("decisions", [1, 3, 15])
def test_the_pictures_of_an_unfinished_search(a_run, decisions):
    names = [picture.name for picture in pictures(a_run(decisions=decisions))]
    assert {"metrics", "path", "training"} <= set(names)


def test_a_plane_has_layers_from_below_and_checkpoints_from_the_left():
    suite = Suite("m", ("step0", "step1"), (0, 2), 2)
    np.testing.assert_array_equal(plane({Arm("m", "step1", 2): 3.0}, suite), [[np.nan, np.nan], [np.nan, 3]])


@pytest.mark.parametrize("seed", range(5))
def test_the_rank_correlation_is_spearmans(seed):
    random = np.random.default_rng(seed)
    a, b = random.integers(0, 6, 20), random.normal(size=20)  # with ties
    assert rank_correlation(a, b) == pytest.approx(spearmanr(a, b).statistic)


def test_a_constant_has_no_rank_correlation():
    assert np.isnan(rank_correlation([1, 1, 1], [1, 2, 3]))


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_few_points_are_called_too_few():
    arms = [Arm("m", "step0", layer) for layer in range(6)]
    metric = {arm: float(arm.layer) for arm in arms}
    score = {arm: -float(arm.layer) for arm in arms[:4]}
    assert "too few arms (n = 4)" in texts(metric_against_score({"x": metric}, {}, score, ["m"]))
    score |= {arms[5]: -9.0}
    assert "Spearman's ρ = −1.00 (n = 5)" in texts(metric_against_score({"x": metric}, {}, score, ["m"]))


def test_labels_of_a_large_grid_do_not_touch():
    """Three Pythia sizes: 144 checkpoints each, up to 24 layers."""
    steps = tuple(f"step{step}" for step in range(0, 144_000, 1000))
    suites = [Suite(name, steps, tuple(range(1, n + 1)), n) for name, n in (("14m", 6), ("70m", 6), ("410m", 24))]
    values = {arm: float(arm.layer) for arm in grid(suites)}
    figure = heat_maps([Quantity("x", "nats", values), Quantity("y", "", {})], suites, Marks(best=next(iter(values))))
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts if text.get_text()]
    overlapping = [(a, b) for i, a in enumerate(boxes) for b in boxes[:i] if a.overlaps(b)]
    assert not overlapping


@pytest.mark.parametrize("low, high", [(0.0, 1.0), (-3.2e-5, 1e-5), (7.0, 7.0), (12.0, 48_000.0)])
def test_round_values_lie_in_the_range_and_read_back(low, high):
    ticks = round_values(low, high)
    assert ticks and all(low <= value <= high and float(label) == pytest.approx(value) for value, label in ticks)


def test_a_png_reads_back():
    pixels = np.random.default_rng(0).integers(0, 256, (7, 5, 3), dtype=np.uint8)
    image = Image.open(io.BytesIO(figures.encode(pixels, dpi=150)))
    np.testing.assert_array_equal(np.asarray(image), pixels)
    assert image.info["dpi"] == pytest.approx((150, 150), abs=0.1)


def test_the_table_of_correlations_is_spearmans_by_kind_of_task(finished):
    found = analysis.correlations(finished)
    known, metrics = analysis.scores(finished), analysis.metrics(finished)
    tasks = [task for task, about in finished.tasks.items() if about["kind"] == "retrieval"]
    arms = [arm for arm, own in known.items() if tasks[0] in own and arm in metrics["curvature"]]
    pairs = [(metrics["curvature"][arm], known[arm][tasks[0]]) for arm in arms]
    assert len(tasks) == 1 and found["curvature"]["retrieval"][1] == len(arms)
    assert found["curvature"]["retrieval"][0] == pytest.approx(spearmanr(*zip(*pairs, strict=True)).statistic)
    assert set(found["curvature"]) == {"all tasks", "classification", "retrieval"}


def test_scores_in_standard_deviations_are_centred_on_their_task(finished):
    known, standard = analysis.scores(finished), analysis.standard_scores(finished)
    assert standard.keys() == known.keys()
    whole = [arm for arm, own in known.items() if len(own) == len(finished.tasks)]
    by_mean = sorted(whole, key=lambda arm: sum(known[arm].values()))
    assert standard[by_mean[-1]] > 0 > min(standard.values()) and standard[by_mean[-1]] > standard[by_mean[0]]


@pytest.mark.parametrize("count", [1, 8, 9, 144])
def test_few_lines_are_drawn_from_the_first_checkpoint_to_the_last(count):
    names = [f"step{i}" for i in range(count)]
    shown = chosen(names)
    assert len(shown) == min(count, 8) == len(set(shown)) and (shown[0], shown[-1]) == (names[0], names[-1])
