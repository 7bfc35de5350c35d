"""The end of a search: why it ended, what more spending would buy, and what the metrics contributed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from daskmetrics.bandit._kernel import CovarianceModel
from daskmetrics.bandit._learner import Learner
from daskmetrics.bandit._policy import State, ask
from daskmetrics.bandit._posterior import LIMIT, greatest, pooled
from daskmetrics.bandit._problem import Floats, Observations
from daskmetrics.bandit._recommend import DRAWS, JOINT, leader_confidence
from daskmetrics.core.names import Arm, seed_of

Ending = Literal["sure", "confidence", "budget", "cells", "complete", "stopped"]

STEP = 0.1  #: share of the exhaustive cost whose gain is stated at a time
AHEAD = 256  #: decisions that are looked ahead


@dataclass(frozen=True)
class Gain:
    """What spending a further share of the exhaustive cost is expected to add to the recommended arm's objective."""

    share: float
    cells: int
    value: float  # in units of the reward


@dataclass(frozen=True)
class Outlook:
    """Why a search ended, and what more spending would buy.

    The ``ending`` is ``sure``: the policy found no cell worth its cost; ``confidence``: the required confidence was
    reached; ``budget``: it would have gone on with a larger budget; ``cells``: the largest number of cells;
    ``complete``: every cell was paid for; or ``stopped``: it was ended from outside, such as by the limit of wall time.
    There is one of the ``gains`` for each further 10 % of the exhaustive cost, as far as `AHEAD` decisions lead; if
    they lead less far than 10 %, one for the share to which they lead.
    """

    ending: Ending
    gains: tuple[Gain, ...]

    def as_dict(self) -> dict[str, Any]:
        """The outlook as plain JSON values."""
        return {"ending": self.ending, "gains": [asdict(gain) for gain in self.gains]}


def outlook(learner: Learner) -> Outlook:
    """Why a search without open decisions ended, and the expected gain of each further 10 % of the exhaustive cost.

    The search is continued without outcomes by its own policy. The scores of these cells would move the posterior means
    by normal deviates, whose covariance is the part of the posterior covariance that the cells explain. So the expected
    gain is E[max of the moved means] - the leader's mean (Frazier, Powell and Dayanik, "The knowledge-gradient policy
    for correlated normal beliefs", INFORMS Journal on Computing 21, 2009, eq. 7, for several cells at once). It cannot
    exceed the expected loss of the recommended arm.

    Examples
    --------
    >>> from daskmetrics.core.names import Checkpoint, Suite
    >>> from daskmetrics.bandit import Outcome, Problem, arm_features, policy_named
    >>> suite = Suite("m", ("step0", "step1", "step2"), (0, 1), 1)
    >>> cost = np.ones((6, 2))
    >>> problem = Problem(suite.arms(), ("s", "t"), arm_features([suite]), cost, cost, Checkpoint("m", "step2"), "mean")
    >>> learner = Learner(problem, policy_named("race"), budget=0.5, window=1, seed=0)
    >>> while not learner.done:
    ...     for pick in learner.ask(1):
    ...         learner.tell(pick.index, Outcome(0.5 + 0.1 * pick.cell.arm.layer, 0.01))
    >>> outlook(learner).ending
    'budget'
    """
    return Outlook(ending_of(learner), tuple(_gains(learner)) if len(learner.state.observations) else ())


def ending_of(learner: Learner) -> Ending:
    """Why nothing is left to decide; ``stopped`` if something is, since the search was ended from outside."""
    if learner._next() is not None:
        return "stopped"
    known = learner._needed()
    state = learner._state(known)
    if state.paid.all():
        return "complete"
    if len(learner.picks) >= learner._max_cells:
        return "cells"
    if learner._has_confidence(known, state):
        return "confidence"
    # whether the policy would go on if it could afford every cell
    return "budget" if ask(learner._policy, replace(state, remaining=math.inf, budget=math.inf)) else "sure"


def unlimited(learner: Learner, decisions: int) -> Learner:
    """A copy that may spend the whole exhaustive cost, and whose next ``decisions`` wait for no outcome."""
    copy = Learner(
        learner.problem,
        learner._policy,
        budget=1.0,
        window=len(learner.open) + decisions,
        seed=learner.seed,
        decided=learner.picks,
        free_running=True,
    )
    for i in learner.outcome_order:
        copy.tell(i, learner._outcomes[i])
    return copy


def _gains(learner: Learner) -> Iterator[Gain]:
    ahead, whole = unlimited(learner, AHEAD), learner.problem.exhaustive_cost
    spent = np.cumsum([pick.cost / whole for pick in ahead.ask(AHEAD)])
    if not len(spent):
        return
    shares = np.full(int(spent[-1] / STEP + 1e-9), STEP)
    if not len(shares) or (ahead.state.paid.all() and spent[-1] > STEP * (len(shares) + 1e-9)):
        shares = np.append(shares, spent[-1] - shares.sum())
    ends = np.searchsorted(spent, shares.cumsum() + 1e-9, side="right")
    values = np.append(0.0, _values(ahead.state))[ends]
    for share, cells, value in zip(shares, np.diff(ends, prepend=0), np.diff(values, prepend=0.0), strict=True):
        yield Gain(float(share), int(cells), max(0.0, float(value)))


def _values(state: State) -> Floats:
    """Expected rise of the greatest posterior mean by the first, the first two, ... pending cells (n,)."""
    posterior, known = state.posterior, state.posterior.without_pending()
    bound = np.where(state.usable, known.mean + 3 * known.sd, -np.inf)
    arms = np.append(greatest(bound, min(JOINT, int(np.isfinite(bound).sum()))), state.leader)
    ahead = (posterior.mean[arms] - posterior.mean[state.leader]) * np.ones((DRAWS, 1))
    moves = posterior.cross[posterior.known :]
    rng = np.random.default_rng(seed_of("outlook", state.seed))
    values = np.empty(len(moves))
    for i, move in enumerate(moves):
        ahead += rng.standard_normal((DRAWS, 1)) * (move[arms] - move[state.leader])
        values[i] = ahead.max(axis=1).mean()
    return values


@dataclass(frozen=True)
class MetricsWorth:
    """What a search would conclude from the same scores without the label-free metrics as features."""

    arm: Arm  # that would be recommended
    probability_best: float  # as in `Recommendation`, of this arm
    probability_within: float
    error: float  # of the predictions of every score from all others, root mean square, in units of the reward ...
    error_with: float  # ... and with metrics


def metrics_worth(state: State, within: float) -> MetricsWorth | None:
    """Decide again without metrics, on the same scores; None if there are no metrics, or no score."""
    problem, position = state.problem, 2 + len(state.problem.models)
    if problem.features.shape[1] == position or not len(state.observations):
        return None
    bare = replace(state, problem=replace(problem, features=problem.features[:, :position]), cache=None)
    sure = leader_confidence(bare, within)
    errors = (leave_one_out_error(each.posterior.model, each.observations) for each in (bare, state))
    return MetricsWorth(problem.arms[bare.recommended], sure.best, sure.within, *errors)


def leave_one_out_error(model: CovarianceModel, seen: Observations) -> float:
    """Root mean square error of the prediction of every score from all the others, in units of the reward.

    Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006), eq. 5.12, with the hyperparameters fixed.
    Above `LIMIT` scores the arms with the most scores count with their means.
    """
    rows, values = pooled(model, seen, LIMIT)
    precision = np.linalg.inv(model.cells(rows.arm, rows.mix, rows.arm, rows.mix) + np.diag(rows.noise))
    residual = precision @ values / np.diag(precision) * (rows.mix @ model.spread)
    return float(np.sqrt((residual**2).mean()))
