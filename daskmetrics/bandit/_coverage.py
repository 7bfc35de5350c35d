"""What a search must have looked at: every model before any comparison, and every kind of task and
an audit before it is sure.

A model that has no score looks as good as the average of the others, and the first score of an
expensive model may cost more than all that is left. So a search begins with the cheapest score of
each model, keeps enough of its budget for a score of each model on each kind of task, and does not
end without these.

The cheapest tasks are often of one kind. Where the kinds disagree, a search that dismisses a rival
or a whole model on a few cheap scores is wrong, and sure. Searches of tables of several model
families (docs/figures/search.md) show what protects from that: every kind seen at the leader, at
its nearest rivals, and at the best arm of every other model.

Kinds are not enough: each may be met by its cheapest task, while expensive tasks disagree with
these. So there is an audit: before a search is sure, and before it ends, the leader, a rival, an arm
of every other model and the default arm are scored on a few tasks that are drawn with the weights of
the objective, whatever they cost.

Nor does a search end while tasks with few scores could decide the objective: such a task may vary
much more between arms than all others, since its spread is only assumed.
"""

from __future__ import annotations

import numpy as np

from daskmetrics.bandit._state import Choice, State
from daskmetrics.bandit.model import (
    ARM_VARIANCE,
    LEAST_SD,
    LOOKS,
    Posterior,
    arm_covariance,
    first_max,
    greatest,
)
from daskmetrics.bandit.problem import ROUNDING, Bools, Floats, Ints, Problem
from daskmetrics.core.keys import seed_of

AUDITED = 3  #: tasks of the audit
NEAREST = 3  #: rivals of the leader that have to be scored on every kind of task
BOUND = 512  #: arms considered as rivals: those with the greatest upper bounds
TRIES = 3  #: failed cells after which a model is given up on a kind of task
POSSIBLE = 12.0  #: spread that another task may have, in multiples of that of the scored tasks


def covering_costs(problem: Problem) -> Floats:
    """Least cost of scoring each model on each kind of task (M, K).

    It includes the encoding and the load. Of a single model, which no other can be preferred to, it
    is that of one score (1, 1).
    """
    cost = problem.encode_cost + problem.score_cost + problem.load_costs[:, None]
    kinds = _kinds_to_cover(problem).T
    costs = []
    for model in range(len(problem.models)):
        is_of_model = problem.model_index == model
        cheapest = cost[is_of_model].min(axis=0)
        costs.append([cheapest[is_of_kind].min() for is_of_kind in kinds])
    return np.array(costs)


def missing_looks(state: State) -> tuple[Bools, Bools]:
    """Models without a score on a kind of task: new models, all (M, K).

    A pending cell counts as a score; a new model has none of any kind. A model on which `TRIES`
    cells of a kind failed is given up there.
    """
    problem = state.problem
    failed = state.finished.take(state.finished.failed)
    failures = _count(problem, np.column_stack([failed.arm, failed.task]))
    seen = _count(problem, state.cells) > failures
    missing = ~seen & (failures < TRIES)
    is_new_model = ~seen.any(axis=1, keepdims=True)
    return missing & is_new_model, missing


def cover(state: State, looks: Bools, kept: float) -> Choice | None:
    """Choose a cheap cell of the wanted models and kinds (M, K), if any.

    It is drawn from the cells that cost at most twice as much as the cheapest: the same layer and
    task of every model would say less about the others. Of these it takes what makes the model
    comparable with the others; see `_comparable`. What is ``kept`` for the other looks is not
    spent. An encoding with which a cell failed is not tried again.
    """
    if not looks.any():
        return None
    problem = state.problem
    failed_encodings = problem.same_encoding(*np.nonzero(state.failed))
    wanted = looks[problem.model_index] @ _kinds_to_cover(problem).T
    affordable = state.affordable(state.cost, state.remaining)
    candidates = wanted & affordable & ~state.paid & ~failed_encodings
    if not candidates.any():
        return None
    cheapest = state.cost[candidates].min()
    tolerance = min(cheapest, max(0.0, state.remaining - kept))
    candidates &= state.cost <= cheapest * (1 + ROUNDING) + tolerance
    cells = np.argwhere(_comparable(state, candidates))
    arm, task = state.random().choice(cells).tolist()
    why = {"model": problem.arms[arm].model, "kind": problem.kind_names[task]}
    return Choice(arm, task, why)


def _comparable(state: State, candidates: Bools) -> Bools:
    """Those candidates that make a model comparable with the others (A, T).

    These are the cells of the arms with the most scores, since only arms with a score on every task
    are compared in the end, and of the best of them: there may be no later score of the model. Of
    these, they are the cells of tasks on which another model has a score, since scores of different
    tasks say little of each other.
    """
    problem = state.problem
    has_score = state.paid & ~state.failed
    scores_of_arm = has_score.sum(axis=1)
    comparable = np.zeros_like(candidates)
    for model in range(len(problem.models)):
        is_of_model = (problem.model_index == model)[:, None]
        cells = candidates & is_of_model
        if not cells.any():
            continue
        arms = cells.any(axis=1)
        most_scores = scores_of_arm[arms].max()
        arms &= scores_of_arm == most_scores
        if most_scores:
            mean = np.where(arms, state.posterior.mean, -np.inf)
            arms &= mean == mean.max()
        cells &= arms[:, None]
        scores_of_others = has_score & ~is_of_model
        shared_cells = cells & scores_of_others.any(axis=0)
        if shared_cells.any():
            cells = shared_cells
        comparable |= cells
    return comparable


def _count(problem: Problem, cells: Ints) -> Ints:
    """How many of the cells (n, 2) are of each model and kind (M, K)."""
    arms, tasks = cells.T
    of_kind = _kinds_to_cover(problem)
    counts = np.zeros((len(problem.models), of_kind.shape[1]), dtype=np.intp)
    np.add.at(counts, problem.model_index[arms], of_kind[tasks])
    return counts


def _kinds_to_cover(problem: Problem) -> Bools:
    """Membership of the tasks in the kinds to cover (T, K).

    A single model is compared with no other: any task of the objective will do (T, 1).
    """
    in_objective = problem.in_objective[:, None]
    if len(problem.models) == 1:
        return in_objective
    is_of_kind = problem.kind_membership[:, _kinds_of_objective(problem)] > 0
    return is_of_kind & in_objective


def _kinds_of_objective(problem: Problem) -> Ints:
    return np.unique(problem.kind_index[problem.in_objective])


def check_rivals(state: State) -> Choice | None:
    """Choose the cheapest open cell of a kind that a contender lacks.

    Else one that says how much a task varies; None if there is none.
    """
    problem = state.problem
    arms = _contenders(state, state.posterior)
    kinds_seen = _kinds_seen(problem, state.paid[arms])
    missing = state.open[arms] & problem.in_objective
    missing &= ~kinds_seen[:, problem.kind_index]
    if not missing.any():
        return _check_task(state)
    cost = np.where(missing, state.cost[arms], np.inf)
    row, task = divmod(int(cost.argmin()), len(problem.tasks))
    return Choice(int(arms[row]), task, {"because": "check", "kind": problem.kind_names[task]})


def audit(state: State) -> Choice | None:
    """Choose the cheapest open cell that the audit lacks.

    Else one that says how much a task varies; None if there is none.
    """
    arms, tasks = _audited(state)
    cells = np.ix_(arms, tasks)
    cost = np.where(state.open[cells], state.cost[cells], np.inf)
    if not np.isfinite(cost).any():
        return _check_task(state)
    row, column = divmod(int(cost.argmin()), len(tasks))
    task = int(tasks[column])
    return Choice(int(arms[row]), task, {"because": "audit"})


def _audited(state: State) -> tuple[Ints, Ints]:
    """The arms and the tasks of the audit.

    The tasks are drawn with the weights of the objective. Of another model than the leader's it is
    the arm that was scored on most of them, the best of these: the best arm of a model changes with
    every score, and the audit would not end.
    """
    problem = state.problem
    weights = problem.objective_weights
    count = min(AUDITED, int(np.count_nonzero(weights)))
    rng = np.random.default_rng(seed_of("audit", state.seed))
    tasks = rng.choice(len(weights), count, replace=False, p=weights)
    rivals, _, distance = distances(state, state.posterior.without_pending())
    default = int(problem.default_arms[state.recommended])
    arms = [state.leader, state.recommended, default, *rivals[np.argsort(distance)[:1]]]
    done = state.paid[:, tasks].sum(axis=1)
    for model in range(len(problem.models)):
        others = np.flatnonzero((problem.model_index == model) & state.usable)
        if len(others) and model != problem.model_index[state.leader]:
            most = others[done[others] == done[others].max()]
            arms.append(int(most[state.posterior.mean[most].argmax()]))
    return np.unique(np.array(arms, dtype=np.intp)), tasks


def is_covered(state: State) -> bool:
    """Whether the audit is done, and contenders are scored on every kind.

    A contender that the scores of other kinds exclude must have them, too: without that, 12 of 17
    such statements were true on a table that had been kept aside (docs/figures/search.md).
    """
    return is_audited(state) and _kinds_are_covered(state)


def is_audited(state: State) -> bool:
    """Whether each cell of the audit has an outcome, and assumed spreads decide nothing."""
    finished = state.paid.copy()
    finished[state.pending[:, 0], state.pending[:, 1]] = False
    undecided = _could_decide(state.problem, ~state.posterior.model.has_spread)
    return bool(finished[np.ix_(*_audited(state))].all() and not undecided.any())


def _kinds_are_covered(state: State) -> bool:
    problem = state.problem
    seen = np.zeros_like(state.paid)
    seen[state.observations.arm, state.observations.task] = True
    posterior = state.posterior.without_pending()
    arms = _contenders(state, posterior)
    kinds = _kinds_seen(problem, seen[arms])[:, _kinds_of_objective(problem)]
    return bool(kinds.all())


def _could_decide(problem: Problem, assumed: Bools) -> Bools:
    """Those of the assumed tasks that could decide the objective (T,)."""
    assumed = assumed & problem.in_objective
    weight = float(problem.objective_weights[assumed].sum())
    # they would have half of the objective's spread, were theirs so many times as wide as others
    may_decide = POSSIBLE * weight > 1 - weight
    return assumed & may_decide


def _check_task(state: State) -> Choice | None:
    """Choose the cheapest open cell of a task that could decide the objective.

    It is one of the leader if possible, else of the arm that says most of the task's spread per
    cost, being unlike those that were scored there.
    """
    problem = state.problem
    has_few_scores = state.paid.sum(axis=0) < min(LOOKS, len(problem.arms))
    candidates = state.open & _could_decide(problem, has_few_scores)
    if not candidates.any():
        return None
    leader = state.leader
    cost_of_task = np.where(candidates, state.cost, np.inf)
    task = int(cost_of_task[leader].argmin())
    arm = leader
    if not candidates[arm, task]:
        task = int(cost_of_task.min(axis=0).argmin())
        scored = np.flatnonzero(state.paid[:, task])
        open_arms = np.flatnonzero(candidates[:, task])
        hyperparameters = state.posterior.model.hyperparameters
        covariance = arm_covariance(problem, hyperparameters, open_arms, scored)
        likeness = covariance.max(axis=1, initial=0.0) / ARM_VARIANCE
        cost = state.cost[open_arms, task] + ROUNDING * problem.exhaustive_cost
        novelty_per_cost = (1 - likeness) / cost
        arm = int(open_arms[first_max(novelty_per_cost)])
    return Choice(arm, task, {"because": "check"})


def _contenders(state: State, posterior: Posterior) -> Ints:
    others, _, distance = distances(state, posterior)
    nearest_first = np.argsort(distance, kind="stable")
    others = others[nearest_first]
    models = state.problem.model_index[others]
    # those that most probably beat the leader, of all models and of each one
    _, first_of_model = np.unique(models, return_index=True)
    nearest = np.arange(len(others))[:NEAREST]
    rivals = np.union1d(first_of_model, nearest)
    return np.append(others[rivals], state.leader)


def distances(state: State, posterior: Posterior) -> tuple[Ints, Floats, Floats]:
    """Likely rivals, the sd of their difference to the leader, and their distance.

    These are the `BOUND` usable arms with the greatest upper bounds. The standard deviation is at
    least `LEAST_SD`; the distance, by how much they are expected to be worse, is in its units.
    """
    leader = state.leader
    usable = state.usable
    upper = posterior.mean + 2 * posterior.sd
    bound = np.where(usable, upper, -np.inf)
    others = greatest(bound, BOUND)
    is_rival = usable[others] & (others != leader)
    others = others[is_rival]
    variance = posterior.difference_variance(others, leader)
    sd = np.sqrt(np.maximum(variance, LEAST_SD**2))
    gap = posterior.mean[leader] - posterior.mean[others]
    return others, sd, gap / sd


def _kinds_seen(problem: Problem, cells: Bools) -> Bools:
    """Whether each arm has one of the cells (a, T) of every kind (a, K)."""
    return cells @ problem.kind_membership > 0
