"""The recommendation of a search: the best arm, its confidence, a comparison with the default arm, and the cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskmetrics.bandit._coverage import is_covered
from daskmetrics.bandit._policy import State
from daskmetrics.bandit._posterior import Posterior, greatest
from daskmetrics.bandit._problem import Bools, Ints, Observations, Problem
from daskmetrics.core.errors import UndefinedError
from daskmetrics.core.names import Arm, seed_of, without_default

TOP = 10  #: number of arms listed in the recommendation
WITHIN = 0.01  #: default margin for "nearly the best", as a share of the best arm's mean score
NORMAL_95 = 1.959964  #: half width of a 95 % interval, in standard deviations
JOINT = 256  #: arms drawn together: those with the greatest upper bounds; the others are ignored
DRAWS = 4096  #: a probability of one half then has a standard error of 0.008
CREDIBLE = 0.95  #: probability that the credible set contains the best arm
UNCOVERED = 0.85  #: the most that is stated while the leader or a near rival was not scored on every kind of task


@dataclass(frozen=True)
class ScoreEstimate:
    """A raw score and its standard error."""

    score: float
    stderr: float


@dataclass(frozen=True)
class ArmSummary:
    """One arm: the posterior of its objective (in units of the reward), and its raw scores by task.

    ``mean`` is the weighted mean of the raw scores over the tasks of the objective on which both the recommended and
    the default arm were measured, so that the two can be compared; it is None if there is no such task. ``measured`` is
    the objective by the arm's own scores; it is None unless the arm has a score on every task of the objective.
    """

    arm: Arm
    value: float
    sd: float
    scores: Mapping[str, ScoreEstimate]
    mean: ScoreEstimate | None = None
    measured: float | None = None

    @property
    def interval(self) -> tuple[float, float]:
        """95 % credible interval of the objective."""
        return self.value - NORMAL_95 * self.sd, self.value + NORMAL_95 * self.sd


@dataclass(frozen=True)
class Recommendation:
    """The best arm by its scores on all tasks or, if no arm has these, the scored arm that is expected to be the best.

    Attributes
    ----------
    best, default : ArmSummary
        The recommended arm, and what one would take without a search: by default the last layer of the last checkpoint
        of its own model.
    confirmed : bool
        Whether the best arm has a score on every task of the objective. Then no arm that has them all scored higher.
    probability_best : float
        Posterior probability that no other arm has a greater objective.
    probability_within : float
        Posterior probability that no other arm is better by more than ``within`` of its mean score.
    expected_loss : float
        By how much the best arm is expected to exceed the recommended one, whichever it is, in units of the reward:
        E[max of the objectives] - the expected objective of the recommended arm, from joint draws of the posterior.
    score_unit : float
        Units of the reward that correspond to the whole mean score of the recommended arm; see `margin_of`.
    credible : tuple of Arm
        The smallest set that contains the best arm with probability 0.95, most likely first.
    top : tuple of ArmSummary
        The arms with the greatest expected objectives, best first; those with all scores in the order of these.
    cells, failed : int
        Numbers of measured and of failed cells.
    spent, budget, exhaustive : float
        Costs, in the problem's unit; confirming the best arm may exceed the budget.
    """

    best: ArmSummary
    default: ArmSummary
    confirmed: bool
    probability_best: float
    probability_within: float
    within: float
    expected_loss: float
    score_unit: float
    credible: tuple[Arm, ...]
    top: tuple[ArmSummary, ...]
    reward: str
    cells: int
    failed: int
    spent: float
    budget: float
    exhaustive: float

    @property
    def arm(self) -> Arm:
        return self.best.arm

    def as_dict(self) -> dict[str, Any]:
        """The recommendation as plain JSON values."""
        plain = asdict(self, dict_factory=without_default)
        plain["top"], plain["credible"] = list(plain["top"]), list(plain["credible"])
        for name, summary in (("best", self.best), ("default", self.default)):
            plain[name]["interval"] = list(summary.interval)
        return plain


def recommend(state: State, budget: float, spent: float, within: float = WITHIN) -> Recommendation:
    """Recommend the best arm of a state; raises UndefinedError if no cell was measured."""
    problem, seen = state.problem, state.observations
    failed = len(state.outcomes) - len(seen)
    if not len(seen):
        raise UndefinedError(
            f"No arm can be recommended: no cell was measured and {failed} failed. See the journal for the reasons."
        )
    posterior, best = state.posterior.without_pending(), state.recommended
    default = int(problem.default_arms[best])
    certainty = leader_confidence(state, within)
    common = np.intersect1d(seen.task[seen.arm == best], seen.task[seen.arm == default])
    common = common[problem.in_objective[common]]
    return Recommendation(
        best=_summary(state, posterior, best, common),
        default=_summary(state, posterior, default, common),
        confirmed=bool(state.scored[best]),
        probability_best=certainty.best,
        probability_within=certainty.within,
        within=within,
        expected_loss=certainty.loss,
        score_unit=margin_of(posterior, best, seen, 1.0),
        credible=tuple(problem.arms[arm] for arm in certainty.credible),
        top=tuple(_summary(state, posterior, int(arm)) for arm in _ranking(state)[:TOP]),
        reward=problem.reward,
        cells=len(seen),
        failed=failed,
        spent=spent,
        budget=budget,
        exhaustive=problem.exhaustive_cost,
    )


def _ranking(state: State) -> Ints:
    """All arms by their expected objectives, those with all scores among themselves by these; the recommended first."""
    order, measured = np.argsort(-state.posterior.mean, kind="stable"), state.measured
    places = np.flatnonzero(state.scored[order])
    order[places] = order[places][np.argsort(-measured[order[places]], kind="stable")]
    return np.append(state.recommended, order[order != state.recommended])


def _summary(state: State, posterior: Posterior, arm: int, common: Ints | None = None) -> ArmSummary:
    problem, seen = state.problem, state.observations
    rows, names = np.flatnonzero(seen.arm == arm), problem.tasks
    scores = {names[seen.task[i]]: ScoreEstimate(float(seen.score[i]), float(seen.stderr[i])) for i in rows}
    shared = rows[np.isin(seen.task[rows], common)] if common is not None else rows[:0]
    mean = _weighted_mean(problem, seen.take(shared)) if len(shared) else None
    value, sd = float(posterior.mean[arm]), float(posterior.sd[arm])
    measured = float(state.measured[arm]) if state.scored[arm] else None
    return ArmSummary(problem.arms[arm], value, sd, scores, mean, measured)


def _weighted_mean(problem: Problem, seen: Observations) -> ScoreEstimate:
    weights = problem.objective_weights[seen.task]
    weights = weights / weights.sum()
    return ScoreEstimate(float(weights @ seen.score), float(np.linalg.norm(weights * seen.stderr)))


@dataclass(frozen=True)
class Confidence:
    """Posterior probabilities that an arm is the best, or within a margin of the best; its expected loss."""

    best: float
    within: float
    loss: float  # expected difference between the best arm and this one, in units of the reward
    credible: tuple[int, ...]  # smallest set with the best arm by probability `CREDIBLE`, most likely first


def leader_confidence(state: State, within: float) -> Confidence:
    """The confidence in the recommended arm of a state with at least one score, from the known scores alone."""
    posterior, leader = state.posterior.without_pending(), state.recommended
    margin = margin_of(posterior, leader, state.observations, within)
    stated = confidence(posterior, leader, margin, state.seed, state.usable)
    most = 1.0 if is_covered(state) else UNCOVERED
    scored = len(np.unique(state.observations.arm))
    if scored < state.usable.sum():
        # Laplace's rule of succession: the next arm may be the first that no model of the others would have foreseen
        most = min(most, (scored + 1) / (scored + 2))
    return replace(stated, best=min(stated.best, most), within=min(stated.within, most))


def confidence(posterior: Posterior, arm: int, margin: float, seed: int, usable: Bools | None = None) -> Confidence:
    """Estimate the probabilities for an arm by joint draws of the objectives of the usable arms.

    The posterior has no pending cells; ``margin``, by which another arm may be better, is in units of the reward.
    """
    bound = posterior.mean + 3 * posterior.sd
    if usable is not None:
        bound = np.where(usable, bound, -np.inf)
    rivals = greatest(bound, min(JOINT, int(np.isfinite(bound).sum())))
    arms = np.append(rivals[rivals != arm], arm)
    # a Cholesky factor is a smooth function of the matrix: rounding errors of the covariance decide nothing
    root = np.linalg.cholesky(posterior.covariance(arms, arms)).astype(np.float32)
    draws: NDArray[np.float32] = normal_draws(seed, len(arms)) @ root.T
    lead = posterior.mean[arms] - posterior.mean[arm]
    # of normal draws, since the mean of a t distribution with one degree of freedom is infinite
    loss = float(((draws + lead).max(axis=1) - draws[:, -1]).mean())
    freedom = posterior.model.freedom
    scale = np.sqrt(freedom / np.random.default_rng(seed_of("scale", seed)).chisquare(freedom, DRAWS))
    draws *= scale[:, None]  # with this scale, of a multivariate t distribution
    draws += lead
    most = draws.max(axis=1)
    share = np.bincount(draws.argmax(axis=1), minlength=len(arms)) / len(draws)
    order = np.argsort(-share, kind="stable")
    needed = int(np.searchsorted(np.cumsum(share[order]), CREDIBLE - 1e-9)) + 1
    return Confidence(
        best=float(share[-1]),
        within=float((draws[:, -1] >= most - margin).mean()),
        loss=loss,
        credible=tuple(int(each) for each in arms[order[:needed]]),
    )


def margin_of(posterior: Posterior, arm: int, seen: Observations, within: float) -> float:
    """A share of an arm's mean score, in units of the reward.

    If the reward is not the score itself, the mean over tasks of the best observed score stands for the arm's mean
    score, and the slope of the reward, its median over tasks, converts a difference of scores to units of the reward.
    """
    problem, scale = posterior.problem, posterior.model.scale
    if problem.reward == "mean":
        return within * abs(float(posterior.mean[arm]))
    tasks = np.unique(seen.task)
    best = np.array([seen.score[seen.task == task].max() for task in tasks])
    one_each = Observations(np.zeros_like(tasks), tasks, best, np.ones(len(tasks)))
    return within * float(np.abs(best).mean() * np.median(scale.errors(one_each)))


@lru_cache(maxsize=2)  # a search uses the same draws at every decision
def normal_draws(seed: int, n: int) -> NDArray[np.float32]:
    """Standard normal variables (draws, n)."""
    rng = np.random.default_rng(seed_of("probability_best", seed))
    normal = rng.standard_normal((DRAWS, n), dtype=np.float32)
    normal.flags.writeable = False
    return normal
