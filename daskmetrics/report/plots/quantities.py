"""What a figure can show: one value for each arm, with its error, as scores, metrics and costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from daskmetrics.answer import analysis
from daskmetrics.answer.analysis import SearchPath
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.answer.trade_offs import ArmCost
from daskmetrics.core.errors import DataError
from daskmetrics.core.names import Arm
from daskmetrics.core.outcomes import means_of

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


@dataclass(frozen=True)
class Field:
    """A quantity of the arms; arms without a value are missing."""

    name: str
    group: str
    units: str
    values: Mapping[Arm, float]
    errors: Mapping[Arm, float] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The name with its units, for an axis."""
        if self.units in self.name:  # so are no units
            return self.name
        return f"{self.name}, {self.units}"

    def key(self, arm: Arm) -> Arm:
        """The arm by which a value is found: metrics belong to layers."""
        return analysis.layer_of(arm) if self.group == METRICS else arm

    def columns(self, arms: Sequence[Arm]) -> dict[str, list[float]]:
        """The ``value`` and the ``error`` of each arm; NaN where there is none."""
        keys = [self.key(arm) for arm in arms]
        value = [self.values.get(arm, math.nan) for arm in keys]
        return {"value": value, "error": [self.errors.get(arm, math.nan) for arm in keys]}

    def at_layers(self, run: RecordedRun, readout: str | None = None) -> Field:
        """The same by layer: of the given readout, or of the best of each layer."""
        if self.group == METRICS:
            return self
        values = analysis.at_layers(run, self.values, readout)
        return replace(self, values=values, errors=analysis.at_layers(run, self.errors, readout))

    def as_json(self, arms: Sequence[Arm]) -> dict[str, object]:
        """Values ``v`` and errors ``e`` in the order of the arms, rounded; ``i`` has the arms of a
        sparse field.
        """
        plain: dict[str, object] = {"name": self.name, "group": self.group, "label": self.label}
        keys = [self.key(arm) for arm in arms]
        indices = [i for i, arm in enumerate(keys) if arm in self.values]
        if len(indices) < SPARSE * len(keys):
            plain["i"] = indices
            keys = [keys[i] for i in indices]
        plain["v"] = [_rounded(self.values.get(arm), 5) for arm in keys]
        if self.errors:
            plain["e"] = [_rounded(self.errors.get(arm), 2) for arm in keys]
        return plain


def _rounded(value: float | None, digits: int) -> float | None:
    if value is None or math.isnan(value):
        return None
    return float(f"{value:.{digits}g}")


def fields(run: RecordedRun, arms: Sequence[Arm]) -> list[Field]:
    """Everything that the run knows of its arms; what is best shown first comes first."""
    shown = metric_fields(run)
    costs = [run.cost_of(arm) for arm in arms if arm.model in run.start.widths]
    shown += [cost_field(run, arms, name) for name in differing_costs(costs)]
    if not run.recorded:
        return shown
    scores = [task_field(run, task) for task in run.tasks]
    if len(scores) > 1:
        counts = {arm: float(len(by_task)) for arm, by_task in run.recorded.items()}
        scores.append(Field("tasks scored", SCORES, "", counts))
    means = mean_field(run)
    leading = [means] if means.values and len(run.tasks) > 1 else []
    if expected := expected_field(run):
        # where most arms lack a task, what the search expects of them says more than their means
        leading.insert(len(leading) if len(means.values) == len(run.recorded) else 0, expected)
    return [*leading, *scores, *shown]


def mean_field(run: RecordedRun) -> Field:
    """The mean score of the arms that were scored on every task of the objective."""
    means = means_of(run.recorded, run.weights)
    values = {arm: mean for arm, (mean, _) in means.items()}
    errors = {arm: stderr for arm, (_, stderr) in means.items()}
    return Field("mean score", SCORES, "", values, errors)


def task_field(run: RecordedRun, task: str) -> Field:
    """The scores of a task."""
    scored = {arm: by_task[task] for arm, by_task in run.recorded.items() if task in by_task}
    errors = {arm: result.stderr for arm, result in scored.items()}
    scores = {arm: result.score for arm, result in scored.items()}
    return Field(task, SCORES, run.tasks[task]["main_score"], scores, errors)


def expected_field(run: RecordedRun) -> Field | None:
    """The mean and the standard deviation of the search's posterior; None for a run without one."""
    from daskmetrics.answer.posterior import posterior_of

    try:
        recorded = posterior_of(run)
    except DataError:  # a run without tasks, scores or measured checkpoints
        return None
    units = ""
    if run.config["search"]["reward"] != "mean":
        units = f"in units of the reward ({recorded.problem.reward})"
    arms, posterior = recorded.problem.arms, recorded.posterior
    values = dict(zip(arms, posterior.mean.tolist(), strict=True))
    deviations = (posterior.variance.clip(min=0) ** 0.5).tolist()
    return Field(EXPECTED, SCORES, units, values, dict(zip(arms, deviations, strict=True)))


def decisions(path: SearchPath, expected: Field | None) -> pandas.DataFrame:
    """A row for each decision of a search: number, stage, arm, spent, best, and what is expected of
    its arm, if that has the units of scores; else the best mean score so far.
    """
    import pandas

    frame = pandas.DataFrame([vars(point) for point in path.points])
    frame["best"] = frame["best"].astype(float)
    frame["number"] = frame.index + 1
    frame["expected"] = frame["best"]
    if expected and not expected.units:
        frame["expected"] = frame["arm"].map(expected.values).fillna(frame["best"])
    return frame.assign(arm=frame["arm"].map(str))


def metric_fields(run: RecordedRun) -> list[Field]:
    """The metrics that were measured."""
    errors = analysis.metrics(run, "stderr")
    return [
        Field(name, METRICS, analysis.units(run, name), values, errors.get(name, {}))
        for name, values in analysis.metrics(run).items()
    ]


def differing_costs(costs: Sequence[ArmCost]) -> list[str]:
    """The costs that differ between arms; bytes only where they are not those of float32."""
    names = [name for name in COST_NAMES if len({getattr(cost, name) for cost in costs}) > 1]
    if "bytes" in names and all(cost.bytes == 4 * cost.dimensions for cost in costs):
        names.remove("bytes")
    return names


def cost_field(run: RecordedRun, arms: Sequence[Arm], name: str) -> Field:
    """A cost of `COST_NAMES`, for arms of models whose size is known."""
    priced = [arm for arm in arms if arm.model in run.start.widths]
    values = {arm: float(getattr(run.cost_of(arm), name)) for arm in priced}
    return Field(COST_NAMES[name], COSTS, "", values)


def readout_note(run: RecordedRun) -> str:
    """Which of several readouts of a layer its place in a figure shows."""
    if all(len(suite.readouts) == 1 for suite in analysis.suites(run)):
        return ""
    return " Each layer is shown with its best readout, by the mean score."
