"""The figures that are drawn with matplotlib: their files, and labels that fit."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from daskmetrics.core.telemetry import TelemetrySample
from daskmetrics.dashboard.drawing import LEAST_ERRORS
from daskmetrics.domain.names import Suite, grid
from daskmetrics.report._quantities import METRICS, SCORES, Field

pytest.importorskip("matplotlib")

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from daskmetrics.report import figures
from daskmetrics.report.figures import (
    heat_map,
    heat_maps,
    image,
    layer_lines,
    layer_points,
    pictures,
    telemetry,
    write_losses,
)

STEPS = tuple(f"step{step}" for step in range(0, 144_000, 1000))


PYTHIA = Suite("410m", STEPS, tuple(range(1, 25)), 24)
DEMO = Suite("tiny-64", STEPS[:11], (0, 1, 2, 3, 4), 4)


def test_pictures_do_not_depend_on_when_they_are_made(finished, a_run):
    first, second = (pictures(finished, finished.marked) for _ in range(2))
    for name in ("layers", "path"):
        drawn = image(first[name], "svg")
        assert drawn == image(second[name], "svg") and ET.fromstring(drawn).tag.endswith("svg")
    assert image(first["scores"]) == image(second["scores"])
    begun = a_run(decisions=1)
    assert {"layers", "path", "training"} <= pictures(begun, begun.marked).keys()


def unmarked(name):
    return {}


def overlapping(figure, monkeypatch):
    """Pairs of texts whose boxes overlap in the drawn figure."""
    boxes = {}
    draw = Text.draw

    def record(text, renderer):
        draw(text, renderer)
        if text.get_visible() and text.get_text():
            boxes[text] = text.get_window_extent()

    with monkeypatch.context() as patched:
        patched.setattr(Text, "draw", record)
        FigureCanvasAgg(figure).draw()
    assert len(boxes) > 8
    pairs = combinations(boxes.items(), 2)
    return [(a.get_text(), b.get_text()) for (a, one), (b, two) in pairs if one.overlaps(two)]


@pytest.mark.parametrize("suite", [PYTHIA, DEMO], ids=["pythia", "demo"])
def test_labels_do_not_overlap(suite, monkeypatch):
    """The grid of 144 checkpoints with 24 layers, and the grid of the demo."""
    arms = suite.arms()
    values, errors = np.arange(len(arms), dtype=float), np.full(len(arms), 0.01)
    fields = [
        Field("x", METRICS, "nats", values, errors),
        Field("y", METRICS, "", values, errors),
        Field("z", METRICS, "tasks", np.full(len(arms), np.nan), errors),
    ]
    marks = {"best": arms[:1], "default": arms[-1:], "tied": arms[1:2]}
    maps = heat_maps(fields, suite, lambda name: marks)
    assert not overlapping(maps, monkeypatch)
    figure = Figure(layout="constrained")
    layer_lines(figure.subplots(), layer_points(fields, arms, lambda name: marks, {}))
    figure.legend(loc="outside right upper")
    assert not overlapping(figure, monkeypatch)


def test_what_has_no_value_is_named_and_noise_is_not_stretched():
    suite = Suite("m", ("main",), (0, 1, 2, 3), 3)
    values = np.array([0.5, np.nan, 0.501, np.nan])
    ax = Figure().subplots()
    field = Field("t", SCORES, "", values, np.full(4, 0.01))
    few = replace(field, name="u", values=np.array([np.nan, np.nan, 0.501, np.nan]))
    none = replace(field, name="v", values=np.full(4, np.nan))
    layer_lines(ax, layer_points([field, few, none], suite.arms(), unmarked, {}))
    names = ["t (no layer 1, 3)", "u (only layer 2)", "v (no layer 0, 1, 2, 3)"]
    assert ax.get_legend_handles_labels()[1] == names
    low, high = ax.get_ylim()
    assert high - low == pytest.approx(LEAST_ERRORS * 0.01)
    (bars,) = ax.containers[0][2]
    np.testing.assert_allclose(bars.get_segments()[0][:, 1], [0.49, 0.51])


def test_colours_span_some_errors_so_that_noise_is_not_stretched():
    suite = Suite("m", ("step0", "step1"), (0, 1), 1)
    ax = Figure().subplots()
    field = Field("t", SCORES, "", np.array([0.740, 0.753, 0.741, 0.742]), np.full(4, 0.04))
    heat_map(ax, field, suite, {})
    low, high = ax.images[0].get_clim()
    assert high - low == pytest.approx(LEAST_ERRORS * 0.04)


@pytest.mark.parametrize(("group", "end"), [(SCORES, 1.0), (METRICS, 1.12)])
def test_an_axis_of_scores_ends_at_one(group, end):
    ax = Figure().subplots()
    field = Field("t", group, "", np.array([0.0, 1.0]), np.full(2, np.nan))
    layer_lines(ax, layer_points([field], Suite("m", ("main",), (0, 1), 1).arms(), unmarked, {}))
    assert ax.get_ylim()[1] == pytest.approx(end)


def test_the_best_and_those_within_its_error_have_large_points():
    arms = Suite("m", ("main",), (0, 1, 2), 2).arms()
    field = Field("t", SCORES, "", np.array([0.5, 0.8, 0.9]), np.full(3, 0.1))
    marks = {"best": arms[2:], "tied": arms[1:2], "default": arms[2:]}
    ax = Figure().subplots()
    layer_lines(ax, layer_points([field], arms, lambda name: marks, {}))
    (large,) = (points for points in ax.collections if len(points.get_offsets()) == 2)
    np.testing.assert_allclose(large.get_offsets(), [[1, 0.8], [2, 0.9]])
    assert "large points" in ax.get_xlabel()


def test_an_axis_has_the_names_of_layers_that_models_share():
    names = ("stem", "block", "head")
    suites = [Suite(model, ("main",), (0, 1, 2), 2, layer_names=names) for model in "mn"]
    arms = grid(suites)
    values = np.array([0.5, np.nan, 0.6, 0.5, 0.6, 0.7])
    field = Field("t", SCORES, "", values, np.full(6, 0.01))
    for layer_names, wanted in (
        (dict.fromkeys("mn", names), ["stem", "block", "head"]),
        ({"m": names}, ["0", "1", "2"]),
    ):
        ax = Figure().subplots()
        layer_lines(ax, layer_points([field], arms, unmarked, layer_names))
        shown = {label.get_text() for label in ax.get_xticklabels()}
        assert shown >= {*wanted} and ("stem" in shown) == ("stem" in wanted)
        assert ax.get_legend_handles_labels()[1] == [f"m (no layer {wanted[1]})", "n"]
    ax = Figure().subplots()
    heat_map(ax, replace(field, values=values[:3], errors=field.errors[:3]), suites[0], {})
    assert [label.get_text() for label in ax.get_yticklabels()] == [*names]


def test_many_tasks_have_lines_that_differ():
    arms = Suite("m", ("main",), (0, 1), 1).arms()
    fields = [Field(f"t{i}", SCORES, "", np.ones(2), np.ones(2)) for i in range(12)]
    ax = Figure().subplots()
    layer_lines(ax, layer_points(fields, arms, unmarked, {}))
    looks = {(line.get_color(), line.get_linestyle()) for line in ax.lines}
    assert len(looks) == len(ax.containers) == 9
    assert ax.get_xlabel().endswith("9 of 12 are shown")


def test_telemetry_has_lines_of_each_workers_cpus_and_gpu():
    samples = [
        TelemetrySample(at, {"0": {"cpu": at, "gpu": 50.0}, "10": {"cpu": 1.0}, "9": {}}, {})
        for at in (5.0, 10.0, 15.0, 500.0, 505.0)
    ]
    processors, gpus = telemetry(samples).axes
    assert [line.get_label() for line in processors.lines] == ["worker 0", "worker 10"]
    assert [line.get_label() for line in gpus.lines] == ["worker 0"]
    drawn = processors.lines[0].get_ydata()
    np.testing.assert_array_equal(drawn, [5, 10, 15, np.nan, 505])  # it did not run before


def test_losses_are_drawn_beside_the_checkpoints(tmp_path, monkeypatch):
    drawn = {}
    monkeypatch.setattr(figures, "training_loss", lambda losses: drawn.update(losses) or Figure())
    assert write_losses(tmp_path) is None
    reports = [json.dumps({"step": step, "loss": 8.0 / step, "rate": None}) for step in (1, 2, 3)]
    text = "\n".join([*reports, '{"step": 9'])
    (tmp_path / "progress.jsonl").write_text(text, encoding="utf-8")
    assert write_losses(tmp_path).read_bytes().startswith(b"\x89PNG")
    assert drawn == {tmp_path.name: [(1, 8.0), (2, 4.0), (3, 8 / 3)]}
