"""Known scores of a grid of arms on tasks, and searches of them by the code of a live search: what a
policy would have found, and at what cost.

Nothing here needs torch, a scheduler or a GPU.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, product
from statistics import median_low
from typing import Literal

import numpy as np

from daskmetrics.bandit._learner import Budget, Learner, Pick
from daskmetrics.bandit._state import Policy
from daskmetrics.bandit.costs import AssumedWorkers, useful_workers
from daskmetrics.bandit.model import measured_objectives
from daskmetrics.bandit.policies import policy_named
from daskmetrics.bandit.problem import (
    ALL,
    Floats,
    Outcome,
    Problem,
    arm_features,
    numbered,
    task_weights,
)
from daskmetrics.bandit.recommend import WITHIN, Recommendation
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.names import Arm, Cell, Suite, grid, training_order
from daskmetrics.core.readouts import Readout

__all__ = [
    "COST_SHARES",
    "CurvePoint",
    "ReplayPlan",
    "ReplayStep",
    "ReplayTrial",
    "Scenario",
    "ScoreTable",
    "Setting",
    "curve",
    "run_trials",
    "true_losses",
]


@dataclass(frozen=True)
class ScoreRow:
    """One known score. ``encode`` is the part of the seconds that all layers of a checkpoint
    share.
    """

    arm: Arm
    task: str
    score: float
    seconds: float | None = None
    encode: float = 0.0
    kind: str = ""


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Scores of a grid of arms on tasks.

    Attributes
    ----------
    suites : tuple of Suite
        Their arms, in the order of `daskmetrics.core.names.grid`, are the rows.
    kinds : mapping of str to str
        Kind of each task, in the order of the columns; an empty string if unknown.
    scores : ndarray (A, T)
        NaN without a score.
    seconds, encode : ndarray (A, T)
        Seconds of a cell, and the part of them for encoding; NaN if unknown.
    weights : mapping of str to float
        Weights of some tasks; the default is 1.
    objective : str
        That of the run that the scores are from.
    """

    suites: tuple[Suite, ...]
    kinds: Mapping[str, str]
    scores: Floats
    seconds: Floats
    encode: Floats
    weights: Mapping[str, float] = field(default_factory=dict)
    objective: str = ALL

    @cached_property
    def arms(self) -> tuple[Arm, ...]:
        return grid(self.suites)

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(self.kinds)

    @property
    def known(self) -> int:
        """Number of cells with a score."""
        return int(np.isfinite(self.scores).sum())

    def cells(self) -> dict[Cell, float]:
        """Scores by cell; cells without a score are left out."""
        tasks = self.tasks
        return {
            Cell(self.arms[arm], tasks[task]): float(self.scores[arm, task])
            for arm, task in np.argwhere(np.isfinite(self.scores))
        }

    def of_tasks(self, chosen: Iterable[str]) -> ScoreTable:
        """The same arms on fewer tasks, in the table's order."""
        chosen = set(chosen)
        columns = [i for i, task in enumerate(self.tasks) if task in chosen]
        return replace(
            self,
            kinds={task: kind for task, kind in self.kinds.items() if task in chosen},
            weights={task: weight for task, weight in self.weights.items() if task in chosen},
            scores=self.scores[:, columns],
            seconds=self.seconds[:, columns],
            encode=self.encode[:, columns],
        )


def score_table(rows: Iterable[ScoreRow]) -> ScoreTable:
    """Arrange rows as a table; of several rows for one cell the last one counts.

    Parameters
    ----------
    rows : iterable of ScoreRow
        In any order. A model's layers and readouts are those of all its checkpoints; its depth is
        the greatest layer.

    Raises
    ------
    DataError
        If there are no rows.

    Examples
    --------
    >>> rows = [ScoreRow(Arm("m", f"step{s}", 1), task, 0.1 * s) for s in (8, 1) for task in ("a", "b")]
    >>> table = score_table(rows)
    >>> [str(arm) for arm in table.arms], table.scores.tolist()
    (['m@step1/1', 'm@step8/1'], [[0.1, 0.1], [0.8, 0.8]])
    """
    rows = list(rows)
    if not rows:
        raise DataError("The table contains no scores.")
    suites = _suites(row.arm for row in rows)
    row_of = {arm: i for i, arm in enumerate(grid(suites))}
    # one of several joined tables may not say of which kind a task is
    those_with_kind_last = sorted(rows, key=lambda row: bool(row.kind))
    kinds = {row.task: row.kind for row in those_with_kind_last}
    kinds = dict(sorted(kinds.items()))
    column_of = {task: i for i, task in enumerate(kinds)}
    shape = 3, len(row_of), len(column_of)
    scores, seconds, encode = np.full(shape, np.nan)
    for row in rows:
        cell = row_of[row.arm], column_of[row.task]
        scores[cell] = row.score
        encode[cell] = row.encode
        if row.seconds is not None:
            seconds[cell] = row.seconds
    return ScoreTable(suites, kinds, scores, seconds, encode)


def _suites(arms: Iterable[Arm]) -> tuple[Suite, ...]:
    by_model = defaultdict[str, list[Arm]](list)
    for arm in arms:
        by_model[arm.model].append(arm)
    suites = []
    for model, of_model in by_model.items():
        read = [Readout.parse(arm.readout).layers_of(arm.layer) for arm in of_model]
        layers = sorted(set(chain(*read)))
        suite = Suite(
            model=model,
            revisions=training_order({arm.revision for arm in of_model}),
            layers=tuple(layers),
            depth=max(1, layers[-1]),
            readouts=tuple(sorted({arm.readout for arm in of_model})),
        )
        suites.append(suite)
    return tuple(suites)


# --- one search


@dataclass(frozen=True)
class ReplayStep:
    """A moment of a search.

    Attributes
    ----------
    share : float
        Share of the exhaustive cost that was spent.
    seconds : float
        Time on the simulated clock, in units of the costs.
    loss : float
        By how much the recommended arm is worse than the best; see `simulate`.
    confidence : float
        Posterior probability that the recommended arm is within the margin of the best; NaN if it
        was not computed.
    expected_loss : float
        Expectation of the loss under the posterior, as a share of the arm's mean score, computed
        together with the confidence.
    """

    share: float
    seconds: float
    loss: float
    confidence: float = math.nan
    expected_loss: float = math.nan


@dataclass(frozen=True)
class SimulatedSearch:
    """Decisions, recommendation and steps of a search; the last step is the recommendation."""

    picks: tuple[Pick, ...]
    recommendation: Recommendation
    path: tuple[ReplayStep, ...]


def simulate(
    problem: Problem,
    table: Mapping[Cell, float],
    policy: Policy,
    *,
    budget: float | Budget,
    seed: int,
    loss: Floats | None = None,
    every: int = 0,
    confidence_at: Sequence[float] = (),
    workers: int = 1,
    window: int | None = None,
) -> SimulatedSearch:
    """Run a complete search; each outcome arrives when the cell's cost, taken as a duration, has
    passed.

    A cell that is not in the table of raw scores fails. A step is recorded after ``every`` so many
    outcomes (0 records the end only), with its confidence at the first one at or after each share
    of the cost in ``confidence_at``. ``loss`` is that of every arm (A,), by default in units of the
    score. Each worker scores one cell at a time and holds the checkpoint that it used last; the
    window is by default the number of workers. The other parameters are those of `Learner`.

    >>> from daskmetrics.core.names import Suite
    >>> from daskmetrics.bandit import arm_features, policy_named
    >>> suite = Suite("m", ("step0", "step1", "step2"), (0, 1), 1)
    >>> cost = np.ones((6, 1))
    >>> problem = Problem(suite.arms(), ("t",), arm_features([suite]), cost, cost)
    >>> table = {Cell(arm, "t"): 0.1 * i for i, arm in enumerate(problem.arms)}
    >>> sweep = policy_named("sweep")
    >>> end = simulate(problem, table, sweep, budget=1.0, seed=0, workers=3).path[-1]
    >>> end.loss, end.share, end.seconds, end.confidence > 0.99
    (0.0, 1.0, 4.0, True)
    """
    if loss is None:
        truth = true_objectives(problem, table)
        loss = np.nanmax(truth) - truth
    learner = Learner(problem, policy, budget=budget, window=window or workers, seed=seed)
    pool = _SimulatedWorkers(problem, workers)
    path: list[ReplayStep] = []
    reported = 0
    passed = 0  # of the shares at which the confidence is computed
    while True:
        for pick in learner.ask(len(pool.schedule.held)):
            pool.start(*problem.locate(pick.cell))
        if reported == len(learner.picks):
            break
        if reported == len(pool.schedule.finished):
            pool.schedule.advance()
        pick = learner.picks[pool.schedule.finished[reported]]
        learner.tell(pick.index, Outcome(table.get(pick.cell)))
        reported += 1
        if not every or reported % every:
            continue
        share = learner.spent / problem.exhaustive_cost
        stated = None
        passed_before = passed
        passed = sum(limit <= share for limit in confidence_at)
        if passed > passed_before and len(learner.state.observations):
            stated = learner.recommendation()
        path.append(_step(learner, pool.schedule.now, loss, stated))
    result = learner.recommendation()
    path.append(_step(learner, pool.schedule.now, loss, result))
    return SimulatedSearch(learner.picks, result, tuple(path))


def _step(
    learner: Learner, seconds: float, loss: Floats, stated: Recommendation | None
) -> ReplayStep:
    share = learner.spent / learner.problem.exhaustive_cost
    step = ReplayStep(share, seconds, float(loss[learner.state.recommended]))
    if stated is None:
        return step
    expected_loss = math.nan  # no loss is a share of a mean score of 0
    if stated.best.value:
        expected_loss = stated.expected_loss / abs(stated.best.value)
    return replace(step, confidence=stated.probability_within, expected_loss=expected_loss)


class _SimulatedWorkers:
    """Workers on a clock: a cell takes as long as it costs, a worker loads a checkpoint that it
    does not hold, and a score waits for its encoding.
    """

    def __init__(self, problem: Problem, workers: int) -> None:
        self._problem = problem
        self._encoded: dict[tuple[int, int], float] = {}  # time at which the embeddings exist
        self.schedule = AssumedWorkers(workers)

    def start(self, arm: int, task: int) -> None:
        """Start the next decision on an idle worker."""
        problem = self._problem
        now = self.schedule.now
        checkpoint = int(problem.checkpoint_index[arm])
        scoring = float(problem.score_cost[arm, task])
        encoded = self._encoded.get((checkpoint, task))
        is_encoding = encoded is None
        if encoded is None:
            encoding = float(problem.encode_cost[arm, task])
            encoded = now + encoding
            if checkpoint not in self.schedule.held:
                encoded += float(problem.load_costs[arm])
            if encoding:
                self._encoded[checkpoint, task] = encoded
        waiting = max(0.0, encoded - now)
        self.schedule.assign(checkpoint, waiting + scoring, is_encoding)


def true_objectives(problem: Problem, table: Mapping[Cell, float]) -> Floats:
    """True objective of every arm, the weighted mean over the tasks with a known score (A,)."""
    outcomes = ((cell, Outcome(score)) for cell, score in table.items())
    return measured_objectives(problem, problem.observe(outcomes).by_cell())


Costs = Literal["published", "shared", "unit"]

#: Share of a cell's seconds that counts as encoding if the table does not contain it: one forward
#: pass encodes all layers of a checkpoint, and scoring a layer is cheap in comparison.
ENCODED = 0.9


@dataclass(frozen=True)
class Scenario:
    """How a table becomes a search.

    Attributes
    ----------
    costs : {"published", "shared", "unit"} or None
        ``published``: every cell takes the table's seconds. ``shared``: their encoding part is paid
        once per checkpoint and task. ``unit``: every cell costs one. By default the most precise
        that the table allows.
    overhead : float
        Seconds added to every cell.
    load : float
        Seconds to load a checkpoint that no worker holds.
    subset : int or None
        Number of tasks that each seed draws.
    objective : str or None
        ``all``, a kind of task or a task; None is that of the table.
    """

    costs: Costs | None = None
    overhead: float = 0.0
    load: float = 0.0
    subset: int | None = None
    objective: str | None = None

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
                f"Cannot draw {self.subset} tasks: the table has {len(table.tasks)}. Choose a "
                "smaller subset."
            )
        order = np.random.default_rng(seed).permutation(sorted(table.tasks))
        return table.of_tasks(order[: self.subset].tolist())

    def build_problem(self, table: ScoreTable) -> Problem:
        """The search problem of a table.

        Raises
        ------
        ConfigError
            If the objective is unknown, or the table does not contain the requested costs.
        """
        encode, score = self._seconds(table)
        objective = self.objective or table.objective
        return Problem(
            arms=table.arms,
            tasks=table.tasks,
            features=arm_features(table.suites),
            encode_cost=encode,
            score_cost=score,
            weights=tuple(task_weights(table.kinds, objective, table.weights)),
            load_cost=np.full(len(table.arms), self.load),
            kinds=tuple(table.kinds.values()),
        )

    def _seconds(self, table: ScoreTable) -> tuple[Floats, Floats]:
        """Seconds to encode and to score, each (A, T)."""
        has_seconds = (table.seconds > 0).any()
        most_precise: Costs = "published"
        if not has_seconds:
            most_precise = "unit"
        elif np.nansum(table.encode) > 0:
            most_precise = "shared"
        costs = self.costs or most_precise
        if costs == "unit":
            return np.zeros_like(table.scores), np.ones_like(table.scores) + self.overhead
        if not has_seconds:
            raise ConfigError(
                f"Costs '{costs}' need seconds above 0, which the table does not have. Use costs"
                " 'unit'."
            )
        seconds = _filled(table.seconds)
        if costs == "published":
            return np.zeros_like(seconds), seconds + self.overhead
        encode = _encoding(table, seconds)
        score = np.maximum(seconds - encode, 0.0)
        return encode, score + self.overhead


def _filled(seconds: Floats) -> Floats:
    """The seconds, with missing ones replaced by the mean of their task."""
    is_given = np.isfinite(seconds)
    count = is_given.sum(axis=0)
    total = np.where(is_given, seconds, 0.0).sum(axis=0)
    mean = total / np.maximum(count, 1)
    mean_of_all = seconds[is_given].mean()
    of_task = np.where(count > 0, mean, mean_of_all)
    return np.where(is_given, seconds, of_task)


def _encoding(table: ScoreTable, seconds: Floats) -> Floats:
    """Seconds of encoding, equal for all layers of a checkpoint (A, T)."""
    encode = ENCODED * seconds
    if np.nansum(table.encode) > 0:
        given = np.where(table.encode > 0, table.encode, np.nan)
        encode = _filled(given)
    checkpoint = numbered([arm.checkpoint for arm in table.arms])
    # a row for each checkpoint, of which there are at most as many as arms
    shortest = np.full_like(encode, np.inf)
    np.minimum.at(shortest, checkpoint, encode)
    return shortest[checkpoint]


def true_losses(table: ScoreTable, problem: Problem) -> Floats:
    """By how much every arm of a table is worse than the best one.

    Returns
    -------
    ndarray (A,)
        1 - mean raw score / mean raw score of the arm with the greatest objective among those with
        a score on every task of the objective, or the difference if that score is 0; infinite for
        an arm with missing scores.

    Raises
    ------
    DataError
        If no arm has a score on every task of the objective.
    """
    needed = problem.in_objective
    complete = np.isfinite(table.scores[:, needed]).all(axis=1)
    if not complete.any():
        raise DataError(
            f"No arm has a score on each of the {needed.sum()} tasks ({table.known} of "
            f"{table.scores.size} cells are known), so the best arm is unknown. Choose tasks or "
            "models for which the table is complete."
        )
    scores = np.where(needed, table.scores, 0.0)
    raw = np.where(complete, scores @ problem.objective_weights, np.nan)
    objectives = true_objectives(problem, table.cells())
    value = np.where(complete, objectives, -np.inf)
    best = int(np.argmax(value))
    gap = raw[best] - raw
    if raw[best]:
        gap = gap / abs(raw[best])
    return np.where(complete, gap, np.inf)


@dataclass(frozen=True)
class Setting:
    """What differs between the trials that are compared: the policy and the number of workers."""

    policy: str
    workers: int = 1


@dataclass(frozen=True)
class ReplayTrial:
    """One search of a known table; ``utilisation`` is the cost of its cells as a share of the
    workers' time until the last outcome.
    """

    setting: Setting
    seed: int
    path: tuple[ReplayStep, ...]
    utilisation: float

    def after(self, share: float) -> ReplayStep | None:
        """The last step that cost at most a share of the exhaustive cost."""
        steps = [step for step in self.path if step.share <= share * (1 + 1e-9)]
        return steps[-1] if steps else None


@dataclass(frozen=True, eq=False)
class ReplayPlan:
    """What all trials share.

    Attributes
    ----------
    table : ScoreTable
    scenario : Scenario
    budget : float
        Share of the exhaustive cost.
    every : int
        Number of outcomes between two steps of a trial.
    confidence_at : tuple of float
        Shares of the exhaustive cost at which the confidence is computed, beside the end.
    """

    table: ScoreTable
    scenario: Scenario
    budget: float
    every: int = 1
    confidence_at: tuple[float, ...] = ()


def run_trials(
    plan: ReplayPlan, settings: Sequence[Setting], seeds: Sequence[int], jobs: int = 1
) -> Iterator[ReplayTrial]:
    """Every setting with every seed, in this order.

    Parameters
    ----------
    plan : ReplayPlan
    settings : sequence of Setting
    seeds : sequence of int
        Seeds of the search, and of the tasks that are drawn if the scenario has a subset.
    jobs : int
        Number of processes. The trials do not depend on it.

    Raises
    ------
    ConfigError
        If a policy is unknown, or the scenario does not fit the table.
    DataError
        If no arm of the table is complete.
    """
    from joblib import Parallel, delayed

    # an unknown name fails here, and not in another process
    policies = {setting.policy: policy_named(setting.policy) for setting in settings}
    run_one = delayed(_run_trial)
    trials = (
        run_one(plan, setting, seed, policies[setting.policy])
        for setting, seed in product(settings, seeds)
    )
    # its processes do not import the main module, whose policies are sent by value
    yield from Parallel(jobs, return_as="generator")(trials)


def _run_trial(plan: ReplayPlan, setting: Setting, seed: int, policy: Policy) -> ReplayTrial:
    """One search."""
    table = plan.scenario.draw_tasks(plan.table, seed)
    problem = plan.scenario.build_problem(table)
    result = simulate(
        problem,
        table.cells(),
        policy,
        budget=plan.budget,
        seed=seed,
        loss=true_losses(table, problem),
        workers=setting.workers,
        window=int(min(setting.workers, useful_workers(setting.policy))),  # as a live search
        every=plan.every,
        confidence_at=plan.confidence_at,
    )
    time = setting.workers * result.path[-1].seconds
    return ReplayTrial(setting, seed, result.path, result.recommendation.spent / time)


#: Shares of the exhaustive cost at which a curve is computed.
COST_SHARES = (0.001, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)


@dataclass(frozen=True)
class CurvePoint:
    """What searches have reached after a share of the exhaustive cost."""

    share: float
    found: int  # searches whose arm is within `WITHIN` of the best
    searches: int
    loss: float  # median share by which the recommended arm is worse; infinite before the first


def curve(trials: Sequence[ReplayTrial], shares: Sequence[float]) -> list[CurvePoint]:
    """How many trials have found the best arm, and their median loss, after each share of the
    cost.
    """
    points = []
    for share in shares:
        steps = [trial.after(share) for trial in trials]
        losses = [step.loss if step else math.inf for step in steps]
        point = CurvePoint(
            share=share,
            found=sum(loss <= WITHIN for loss in losses),
            searches=len(losses),
            loss=median_low(losses),
        )
        points.append(point)
    return points
