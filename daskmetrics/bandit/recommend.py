"""What the scores say: the best arm with its confidence, over all and by kind of task, and whether
a score will still rise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median

import numpy as np

from daskmetrics.bandit._coverage import is_audited, is_covered
from daskmetrics.bandit._state import State
from daskmetrics.bandit.model import NO_CELLS, IncrementalPosterior, Posterior, greatest
from daskmetrics.bandit.problem import (
    Bools,
    Floats,
    Ints,
    Outcome,
    Problem,
    Singles,
    arm_features,
)
from daskmetrics.core.errors import UndefinedError
from daskmetrics.core.keys import seed_of
from daskmetrics.domain.names import Arm, Cell, Suite, grid, step_of
from daskmetrics.domain.recommendation import ArmSummary, Recommendation, ScoreEstimate

TOP = 10  #: number of arms listed in the recommendation
WITHIN = 0.001  #: default of the expected gain at which a search ends, as a share of the score
FEW = 16  #: arms drawn first, to see that much is still to be gained
JOINT = 256  #: arms drawn together: those with the greatest upper bounds; the others are ignored
DRAWS = 4096  #: a probability of one half then has a standard error of 0.008
CREDIBLE = 0.95  #: probability that the credible set contains the best arm, and of `most_lost`
UNCOVERED = 0.85  #: the most that is stated before the audit


def recommend(state: State, decided: State, budget: float, spent: float) -> Recommendation:
    """Recommend the best arm of a state; see `leader_confidence` for the state ``decided``.

    Raises
    ------
    UndefinedError
        If no cell was measured.
    """
    problem = state.problem
    seen = state.observations
    failed = len(state.finished) - len(seen)
    if not len(seen):
        raise UndefinedError(
            f"No candidate can be recommended: no score is known and {failed} failed. See the"
            " journal for the reasons."
        )
    posterior = state.posterior.without_pending()
    best = state.recommended
    default = int(problem.default_arms[best])
    is_scored = np.zeros_like(state.paid)
    is_scored[seen.arm, seen.task] = True
    common = np.flatnonzero(is_scored[best] & is_scored[default] & problem.in_objective)
    certainty = leader_confidence(state, decided)
    return Recommendation(
        best=_summary(state, posterior, best, common),
        default=_summary(state, posterior, default, common),
        confirmed=bool(state.scored[best]),
        probability_best=certainty.best,
        most_lost=certainty.most_lost,
        expected_loss=certainty.loss,
        credible=tuple(problem.arms[arm] for arm in certainty.credible),
        top=tuple(problem.arms[arm] for arm in _ranking(state)[:TOP]),
        cells=len(seen),
        failed=failed,
        spent=spent,
        budget=budget,
        exhaustive=problem.exhaustive_cost,
    )


def _ranking(state: State) -> Ints:
    """All arms by expected objective, the recommended first.

    Arms with all scores are ranked among themselves by these.
    """
    recommended = state.recommended
    order = np.argsort(-state.posterior.mean, kind="stable")
    ranks = np.flatnonzero(state.scored[order])
    scored = order[ranks]
    best_first = np.argsort(-state.measured[scored], kind="stable")
    order[ranks] = scored[best_first]
    others = order[order != recommended]
    return np.append(recommended, others)


def _summary(state: State, posterior: Posterior, arm: int, common: Ints) -> ArmSummary:
    problem = state.problem
    of_arm = state.observations.take(state.observations.arm == arm)
    scores = {}
    for task, score, stderr in zip(of_arm.task, of_arm.score, of_arm.stderr, strict=True):
        scores[problem.tasks[task]] = ScoreEstimate(float(score), float(stderr))
    mean = None
    measured = None
    shared = of_arm.take(np.isin(of_arm.task, common))
    if len(shared):
        weights = problem.objective_weights[shared.task]
        weights = weights / weights.sum()
        score = weights @ shared.score
        stderr = np.linalg.norm(weights * shared.stderr)
        mean = ScoreEstimate(float(score), float(stderr))
    if state.scored[arm]:
        measured = float(state.measured[arm])
    return ArmSummary(
        arm=problem.arms[arm],
        value=float(posterior.mean[arm]),
        sd=float(posterior.value_sd[arm]),
        scores=scores,
        mean=mean,
        measured=measured,
    )


@dataclass(frozen=True)
class Confidence:
    """Probability that an arm is the best, and what is lost if it is not."""

    best: float
    most_lost: float | None  # to the best arm, with `CREDIBLE`; None if that is not stated
    loss: float  # expected difference to the best arm
    credible: tuple[int, ...]  # smallest set with the best by `CREDIBLE`, most likely first


def leader_confidence(state: State, decided: State) -> Confidence:
    """The confidence in the recommended arm, from the known scores alone.

    The state has at least one score. What the search has looked at is that of ``decided``, the state
    of its decisions, which count no errors of the items: the least of what both say is stated.
    """
    has_begun = len(decided.observations) > 0
    stated = []
    for seen in (state, decided) if has_begun else (state,):
        posterior = seen.posterior.without_pending()
        stated.append(confidence(posterior, state.recommended, state.seed, state.usable))
    foreseen = _foreseen(state)
    bound = foreseen if has_begun and is_covered(decided) else min(foreseen, UNCOVERED)
    is_stated = foreseen >= CREDIBLE and has_begun and is_audited(decided)
    return Confidence(
        best=min(bound, *(each.best for each in stated)),
        most_lost=max(each.most_lost or 0.0 for each in stated) if is_stated else None,
        loss=max(each.loss for each in stated),
        credible=max((each.credible for each in stated), key=len),
    )


def _foreseen(state: State) -> float:
    """Laplace's rule of succession: the probability that the next arm is as a model of the others
    would have foreseen.
    """
    scored = len(np.unique(state.observations.arm))
    return 1.0 if scored >= state.usable.sum() else (scored + 1) / (scored + 2)


def is_near(state: State, within: float) -> bool:
    """Whether no more than this share of the score is expected to be gained over the recommended arm.

    By the known scores alone. Before most arms are foreseen (`_foreseen`), no search is near.
    """
    if not len(state.observations) or _foreseen(state) < CREDIBLE:
        return False
    posterior = state.posterior.without_pending()
    arm = state.recommended
    margin = margin_of(posterior, arm, within)
    # that a few rivals gain more is seen in little time
    stated = (confidence(posterior, arm, state.seed, state.usable, most) for most in (FEW, JOINT))
    return all(likely.loss <= margin for likely in stated)


def confidence(
    posterior: Posterior, arm: int, seed: int, usable: Bools, most: int = JOINT
) -> Confidence:
    """Estimate an arm's probabilities by joint draws of the objectives.

    Only usable arms are drawn, at most so many rivals. The posterior has no pending cells.
    """
    bound = np.where(usable, posterior.mean + 3 * posterior.sd, -np.inf)
    likely = greatest(bound, min(most, int(usable.sum())))
    arms = np.append(likely[likely != arm], arm)
    # a Cholesky factor is a smooth function of the matrix: rounding of the covariance decides
    # nothing
    covariance = posterior.covariance(arms, arms)
    root = np.linalg.cholesky(covariance).astype(np.float32)
    draws: Singles = normal_draws(seed, len(arms)) @ root.T
    lead = posterior.mean[arms] - posterior.mean[arm]
    # of normal draws, since the mean of a t distribution with one degree of freedom is infinite
    loss = (draws + lead).max(axis=1) - draws[:, -1]

    freedom = posterior.model.freedom
    rng = np.random.default_rng(seed_of("scale", seed))
    scale = np.sqrt(freedom / rng.chisquare(freedom, DRAWS))
    draws *= scale[:, None]  # with this scale, of a multivariate t distribution
    draws += lead
    highest = draws.max(axis=1)
    most_lost = np.quantile(highest - draws[:, -1], CREDIBLE)
    wins = np.bincount(draws.argmax(axis=1), minlength=len(arms))
    share = wins / len(draws)
    order = np.argsort(-share, kind="stable")
    cumulated = np.cumsum(share[order])
    needed = int(np.searchsorted(cumulated, CREDIBLE - 1e-9)) + 1
    credible = arms[order[:needed]]
    return Confidence(
        best=float(share[-1]),
        most_lost=float(most_lost),
        loss=float(loss.mean()),
        credible=tuple(credible.tolist()),
    )


def margin_of(posterior: Posterior, arm: int, within: float) -> float:
    """A share of an arm's mean score."""
    return within * abs(float(posterior.mean[arm]))


@lru_cache(maxsize=4)  # a search uses the same draws at every decision
def normal_draws(seed: int, n: int) -> Singles:
    """Standard normal variables (draws, n)."""
    rng = np.random.default_rng(seed_of("probability_best", seed))
    normal = rng.standard_normal((DRAWS, n), dtype=np.float32)
    normal.flags.writeable = False
    return normal


# --- the best arm of every kind of task


def champions(state: State, kinds: Mapping[str, str]) -> dict[str, Arm]:
    """The recommended arm of every kind of task, if there are several kinds.

    It is found from the scores of all tasks. The tasks of a kind are those with a weight, if there
    are any.

    Parameters
    ----------
    state : State
        Pending cells do not count as observed.
    kinds : mapping of str to str
        Kind of each task, by name.
    """
    distinct = sorted(set(kinds.values()))
    if len(distinct) < 2 or not len(state.observations):
        return {}
    problem = state.problem
    best = {}
    for kind in distinct:
        is_of_kind = np.array([kinds[task] == kind for task in problem.tasks])
        weights = is_of_kind * problem.objective_weights
        if not weights.any():
            weights = is_of_kind.astype(float)
        weighted = replace(problem, weights=tuple(weights.tolist()))
        of_these_tasks = replace(state, problem=weighted, pending=NO_CELLS, cache=None)
        best[kind] = problem.arms[of_these_tasks.recommended]
    return best


# --- whether a score will still rise

FEWEST = 3  #: scored checkpoints below which nothing is predicted
#: steps over which the score at one time is averaged, over the distance of two checkpoints
POINTS = 16
TINY = 1e-10  #: variance that is added, so that the covariance matrix can be factored


@dataclass(frozen=True)
class RiseForecast:
    """Probability that one layer's score rises by more than a share.

    It is about the next checkpoints.
    """

    steps: tuple[int, ...]  # of the next checkpoints, which do not exist yet
    probability: float


def next_steps(revisions: Iterable[str], count: int) -> tuple[int, ...]:
    """Steps of the next checkpoints, at the median distance of the last five.

    >>> next_steps(["step0", "step100", "step200", "step300"], 2)
    (400, 500)
    """
    steps = sorted({step for step in map(step_of, revisions) if step is not None})
    if len(steps) < 2:
        return ()
    latest_distances = np.diff(steps[-5:]).tolist()
    distance = round(median(latest_distances))
    return tuple(steps[-1] + distance * i for i in range(1, count + 1))


def rise_forecast(
    suites: Sequence[Suite],
    scores: Mapping[Cell, Outcome],
    best: Arm,
    *,
    tasks: Mapping[str, float],
    kinds: Mapping[str, str],
    share: float,
    ahead: int,
    seed: int,
) -> RiseForecast | None:
    """Probability that the best layer's score will rise by more than a share.

    The Gaussian process of the search, with training step, depth and model as features, is
    conditioned on all scores. Metrics are left out, since those of a future checkpoint are not
    known. Let f be the weighted mean over the tasks, b the best arm, l its layer, t_0 its step, t_1
    ... t_n the next steps at the distance d, and g(t) the mean of f(., l) over the steps from t -
    d/2 to t + d/2. With the share x the probability is

        P(max_i g(t_i) - g(t_0) > x |E f(b)|)

    by joint draws of g from the posterior (Rasmussen and Williams, 2006, eq. 2.24). The mean over
    steps leaves the fluctuation of single checkpoints out, of which the highest of n is always
    above the average.

    Parameters
    ----------
    suites : sequence of Suite
        Also with checkpoints that were deleted since.
    scores : mapping of Cell to Outcome
        Those of cells outside the suites or tasks are left out.
    best : Arm
    tasks : mapping
        Weights of the tasks in the objective, by name.
    kinds : mapping
        Kind of each task, by name.
    share : float
        x, in (0, 1).
    ahead : int
        n, the number of future checkpoints.
    seed : int
        Of the draws.

    Returns
    -------
    RiseForecast or None
        None with fewer than `FEWEST` scored checkpoints of the model, or if the best one has no
        step.
    """
    scored_cells = {cell: outcome for cell, outcome in scores.items() if cell.task in tasks}
    revisions = next((suite.revisions for suite in suites if suite.model == best.model), ())
    scored = {cell.arm.revision for cell in scored_cells if cell.arm.model == best.model}
    scored_steps = sum(step_of(name) is not None for name in scored)
    steps = next_steps(revisions, ahead)
    best_step = step_of(best.revision)
    if best_step is None or not steps or scored_steps < FEWEST:
        return None
    latest = max(step_of(name) or 0 for name in revisions)
    until_next = steps[0] - latest
    share_of_span = (np.arange(POINTS) + 0.5) / POINTS
    around = until_next * (share_of_span - 0.5)
    spans = np.maximum(0.0, np.add.outer((best_step, *steps), around))
    arms = grid(suites)
    features = arm_features(suites)
    # at the model and depth of the best arm, and a time as in `arm_features`
    rows = np.tile(features[arms.index(best)], (spans.size, 1))
    rows[:, 0] = np.log2(spans.ravel() + 1) / np.log2(latest + 1)
    future = tuple(replace(best, revision=f"~{i}") for i in range(spans.size))
    ones = np.ones((len(arms) + len(future), len(tasks)))  # costs do not change the posterior
    problem = Problem(
        arms=(*arms, *future),
        tasks=tuple(tasks),
        features=np.vstack([features, rows]),
        encode_cost=ones,
        score_cost=ones,
        weights=tuple(tasks.values()),
        kinds=tuple(kinds[task] for task in tasks),
    )
    seen = problem.observe(scored_cells.items()).by_cell()
    posterior = IncrementalPosterior(problem).posterior(seen)
    future_index = np.arange(len(arms), len(problem.arms)).reshape(spans.shape)
    margin = margin_of(posterior, arms.index(best), share)
    is_more = _rises(posterior, future_index, seed) > margin
    return RiseForecast(steps, float(is_more.mean()))


def _rises(posterior: Posterior, arms: Ints, seed: int) -> Floats:
    times, points = arms.shape
    flat = arms.ravel()
    average = np.repeat(np.eye(times), points, axis=1) / points
    mean = average @ posterior.mean[flat]
    covariance = average @ posterior.covariance(flat, flat) @ average.T
    covariance += TINY * np.eye(times)
    root = np.linalg.cholesky(covariance)
    draws = normal_draws(seed, times) @ root.T + mean
    highest = draws[:, 1:].max(axis=1)
    return np.asarray(highest - draws[:, 0])
