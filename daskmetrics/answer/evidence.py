"""What an answer rests on: the plan, the scores and the end of a finished search."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from daskmetrics.answer.sizes import ArmCost
from daskmetrics.domain.events import SearchEnded
from daskmetrics.domain.names import Arm, training_order
from daskmetrics.domain.outcomes import Difference, Estimate
from daskmetrics.domain.plan import Plan
from daskmetrics.domain.readouts import Readout
from daskmetrics.domain.recommendation import Recommendation
from daskmetrics.domain.record import Record
from daskmetrics.domain.scores import Scores, shares_of


@dataclass(frozen=True, eq=False)
class Evidence:
    """Plan, records, scores and recommendation of a finished search.

    Attributes
    ----------
    plan : Plan
    folder : Path
        Of the run.
    ended : SearchEnded
    records : tuple of Record
        Those that count.
    recorded, compared, fresh : Scores
        All scores, those of the arms that the plan asks about, and those of the finalists on items
        kept back.
    means : mapping
        Mean score and error of each arm with all scores of the objective.
    cost : callable
        What a text costs with an arm.
    """

    plan: Plan
    folder: Path
    ended: SearchEnded
    records: tuple[Record, ...]
    recorded: Scores
    compared: Scores
    fresh: Scores
    means: Mapping[Arm, Estimate]
    cost: Callable[[Arm], ArmCost]

    @property
    def recommendation(self) -> Recommendation:
        return self.ended.recommendation

    @cached_property
    def arms(self) -> tuple[Arm, ...]:
        """All that were measured, and those with scores."""
        checkpoints = self.plan.measured(self.records)
        measured = (arm for arm in self.plan.arms if arm.checkpoint in checkpoints)
        return (*measured, *self.compared)

    def shares(self, tasks: Iterable[str]) -> dict[str, float]:
        """Weights of tasks in means over them, with the sum 1."""
        return shares_of(tasks, self.plan.weights)

    def gain(self, arm: Arm, other: Arm, tasks: Iterable[str]) -> Difference | None:
        """By how much an arm's mean raw score exceeds another's."""
        return self.recorded.gain(arm, other, self.shares(tasks))

    def last_layer(self, model: str) -> Arm:
        """What one takes of a model without a search.

        It is the last layer of its last checkpoint, by the first readout.
        """
        arms = (arm for arm in self.arms if arm.model == model)
        # of equal ones, which are readouts of a layer, the first
        last: Arm = max(arms, key=lambda arm: (self._order[arm.revision], arm.layer))
        return last

    def simplicity(self, arm: Arm) -> tuple[float, str, int, int, float, str]:
        """Orders arms from simple to complex.

        First is the smaller model, then the shallower layer, the earlier checkpoint, the shorter
        vector.
        """
        width = self.plan.widths[arm.model]
        size = width**2.0 * self.plan.by_model[arm.model].depth
        dimensions = Readout.parse(arm.readout).width(width)
        age = self._order[arm.revision]
        return size, arm.model, arm.layer, age, dimensions, arm.readout

    @cached_property
    def _order(self) -> Mapping[str, int]:
        revisions = training_order({arm.revision for arm in self.arms})
        return {revision: i for i, revision in enumerate(revisions)}
