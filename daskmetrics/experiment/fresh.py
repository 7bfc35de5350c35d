"""The finalists of a search, scored on items that were kept back from it.

The search has chosen its arm by its scores, so the score of that arm is too high on average, the
more so the more arms there are. The items kept back have not influenced the choice, so scores on
them are unbiased by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np

from daskmetrics.bandit import Problem
from daskmetrics.bandit.costs import PaidCosts
from daskmetrics.domain.names import Arm
from daskmetrics.domain.recommendation import Recommendation
from daskmetrics.domain.scores import Scores
from daskmetrics.execution import WorkUnit
from daskmetrics.experiment.preparation import Experiment
from daskmetrics.experiment.score import score_unit

#: arms that are scored at most: the leader, arms that are within its error, and the default arm
FINALISTS = 5
#: standard errors of a paired difference, within which an arm counts as good as the leader
TIED = 2.0


def finalists(
    weights: Mapping[str, float], best: Recommendation, scores: Scores
) -> tuple[Arm, ...]:
    """The arms to score on fresh items, the recommended one first.

    They are at most `FINALISTS`: the arms that the posterior cannot tell from it, most likely
    first; those that paired differences of the scores cannot tell from it; the runner-up if there
    are none; and the default arm. ``weights`` are those of the tasks of the objective.
    """
    complete = scores.means(weights)
    if best.arm not in complete:
        complete = {}
    behind: dict[Arm, float] = {}  # arms within `TIED` standard errors of the leader
    for arm in complete:
        lead = scores.gain(best.arm, arm, weights)
        if lead and lead.value <= TIED * lead.stderr:
            behind[arm] = lead.value
    ranked_arms = [*best.credible, *sorted(behind, key=behind.__getitem__)]
    tied = [arm for arm in ranked_arms if arm != best.arm]
    tied = tied or [arm for arm in best.top if arm != best.arm][:1]
    return tuple(dict.fromkeys([best.arm, *tied[:1], best.default.arm, *tied]))[:FINALISTS]


def units(experiment: Experiment, arms: Sequence[Arm], scratch: Path) -> Iterator[WorkUnit]:
    """The units that score the finalists.

    Arms of one checkpoint follow each other, since they share encodings.
    """
    for task, arm in product(experiment.finals, sorted(arms)):
        yield score_unit(experiment, arm, task, scratch, "fresh", {"fresh": str(arm)})


def cost(problem: Problem, arms: Sequence[Arm]) -> float:
    """The assumed cost of scoring the finalists, by the problem of the items kept back."""
    costs = PaidCosts(problem)
    for arm, task in product(arms, np.flatnonzero(problem.in_objective)):
        costs.charge(problem.arm_index[arm], int(task))
    return costs.spent
