"""Policies that the search is compared with, as plug-ins: ``policies:lucb`` and the like.

``lucb``
    Lower and upper confidence bounds: the leader and its strongest challenger, each on its next
    cheapest task. After Kalyanakrishnan, Tewari, Auer and Stone, "PAC subset selection in
    stochastic multi-armed bandits" (ICML 2012), for a single best arm. The paper draws from an
    infinite population; here the tasks are finite, so an interval has width zero once all tasks are
    scored. With so few pulls the union bound of the paper never separates two arms; the bounds here
    are `WIDTH` standard deviations wide.
``halving``
    Successive halving over tasks: all arms on the cheapest task, the better half on two, its better
    half on four. After Jamieson and Talwalkar, "Non-stochastic best arm identification and
    hyperparameter optimization" (AISTATS 2016). With pending outcomes it promotes arms by the known
    ones and does not wait, as in Li et al., "A system for massively parallel hyperparameter tuning"
    (MLSys 2020).
``thompson``
    Top-two Thompson sampling, after Russo, "Simple Bayesian algorithms for best arm identification"
    (COLT 2016), section 3.3 with beta = 1/2: the best arm of one joint draw of all objectives, or
    of another draw, on the cheapest task on which it was not scored.
``gp_ei``, ``linucb``
    Score one arm at a time on all tasks and learn from finished arms alone, as bandits are usually
    applied to such a search. It ignores that tasks differ in cost and that scores are correlated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from daskmetrics.bandit import Choice, Problem, State
from daskmetrics.bandit.model import first_max, greatest
from daskmetrics.bandit.policies import normal_tail
from daskmetrics.bandit.problem import Bools, Floats, Ints, Observations

#: pulls of an average arm that are added to every arm, so that one lucky task does not decide
SHRINK = 1.0
PRIOR_COUNT = 3.0  #: pulls that the arms' total variance counts for in the variance between tasks
WIDTH = 2.0  #: of LUCB: half width of an interval, in standard deviations
#: from rung to rung the number of arms is divided, and that of tasks multiplied, by this factor
ETA = 2
THOMPSON_ARMS = 128  #: arms drawn together: those with the greatest upper bounds
THOMPSON_DRAWS = 64  #: draws among which a second winner is sought
RIDGE = 0.1  #: penalty of the linear models, on standardised values and features in (0, 1)
ALPHA = 1.0  #: weight of the uncertainty in LinUCB, in standard deviations of the arms' values


@dataclass(frozen=True, eq=False)
class Averages:
    """Arms compared over the tasks on which they were scored."""

    value: Floats  # (A,), lead over an average arm, corrected for its tasks; 0 without a score
    sd: Floats  # (A,), of its mean over all tasks, given the paid ones; 0 once all are paid
    pulls: Ints  # (A,), number of tasks paid for, pending and failed ones included


def averages(state: State) -> Averages:
    """Least squares of value = arm + task, the arms shrunk towards their mean by `SHRINK` pulls.

    So arms that were scored on different tasks are compared through the tasks that connect them.
    The variance between tasks is that of the residuals. Since the tasks are finite, an arm that was
    scored on all of them is known exactly.
    """
    problem, seen = state.problem, state.observations
    values = seen.score
    weight = problem.objective_weights[seen.task] * len(problem.tasks)
    arm, residual = _two_way(problem, seen, values, weight)
    parameters = len(np.unique(seen.arm)) + len(np.unique(seen.task)) - 1
    freedom = max(len(seen) - parameters, 0)
    count = np.bincount(seen.task)
    means = np.asarray((np.bincount(seen.task, weights=values) / np.maximum(count, 1))[seen.task])
    total = float((weight * (values - means) ** 2).sum()) / max(len(seen), 1)
    variance = (float((weight * residual**2).sum()) + PRIOR_COUNT * total) / (freedom + PRIOR_COUNT)
    pulls = state.paid.sum(axis=1)
    unpaid = 1.0 - (state.paid * problem.objective_weights).sum(axis=1)
    return Averages(arm, np.sqrt(np.maximum(variance * unpaid, 0.0) / (pulls + SHRINK)), pulls)


def _two_way(
    problem: Problem, seen: Observations, values: Floats, weight: Floats
) -> tuple[Floats, Floats]:
    """Effect of every arm (A,), and the residuals of the fit (n,)."""
    arms, tasks = len(problem.arms), len(problem.tasks)
    cells = np.zeros((arms, tasks))
    cells[seen.arm, seen.task] = weight
    scores = np.zeros((arms, tasks))
    scores[seen.arm, seen.task] = values
    share = cells / (cells.sum(axis=1) + SHRINK)[:, None]
    # with the arms eliminated, these are the normal equations of the tasks
    normal = np.diag(cells.sum(axis=0)) - cells.T @ share
    right = (cells * scores).sum(axis=0) - cells.T @ (share * scores).sum(axis=1)
    task = np.linalg.lstsq(normal, right, rcond=1e-9)[0]
    arm = (share * (scores - task)).sum(axis=1)
    return arm, values - arm[seen.arm] - task[seen.task]


def tasks_by_cost(problem: Problem) -> Ints:
    """Tasks of the objective, cheapest first by their mean cost over the arms; of equal ones the
    first (W,).
    """
    order = np.argsort((problem.encode_cost + problem.score_cost).mean(axis=0), kind="stable")
    return np.asarray(order[problem.in_objective[order]])


def next_pull(state: State, arm: int) -> Choice | None:
    """The cheapest open cell of an arm, or None."""
    tasks = tasks_by_cost(state.problem)
    open_ = tasks[state.open[arm, tasks]]
    return Choice(arm, int(open_[0])) if len(open_) else None


def lucb(state: State) -> Choice | None:
    """Choose each arm once on the cheapest task; then the leader or the challenger, whichever has
    fewer pulls.

    None if the leader's lower bound is above all other upper bounds, or if no arm above it has an
    open cell.
    """
    known = averages(state)
    new = np.flatnonzero(
        (known.pulls == 0) & state.open[:, tasks_by_cost(state.problem)].any(axis=1)
    )
    if len(new):
        return next_pull(state, int(new[0]))
    leader = first_max(known.value, state.usable)
    upper, lower = known.value + WIDTH * known.sd, known.value[leader] - WIDTH * known.sd[leader]
    may_win = state.usable & (upper > lower)
    rivals = [
        int(arm) for arm in np.argsort(-upper, kind="stable") if may_win[arm] and arm != leader
    ]
    if not rivals:
        return None
    # of the leader and the first challenger the one with fewer pulls, then the others
    for arm in (*sorted([leader, rivals[0]], key=lambda arm: int(known.pulls[arm])), *rivals[1:]):
        if choice := next_pull(state, arm):
            why = {"leader": str(state.problem.arms[leader]), "tries": float(known.pulls[arm])}
            return Choice(choice.arm, choice.task, why)
    return None


def halving(state: State) -> Choice | None:
    """Choose the next cell of the lowest rung with an open one; None once the last rung is
    finished.
    """
    for rung, (arms, tasks) in enumerate(rungs(state)):
        # task by task, so that the cheap ones are all known before an expensive one is paid for
        columns, rows = np.nonzero(state.open[np.ix_(arms, tasks)].T)
        if len(columns):
            why = {"rung": float(rung), "arms": float(len(arms)), "tasks": float(len(tasks))}
            return Choice(int(arms[rows[0]]), int(tasks[columns[0]]), why)
    return None


def rungs(state: State) -> Iterator[tuple[Ints, Ints]]:
    """The arms of each rung, best first, and its tasks."""
    order, count = tasks_by_cost(state.problem), 1
    cell_values, arms = values(state), np.arange(len(state.problem.arms))
    while len(arms):
        tasks = order[:count]
        yield arms, tasks
        if count >= len(order):
            return
        # weighted means of the known values; an arm without any comes last
        known = cell_values[np.ix_(arms, tasks)]
        weight = np.isfinite(known) * state.problem.objective_weights[tasks]
        total = weight.sum(axis=1)
        sums = np.where(weight > 0, known, 0.0) * weight
        means = np.where(total > 0, sums.sum(axis=1) / np.where(total > 0, total, 1.0), -np.inf)
        best = np.argsort(-means, kind="stable")[: max(1, -(-len(arms) // ETA))]
        arms = arms[best[np.isfinite(means[best])]]
        count = min(count * ETA, len(order))


def values(state: State) -> Floats:
    """Scores of all cells, NaN where unknown (A, T)."""
    seen = state.observations
    table = np.full(state.paid.shape, np.nan)
    table[seen.arm, seen.task] = seen.score
    return table


def thompson(state: State) -> Choice | None:
    """Choose a cell of one of two arms that may be the best; None if no drawn arm has an open cell."""
    posterior, rng = state.posterior, state.random()
    bound = np.where(state.usable, posterior.mean + 3 * posterior.sd, -np.inf)
    arms = greatest(bound, THOMPSON_ARMS)
    values, vectors = np.linalg.eigh(posterior.covariance(arms, arms))
    # rounding makes the smallest eigenvalues negative
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    draws = posterior.mean[arms] + rng.standard_normal((THOMPSON_DRAWS, len(arms))) @ root.T
    drawn = arms[draws.argmax(axis=1)]
    _, first = np.unique(drawn, return_index=True)
    distinct = drawn[np.sort(first)]  # the winners, in the order of the draws
    if rng.random() < 0.5 and len(distinct) > 1:
        distinct[:2] = distinct[1::-1].copy()
    for arm in distinct:
        if choice := next_pull(state, int(arm)):
            return choice
    return None


def complete(state: State) -> Bools:
    """Arms that have an outcome on every task of the objective (A,)."""
    has_outcome = np.zeros_like(state.paid)
    has_outcome[state.finished.arm, state.finished.task] = True
    return np.asarray((has_outcome | ~state.problem.in_objective).all(axis=1))


def by_arms(state: State, rate: Callable[[Ints], Floats]) -> Choice | None:
    """Continue with the last arm; once it is paid for on every task, rate the others and start the
    best rated.
    """
    if len(state.cells) and (choice := next_pull(state, int(state.cells[-1, 0]))):
        return choice
    needed = state.problem.in_objective
    missing = ~state.paid[:, needed]
    affordable = (
        state.cost[:, needed].sum(axis=1) <= state.spendable + 1e-9 * state.problem.exhaustive_cost
    )
    arms = np.flatnonzero(missing.any(axis=1) & affordable & state.usable)
    if not len(arms):
        return None
    rated = rate(arms)
    best = first_max(rated)
    choice = next_pull(state, int(arms[best]))
    return choice and Choice(choice.arm, choice.task, {"rated": float(rated[best])})


def gp_ei(state: State) -> Choice | None:
    """Expected improvement over the best finished arm; None if no whole arm is affordable.

    After Jones, Schonlau and Welch, "Efficient global optimization of expensive black-box
    functions" (Journal of Global Optimization 13, 1998), eq. 15. Pending arms count as observed at
    their expected value.
    """

    def improvement(arms: Ints) -> Floats:
        mean, sd = state.posterior.mean, state.posterior.sd
        finished = complete(state) & state.usable
        best = float(mean[finished].max()) if finished.any() else float(mean.mean())
        return expected_improvement(mean[arms] - best, sd[arms])

    return by_arms(state, improvement)


def expected_improvement(lead: Floats, sd: Floats) -> Floats:
    """E[max(0, x)] of normal variables x with these means and standard deviations.

    >>> expected_improvement(np.array([0.0, 1.0, -1.0]), np.array([1.0, 0.0, 1.0])).round(4).tolist()
    [0.3989, 1.0, 0.0833]
    """
    spread = np.maximum(sd, 1e-12)
    distance = lead / spread
    return np.asarray(
        lead * normal_tail(-distance) + spread * np.exp(-0.5 * distance**2) / math.sqrt(2 * math.pi)
    )


def linucb(state: State) -> Choice | None:
    """Upper confidence bound of one linear model that all arms share; None if no whole arm is
    affordable.

    After Li, Chu, Langford and Schapire, "A contextual-bandit approach to personalized news article
    recommendation" (WWW 2010). Their algorithm 1 has a model per arm, which learns nothing here,
    since no arm is pulled twice.
    """

    def bound(arms: Ints) -> Floats:
        weights, covariance = ridge(state)
        features = design(state.problem)[arms]
        return np.asarray(
            features @ weights + ALPHA * np.sqrt(((features @ covariance) * features).sum(axis=1))
        )

    return by_arms(state, bound)


def design(problem: Problem) -> Floats:
    """Features of a linear model (A, F): constant, step, depth, their squares and product, models,
    metrics.

    The squares allow the best arm to lie inside the ranges.
    """
    time, depth, rest = problem.features[:, 0], problem.features[:, 1], problem.features[:, 2:]
    return np.column_stack([np.ones_like(time), time, depth, time**2, depth**2, time * depth, rest])


def ridge(state: State) -> tuple[Floats, Floats]:
    """Ridge regression on the finished arms: weights (F,) for standardised values, and their
    covariance (F, F).

    In the covariance pending arms count as finished.
    """
    features = design(state.problem)
    begun, finished = state.paid.any(axis=1), complete(state) & state.usable
    value = averages(state).value[finished]
    target = (value - value.mean()) / (float(value.std()) or 1.0) if len(value) else value
    prior = RIDGE * np.eye(features.shape[1])
    weights = np.linalg.solve(
        prior + features[finished].T @ features[finished], features[finished].T @ target
    )
    return np.asarray(weights), np.asarray(
        np.linalg.inv(prior + features[begun].T @ features[begun])
    )
