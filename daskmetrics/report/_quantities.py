"""What a figure can show: one value for each arm, with its error, as scores, metrics and costs."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from daskmetrics.answer import analysis
from daskmetrics.answer.posterior import known_posterior
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.answer.sizes import ArmCost
from daskmetrics.core.errors import DataError, unknown
from daskmetrics.domain.names import Arm, Suite
from daskmetrics.domain.outcomes import Estimate, Floats

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


@dataclass(frozen=True)
class Field:
    """A quantity of some arms, in their order.

    NaN where there is no value or no error.
    """

    name: str
    group: str
    units: str
    values: Floats
    errors: Floats

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


@dataclass(frozen=True, eq=False)
class Quantities:
    """What figures can show of a run."""

    run: RecordedRun

    @cached_property
    def suites(self) -> tuple[Suite, ...]:
        """The models with something to draw."""
        return analysis.suites(self.run.plan, self.run.records)

    def suite(self, model: str | None = None, readout: str | None = None) -> Suite:
        """A model that has something to draw.

        By default that of the best arm, or the last one.
        """
        suites = {suite.model: suite for suite in self.suites}
        if not suites:
            raise self.nothing_to_draw("measurement")
        if model is None:
            model = next(reversed(suites))
            best = self.run.recommendation
            if best and best.arm.model in suites:
                model = best.arm.model
        if model not in suites:
            raise unknown("model", model, suites)
        if readout not in (None, *suites[model].readouts):
            raise unknown("readout", str(readout), suites[model].readouts)
        return suites[model]

    def lined_up(self, model: str | None = None, readout: str | None = None) -> Sequence[Suite]:
        """The models with lines along the layers.

        All, if each has a single checkpoint and none is chosen; else one.
        """
        suites = self.suites
        if model or readout or not suites or any(len(suite.revisions) > 1 for suite in suites):
            return [self.suite(model, readout)]
        return suites

    def arms(self, suites: Sequence[Suite], readout: str | None = None) -> list[Arm]:
        """One arm for each layer of each checkpoint.

        No two are drawn onto one place; see `analysis.by_layer`.
        """
        scored = analysis.by_layer(self.run.recorded, self.run.means, readout)
        arms = []
        for suite in suites:
            for layer in replace(suite, readouts=("",)).arms():
                unscored = replace(layer, readout=readout or suite.readouts[0])
                arms.append(scored.get(layer, unscored))
        return arms

    def nothing_to_draw(self, what: str) -> DataError:
        """The error of a figure of what is not there yet."""
        return DataError(
            f"The run in '{self.run.folder.path}' has no {what} yet, so there is nothing to draw."
        )

    def scores(self, arms: Sequence[Arm]) -> list[Field]:
        """Mean scores over the objective, and scores by task.

        The mean of one task is its score.
        """
        shown = []
        for task in self.run.plan.tasks:
            by_task = {
                arm: (scores[task.name].score, scores[task.name].stderr)
                for arm, scores in self.run.recorded.items()
                if task.name in scores
            }
            shown.append(Field.of(task.name, SCORES, task.main_score, arms, by_task))
        if len(shown) > 1:
            return [Field.of("mean score", SCORES, "", arms, self.run.means), *shown]
        return shown

    def metrics(self, arms: Sequence[Arm]) -> list[Field]:
        """The measured metrics, which belong to layers, whatever the readout."""
        layers = [analysis.layer_of(arm) for arm in arms]
        units = analysis.units(self.run.plan)
        return [
            Field.of(name, METRICS, units[name], layers, values)
            for name, values in analysis.metrics(self.run.records).items()
        ]

    def costs(self, arms: Sequence[Arm]) -> list[Field]:
        """Costs that differ between arms of models of known size."""
        costs = {arm: self.run.cost_of(arm) for arm in arms if arm.model in self.run.sizes}
        shown = []
        for name, label in differing_costs(costs.values()).items():
            numbers = {arm: (cost_value(cost, name), math.nan) for arm, cost in costs.items()}
            shown.append(Field.of(label, COSTS, "", arms, numbers))
        return shown

    def shown_first(self, suites: Sequence[Suite] = ()) -> list[Field]:
        """What pictures show first: scores, or metrics before there are scores.

        Only what has values, and by default of the best arm's model.
        """
        if not self.suites:
            return []
        fields_of = self.scores if self.run.recorded else self.metrics
        shown = fields_of(self.arms(suites or [self.suite()]))
        return [field for field in shown if np.isfinite(field.values).any()]

    def fields(self, arms: Sequence[Arm]) -> list[Field]:
        """Everything known of the arms, the most important first."""
        shown = [*self.metrics(arms), *self.costs(arms)]
        recorded = self.run.recorded
        if not recorded:
            return shown
        scores = self.scores(arms)
        means = self.run.means
        if len(scores) > 1:
            counts = {arm: (len(by_task), math.nan) for arm, by_task in recorded.items()}
            scores.append(Field.of("tasks scored", SCORES, "", arms, counts))
            if not means:
                del scores[0]
        if posterior := known_posterior(self.run):
            field = Field.of("expected score", SCORES, "", arms, posterior.estimates)
            # where most arms lack a task, what the search expects of them says more than their
            # means
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
