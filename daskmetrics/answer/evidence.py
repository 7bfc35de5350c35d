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
from daskmetrics.answer.ties import MeanScores, not_worse
from daskmetrics.bandit import Problem
from daskmetrics.bandit.model import RewardScale, reward_scale
from daskmetrics.bandit.problem import Observations
from daskmetrics.core.events import SearchEnded, measured
from daskmetrics.core.names import Arm, Checkpoint, training_order
from daskmetrics.core.outcomes import Difference, difference, joint_error, mean_difference
from daskmetrics.core.readouts import Readout
from daskmetrics.core.results import Scored


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

    @property
    def default(self) -> Arm:
        """The arm that one takes without a search."""
        return self.answer.default_arm

    @cached_property
    def weights(self) -> Mapping[str, float]:
        """Weights of the tasks of the objective."""
        return weights_of(self.kinds, self.config["search"])

    @cached_property
    def _arms(self) -> Mapping[Arm, int]:
        """The row in `_scores` of every arm with a score, sorted, so that no result depends on
        their order.
        """
        return {arm: row for row, arm in enumerate(sorted(self.recorded))}

    @cached_property
    def _columns(self) -> Mapping[str, int]:
        return {task: column for column, task in enumerate(self.kinds)}

    @cached_property
    def _scores(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores and their errors (A, T); NaN where there is none."""
        scores = np.full((len(self._arms), len(self.kinds)), math.nan)
        errors = scores.copy()
        for arm, row in self._arms.items():
            for task, column in self._columns.items():
                if result := self.recorded[arm].get(task):
                    scores[row, column] = result.score
                    errors[row, column] = result.stderr
        return scores, errors

    @cached_property
    def scale(self) -> RewardScale:
        """The scale of the reward, in which arms are compared: by default the score itself."""
        arms = tuple(dict.fromkeys([*self.recorded, self.default]))
        ones = np.ones((len(arms), len(self.kinds)))
        models = {arm.model for arm in arms}
        problem = Problem(
            arms=arms,
            tasks=tuple(self.kinds),
            features=np.zeros((len(arms), 2 + len(models))),
            encode_cost=ones,
            score_cost=ones,
            reward=self.config["search"]["reward"],
        )
        seen = []
        for row, by_task in enumerate(self.recorded.values()):
            for task, result in by_task.items():
                seen.append((row, self._columns[task], result.score, result.stderr))
        return reward_scale(problem, Observations.of(seen))

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

    def complete(self, tasks: Iterable[str]) -> list[Arm]:
        """The arms that were scored on all of these tasks, sorted."""
        scored = np.isfinite(self._scores[0][:, [self._columns[task] for task in tasks]]).all(
            axis=1
        )
        return list(compress(self._arms, scored))

    def shares(self, tasks: Sequence[str]) -> np.ndarray:
        """Weights of tasks in the objective, with the sum 1; tasks outside of it count equally."""
        weights = np.array([self.weights.get(task, 0.0) for task in tasks])
        if not weights.any():
            return np.full(len(tasks), 1 / len(tasks))
        return np.asarray(weights / weights.sum())

    def values(self, arms: Sequence[Arm], tasks: Sequence[str]) -> np.ndarray:
        """Scores in units of the reward (arms, tasks); every arm was scored on every task."""
        rows = self._rows(arms)
        return np.stack([self.scale.values(self._on(task, rows)) for task in tasks], axis=1)

    def means(self, arms: Sequence[Arm], tasks: Sequence[str]) -> MeanScores:
        """The objective of some arms over these tasks, with its errors."""
        errors, rows = [], self._rows(arms)
        for task in tasks:
            slopes = self.scale.errors(self._on(task, rows))
            error = joint_error([self.recorded[arm][task] for arm in arms])
            errors.append(replace(error, covariance=error.covariance * np.outer(slopes, slopes)))
        return MeanScores.of(self.values(arms, tasks), self.shares(tasks), errors)

    def not_worse(
        self, arm: Arm, others: Sequence[Arm], tasks: Sequence[str], level: float
    ) -> set[Arm]:
        """The others that a coarse test does not tell from this arm."""
        arms, shares = [arm, *others], self.shares(tasks)
        rows, variance = self._rows(arms), np.zeros(len(arms))
        for share, task in zip(shares, tasks, strict=True):
            stderr = self._scores[1][rows, self._columns[task]]
            variance += (share * self.scale.errors(self._on(task, rows)) * stderr) ** 2
        return set(compress(others, not_worse(self.values(arms, tasks) @ shares, variance, level)))

    def _rows(self, arms: Sequence[Arm]) -> np.ndarray:
        return np.array([self._arms[arm] for arm in arms], dtype=np.intp)

    def _on(self, task: str, rows: np.ndarray) -> Observations:
        """The scores of arms on a task, with an error of one."""
        column = np.full(len(rows), self._columns[task])
        return Observations(
            np.zeros_like(rows), column, self._scores[0][rows, column], np.ones(len(rows))
        )

    def gap(self, arm: Arm, other: Arm, tasks: Iterable[str]) -> Difference | None:
        """By how much an arm's mean raw score exceeds another's, on the tasks on which both were
        scored.
        """
        mine = self.recorded.get(arm, {})
        theirs = self.recorded.get(other, {})
        shared = [task for task in tasks if task in mine and task in theirs]
        if not shared:
            return None
        gaps = [difference(mine[task], theirs[task]) for task in shared]
        return mean_difference(gaps, self.shares(shared).tolist())

    def simplicity(self, arm: Arm) -> tuple[Any, ...]:
        """Orders arms from simple to complex: the smaller model, the shallower layer, the earlier
        checkpoint, bytes.
        """
        size = Readout.parse(arm.readout).bytes_per_vector(self.widths.get(arm.model, 1))
        return (
            self.sizes.get(arm.model, 0.0),
            arm.model,
            arm.layer,
            self._order[arm.revision],
            size,
            arm.readout,
        )

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
            suite.model: float(run.start.widths.get(suite.model, 0)) ** 2 * suite.depth
            for suite in suites
        },
        recorded=run.recorded,
        widths=run.start.widths,
    )
