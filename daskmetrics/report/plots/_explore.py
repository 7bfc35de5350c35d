"""Which interactive figures a run has, with captions, as the JSON that the page draws them from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bokeh.document import Document
from bokeh.resources import Resources

from daskmetrics.answer import analysis
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.core.names import Arm, Suite
from daskmetrics.report.plots import _interactive as draw
from daskmetrics.report.plots._fields import EXPECTED, METRICS, SCORES, Field, fields

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


BEST_READOUT = " Each layer is shown with its best readout, by the mean score."
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
    data: dict[str, Any]

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of the quantities, in order."""
        return tuple(dict.fromkeys(field.group for field in self.fields))


def figures(run: RecordedRun) -> Figures | None:
    """The interactive figures of a run; None if it has no data."""
    suites = analysis.suites(run)
    arms = drawn_arms(run, suites)
    quantities = fields(run, arms) if suites else ()
    shown, against = _initial(quantities)
    drawn = _of_arms(run, suites, arms, shown, against) if shown else []
    if suites and run.picks:
        drawn.append(drawn_path(run, quantities))
    if losses := analysis.losses(run):
        drawn.append(draw.training_loss(losses))
    if not drawn:
        return None
    document = Document()
    for figure in drawn:
        document.add_root(figure)
    roots = {figure.id: f"figure-{figure.name}" for figure in drawn}
    data = {
        "documents": {"all": document.to_json(deferred=False)},
        "item": {"docid": "all", "roots": roots, "root_ids": list(roots)},
        "fields": [_thin(quantity, len(arms)).as_json(arms) for quantity in quantities],
        "models": {suite.model: draw.axes_of(suite) for suite in suites},
    }
    captions = {figure.name: CAPTIONS[figure.name] for figure in drawn}
    if any(len(suite.readouts) > 1 for suite in suites):
        for name in captions.keys() & OF_ARMS:
            captions[name] += BEST_READOUT
    return Figures(
        captions=captions,
        fields=quantities,
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
) -> list[Any]:
    """Maps of many checkpoints and lines along layers; of single checkpoints points with errors."""
    marks = analysis.marks(run)
    source = draw.arms_source(arms, suites, shown, against)
    if all(len(suite.revisions) == 1 for suite in suites):
        drawn = [draw.layer_points(source, suites, shown)]
    else:
        by_model = {suite.model: suite for suite in suites}
        suite = suites[0]
        if marks:
            suite = by_model.get(marks["best"].model, suite)
        drawn = [draw.heat_map(source, suite, shown, marks), draw.layer_lines(source, suite, shown)]
    if against:
        drawn.append(draw.comparison(source, suites, shown, against))
    return drawn


def drawn_path(run: RecordedRun, quantities: Iterable[Field]) -> Any:
    """The path of the search; decisions stand at the expected scores, if those have the units of
    scores.
    """
    by_name = {quantity.name: quantity.values for quantity in quantities if not quantity.units}
    return draw.search_path(analysis.path_of(run), by_name.get(EXPECTED, {}))


def _initial(quantities: Sequence[Field]) -> tuple[Field | None, Field | None]:
    """What is shown first, and a metric or, without metrics, another quantity to compare it with."""
    others = [quantity for quantity in quantities[1:] if quantity.group != SCORES]
    metrics = [quantity for quantity in others if quantity.group == METRICS]
    return next(iter(quantities), None), next(iter(metrics or others), None)


def _thin(quantity: Field, arms: int) -> Field:
    if quantity.group == METRICS and arms > MANY:
        return replace(quantity, errors={})
    return quantity


def library() -> str:
    """BokehJS, to be part of a page that loads nothing."""
    return str(Resources(mode="inline", minified=True, components=["bokeh"]).js_raw[0])
