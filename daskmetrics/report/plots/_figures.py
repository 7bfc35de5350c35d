"""A PNG file of an array; the usual encoders take longer to choose their filters than a figure takes to draw."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from daskmetrics.core.names import Arm
from daskmetrics.report import _analysis as analysis
from daskmetrics.report._run import Run, cell_of
from daskmetrics.report.plots._correlations import correlation_table, metric_against_score
from daskmetrics.report.plots._heatmaps import Marks, Quantity, heat_maps
from daskmetrics.report.plots._lines import Step, layer_curves, search_path, training_loss

_UP = 2  # the filter that stores every row as its difference from the one above (PNG specification, section 9)


def encode(pixels: NDArray[np.uint8], dpi: float) -> bytes:
    """The file of an image.

    Parameters
    ----------
    pixels : ndarray (height, width, 3) of uint8
        Red, green and blue.
    dpi : float
        Pixels per inch, for those who print it.

    Examples
    --------
    >>> encode(np.zeros((2, 3, 3), np.uint8), dpi=150)[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """
    height, width, _ = pixels.shape
    rows = np.full((height, 1 + 3 * width), _UP, np.uint8)
    rows[:, 1:] = np.diff(pixels.reshape(height, -1), axis=0, prepend=np.uint8(0))
    per_metre = round(dpi / 0.0254)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"pHYs", struct.pack(">IIB", per_metre, per_metre, 1)),
        (b"IDAT", zlib.compress(rows.tobytes(), 3)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, content) for name, content in chunks)


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


Metrics = Mapping[str, Mapping[Arm, float]]
DPI = 150
MOST_TASKS = 8  # that have a map of their own
_STYLE = {"font.family": "DejaVu Sans", "hatch.linewidth": 0.4, "hatch.color": "#d0d0d0", "axes.linewidth": 0.7}
_MAP = "Each map has the training steps of a model from left to right and its layers from below (0 is the embedding)."


@dataclass(frozen=True)
class Picture:
    """A figure as it is shown: name of its file, title, how to read it, and how it is drawn."""

    name: str
    title: str
    caption: str
    figure: Figure

    @cached_property
    def png(self) -> bytes:
        """The figure as a PNG file."""
        with rc_context(_STYLE):
            canvas = FigureCanvasAgg(self.figure)
            self.figure.set_dpi(DPI)
            canvas.draw()
            return encode(np.asarray(canvas.buffer_rgba())[..., :3], DPI)

    @property
    def svg(self) -> bytes:
        """The figure as an SVG file with its texts as texts; the same bytes whenever it is drawn."""
        with rc_context({**_STYLE, "svg.fonttype": "none", "svg.hashsalt": self.name}):
            file = io.BytesIO()
            self.figure.savefig(file, format="svg", metadata={"Date": None})
            return file.getvalue()


def pictures(run: Run) -> Iterator[Picture]:
    """All figures for which the run has data."""
    with rc_context(_STYLE):
        suites = analysis.suites(run)
        if suites and analysis.scores(run):
            yield _scores(run)
        if suites and (metrics := analysis.metrics(run)):
            yield _metrics(run, metrics)
            yield _layers(run, metrics)
            if analysis.scores(run):
                yield _predictors(run)
                yield _agreement(run, metrics)
        if suites and run.picks:
            yield _path(run)
        if losses := analysis.losses(run):
            caption = "Mean loss on one batch that is the same for all checkpoints of a model."
            yield Picture("training", "Training loss", caption, training_loss(losses))


def _scores(run: Run) -> Picture:
    scores, errors = analysis.scores(run), analysis.errors(run)
    count = len(run.tasks)
    looked = {arm: float(len(own)) for arm, own in scores.items()}
    rows = [
        Quantity("mean score, arms scored on every task", "mean score", analysis.mean_scores(run), "cividis"),
        Quantity("where the search looked", "tasks scored", looked, "cividis", most=count),
    ]
    if count <= MOST_TASKS:
        rows += [
            Quantity(
                _titled(task, errors),
                about["main_score"],
                {a: own[task] for a, own in scores.items() if task in own},
                "cividis",
            )
            for task, about in run.tasks.items()
        ]
    caption = (
        f"{_MAP} Hatched: not scored. An arm has a mean score only once all {count} tasks were scored for it, since "
        "means over different tasks could not be compared; the second row counts the tasks that were. "
        "Scores are raw; the search compares tasks by its own reward."
    )
    return Picture("scores", "Scores", caption, heat_maps(rows, analysis.suites(run), _marks(run)))


def _titled(name: str, errors: Mapping[str, float]) -> str:
    """A name with the standard error that its values typically have."""
    return f"{name} (standard error {errors[name]:.2g})" if name in errors else name


def _metrics(run: Run, metrics: Metrics) -> Picture:
    errors = analysis.errors(run)
    rows = [Quantity(_titled(name, errors), analysis.units(run, name), values) for name, values in metrics.items()]
    caption = (
        f"{_MAP} All models of a row share its colours. Hatched: the metric is undefined there, or the "
        "checkpoint could not be measured."
    )
    return Picture("metrics", "Label-free metrics", caption, heat_maps(rows, analysis.suites(run), _marks(run)))


def _layers(run: Run, metrics: Metrics) -> Picture:
    means = analysis.mean_scores(run)
    rows = [Quantity("mean score", "mean score", means)] if means else []
    rows += [Quantity(name, analysis.units(run, name), values) for name, values in metrics.items()]
    caption = "How each quantity changes from layer to layer; a line is a checkpoint, the later the lighter."
    return Picture("layers", "Along the layers", caption, layer_curves(rows, analysis.suites(run)))


def _predictors(run: Run) -> Picture:
    caption = (
        "Spearman's ρ between metric and score over the arms scored on a task, averaged over the tasks of a kind; in "
        "brackets the cells that it rests on. 1: the metric ranks arms as the scores do; -1: in reverse; 0: not at "
        "all. "
        "The search chose these cells, promising arms above all, and neighbouring layers resemble each other: ρ "
        "describes these cells, it is no test."
    )
    title = "Which metrics predict quality here"
    return Picture("predictors", title, caption, correlation_table(analysis.correlations(run)))


def _agreement(run: Run, metrics: Metrics) -> Picture:
    units = {name: analysis.units(run, name) for name in metrics}
    figure = metric_against_score(metrics, units, analysis.standard_scores(run), run.models)
    caption = (
        "Each point is an arm that was scored at least once: the mean of its scores, each in standard deviations of "
        "its task's scores. Arms were scored on different tasks, and the search chose them: read the shape, not the "
        "digits."
    )
    return Picture("agreement", "Metric against score", caption, figure)


def _path(run: Run) -> Picture:
    default = run.best().default_score if run.result and run.best().shared == tuple(run.best().scores) else None
    share = run.result.exhaustive / 100 if run.result else 1.0
    unit = "% of the exhaustive sweep (assumed)" if run.result else "assumed seconds"
    figure = search_path(_steps(run, share), analysis.suites(run), default, unit)
    caption = (
        "Above: the greatest mean score among the arms scored on every task by then. Below: every decision of the "
        "search, at the arm it paid for; the layers of a checkpoint lie side by side, deeper ones higher. It begins "
        "with the baseline, follows its policy, and ends by confirming the leader on the tasks it lacks."
    )
    if run.picks[-1]["index"] >= len(run.picks):
        caption += " Decisions that an earlier search of this run had answered already are not drawn."
    return Picture("path", "The search's path", caption, figure)


def _steps(run: Run, unit: float) -> list[Step]:
    """Every decision in order, as if each were answered before the next was taken."""
    scores = analysis.scores(run)
    known: dict[Arm, list[float]] = {}
    steps, spent, best = [], 0.0, None
    for pick in run.picks:
        cell = cell_of(pick)
        spent += pick["cost"] / unit
        if cell.task in scores.get(cell.arm, {}):
            own = known.setdefault(cell.arm, [])
            own.append(scores[cell.arm][cell.task])
            if len(own) == len(run.tasks):
                best = max(sum(own) / len(own), best if best is not None else float("-inf"))
        steps.append(Step(spent, cell.arm, pick["stage"], best))
    return steps


def _marks(run: Run) -> Marks:
    if run.result is None:
        return Marks()
    best = run.best()
    return Marks(best.arm, best.default)
