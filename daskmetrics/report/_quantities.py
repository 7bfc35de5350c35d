"""What a figure can show: one value for each arm, with its error, as scores, metrics and costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from daskmetrics.answer import analysis
from daskmetrics.answer.analysis import SearchPath
from daskmetrics.answer.posterior import posterior_of
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.answer.trade_offs import ArmCost, sizes_of
from daskmetrics.core.errors import DataError, unknown
from daskmetrics.core.names import Arm, Suite

if TYPE_CHECKING:
    import pandas

SCORES, METRICS, COSTS = "Scores", "Label-free metrics", "Costs"
#: The costs that figures show, by the attribute of `ArmCost`.
COST_NAMES = {
    "layers": "layers computed",
    "parameters": "parameters up to the layer",
    "flops": "operations for a text",
    "dimensions": "dimensions of a vector",
    "bytes": "bytes of a vector",
}
EXPECTED = "expected score"
SPARSE = 0.5  # a field that fewer of the arms have is stored with their indices
LINES = 8  # along the layers: checkpoints of a model, or tasks of a single checkpoint

Estimate = tuple[float, float]  # a value and its standard error; NaN where there is none
NO_VALUE = (math.nan, math.nan)


@dataclass(frozen=True)
class Expectation:
    """Mean and standard deviation of the search's posterior of every arm; without units they are
    scores.
    """

    units: str
    estimates: Mapping[Arm, Estimate]


@dataclass(frozen=True)
class Field:
    """A quantity of some arms, in their order; NaN where there is no value or no error."""

    name: str
    group: str
    units: str
    values: NDArray[np.float64]
    errors: NDArray[np.float64]

    @classmethod
    def of(
        cls, name: str, group: str, units: str, arms: Sequence[Arm], known: Mapping[Arm, Estimate]
    ) -> Field:
        """The field of arms, from the values and errors that are known of some arms."""
        estimates = [known.get(arm, NO_VALUE) for arm in arms]
        return cls(name, group, units, *np.array(estimates, dtype=float).reshape(-1, 2).T)

    @property
    def label(self) -> str:
        """The name with its units, for an axis."""
        if self.units in self.name:  # so are no units
            return self.name
        return f"{self.name}, {self.units}"

    def as_json(self) -> dict[str, object]:
        """Values ``v`` and errors ``e`` in the order of the arms, rounded; ``i`` has the arms of a
        sparse field.
        """
        plain: dict[str, object] = {"name": self.name, "group": self.group, "label": self.label}
        chosen = np.arange(len(self.values))
        finite = np.flatnonzero(np.isfinite(self.values))
        if len(finite) < SPARSE * len(chosen):
            chosen = finite
            plain["i"] = finite.tolist()
        plain["v"] = _rounded(self.values[chosen], 5)
        if np.isfinite(self.errors).any():
            plain["e"] = _rounded(self.errors[chosen], 2)
        return plain


def _rounded(numbers: NDArray[np.float64], digits: int) -> list[float | None]:
    return [None if math.isnan(x) else float(f"{x:.{digits}g}") for x in numbers.tolist()]


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


def suite_of(run: RecordedRun, model: str | None = None, readout: str | None = None) -> Suite:
    """A model that has something to draw, by default that of the best arm, or the last one."""
    suites = {suite.model: suite for suite in analysis.suites(run)}
    if not suites:
        raise DataError(
            f"The run in '{run.folder.path}' has measured nothing yet, so there is nothing to draw."
        )
    if model is None:
        model = next(reversed(suites))
        if run.result and run.result.best_arm.model in suites:
            model = run.result.best_arm.model
    if model not in suites:
        raise unknown("model", model, suites)
    if readout not in (None, *suites[model].readouts):
        raise unknown("readout", str(readout), suites[model].readouts)
    return suites[model]


def shown_first(run: RecordedRun, suites: Sequence[Suite] = ()) -> list[Field]:
    """What pictures show of models, by default of the best arm's: mean score and scores by task, or
    metrics while there are no scores; only what has values.
    """
    if not analysis.suites(run):
        return []
    arms = drawn_arms(run, suites or [suite_of(run)])
    shown = [task_field(run, task, arms) for task in run.tasks]
    if len(shown) > 1:
        shown = [mean_field(run, arms), *shown]
    if not run.recorded:
        shown = metric_fields(run, arms)
    return [field for field in shown if np.isfinite(field.values).any()][: LINES + 1]


def fields(
    run: RecordedRun, arms: Sequence[Arm], expectation: Expectation | None = None
) -> list[Field]:
    """Everything that the run knows of its arms; what is best shown first comes first."""
    shown = metric_fields(run, arms)
    sizes = sizes_of(run)
    priced = {arm: sizes[arm.model].cost(arm) for arm in arms if arm.model in sizes}
    for name in differing_costs(list(priced.values())):
        costs = {arm: (float(getattr(cost, name)), math.nan) for arm, cost in priced.items()}
        shown.append(Field.of(COST_NAMES[name], COSTS, "", arms, costs))
    if not run.recorded:
        return shown
    scores = [task_field(run, task, arms) for task in run.tasks]
    means = run.means
    leading = []
    if len(scores) == 1:
        leading, scores = scores, []
    elif means:
        leading.append(mean_field(run, arms))
    if expectation:
        field = Field.of(EXPECTED, SCORES, expectation.units, arms, expectation.estimates)
        # where most arms lack a task, what the search expects of them says more than their means
        position = 0 if len(means) < SPARSE * len(arms) else len(leading)
        leading.insert(position, field)
    if scores:
        counts = {arm: (float(len(by_task)), math.nan) for arm, by_task in run.recorded.items()}
        scores.append(Field.of("tasks scored", SCORES, "", arms, counts))
    return [*leading, *scores, *shown]


def mean_field(run: RecordedRun, arms: Sequence[Arm]) -> Field:
    """The mean score of the arms that were scored on every task of the objective."""
    return Field.of("mean score", SCORES, "", arms, run.means)


def task_field(run: RecordedRun, task: str, arms: Sequence[Arm]) -> Field:
    """The scores of a task."""
    scored = {arm: by_task[task] for arm, by_task in run.recorded.items() if task in by_task}
    estimates = {arm: (result.score, result.stderr) for arm, result in scored.items()}
    return Field.of(task, SCORES, run.tasks[task]["main_score"], arms, estimates)


def metric_fields(run: RecordedRun, arms: Sequence[Arm]) -> list[Field]:
    """The metrics that were measured; they belong to layers, whatever the readout."""
    errors = analysis.metrics(run, "stderr")
    layers = [analysis.layer_of(arm) for arm in arms]
    measured = []
    for name, values in analysis.metrics(run).items():
        deviations = errors.get(name, {})
        estimates = {arm: (value, deviations.get(arm, math.nan)) for arm, value in values.items()}
        measured.append(Field.of(name, METRICS, analysis.units(run, name), layers, estimates))
    return measured


def expectation_of(run: RecordedRun) -> Expectation | None:
    """What the search's posterior says of every arm; None for a run without one."""
    try:
        recorded = posterior_of(run)
    except DataError:  # a run without tasks, scores or measured checkpoints
        return None
    units = ""
    if run.config["search"]["reward"] != "mean":
        units = f"as the search compares them ({recorded.problem.reward})"
    deviations = recorded.posterior.variance.clip(min=0) ** 0.5
    estimates = zip(recorded.posterior.mean.tolist(), deviations.tolist(), strict=True)
    return Expectation(units, dict(zip(recorded.problem.arms, estimates, strict=True)))


def decisions(path: SearchPath, expectation: Expectation | None) -> pandas.DataFrame:
    """A row for each decision of a search: number, stage, arm, spent, best, and what is expected of
    its arm, if that has the units of scores; else the best mean score so far.
    """
    frame = path.points.copy()
    frame["number"] = frame.index + 1
    frame["expected"] = frame["best"]
    if expectation and not expectation.units:
        means = {arm: mean for arm, (mean, _) in expectation.estimates.items()}
        frame["expected"] = frame["arm"].map(means).fillna(frame["best"])
    return frame.assign(arm=frame["arm"].map(str))


def differing_costs(costs: Sequence[ArmCost]) -> list[str]:
    """The costs that differ between arms; bytes only where they are not those of float32."""
    names = [name for name in COST_NAMES if len({getattr(cost, name) for cost in costs}) > 1]
    if "bytes" in names and all(cost.bytes == 4 * cost.dimensions for cost in costs):
        names.remove("bytes")
    return names
