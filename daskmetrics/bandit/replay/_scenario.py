"""How a table becomes a search: what cells cost, which tasks there are, and what the best arm is best at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from daskmetrics.bandit import Problem, task_weights
from daskmetrics.bandit._problem import Floats, Reward
from daskmetrics.bandit._simulate import true_objectives
from daskmetrics.bandit.replay._likeness import task_likeness
from daskmetrics.bandit.replay._tables import FEWER, ScoreTable
from daskmetrics.core.errors import ConfigError, DataError, unknown
from daskmetrics.core.names import Checkpoint

Costs = Literal["published", "shared", "unit"]

#: Share of a cell's seconds that counts as encoding if the table does not contain it: one forward pass encodes all
#: layers of a checkpoint, and scoring a layer is cheap in comparison.
ENCODED = 0.9


@dataclass(frozen=True)
class Scenario:
    """How a table becomes a search.

    Attributes
    ----------
    costs : {"published", "shared", "unit"} or None
        ``published``: every cell takes the table's seconds. ``shared``: their encoding part is paid once per checkpoint
        and task. ``unit``: every cell costs one. By default the most precise that the table allows.
    overhead : float
        Seconds added to every cell.
    load : float
        Seconds to load a checkpoint that no worker holds.
    subset : int or None
        Number of tasks that each seed draws.
    reward : str
        As in `daskmetrics.bandit.Problem`.
    objective : str
        ``all``, a kind of task or a task.
    baseline : str or None
        MODEL@REVISION; by default the last checkpoint of the last model.
    prior : ScoreTable or None
        Scores of other models on the same tasks, from which the likeness of the tasks is learned.
    """

    costs: Costs | None = None
    overhead: float = 0.0
    load: float = 0.0
    subset: int | None = None
    reward: Reward = "mean"
    objective: str = "all"
    baseline: str | None = None
    prior: ScoreTable | None = None

    def draw_tasks(self, table: ScoreTable, seed: int) -> ScoreTable:
        """The table with the tasks that a seed draws.

        Raises
        ------
        ConfigError
            If the table has fewer tasks than requested.
        """
        if self.subset is None:
            return table
        if not 0 < self.subset <= len(table.tasks):
            raise ConfigError(
                f"Cannot draw {self.subset} tasks: the table has {len(table.tasks)}. Choose a smaller subset."
            )
        return table.of_tasks(np.random.default_rng(seed).permutation(sorted(table.tasks))[: self.subset].tolist())

    def build_problem(self, table: ScoreTable, metrics: bool = True) -> Problem:
        """The search problem of a table, with or without its metrics as features.

        Raises
        ------
        ConfigError
            If the baseline or the objective is unknown, the table does not contain the requested costs, or the prior
            has scores of a model of the table.
        """
        encode, score = self._seconds(table)
        return Problem(
            arms=table.arms,
            tasks=table.tasks,
            features=table.features(metrics),
            encode_cost=encode,
            score_cost=score,
            baseline=self._baseline(table),
            reward=self.reward,
            weights=tuple(task_weights(table.kinds, self.objective)),
            load_cost=np.full(len(table.arms), self.load),
            kinds=tuple(table.kinds.values()),
            likeness=self._likeness(table),
        )

    def needed(self, table: ScoreTable) -> list[str]:
        """The tasks of the objective; `ConfigError` if it is unknown."""
        weights = task_weights(table.kinds, self.objective)
        return [task for task, weight in zip(table.tasks, weights, strict=True) if weight]

    def costs_for(self, table: ScoreTable) -> Costs:
        """The requested costs, or by default the most precise that the table allows."""
        if self.costs:
            return self.costs
        if not np.isfinite(table.seconds).any():
            return "unit"
        return "shared" if np.nansum(table.encode) > 0 else "published"

    def _likeness(self, table: ScoreTable) -> Floats | None:
        if self.prior is None:
            return None
        searched = {suite.model for suite in table.suites} & {suite.model for suite in self.prior.suites}
        if searched:
            raise ConfigError(
                f"The prior has scores of {', '.join(sorted(searched))}, which this replay is to search for. Name "
                "scores of other models."
            )
        return task_likeness(self.prior, table.kinds)

    def _baseline(self, table: ScoreTable) -> Checkpoint:
        known = {str(arm.checkpoint): arm.checkpoint for arm in table.arms}
        if self.baseline is None:
            return table.arms[-1].checkpoint
        if self.baseline not in known:
            raise unknown("baseline checkpoint", self.baseline, known)
        return known[self.baseline]

    def _seconds(self, table: ScoreTable) -> tuple[Floats, Floats]:
        """Seconds to encode and to score, each (A, T)."""
        costs = self.costs_for(table)
        if costs == "unit":
            return np.zeros_like(table.scores), np.ones_like(table.scores) + self.overhead
        if not np.isfinite(table.seconds).any():
            raise ConfigError(f"Costs '{costs}' need seconds, which the table does not have. Use costs 'unit'.")
        seconds = _filled(table.seconds)
        if costs == "published":
            return np.zeros_like(seconds), seconds + self.overhead
        encode = _encoding(table, seconds)
        return encode, np.maximum(seconds - encode, 0.0) + self.overhead


def _filled(seconds: Floats) -> Floats:
    """The seconds, with missing ones replaced by the mean of their task."""
    known = np.isfinite(seconds)
    count = known.sum(axis=0)
    overall = seconds[known].mean()
    mean = np.where(count > 0, np.where(known, seconds, 0.0).sum(axis=0) / np.maximum(count, 1), overall)
    return np.where(known, seconds, mean)


def _encoding(table: ScoreTable, seconds: Floats) -> Floats:
    """Seconds of encoding, equal for all layers of a checkpoint (A, T)."""
    measured = np.nansum(table.encode) > 0
    part = _filled(np.where(table.encode > 0, table.encode, np.nan)) if measured else ENCODED * seconds
    _, checkpoint = np.unique([str(arm.checkpoint) for arm in table.arms], return_inverse=True)
    least = np.full((checkpoint.max() + 1, part.shape[1]), np.inf)
    np.minimum.at(least, checkpoint, part)
    return np.asarray(least[checkpoint])


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """The best arm of a table, and by how much the others are worse.

    Attributes
    ----------
    best : int
        The arm with the greatest objective among those with a score on every task of the objective.
    loss : ndarray (A,)
        1 - mean raw score / mean raw score of the best arm; infinite for an arm with missing scores.
    """

    best: int
    loss: Floats


def ground_truth(table: ScoreTable, problem: Problem) -> GroundTruth:
    """Compare every arm of a table with the best one.

    Raises
    ------
    DataError
        If no arm has a score on every task of the objective.
    """
    needed = problem.in_objective
    complete = table.is_complete(np.array(table.tasks)[needed])
    if not complete.any():
        raise DataError(
            f"No arm has a score on each of the {needed.sum()} tasks ({table.known} of {table.scores.size} cells are "
            f"known), so the best arm is unknown. {FEWER}"
        )
    raw = np.where(complete, np.where(needed, table.scores, 0.0) @ problem.objective_weights, np.nan)
    value = np.where(complete, true_objectives(problem, table.cells()), -np.inf)
    best = int(np.argmax(value))
    return GroundTruth(best, np.where(complete, (raw[best] - raw) / abs(raw[best]), np.inf))
