"""What a policy sees (`State`) and returns (`Choice`), and what a search must have looked at.

A policy is a pure function, so that a search can be rebuilt from its journal.

**Coverage: every model before any comparison, and every kind of task before a search is sure.** A
model that has no score looks as good as the average of the others, and the first score of an
expensive model may cost more than all that is left. So a search begins with the cheapest score of
each model, keeps enough of its budget for a score of each model on each kind of task, and does not
end without these.

The cheapest tasks are often of one kind. Where the kinds disagree, a search that dismisses a rival
or a whole model on a few cheap scores is wrong, and sure. Searches of tables of several model
families (docs/figures/search.md) show what protects from that: every kind seen at the leader, at
its nearest rivals, and at the best arm of every other model.

Kinds are not enough, since a task without scores may vary much more between arms than all others:
its spread is only assumed. So a search is not sure either while such tasks could decide the
objective.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from daskmetrics.bandit.model import (
    ARM_VARIANCE,
    LOOKS,
    IncrementalPosterior,
    Posterior,
    first_max,
    greatest,
    measured_objectives,
)
from daskmetrics.bandit.problem import (
    ROUNDING,
    Bools,
    Floats,
    Ints,
    Observations,
    Problem,
)
from daskmetrics.core.errors import ConfigError, DaskmetricsError
from daskmetrics.core.names import seed_of

#: probability of being as good as another arm below which an arm with all scores is not reported
DISBELIEVED = 0.01
CONFIRM = 0.1  #: share of the budget that may be reserved for measuring the leader on all tasks

Why = Mapping[str, float | str]


@dataclass(frozen=True)
class Choice:
    """The next cell, by its indices, and the reason for it in a few numbers or words."""

    arm: int
    task: int
    why: Why = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class State:
    """Everything that a decision may depend on.

    Attributes
    ----------
    problem : Problem
    finished : Observations
        The chosen cells with an outcome, in the order in which decisions take them into account.
    pending : ndarray of int (n, 2)
        Arm and task of the chosen cells without an outcome, in the order of the decisions.
    paid : ndarray of bool (A, T)
        The same cells as a mask, failed ones included: no cell is chosen twice.
    cost : ndarray (A, T)
        What each cell would cost next; an encoding that exists is free.
    remaining : float
        Budget that is not spent; infinite where the budget pays for every cell.
    seed : int
        Seed of the search.
    budget : float
        The whole budget; infinite where it pays for every cell.
    most_cells : float
        Decisions that the search may make.
    cache : IncrementalPosterior or None
        Reuses the work of earlier states. It changes the time that `posterior` takes, not its
        values.
    """

    problem: Problem
    finished: Observations
    pending: Ints
    paid: Bools
    cost: Floats
    remaining: float
    seed: int
    budget: float = math.inf
    most_cells: float = math.inf
    cache: IncrementalPosterior | None = None

    @cached_property
    def observations(self) -> Observations:
        """The known scores, sorted by cell."""
        return self.finished.scores.by_cell()

    @property
    def cells(self) -> Ints:
        """Arm and task of every chosen cell, those with an outcome first (n, 2)."""
        finished = np.column_stack([self.finished.arm, self.finished.task])
        return np.concatenate([finished, self.pending])

    @cached_property
    def scored(self) -> Bools:
        """Arms that have a score on every task of the objective (A,)."""
        return _all_scored(self.problem, self.observations)

    @property
    def usable(self) -> Bools:
        """Arms that failed at most as often as they gave a score (A,); the others are not
        recommended.
        """
        arms = self.finished.arm
        size = len(self.problem.arms)
        failed = np.bincount(arms[self.finished.failed], minlength=size)
        return np.asarray(2 * failed <= np.bincount(arms, minlength=size))

    @cached_property
    def posterior(self) -> Posterior:
        """The posterior of every arm's objective; computed on first use."""
        cache = self.cache or IncrementalPosterior(self.problem)
        return cache.posterior(self.finished, self.pending)

    @cached_property
    def leader(self) -> int:
        """The usable arm with the greatest expected objective; the last model's default arm before
        the first score.
        """
        default_arm = int(self.problem.default_arms[-1])
        if not len(self.observations) and self.usable[default_arm]:
            return default_arm
        return first_max(self.posterior.mean, self.usable)

    @cached_property
    def recommended(self) -> int:
        """The arm that is reported; see `recommended_arm`. Policies decide by the `leader`."""
        return recommended_arm(self.posterior, self.finished, self.usable)

    @cached_property
    def measured(self) -> Floats:
        """Objective of every arm by its own scores (A,), NaN without any; comparable between
        `scored` arms.
        """
        return measured_objectives(self.problem, self.observations)

    @cached_property
    def spendable(self) -> float:
        """What the search may still spend: the remaining budget, less the cost of confirming the
        leader.

        Nothing is reserved if confirming would take more than `CONFIRM` of the whole budget: the
        search makes better use of it. Where it looks, too, it would spend all on looks, which
        confirm nothing; so what the `finalist` lacks is reserved as long as it is affordable.
        """
        if self.problem.is_look.any():
            missing = self.confirming_cost[self.finalist]
            return float(self.remaining - missing * self.is_confirmable[self.finalist])
        share = CONFIRM * self.budget
        if self.remaining > 2 * share:  # far from the end the leader need not be computed
            return self.remaining - share
        missing = float(self.cost[self.leader, self.problem.in_objective].sum())
        if missing > share:
            return self.remaining
        return self.remaining - missing

    @cached_property
    def confirming_cost(self) -> Floats:
        """Cost of the tasks of the objective that each arm lacks (A,)."""
        return np.asarray(self.cost[:, self.problem.in_objective].sum(axis=1))

    @cached_property
    def is_confirmable(self) -> Bools:
        """Arms that the remaining budget can score on every task (A,)."""
        affordable = self.remaining + ROUNDING * self.problem.exhaustive_cost
        return np.asarray(self.confirming_cost <= affordable)

    @cached_property
    def finalist(self) -> int:
        """The arm to score on every task: the leader, or else the arm that is expected to be the
        best of those that can still be scored on every task; otherwise a worse one, which happens
        to have all scores, would be reported.
        """
        candidates = self.is_confirmable & self.usable
        if self.is_confirmable[self.leader] or not candidates.any():
            return self.leader
        return first_max(self.posterior.mean, candidates)

    @cached_property
    def open(self) -> Bools:
        """Cells that may be chosen: not paid for yet, and affordable (A, T)."""
        # sums of costs are exact to rounding only
        return np.asarray(
            ~self.paid & (self.cost <= self.spendable + 1e-9 * self.problem.exhaustive_cost)
        )

    def random(self) -> np.random.Generator:
        """A generator for this decision alone; it is seeded by the search and the number of the
        decision.
        """
        return np.random.default_rng(seed_of("bandit", self.seed, len(self.cells)))


def recommended_arm(posterior: Posterior, finished: Observations, usable: Bools) -> int:
    """The arm that a search reports: one rule for every report, so that none contradicts the scores
    that it shows.

    Of the arms scored on every task of the objective it is the one with the greatest mean by these
    scores. If there are none, or if another one is better than that by all that is known (with a
    probability of error of `DISBELIEVED`), it is the arm with a score whose expected objective is
    the greatest, a usable one if possible: a budget may end before a good arm is scored on every
    task. An arm without a score is never reported, whatever the posterior expects of it, nor one
    that failed on a task in place of one with all scores.
    """
    problem = posterior.problem
    seen = finished.scores.by_cell()
    is_complete = _all_scored(problem, seen)
    arms = np.arange(len(problem.arms))
    has_score = np.isin(arms, seen.arm[~problem.is_look[seen.task]])
    if not has_score.any():  # while a search has only looked
        has_score = np.isin(arms, seen.arm)
    candidates = has_score & usable
    if not candidates.any():
        candidates = has_score
    if not is_complete.any():
        return first_max(posterior.mean, candidates)
    measured = first_max(measured_objectives(problem, seen), is_complete)
    failed = finished.take(finished.failed & problem.in_objective[finished.task])
    candidates = (candidates & ~np.isin(arms, failed.arm)) | is_complete
    expected = first_max(posterior.mean, candidates)
    if is_complete[expected] or _is_as_good(posterior, measured, expected):
        return measured
    return expected


def _is_as_good(posterior: Posterior, arm: int, other: int) -> bool:
    """Whether an arm may be as good as another, by the distribution of the stated confidence."""
    from scipy.special import stdtr

    pair = np.array([arm, other])
    covariance = posterior.without_pending().covariance(pair, pair)
    variance = covariance.trace() - 2 * covariance[0, 1]
    distance = (posterior.mean[other] - posterior.mean[arm]) / np.sqrt(max(variance, 1e-12))
    return bool(stdtr(posterior.model.freedom, -distance) >= DISBELIEVED)


def _all_scored(problem: Problem, seen: Observations) -> Bools:
    needed = problem.in_objective
    return np.asarray(
        np.bincount(seen.arm[needed[seen.task]], minlength=len(problem.arms)) == needed.sum()
    )


class Policy(Protocol):
    """A pure function of a `State`; it returns None if no open cell is worth its cost."""

    def __call__(self, state: State, /) -> Choice | None: ...


def ask(policy: Policy, state: State) -> Choice | None:
    """What a policy chooses; a `ConfigError` if it fails or returns something else, since it may be
    any function.
    """
    try:
        choice = policy(state)
    except DaskmetricsError:
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigError(
            f"The policy failed with {type(error).__name__} in {frame.filename}, line "
            f"{frame.lineno}. It must be a function of a State that returns a Choice or None."
        ) from error
    if not isinstance(choice, Choice | None):
        raise ConfigError(
            f"The policy must return a Choice or None, but returned a {type(choice).__name__}."
        )
    return choice


# --- coverage

NEAREST = 3  #: rivals of the leader that have to be scored on every kind of task
BOUND = 512  #: arms considered as rivals: those with the greatest upper bounds
TRIES = 3  #: failed cells after which a model is given up on a kind of task
POSSIBLE = 12.0  #: spread that another task may have, in multiples of that of the scored tasks


def covering_costs(problem: Problem) -> Floats:
    """The least cost of a score of each model on each kind of task, with its encoding and its load
    (M, K).

    Of a single model, which no other can be preferred to, it is that of one score (1, 1).
    """
    cost = problem.encode_cost + problem.score_cost + problem.load_costs[:, None]
    of_model = np.stack(
        [cost[problem.model_index == model].min(axis=0) for model in range(len(problem.models))]
    )
    return np.stack(
        [of_model[:, is_of_kind].min(axis=1) for is_of_kind in _kinds_to_cover(problem).T], axis=1
    )


@dataclass(frozen=True, eq=False)
class MissingLooks:
    """Which models lack a score and a pending cell on which kind of task, as in `covering_costs`
    (M, K).

    A model on which `TRIES` cells of a kind failed is given up there.
    """

    of_new_models: Bools  # of the models that have no score and no pending cell at all
    all: Bools

    @classmethod
    def of(cls, state: State) -> MissingLooks:
        failed = _failed(state)
        seen = _count(state.problem, state.paid & ~failed) > 0
        missing = ~seen & (_count(state.problem, failed) < TRIES)
        return cls(missing & ~seen.any(axis=1, keepdims=True), missing)


def cover(state: State, looks: Bools, kept: float) -> Choice | None:
    """A cheap cell of the models and kinds of task that are to be looked at (M, K); None if there
    is none.

    It is drawn from the cells that cost at most twice as much as the cheapest: the same layer and
    task of every model would say less about the others. Of these it takes what makes the model
    comparable with the others; see `_comparable`. What is ``kept`` for the other looks is not
    spent. An encoding with which a cell failed is not tried again.
    """
    if not looks.any():
        return None
    problem = state.problem
    failed_encodings = problem.same_encoding(*np.nonzero(_failed(state)))
    wanted = looks[problem.model_index] @ _kinds_to_cover(problem).T
    affordable = state.cost <= state.remaining + ROUNDING * problem.exhaustive_cost
    candidates = wanted & affordable & ~state.paid & ~failed_encodings
    if not candidates.any():
        return None
    cheapest = state.cost[candidates].min()
    tolerance = min(cheapest, max(0.0, state.remaining - kept))
    candidates &= state.cost <= cheapest * (1 + ROUNDING) + tolerance
    arms, tasks = np.nonzero(_comparable(state, candidates))
    chosen = state.random().integers(len(arms))
    arm = int(arms[chosen])
    task = int(tasks[chosen])
    return Choice(arm, task, {"model": problem.arms[arm].model, "kind": problem.kind_names[task]})


def _comparable(state: State, candidates: Bools) -> Bools:
    """Of the candidates of each model, those that let it be compared with the others (A, T).

    These are the cells of the arms with the most scores, since only arms with a score on every task
    are compared in the end; of these, the cells of tasks on which another model has a score, since
    scores of different tasks say little of each other.
    """
    problem = state.problem
    has_score = state.paid & ~_failed(state) & ~problem.is_look
    scores_of_arm = has_score.sum(axis=1)
    comparable = np.zeros_like(candidates)
    for model in range(len(problem.models)):
        is_of_model = (problem.model_index == model)[:, None]
        cells = candidates & is_of_model
        if not cells.any():
            continue
        most_scores = scores_of_arm[cells.any(axis=1)].max()
        cells &= (scores_of_arm == most_scores)[:, None]
        shared_cells = cells & (has_score & ~is_of_model).any(axis=0)
        if shared_cells.any():
            cells = shared_cells
        comparable |= cells
    return comparable


def _failed(state: State) -> Bools:
    """Cells that gave no score (A, T)."""
    failed = np.zeros_like(state.paid)
    finished = state.finished
    failed[finished.arm[finished.failed], finished.task[finished.failed]] = True
    return failed


def _count(problem: Problem, cells: Bools) -> Ints:
    """The number of the cells (A, T) of each model on each kind of task to cover (M, K)."""
    of_kind = cells.astype(np.intp) @ _kinds_to_cover(problem)
    return np.stack(
        [of_kind[problem.model_index == model].sum(axis=0) for model in range(len(problem.models))]
    )


def _kinds_to_cover(problem: Problem) -> Bools:
    """Whether each task is of each kind of task of the objective (T, K); of a single model, of any
    of them (T, 1).
    """
    in_objective = problem.in_objective[:, None]
    if len(problem.models) == 1:
        return in_objective
    return (problem.kind_membership[:, _kinds_of_objective(problem)] > 0) & in_objective


def _kinds_of_objective(problem: Problem) -> Ints:
    return np.unique(problem.kind_index[problem.in_objective])


def check_rivals(state: State) -> Choice | None:
    """The cheapest open cell of a kind on which a contender has no score yet, or else one that says
    how much a task varies; None if there is none.
    """
    arms = contenders(state.posterior, state.leader, state.usable)
    unseen = ~_kinds_seen(state.problem, state.paid[arms])[:, state.problem.kind_index]
    missing = unseen & state.open[arms] & state.problem.in_objective
    if not missing.any():
        return _check_task(state)
    cheapest = int(np.where(missing, state.cost[arms], np.inf).argmin())
    row, task = np.unravel_index(cheapest, missing.shape)
    leader = str(state.problem.arms[state.leader])
    kind = state.problem.kind_names[task]
    return Choice(int(arms[row]), int(task), {"leader": leader, "check": kind})


def is_covered(state: State) -> bool:
    """Whether all contenders have a score on every kind of task in the objective, and no task whose
    spread is only assumed could decide it.

    A contender that the scores of other kinds exclude must have them, too: without that, 12 of 17
    such statements were true on a table that had been kept aside (docs/figures/search.md).
    """
    problem = state.problem
    seen = np.zeros_like(state.paid)
    seen[state.observations.arm, state.observations.task] = True
    posterior = state.posterior.without_pending()
    arms = contenders(posterior, state.leader, state.usable)
    kinds = _kinds_seen(problem, seen[arms])[:, _kinds_of_objective(problem)]
    return bool(kinds.all() and not _could_decide(problem, ~posterior.model.has_spread).any())


def _could_decide(problem: Problem, assumed: Bools) -> Bools:
    """The tasks of the objective whose spread is only assumed, if they could decide it (T,).

    They could if they held half of the objective's spread, were theirs `POSSIBLE` times as wide as
    that of the other tasks.
    """
    assumed = assumed & problem.in_objective
    weight = float(problem.objective_weights[assumed].sum())
    return np.asarray(assumed & (POSSIBLE * weight > 1 - weight))


def _check_task(state: State) -> Choice | None:
    """The cheapest open cell of the leader in a task that has too few scores and could decide the
    objective; else of the arm that says most of the task's spread per cost, being unlike those that
    were scored there. None if there is none.
    """
    problem = state.problem
    has_few_scores = state.paid.sum(axis=0) < min(LOOKS, len(problem.arms))
    candidates = state.open & _could_decide(problem, has_few_scores)
    if not candidates.any():
        return None
    why = {"leader": str(state.problem.arms[state.leader])}
    of_leader = np.where(candidates[state.leader], state.cost[state.leader], np.inf)
    task = int(of_leader.argmin())
    arm = state.leader
    if not candidates[arm, task]:
        cheapest = np.where(candidates, state.cost, np.inf)
        task = int(cheapest.min(axis=0).argmin())
        scored = np.flatnonzero(state.paid[:, task])
        open_arms = np.flatnonzero(candidates[:, task])
        covariance = state.posterior.model.kernel(open_arms, scored)
        likeness = covariance.max(axis=1, initial=0.0) / ARM_VARIANCE
        cost = state.cost[open_arms, task] + ROUNDING * state.problem.exhaustive_cost
        arm = int(open_arms[first_max((1 - likeness) / cost)])
    return Choice(arm, task, {**why, "check": state.problem.tasks[task]})


def contenders(posterior: Posterior, leader: int, usable: Bools) -> Ints:
    """The leader, the `NEAREST` usable arms that most probably beat it, and that arm of every other
    model.
    """
    others, _, distance = distances(posterior, leader, usable)
    order = np.argsort(distance, kind="stable")
    _, best_of_model = np.unique(posterior.problem.model_index[others[order]], return_index=True)
    rivals = np.union1d(best_of_model, np.arange(len(order))[:NEAREST])
    return np.append(others[order[rivals]], leader)


def distances(posterior: Posterior, leader: int, usable: Bools) -> tuple[Ints, Floats, Floats]:
    """The `BOUND` usable arms with the greatest upper bounds, the variance of their difference to
    the leader, and by how many standard deviations they are expected to be worse.
    """
    others = greatest(np.where(usable, posterior.mean + 2 * posterior.sd, -np.inf), BOUND)
    others = others[usable[others] & (others != leader)]
    with_leader = posterior.covariance(others, np.array([leader]))[:, 0]
    variance = posterior.variance[others] + posterior.variance[leader] - 2 * with_leader
    gap = posterior.mean[leader] - posterior.mean[others]
    return others, variance, gap / np.sqrt(np.maximum(variance, 1e-12))


def _kinds_seen(problem: Problem, cells: Bools) -> Bools:
    """Whether each of some arms has one of the cells (a, T) in a task of every kind (a, K)."""
    return np.asarray((cells & ~problem.is_look) @ problem.kind_membership > 0)
