"""Under which terms a table is searched: what cells cost, what the best arm is best at, and which tasks there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from daskmetrics.bandit import Problem, arm_features, weigh
from daskmetrics.bandit._problem import Reward
from daskmetrics.bandit._simulate import objectives
from daskmetrics.bandit.replay._tables import Floats, Table
from daskmetrics.core.errors import ConfigError, DataError, unknown
from daskmetrics.core.names import Checkpoint

Costs = Literal["published", "shared", "unit"]

#: The part of a cell's seconds that is taken to be encoding where the table does not say: a checkpoint's layers are
#: encoded by one forward pass, and scoring one of them is cheap beside it.
ENCODED = 0.9


@dataclass(frozen=True)
class Terms:
    """How a table becomes a search.

    Attributes
    ----------
    costs : {"published", "shared", "unit"} or None
        ``published``: every cell takes the table's seconds. ``shared``: the encoding among them is paid once per
        checkpoint and task. ``unit``: every cell costs one. By default the most precise that the table knows.
    overhead : float
        Seconds added to every cell.
    load : float
        Seconds for a checkpoint that no worker holds.
    subset : int or None
        Each seed draws so many of the tasks.
    reward : str
        As in `daskmetrics.bandit._rewards`.
    objective : str
        ``all``, a kind of task or a task.
    baseline : str or None
        MODEL@REVISION; by default the last checkpoint of the last model.
    """

    costs: Costs | None = None
    overhead: float = 0.0
    load: float = 0.0
    subset: int | None = None
    reward: Reward = "mean"
    objective: str = "all"
    baseline: str | None = None

    def of_seed(self, table: Table, seed: int) -> Table:
        """The table with the tasks that a seed draws.

        Raises
        ------
        ConfigError
            If there are fewer tasks than asked for.
        """
        if self.subset is None:
            return table
        if not 0 < self.subset <= len(table.tasks):
            raise ConfigError(f"A subset of {self.subset} tasks was asked for; the table has {len(table.tasks)}.")
        return table.of_tasks(np.random.default_rng(seed).permutation(sorted(table.tasks))[: self.subset].tolist())

    def pose(self, table: Table, metrics: bool = True) -> Problem:
        """The search problem of a table, with or without its metrics as features.

        Raises
        ------
        ConfigError
            For an unknown baseline or objective, or costs that the table does not know.
        """
        encode, score = self._seconds(table)
        return Problem(
            arms=table.arms,
            tasks=table.tasks,
            features=arm_features(table.suites, table.metrics if metrics else None),
            encode_cost=encode,
            score_cost=score,
            baseline=self._baseline(table),
            reward=self.reward,
            weights=tuple(weigh(table.kinds, self.objective)),
            load_cost=np.full(len(table.arms), self.load),
        )

    def costs_of(self, table: Table) -> Costs:
        """The costs in force: those that were asked for, or the most precise that the table knows."""
        if self.costs:
            return self.costs
        if not np.isfinite(table.seconds).any():
            return "unit"
        return "shared" if np.nansum(table.encode) > 0 else "published"

    def _baseline(self, table: Table) -> Checkpoint:
        known = {str(point): point for suite in table.suites for point in suite.checkpoints()}
        if self.baseline is None:
            return table.suites[-1].checkpoints()[-1]
        if self.baseline not in known:
            raise unknown("baseline checkpoint", self.baseline, known)
        return known[self.baseline]

    def _seconds(self, table: Table) -> tuple[Floats, Floats]:
        """Seconds to encode and to score, each (A, T)."""
        costs = self.costs_of(table)
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
    """Cells that were never measured cost what the task's others cost on average."""
    known = np.isfinite(seconds)
    count = known.sum(axis=0)
    overall = seconds[known].mean()
    mean = np.where(count > 0, np.where(known, seconds, 0.0).sum(axis=0) / np.maximum(count, 1), overall)
    return np.where(known, seconds, mean)


def _encoding(table: Table, seconds: Floats) -> Floats:
    """Seconds of encoding, equal for all layers of a checkpoint (A, T)."""
    measured = np.nansum(table.encode) > 0
    part = _filled(np.where(table.encode > 0, table.encode, np.nan)) if measured else ENCODED * seconds
    start, least = 0, np.empty_like(part)
    for suite in table.suites:
        for _ in suite.revisions:
            layers = slice(start, start := start + len(suite.layers))
            least[layers] = part[layers].min(axis=0)
    return least


@dataclass(frozen=True, eq=False)
class Truth:
    """What a search of a known table should find.

    Attributes
    ----------
    best : int
        The arm with the greatest objective among those that were scored on every task that counts.
    loss : ndarray (A,)
        By which share of the best arm's mean raw score an arm's is less; infinite for an arm with scores missing.
    """

    best: int
    loss: Floats


def truth(table: Table, problem: Problem) -> Truth:
    """Judge every arm of a table.

    Raises
    ------
    DataError
        If no arm was scored on every task that counts.
    """
    wanted = problem.wanted
    complete = np.isfinite(table.scores[:, wanted]).all(axis=1)
    if not complete.any():
        raise DataError(
            f"No arm has a score on each of the {wanted.sum()} tasks ({table.known} of {table.scores.size} cells are "
            "known), so nothing says which is the best. Choose tasks or models for which the table is complete."
        )
    raw = np.where(complete, np.where(wanted, table.scores, 0.0) @ problem.shares, np.nan)
    value = np.where(complete, objectives(problem, table.cells()), -np.inf)
    best = int(np.argmax(value))
    return Truth(best, np.where(complete, (raw[best] - raw) / abs(raw[best]), np.inf))
