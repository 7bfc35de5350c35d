"""What an interactive figure can show: one value for each arm, with its error, as scores, metrics
and costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from daskmetrics.answer import analysis
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.answer.trade_offs import ArmCost
from daskmetrics.core.errors import DataError
from daskmetrics.core.names import Arm
from daskmetrics.core.outcomes import means_of

SCORES, METRICS, COSTS = "Scores", "Label-free metrics", "Costs"
COST_OF: dict[str, Callable[[ArmCost], float]] = {
    "layers computed": lambda cost: cost.layers,
    "parameters up to the layer": lambda cost: cost.parameters,
    "operations for a text": lambda cost: cost.flops,
    "dimensions of a vector": lambda cost: cost.dimensions,
    "bytes of a vector": lambda cost: cost.bytes,
}
# in Python
COST_NAMES = dict(
    zip(("layers", "parameters", "flops", "dimensions", "bytes"), COST_OF, strict=True)
)
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

    def as_json(self, arms: Sequence[Arm]) -> dict[str, Any]:
        """Values ``v`` and errors ``e`` in the order of the arms, rounded; ``i`` has the arms of a
        sparse field.
        """
        plain: dict[str, Any] = {"name": self.name, "group": self.group, "label": self.label}
        arms = [self.key(arm) for arm in arms]
        indices = [i for i, arm in enumerate(arms) if arm in self.values]
        if len(indices) < SPARSE * len(arms):
            plain["i"] = indices
            arms = [arms[i] for i in indices]
        plain["v"] = [_rounded(self.values.get(arm), 5) for arm in arms]
        if self.errors:
            plain["e"] = [_rounded(self.errors.get(arm), 2) for arm in arms]
        return plain


def _rounded(value: float | None, digits: int) -> float | None:
    if value is None or math.isnan(value):
        return None
    return float(f"{value:.{digits}g}")


def fields(run: RecordedRun, arms: Sequence[Arm]) -> tuple[Field, ...]:
    """Everything that the run knows of its arms; what is best shown first comes first."""
    return (*_scores(run), *metric_fields(run), *_costs(run, arms))


def _scores(run: RecordedRun) -> Iterator[Field]:
    recorded = run.recorded
    if not recorded:
        return
    everywhere = mean_field(run)
    means, single = everywhere.values, len(run.tasks) == 1
    # where most arms lack a task, what the search expects of them says more than their few means
    if means and not single and len(means) == len(recorded):
        yield everywhere
    yield from expected(run)
    if means and not single and len(means) < len(recorded):
        yield everywhere
    yield from (task_field(run, task) for task in run.tasks)
    if not single:
        yield Field(
            "tasks scored",
            SCORES,
            "",
            {arm: float(len(values)) for arm, values in recorded.items()},
        )


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


def expected(run: RecordedRun) -> Iterator[Field]:
    """The mean and the standard deviation of the search's posterior."""
    from daskmetrics.answer.posterior import posterior_of

    try:
        recorded = posterior_of(run)
    except DataError:  # a run without tasks, scores or measured checkpoints has no posterior
        return
    units = ""
    if run.config["search"]["reward"] != "mean":
        units = f"in units of the reward ({recorded.problem.reward})"
    arms, posterior = recorded.problem.arms, recorded.posterior
    values = dict(zip(arms, posterior.mean.tolist(), strict=True))
    deviations = (posterior.variance.clip(min=0) ** 0.5).tolist()
    yield Field(EXPECTED, SCORES, units, values, dict(zip(arms, deviations, strict=True)))


def metric_fields(run: RecordedRun) -> Iterator[Field]:
    """The metrics that were measured."""
    errors = analysis.metrics(run, "stderr")
    for name, values in analysis.metrics(run).items():
        yield Field(name, METRICS, analysis.units(run, name), values, errors.get(name, {}))


def telling(costs: Sequence[ArmCost]) -> list[str]:
    """The costs of `COST_OF` that differ between arms; bytes only where they are not those of
    float32.
    """
    differing = [name for name, cost in COST_OF.items() if len(set(map(cost, costs))) > 1]
    as_float32 = all(cost.bytes == 4 * cost.dimensions for cost in costs)
    return [name for name in differing if not (as_float32 and name == "bytes of a vector")]


def cost_field(run: RecordedRun, arms: Sequence[Arm], name: str) -> Field:
    """A cost of `COST_OF`, for arms of models whose size is known."""
    costs = {arm: run.cost_of(arm) for arm in arms if arm.model in run.start.widths}
    return Field(name, COSTS, "", {arm: float(COST_OF[name](cost)) for arm, cost in costs.items()})


def _costs(run: RecordedRun, arms: Sequence[Arm]) -> Iterator[Field]:
    costs = [run.cost_of(arm) for arm in arms if arm.model in run.start.widths]
    yield from (cost_field(run, arms, name) for name in telling(costs))
