"""What a figure can show: one value for each arm, with its error, as scores, metrics and costs."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from daskmetrics.answer import analysis
from daskmetrics.answer.posterior import RunPosterior
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.answer.sizes import ArmCost
from daskmetrics.core.errors import DataError, unknown
from daskmetrics.domain.names import Arm, Suite

SCORES = "Scores"
METRICS = "Label-free metrics"
COSTS = "Costs"
#: The costs that figures show, by the attribute of `ArmCost`.
COST_NAMES = {
    "seconds": "seconds for 1,000 texts",
    "layers": "layers computed",
    "parameters": "parameters up to the layer",
    "bytes": "bytes of a vector",
}
MEASURED = ("seconds", "bytes")  # what a user pays, in the picture of trade-offs
SPARSE = 0.5  # of the arms: what fewer have is not shown first
LINES = 8  # along the layers: checkpoints of a model, or tasks of a single checkpoint

Estimate = tuple[float, float]  # a value and its standard error; NaN where there is none


@dataclass(frozen=True)
class Field:
    """A quantity of some arms, in their order.

    NaN where there is no value or no error.
    """

    name: str
    group: str
    units: str
    values: NDArray[np.float64]
    errors: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        name: str,
        group: str,
        units: str,
        arms: Sequence[Arm],
        known: Mapping[Arm, Estimate],
    ) -> Field:
        """The field of arms from known values and errors."""
        estimates = [known.get(arm, (math.nan, math.nan)) for arm in arms]
        values, errors = np.array(estimates, float).reshape(-1, 2).T
        return cls(name, group, units, values, errors)

    @property
    def label(self) -> str:
        """The name with its units, for an axis."""
        if self.units in self.name:  # so are no units
            return self.name
        return f"{self.name}, {self.units}"


def drawn_arms(run: RecordedRun, suites: Sequence[Suite], readout: str | None = None) -> list[Arm]:
    """One arm for each layer of each checkpoint.

    No two are drawn onto one place; see `analysis.by_layer`.
    """
    scored = analysis.by_layer(run, readout)
    arms = []
    for suite in suites:
        for layer in replace(suite, readouts=("",)).arms():
            unscored = replace(layer, readout=readout or suite.readouts[0])
            arms.append(scored.get(layer, unscored))
    return arms


def nothing_to_draw(run: RecordedRun, what: str) -> DataError:
    """The error of a figure of what is not there yet."""
    return DataError(
        f"The run in '{run.folder.path}' has no {what} yet, so there is nothing to draw."
    )


def suite_of(run: RecordedRun, model: str | None = None, readout: str | None = None) -> Suite:
    """A model that has something to draw.

    By default that of the best arm, or the last one.
    """
    suites = {suite.model: suite for suite in analysis.suites(run.plan, run.records)}
    if not suites:
        raise nothing_to_draw(run, "measurement")
    if model is None:
        model = next(reversed(suites))
        best = run.recommendation
        if best and best.arm.model in suites:
            model = best.arm.model
    if model not in suites:
        raise unknown("model", model, suites)
    if readout not in (None, *suites[model].readouts):
        raise unknown("readout", str(readout), suites[model].readouts)
    return suites[model]


def score_fields(run: RecordedRun, arms: Sequence[Arm]) -> list[Field]:
    """Mean scores over the objective, and scores by task.

    The mean of one task is its score.
    """
    shown = []
    for task in run.plan.tasks:
        by_task = {
            arm: (scores[task.name].score, scores[task.name].stderr)
            for arm, scores in run.recorded.items()
            if task.name in scores
        }
        shown.append(Field.of(task.name, SCORES, task.main_score, arms, by_task))
    if len(shown) > 1:
        return [Field.of("mean score", SCORES, "", arms, run.means), *shown]
    return shown


def metric_fields(run: RecordedRun, arms: Sequence[Arm]) -> list[Field]:
    """The measured metrics, which belong to layers, whatever the readout."""
    layers = [analysis.layer_of(arm) for arm in arms]
    units = analysis.units(run.plan)
    return [
        Field.of(name, METRICS, units[name], layers, values)
        for name, values in analysis.metrics(run.records).items()
    ]


def cost_fields(run: RecordedRun, arms: Sequence[Arm]) -> list[Field]:
    """Costs that differ between arms of models of known size."""
    sizes = run.sizes
    costs = {arm: sizes[arm.model].cost(arm) for arm in arms if arm.model in sizes}
    shown = []
    for name, label in differing_costs(costs.values()).items():
        numbers = {arm: (cost_value(cost, name), math.nan) for arm, cost in costs.items()}
        shown.append(Field.of(label, COSTS, "", arms, numbers))
    return shown


def shown_first(run: RecordedRun, suites: Sequence[Suite] = ()) -> list[Field]:
    """What pictures show first: scores, or metrics before there are scores.

    Only what has values, and by default of the best arm's model.
    """
    if not analysis.suites(run.plan, run.records):
        return []
    fields_of = score_fields if run.recorded else metric_fields
    shown = fields_of(run, drawn_arms(run, suites or [suite_of(run)]))
    return [field for field in shown if np.isfinite(field.values).any()]


def fields(
    run: RecordedRun, arms: Sequence[Arm], posterior: RunPosterior | None = None
) -> list[Field]:
    """Everything known of the arms, the most important first."""
    shown = [*metric_fields(run, arms), *cost_fields(run, arms)]
    if not run.recorded:
        return shown
    scores = score_fields(run, arms)
    means = run.means
    if len(scores) > 1:
        counts = {arm: (len(by_task), math.nan) for arm, by_task in run.recorded.items()}
        scores.append(Field.of("tasks scored", SCORES, "", arms, counts))
        if not means:
            del scores[0]
    if posterior:
        field = Field.of("expected score", SCORES, "", arms, posterior.estimates)
        # where most arms lack a task, what the search expects of them says more than their means
        is_first = len(means) < SPARSE * len(arms)
        scores.insert(0 if is_first else 1, field)
    return [*scores, *shown]


def differing_costs(costs: Collection[ArmCost]) -> dict[str, str]:
    """The costs of `COST_NAMES` that differ between arms."""
    return {
        name: label
        for name, label in COST_NAMES.items()
        if len({getattr(cost, name) for cost in costs}) > 1
    }


def cost_value(cost: ArmCost, name: str) -> float:
    """A cost of `COST_NAMES`; NaN if it is not known."""
    value = getattr(cost, name)
    if value is None:
        return math.nan
    return float(1000 * value if name == "seconds" else value)
