"""What a verdict rests on: the scores of a run and the recommendation of its search, as the journal
holds them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, compress
from typing import Any

import numpy as np

from daskmetrics.answer.analysis import suites as suites_of
from daskmetrics.answer.recorded import RecordedRun, weights_of
from daskmetrics.answer.ties import MOST, MeanScores, Tie, not_worse
from daskmetrics.bandit import Problem
from daskmetrics.bandit.model import RewardScale, reward_scale
from daskmetrics.bandit.problem import Observations, Reward
from daskmetrics.core.events import SearchEnded, measured
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
    def _arms(self) -> Mapping[Arm, int]:
        """The row in `_scores` of every arm, sorted, so that no result depends on their order."""
        return {arm: row for row, arm in enumerate(sorted(self.recorded))}

    @cached_property
    def _columns(self) -> Mapping[str, int]:
        return {task: column for column, task in enumerate(self.tasks)}

    @cached_property
    def _scores(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores and their errors (A, T); NaN where there is none."""
        scores = np.full((len(self._arms), len(self.tasks)), math.nan)
        errors = scores.copy()
        for arm, row in self._arms.items():
            for task, result in self.recorded[arm].items():
                if task in self._columns:
                    scores[row, self._columns[task]] = result.score
                    errors[row, self._columns[task]] = result.stderr
        return scores, errors

    @cached_property
    def _scale(self) -> RewardScale:
        """The scale of the reward, in which arms are compared: by default the score itself."""
        ones = np.ones((len(self._arms), len(self.tasks)))
        models = {arm.model for arm in self._arms}
        problem = Problem(
            arms=tuple(self._arms),
            tasks=tuple(self.tasks),
            features=np.zeros((len(ones), 2 + len(models))),
            encode_cost=ones,
            score_cost=ones,
            reward=self.reward,
        )
        scores, errors = self._scores
        rows, columns = np.nonzero(np.isfinite(scores))
        seen = Observations(rows, columns, scores[rows, columns], errors[rows, columns])
        return reward_scale(problem, seen)

    def complete(self, tasks: Iterable[str]) -> list[Arm]:
        """The arms that were scored on all of these tasks, sorted."""
        columns = [self._columns[task] for task in tasks]
        return list(compress(self._arms, np.isfinite(self._scores[0][:, columns]).all(axis=1)))

    def values(self, arms: Sequence[Arm], tasks: Sequence[str]) -> np.ndarray:
        """Scores in units of the reward (arms, tasks); every arm was scored on every task."""
        rows = self._rows(arms)
        return np.stack([self._scale.values(self._on(task, rows)) for task in tasks], axis=1)

    def tested(
        self, tasks: Sequence[str], shares: np.ndarray, level: float, chosen: Arm | None = None
    ) -> TestedArms | None:
        """The arms that were scored on all of these tasks, by their weighted means; None if there
        are none. Of equal means ``chosen`` is the best.
        """
        complete = self.complete(tasks)
        if not complete:
            return None
        order = np.argsort(-self.values(complete, tasks) @ shares, kind="stable")
        arms = [complete[i] for i in np.sort(order[:MOST])]
        beyond = [complete[i] for i in np.sort(order[MOST:])]
        means = self._means(arms, tasks, shares)
        best = int(means.mean.argmax())
        if chosen in arms and means.mean[arms.index(chosen)] >= means.mean[best] - ROUNDING:
            best = arms.index(chosen)
        as_good = self._as_good(arms[best], beyond, tasks, shares, level)
        return TestedArms(arms, means, means.tied(level), best, beyond, frozenset(as_good))

    def _means(self, arms: Sequence[Arm], tasks: Sequence[str], shares: np.ndarray) -> MeanScores:
        """Weighted means of some arms over these tasks, with their errors."""
        errors, rows = [], self._rows(arms)
        for task in tasks:
            slopes = self._scale.errors(self._on(task, rows))
            error = joint_error([self.recorded[arm][task] for arm in arms])
            errors.append(replace(error, covariance=error.covariance * np.outer(slopes, slopes)))
        return MeanScores.of(self.values(arms, tasks), shares, errors)

    def _as_good(
        self,
        arm: Arm,
        others: Sequence[Arm],
        tasks: Sequence[str],
        shares: np.ndarray,
        level: float,
    ) -> Iterable[Arm]:
        """The others that a coarse test does not tell from this arm."""
        arms = [arm, *others]
        rows, variance = self._rows(arms), np.zeros(len(arms))
        for share, task in zip(shares, tasks, strict=True):
            stderr = self._scores[1][rows, self._columns[task]]
            variance += (share * self._scale.errors(self._on(task, rows)) * stderr) ** 2
        return compress(others, not_worse(self.values(arms, tasks) @ shares, variance, level))

    def _rows(self, arms: Sequence[Arm]) -> np.ndarray:
        return np.array([self._arms[arm] for arm in arms], dtype=np.intp)

    def _on(self, task: str, rows: np.ndarray) -> Observations:
        """The scores of arms on a task, with an error of one."""
        column = np.full(len(rows), self._columns[task])
        scores = self._scores[0][rows, column]
        return Observations(np.zeros_like(rows), column, scores, np.ones(len(rows)))


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a verdict rests on, as the journal holds it."""

    config: Mapping[str, Any]
    answer: SearchEnded
    kinds: Mapping[str, str]  # of every task
    arms: tuple[Arm, ...]  # that were measured
    sizes: Mapping[str, float]  # of every model, in any unit
    recorded: Mapping[Arm, Mapping[str, Scored]]  # scores by arm and task
    widths: Mapping[str, int]  # of every model

    @cached_property
    def weights(self) -> Mapping[str, float]:
        """Weights of the tasks of the objective."""
        return weights_of(self.kinds, self.config["search"])

    @cached_property
    def scores(self) -> ScoreMatrix:
        """The scores in units of the search's reward."""
        return ScoreMatrix(self.recorded, tuple(self.kinds), self.config["search"]["reward"])

    @property
    def models(self) -> tuple[str, ...]:
        """The models that were compared, in the order of the configuration."""
        return tuple(dict.fromkeys(arm.model for arm in (*self.arms, *self.recorded)))

    def last_layer(self, model: str) -> Arm:
        """What one takes of a model without a search: the last layer of its last checkpoint, by the
        first readout.
        """
        arms = [arm for arm in (*self.arms, *self.recorded) if arm.model == model]
        revision = max(arms, key=lambda arm: self._order[arm.revision]).revision
        layer = max(arm.layer for arm in arms if arm.revision == revision)
        return next(arm for arm in arms if (arm.revision, arm.layer) == (revision, layer))

    def shares(self, tasks: Sequence[str]) -> np.ndarray:
        """Weights of tasks in the objective, with the sum 1; tasks outside of it count equally."""
        weights = np.array([self.weights.get(task, 0.0) for task in tasks])
        if not weights.any():
            return np.full(len(tasks), 1 / len(tasks))
        return np.asarray(weights / weights.sum())

    def gap(self, arm: Arm, other: Arm, tasks: Iterable[str]) -> Difference | None:
        """By how much an arm's mean raw score exceeds another's, on the tasks on which both were
        scored.
        """
        mine, theirs = self.recorded.get(arm, {}), self.recorded.get(other, {})
        shared = [task for task in tasks if task in mine and task in theirs]
        if not shared:
            return None
        gaps = [difference(mine[task], theirs[task]) for task in shared]
        return mean_difference(gaps, self.shares(shared).tolist())

    def simplicity(self, arm: Arm) -> tuple[float, str, int, int, float, str]:
        """Orders arms from simple to complex: the smaller model, the shallower layer, the earlier
        checkpoint, the shorter vector.
        """
        size = Readout.parse(arm.readout).width(self.widths.get(arm.model, 1))
        model = self.sizes.get(arm.model, 0.0), arm.model
        return *model, arm.layer, self._order[arm.revision], size, arm.readout

    @cached_property
    def _order(self) -> Mapping[str, int]:
        """The place of every revision in training."""
        revisions = training_order({arm.revision for arm in (*self.arms, *self.recorded)})
        return {name: i for i, name in enumerate(revisions)}


def evidence_of(run: RecordedRun) -> Evidence:
    """What the verdict of a finished search rests on."""
    checkpoints = {Checkpoint.parse(record.name) for record, _ in measured(run.records)}
    suites = suites_of(run)
    arms = chain.from_iterable(suite.arms() for suite in suites)
    return Evidence(
        config=run.config,
        answer=run.finished_search(),
        kinds=run.kinds,
        arms=tuple(arm for arm in arms if arm.checkpoint in checkpoints),
        sizes={
            suite.model: run.start.widths.get(suite.model, 0) ** 2.0 * suite.depth
            for suite in suites
        },
        recorded=run.recorded,
        widths=run.start.widths,
    )
