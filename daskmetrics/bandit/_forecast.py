"""Whether a score will still rise: the posterior of checkpoints that do not exist yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from daskmetrics.bandit._features import arm_features
from daskmetrics.bandit._posterior import Posterior, fit_posterior
from daskmetrics.bandit._problem import Floats, Ints, Outcome, Problem, Reward
from daskmetrics.bandit._recommend import margin_of, normal_draws
from daskmetrics.core.names import Arm, Cell, Suite, step_of

FEWEST = 3  #: scored checkpoints below which nothing is predicted
POINTS = 16  #: steps over which the score at one time is averaged
TINY = 1e-10  #: variance that is added, so that the covariance matrix can be factored


@dataclass(frozen=True)
class RiseForecast:
    """The probability that the score of one layer rises by more than a share of it within the next checkpoints."""

    arm: Arm  # the best arm; its layer is the one whose score is predicted
    steps: tuple[int, ...]  # of the next checkpoints, which do not exist yet
    more_than: float  # the rise, as a share of the best arm's mean score
    probability: float
    expected: float  # rise of the highest of them, in units of the reward; negative if a fall is expected


def next_steps(revisions: Iterable[str], count: int) -> tuple[int, ...]:
    """The steps of the next checkpoints, at the median distance of the last five.

    >>> next_steps(["step0", "step100", "step200", "step300"], 2)
    (400, 500)
    """
    steps = sorted({step for name in revisions if (step := step_of(name)) is not None})
    if len(steps) < 2:
        return ()
    distance = round(median(np.diff(steps[-5:]).tolist()))
    return tuple(steps[-1] + distance * (i + 1) for i in range(count))


def rise_forecast(
    suites: Sequence[Suite],
    scores: Mapping[Cell, Outcome],
    best: Arm,
    *,
    tasks: Mapping[str, float],
    kinds: Mapping[str, str],
    reward: Reward = "mean",
    share: float = 0.01,
    ahead: int = 3,
    seed: int = 0,
) -> RiseForecast | None:
    """The probability that the score of the best arm's layer rises by more than a share within the next checkpoints.

    The Gaussian process of the search, with training step, depth and model as features, is conditioned on all scores.
    Metrics are left out, since those of a future checkpoint are not known. Let f be the weighted mean over the tasks,
    b the best arm, l its layer, t_0 its step, t_1 ... t_n the next steps at the distance d, and g(t) the mean of
    f(., l) over the steps from t - d/2 to t + d/2. With the share x the probability is

        P(max_i g(t_i) - g(t_0) > x |E f(b)|)

    by joint draws of g from the posterior (Rasmussen and Williams, 2006, eq. 2.24). The mean over steps leaves the
    fluctuation of single checkpoints out, of which the highest of n is always above the average.

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
    reward : {"mean", "zscore", "running", "rank", "harmonic", "robust"}
        As in a `Problem`; the probability does not depend on its unit.
    share : float
        x, in (0, 1).
    ahead : int
        n, the number of future checkpoints.
    seed : int
        Of the draws.

    Returns
    -------
    RiseForecast or None
        None with fewer than `FEWEST` scored checkpoints of the model, or if the best one has no step.
    """
    known = {cell: one for cell, one in scores.items() if one.score is not None and cell.task in tasks}
    revisions = next((suite.revisions for suite in suites if suite.model == best.model), ())
    scored = {cell.arm.revision for cell in known if cell.arm.model == best.model}
    steps, now = next_steps(revisions, ahead), step_of(best.revision)
    if now is None or not steps or sum(step_of(name) is not None for name in scored) < FEWEST:
        return None
    last = max(step_of(name) or 0 for name in revisions)
    spans = np.array([_span(step, steps[0] - last) for step in (now, *steps)])
    arms, features = tuple(arm for suite in suites for arm in suite.arms()), arm_features(suites)
    rows = np.tile(features[arms.index(best)], (spans.size, 1))  # at the model and depth of the best arm ...
    rows[:, 0] = np.log2(spans.ravel() + 1) / np.log2(last + 1)  # ... and a time of `arm_features`
    virtual = tuple(replace(best, revision=f"~{i}") for i in range(spans.size))
    problem = _problem((*arms, *virtual), np.vstack([features, rows]), best, tasks, kinds, reward)
    seen = problem.observe(known.items())
    posterior = fit_posterior(problem, seen)
    rise = _rises(posterior, np.arange(len(arms), len(problem.arms)).reshape(spans.shape), seed)
    margin = margin_of(posterior, arms.index(best), seen, share)
    return RiseForecast(best, steps, share, float((rise > margin).mean()), float(rise.mean()))


def _rises(posterior: Posterior, places: Ints, seed: int) -> Floats:
    """Draws of the highest of the later times less the first; each row of places is one time."""
    times, points = places.shape
    average = np.repeat(np.eye(times), points, axis=1) / points
    covariance = average @ posterior.covariance(places.ravel(), places.ravel()) @ average.T
    root = np.linalg.cholesky(covariance + TINY * np.eye(times))
    draws = normal_draws(seed, times) @ root.T + average @ posterior.mean[places.ravel()]
    return np.asarray(draws[:, 1:].max(axis=1) - draws[:, 0])


def _span(step: int, distance: int) -> Floats:
    """Evenly spaced steps around one, over the distance of two checkpoints."""
    return np.maximum(0.0, step + distance * ((np.arange(POINTS) + 0.5) / POINTS - 0.5))


def _problem(
    arms: tuple[Arm, ...],
    features: Floats,
    best: Arm,
    tasks: Mapping[str, float],
    kinds: Mapping[str, str],
    reward: Reward,
) -> Problem:
    """The problem of these arms; costs of one, which do not change the posterior."""
    ones = np.ones((len(arms), len(tasks)))
    return Problem(
        arms=arms,
        tasks=tuple(tasks),
        features=features,
        encode_cost=ones,
        score_cost=ones,
        baseline=best.checkpoint,
        reward=reward,
        weights=tuple(tasks.values()),
        kinds=tuple(kinds[task] for task in tasks),
    )
