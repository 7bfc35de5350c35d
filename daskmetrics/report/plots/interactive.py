"""Which interactive figures a run has, with captions, as the JSON that its page draws them from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bokeh.document import Document
from bokeh.plotting import figure

from daskmetrics.answer import analysis
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.core.names import Arm, Suite
from daskmetrics.dashboard import drawing
from daskmetrics.report.plots.quantities import (
    EXPECTED,
    METRICS,
    SCORES,
    Field,
    decisions,
    fields,
    readout_note,
)

MANY = 2000  # arms from which on errors of metrics are left out, for the size of the page
CAPTIONS = {
    "map": "One model: its training steps from left to right, its layers from below (0 is the embedding). All models "
    "share the colours. Star: the best arm; ring: the default arm; grey: no value.",
    "lines": "The same along the layers, for a few checkpoints of the model; later ones are lighter.",
    "points": "Each layer with its standard error. A click on the name of a model hides it.",
    "comparison": "Each point is an arm: does one quantity say what the other is? A metric that predicts the score "
    "would show a line. Selected arms are selected in every figure.",
    "search": "The greatest mean score among the arms scored on every task so far, and "
    "every decision at the score that its arm is expected to have by now.",
    "losses": "Mean loss on one batch that is the same for all checkpoints of a model.",
}
OF_ARMS = {"map", "lines", "points", "comparison"}


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
    """The interactive figures of a run; None if it has no data."""
    suites, path = analysis.suites(run), analysis.path_of(run)
    arms = drawn_arms(run, suites)
    quantities = fields(run, arms) if suites else []
    # a metric or, without metrics, another quantity is compared with the one that is shown first
    others = [quantity for quantity in quantities[1:] if quantity.group != SCORES]
    others.sort(key=lambda quantity: quantity.group != METRICS)
    shown, against = (next(iter(some), None) for some in (quantities, others))
    drawn = _of_arms(run, suites, arms, shown, against) if shown else []
    if suites and path.points:
        expected = [quantity for quantity in quantities if quantity.name == EXPECTED]
        rows = decisions(path, next(iter(expected), None))
        drawn.append(drawing.search_path(rows, path.unit, path.default))
    if losses := analysis.losses(run):
        drawn.append(drawing.training_loss(losses))
    if not drawn:
        return None
    document = Document()
    for fig in drawn:
        document.add_root(fig)
    roots = {fig.id: f"figure-{fig.name}" for fig in drawn}
    data: dict[str, object] = {
        "documents": {"all": document.to_json(deferred=False)},
        "item": {"docid": "all", "roots": roots, "root_ids": list(roots)},
        "fields": [_thin(quantity, len(arms)).as_json(arms) for quantity in quantities],
        "models": {suite.model: drawing.axes_of(suite) for suite in suites},
    }
    captions = {fig.name: CAPTIONS[fig.name] for fig in drawn}
    for name in captions.keys() & OF_ARMS:
        captions[name] += readout_note(run)
    return Figures(
        captions=captions,
        fields=tuple(quantities),
        models=tuple(suite.model for suite in suites if "map" in captions),
        shown=shown.name if shown else "",
        against=against.name if against else "",
        data=data,
    )


def drawn_arms(run: RecordedRun, suites: Sequence[Suite], readout: str | None = None) -> list[Arm]:
    """One arm for each layer of each checkpoint, so that no two are drawn onto one place;
    `analysis.by_layer`.
    """
    scored = analysis.by_layer(run, readout)
    arms = []
    for suite in suites:
        for layer in replace(suite, readouts=("",)).arms():
            unscored = replace(layer, readout=readout or suite.readouts[0])
            arms.append(scored.get(layer, unscored))
    return arms


def _of_arms(
    run: RecordedRun,
    suites: Sequence[Suite],
    arms: Sequence[Arm],
    shown: Field,
    against: Field | None,
) -> list[figure]:
    """Maps of many checkpoints and lines along layers; of single checkpoints points with errors."""
    marks = analysis.marks(run)
    compared = (against or shown).columns(arms)["value"]
    source = drawing.arms_source(arms, suites, **shown.columns(arms), against=compared)
    if all(len(suite.revisions) == 1 for suite in suites):
        drawn = [drawing.layer_points(source, suites, shown.label)]
    else:
        by_model = {suite.model: suite for suite in suites}
        suite = suites[0]
        if marks:
            suite = by_model.get(marks["best"].model, suite)
        drawn = [drawing.heat_map(source, suite, marks)]
        drawn.append(drawing.layer_lines(source, suite, shown.label))
    if against:
        drawn.append(drawing.comparison(source, suites, shown.label, against.label))
    return drawn


def _thin(quantity: Field, arms: int) -> Field:
    if quantity.group == METRICS and arms > MANY:
        return replace(quantity, errors={})
    return quantity
