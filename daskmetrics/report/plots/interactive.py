"""Which interactive figures a run has, with captions, as the JSON that its page draws them from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from bokeh.document import Document
from bokeh.plotting import figure

from daskmetrics.answer import analysis
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.dashboard import drawing
from daskmetrics.report.plots.quantities import (
    LINES,
    METRICS,
    SCORES,
    Field,
    decisions,
    drawn_arms,
    expectation_of,
    fields,
    readout_note,
    suite_of,
)

MANY = 2000  # arms from which on errors of metrics are left out, for the size of the page
CAPTIONS = {
    "map": (
        "Training steps from left to right, layers from below (0 is the embedding). Star: the best;"
        " circle: the last layer; grey: no value."
    ),
    "lines": (
        "Along the layers, with standard errors: a line for each task of a single checkpoint, for"
        " each of several models, or for a few checkpoints of a model, later ones lighter."
    ),
    "comparison": (
        "Each point is a candidate: does one quantity say what the other is? A metric that predicts"
        " the score would show a line. Selected ones are selected in every figure."
    ),
    "search": (
        "The greatest mean score among the candidates scored on every task so far, and "
        "every decision at the score that its candidate is expected to have by now."
    ),
    "losses": "Mean loss on one batch that is the same for all checkpoints of a model.",
}
OF_ARMS = {"map", "lines", "comparison"}


@dataclass(frozen=True)
class Figures:
    """The figures of a page: their captions by name, and what its script needs to draw and to
    change them.
    """

    captions: dict[str, str]
    fields: tuple[Field, ...]
    models: tuple[str, ...]
    shown: str  # name of the quantity that is shown first
    against: str  # and of the one that it is compared with
    data: dict[str, object]


def figures(run: RecordedRun) -> Figures | None:
    """The interactive figures of a run; None if it has no data. Its script draws the lines."""
    suites, path = analysis.suites(run), analysis.path_of(run)
    arms = drawn_arms(run, suites)
    expectation = expectation_of(run) if suites else None
    quantities = fields(run, arms, expectation) if suites else []
    # a metric or, without metrics, another quantity is compared with the one that is shown first
    others = [quantity for quantity in quantities[1:] if quantity.group != SCORES]
    others.sort(key=lambda quantity: quantity.group != METRICS)
    drawn: list[figure] = []
    if quantities:
        shown, against = quantities[0], next(iter(others), quantities[0])
        columns = {"value": shown.values, "error": shown.errors, "against": against.values}
        source = drawing.arms_source(arms, suites, **columns)
        if any(len(suite.revisions) > 1 for suite in suites):
            drawn.append(drawing.heat_map(source, suite_of(run), analysis.marks(run)))
        drawn.append(drawing.layer_lines())
    if others:
        drawn.append(drawing.comparison(source, suites, shown.label, against.label))
    if suites and path.points:
        drawn.append(drawing.search_path(decisions(path, expectation), path.unit, path.default))
    if losses := analysis.losses(run):
        drawn.append(drawing.training_loss(losses))
    if not drawn:
        return None
    document = Document()
    for fig in drawn:
        document.add_root(fig)
    roots = {fig.id: f"figure-{fig.name}" for fig in drawn}
    if len(arms) > MANY:
        for quantity in quantities:
            if quantity.group == METRICS:
                quantity.errors[:] = np.nan
    data: dict[str, object] = {
        "documents": {"all": document.to_json(deferred=False)},
        "item": {"docid": "all", "roots": roots, "root_ids": list(roots)},
        "fields": [quantity.as_json() for quantity in quantities],
        "models": {suite.model: drawing.axes_of(suite) for suite in suites},
        "tasks": list(run.tasks)[:LINES],
        "colours": drawing.COLOURS,
    }
    captions = {fig.name: CAPTIONS[fig.name] for fig in drawn}
    for name in captions.keys() & OF_ARMS:
        captions[name] += readout_note(run)
    return Figures(
        captions=captions,
        fields=tuple(quantities),
        models=tuple(suite.model for suite in suites),
        shown=quantities[0].name if quantities else "",
        against=others[0].name if others else "",
        data=data,
    )
