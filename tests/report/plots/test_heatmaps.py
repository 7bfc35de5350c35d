from __future__ import annotations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from daskmetrics.answer.analysis import DecisionPoint
from daskmetrics.core.names import Arm, Suite, grid
from daskmetrics.report.plots._heatmaps import Quantity, heat_maps, plane
from daskmetrics.report.plots.lines import layer_curves, search_path

pytest.importorskip("matplotlib")

STEPS = tuple(f"step{step}" for step in range(0, 144_000, 1000))
PYTHIA = [
    Suite(name, STEPS, tuple(range(1, n + 1)), n)
    for name, n in (("14m", 6), ("70m", 6), ("410m", 24))
]
DEMO = [
    Suite("tiny-32", STEPS[:11], (0, 1, 2, 3), 3),
    Suite("tiny-64", STEPS[:11], (0, 1, 2, 3, 4), 4),
]


def test_a_plane_has_layers_from_below_and_checkpoints_from_the_left():
    suite = Suite("m", ("step0", "step1"), (0, 2), 2)
    np.testing.assert_array_equal(
        plane({Arm("m", "step1", 2): 3.0}, suite), [[np.nan, np.nan], [np.nan, 3]]
    )


def overlapping(figure, monkeypatch):
    """Pairs of texts whose boxes overlap in the drawn figure."""
    drawn = {}
    draw = Text.draw

    def record(text, renderer):
        draw(text, renderer)
        if text.get_visible() and text.get_text():
            drawn[id(text)] = text.get_text(), text.get_window_extent()

    with monkeypatch.context() as patched:
        patched.setattr(Text, "draw", record)
        FigureCanvasAgg(figure).draw()
    boxes = list(drawn.values())
    assert len(boxes) > 20
    return [
        (a, b) for i, (a, box) in enumerate(boxes) for b, other in boxes[:i] if box.overlaps(other)
    ]


@pytest.mark.parametrize("suites", [PYTHIA, DEMO], ids=["pythia", "demo"])
def test_labels_do_not_overlap(suites, monkeypatch):
    """The grid of three Pythia sizes, 144 checkpoints with up to 24 layers, and the grid of the
    demo.
    """
    arms = grid(suites)
    values = {arm: float(arm.layer) for arm in arms}
    quantities = [
        Quantity("x", "nats", values),
        Quantity("y", "", {}),
        Quantity("z", "tasks", values, most=32),
    ]
    points = [DecisionPoint(float(i), arm, "search", 0.5) for i, arm in enumerate(arms[::7])]
    for figure in (
        heat_maps(quantities, suites, {"best": arms[0], "default": arms[-1]}),
        layer_curves(quantities, suites),
        search_path(points, suites, 0.4, "%"),
    ):
        assert not overlapping(figure, monkeypatch)
