"""What a verdict rests on: the scores of a run and the recommendation of its search, as the journal
holds them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np

from daskmetrics.answer.analysis import suites as suites_of
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.answer.ties import MOST, Floats, MeanScores, Tie, not_worse
from daskmetrics.bandit import Problem
from daskmetrics.bandit.model import reward_scale
from daskmetrics.bandit.problem import Observations, Reward
from daskmetrics.core.events import measured
from daskmetrics.core.names import Arm, Checkpoint, training_order
from daskmetrics.core.outcomes import Difference, difference, joint_error, mean_difference
from daskmetrics.core.readouts import Readout
from daskmetrics.core.results import Scored

ROUNDING = 1e-9  #: difference of means that counts as none


@dataclass(frozen=True, eq=False)
class TestedArms:
    """The arms that were scored on all of some tasks, and which of them are within the error of the
    best.

    ``arms`` are those of which all pairs are tested; ``beyond`` the others, compared with the best
    alone: ``as_good`` are those of them that this finds no worse.
    """

    arms: Sequence[Arm]
    means: MeanScores
    tie: Tie
    best: int
    beyond: Sequence[Arm]
    as_good: frozenset[Arm]

    @property
    def tied(self) -> set[Arm]:
        """All arms within the error of the best."""
        return {self.arms[i] for i in self.tie.arms} | self.as_good


@dataclass(frozen=True, eq=False)
class ScoreMatrix:
    """Recorded scores as an array, in the units of a reward."""

    recorded: Mapping[Arm, Mapping[str, Scored]]  # by arm and task
    tasks: Sequence[str]
    reward: Reward = "mean"

    @cached_property
    def _rows(self) -> Mapping[Arm, int]:
        """The row of every arm, sorted, so that no result depends on their order."""
        return {arm: row for row, arm in enumerate(sorted(self.recorded))}

    @cached_property
    def _columns(self) -> Mapping[str, int]:
        return {task: column for column, task in enumerate(self.tasks)}

    @cached_property
    def _values(self) -> tuple[Floats, Floats]:
        """Scores in units of the reward (A, T), NaN where there is none; and one unit of each
        task's score in these units (T,).
        """
        cells = []
        for arm, row in self._rows.items():
            scores = self.recorded[arm]
            for task, column in self._columns.items():
                if task in scores:
                    cells.append((row, column, scores[task].score, scores[task].stderr))
        seen = Observations.of(cells)
        ones = np.ones((len(self._rows), len(self._columns)))
        features = np.zeros((len(ones), 2 + len({arm.model for arm in self._rows})))
        arms, tasks = tuple(self._rows), tuple(self._columns)
        scale = reward_scale(Problem(arms, tasks, features, ones, ones, self.reward), seen)
        values = np.full(ones.shape, math.nan)
        values[seen.arm, seen.task] = scale.values(seen)
        return values, 1 / scale.spread

    def complete(self, tasks: Iterable[str]) -> list[Arm]:
        """The arms that were scored on all of these tasks, sorted."""
        wanted = set(tasks)
        return [arm for arm in self._rows if wanted <= self.recorded[arm].keys()]

    def values(self, arms: Iterable[Arm], tasks: Iterable[str]) -> Floats:
        """Scores in units of the reward (arms, tasks); every arm was scored on every task."""
        rows = [self._rows[arm] for arm in arms]
        columns = [self._columns[task] for task in tasks]
        return self._values[0].take(rows, axis=0).take(columns, axis=1)

    def tested(
        self, tasks: Sequence[str], shares: Floats, level: float, chosen: Arm | None = None
    ) -> TestedArms | None:
        """The arms that were scored on all of these tasks, by their weighted means; None if there
        are none. Of equal means ``chosen`` is the best.
        """
        complete = self.complete(tasks)
        if not complete:
            return None
        values = self.values(complete, tasks)
        order = np.argsort(-values @ shares, kind="stable")
        first, others = np.sort(order[:MOST]), np.sort(order[MOST:])
        arms = [complete[i] for i in first]
        units = [self._values[1][self._columns[task]] for task in tasks]
        errors = []
        for unit, task in zip(units, tasks, strict=True):
            error = joint_error([self.recorded[arm][task] for arm in arms])
            errors.append(replace(error, covariance=error.covariance * (unit * unit)))
        means = MeanScores.of(values[first], shares, errors)
        best = int(means.mean.argmax())
        if chosen in arms and means.mean[arms.index(chosen)] >= means.mean[best] - ROUNDING:
            best = arms.index(chosen)
        # the others are compared with the best alone
        compared = [first[best], *others]
        variance = np.zeros(len(compared))
        for share, unit, task in zip(shares, units, tasks, strict=True):
            stderr = np.array([self.recorded[complete[i]][task].stderr for i in compared])
            variance += (share * unit * stderr) ** 2
        is_as_good = not_worse(values[compared] @ shares, variance, level)
        return TestedArms(
            arms=arms,
            means=means,
            tie=means.tied(level),
            best=best,
            beyond=[complete[i] for i in others],
            as_good=frozenset(complete[i] for i in others[is_as_good]),
        )


class Evidence:
    """What a verdict rests on: the scores of a run with a finished search, and what its arms are."""

    def __init__(self, run: RecordedRun) -> None:
        self.run = run
        self.search = run.finished_search()
        self.weights = run.weights
        self.scores = ScoreMatrix(run.recorded, tuple(run.kinds), run.config["search"]["reward"])
        suites = suites_of(run)
        checkpoints = {Checkpoint.parse(record.name) for record, _ in measured(run.records)}
        arms = chain.from_iterable(suite.arms() for suite in suites)
        #: all that were measured, and those with scores
        self.arms = [arm for arm in arms if arm.checkpoint in checkpoints] + list(run.recorded)
        self.sizes = {  # of models, in any unit
            suite.model: run.start.widths.get(suite.model, 0) ** 2.0 * suite.depth
            for suite in suites
        }
        revisions = training_order({arm.revision for arm in self.arms})
        self._order = {name: i for i, name in enumerate(revisions)}

    def last_layer(self, model: str) -> Arm:
        """What one takes of a model without a search: the last layer of its last checkpoint, by the
        first readout.
        """
        arms = [arm for arm in self.arms if arm.model == model]
        revision = max(arms, key=lambda arm: self._order[arm.revision]).revision
        layer = max(arm.layer for arm in arms if arm.revision == revision)
        return next(arm for arm in arms if (arm.revision, arm.layer) == (revision, layer))

    def shares(self, tasks: Sequence[str]) -> Floats:
        """Weights of tasks in the objective, with the sum 1; tasks outside of it count equally."""
        weights = np.array([self.weights.get(task, 0.0) for task in tasks])
        if not weights.any():
            return np.full(len(tasks), 1 / len(tasks))
        return np.asarray(weights / weights.sum())

    def gap(self, arm: Arm, other: Arm, tasks: Iterable[str]) -> Difference | None:
        """By how much an arm's mean raw score exceeds another's, on the tasks on which both were
        scored.
        """
        mine, theirs = self.run.recorded.get(arm, {}), self.run.recorded.get(other, {})
        shared = [task for task in tasks if task in mine and task in theirs]
        if not shared:
            return None
        gaps = [difference(mine[task], theirs[task]) for task in shared]
        return mean_difference(gaps, self.shares(shared).tolist())

    def simplicity(self, arm: Arm) -> tuple[float, str, int, int, float, str]:
        """Orders arms from simple to complex: the smaller model, the shallower layer, the earlier
        checkpoint, the shorter vector.
        """
        size = Readout.parse(arm.readout).width(self.run.start.widths.get(arm.model, 1))
        model = self.sizes.get(arm.model, 0.0), arm.model
        return *model, arm.layer, self._order[arm.revision], size, arm.readout
