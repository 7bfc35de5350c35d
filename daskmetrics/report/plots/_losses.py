"""The loss of a training, step by step, as a figure; read from the suite's folder alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg

from daskmetrics.core._files import private
from daskmetrics.report.plots._figures import DPI, encode
from daskmetrics.report.plots._lines import training_loss

MOST_POINTS = 48  # of a line; more would be noise

Points = Sequence[tuple[int, float]]


def read(folder: Path) -> Points:
    """The losses (step, nats per token or label) that the ranks of a suite told, oldest first; none if none did."""
    path = folder / "progress.jsonl"
    if not path.is_file():
        return []
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    return [(int(line["step"]), float(line["loss"])) for line in lines]


def thinned(points: Points, most: int = MOST_POINTS) -> Points:
    """At most so many points, evenly spaced on a logarithmic axis, each the mean of those since the one before.

    Examples
    --------
    >>> thinned([(step, float(step)) for step in (1, 2, 3, 4, 5, 6, 7, 8)], most=4)
    [(1, 1.0), (2, 2.0), (4, 3.5), (8, 6.5)]
    """
    if len(points) <= most:
        return points
    ends = np.unique(np.geomspace(1, len(points), most).round().astype(int)).tolist()
    means = [float(np.mean([loss for _, loss in points[a:b]])) for a, b in zip([0, *ends], ends, strict=False)]
    return [(points[end - 1][0], mean) for end, mean in zip(ends, means, strict=True)]


def draw(name: str, points: Points) -> bytes:
    """The losses of a suite by training step, as a PNG."""
    with rc_context({"font.family": "DejaVu Sans", "axes.linewidth": 0.7}):
        figure = training_loss({name: thinned(points)})
        canvas = FigureCanvasAgg(figure)
        figure.set_dpi(DPI)
        canvas.draw()
        return encode(np.asarray(canvas.buffer_rgba())[..., :3], DPI)


def write(folder: Path) -> Path | None:
    """Write ``loss.png`` beside the checkpoints of a suite; None if its ranks told no loss."""
    points = read(folder)
    if not points:
        return None
    path = folder / "loss.png"
    with private():
        path.write_bytes(draw(folder.name, points))
    return path
