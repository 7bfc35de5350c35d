"""The search's posterior of every arm, computed again from the journal: the numbers that it decided
on; and the path of its decisions.
"""

from __future__ import annotations

import difflib
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from math import fsum
from typing import TYPE_CHECKING

import numpy as np

from daskmetrics.answer import analysis
from daskmetrics.answer.recorded import RecordedRun, cell_of
from daskmetrics.bandit import Outcome, Problem, arm_features
from daskmetrics.bandit.model import IncrementalPosterior, Posterior, first_max
from daskmetrics.bandit.problem import with_checkpoints
from daskmetrics.core import events
from daskmetrics.core.errors import DataError, unknown
from daskmetrics.core.names import Arm, Cell, Checkpoint, grid
from daskmetrics.core.outcomes import Difference, mean_score
from daskmetrics.core.results import Scored

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False)
class RunPosterior:
    """The posterior of a run's search; open decisions do not count as observed.

    The problem has costs of one: costs decide what the search pays for and do not change the
    posterior.
    """

    problem: Problem
    posterior: Posterior
    leader: int  # index of the recommended arm or, while there is none, of the greatest mean

    @property
    def estimates(self) -> dict[Arm, tuple[float, float]]:
        """Mean and standard deviation of every arm."""
        mean = self.posterior.mean.tolist()
        sd = self.posterior.sd.tolist()
        return {arm: (mean[i], sd[i]) for i, arm in enumerate(self.problem.arms)}

    def rank(self, arm: int) -> int:
        """Rank of an arm by its expected objective; 1 is the best."""
        mean = self.posterior.mean
        better = mean > mean[arm]
        return 1 + int(better.sum())

    def lead(self, arm: int) -> Difference:
        """By how much the leader is expected to be better than an arm."""
        leader = self.leader
        mean = self.posterior.mean
        gap = mean[leader] - mean[arm]
        (variance,) = self.posterior.difference_variance(np.array([arm]), leader)
        stderr = math.sqrt(max(0.0, variance))
        return Difference(float(gap), stderr, paired=True)


def arm_named(name: str, arms: Iterable[Arm], kind: str) -> Arm:
    """The arm of this name; `ConfigError` with the nearest names, since a list of all would have
    thousands of arms.
    """
    by_name = {str(arm): arm for arm in arms}
    if name not in by_name:
        nearest = difflib.get_close_matches(name, by_name, n=5, cutoff=0.4)
        raise unknown(kind, name, nearest or list(by_name)[:5])
    return by_name[name]


@lru_cache(maxsize=1)  # the page of a run and its pictures show the same one
def posterior_of(run: RecordedRun) -> RunPosterior:
    """The posterior of a run's latest search; `DataError` if the search has no score yet."""
    problem = _problem(run)
    finished = problem.observe(_history(run))
    if not len(finished.scores):
        raise DataError(
            f"The run in '{run.folder.path}' has no scores yet, so its candidates have no"
            " posterior."
        )
    posterior = IncrementalPosterior(problem).posterior(finished)
    leader = first_max(posterior.mean)
    if run.result:
        leader = problem.arm_index[run.result.best_arm]
    return RunPosterior(problem, posterior, leader)


def _problem(run: RecordedRun) -> Problem:
    measured = {Checkpoint.parse(record.name) for record, _ in events.measured(run.records)}
    suites = with_checkpoints(analysis.suites(run), measured)
    if not suites or not run.tasks:
        missing = "no measured checkpoint yet"
        if suites:
            missing = "no tasks"
        raise DataError(f"The run in '{run.folder.path}' has {missing}.")
    arms = grid(suites)
    kinds = run.kinds
    asked = {cell_of(pick).task for pick in run.picks}
    looks = run.start.looks
    kinds |= {look: kinds[task] for look, task in looks.items() if look in asked}
    ones = np.ones((len(arms), len(kinds)))
    weights = run.weights
    return Problem(
        arms=arms,
        tasks=tuple(kinds),
        features=arm_features(suites),
        encode_cost=ones,
        score_cost=ones,
        weights=tuple(weights.get(task, 0.0) for task in kinds),
        kinds=tuple(kinds.values()),
        looks=tuple(task in looks for task in kinds),
    )


def _history(run: RecordedRun) -> Iterator[tuple[Cell, Outcome]]:
    """Cells with their outcomes, in the order in which the search received them; those of earlier
    searches come first.
    """
    scored = events.scored(run.records)
    looked = events.scored(run.records, "look")
    scores = {run.cells[record.key]: score for record, score in chain(scored, looked)}
    # while a search goes on, the order is that of its decisions
    picks = run.picks
    if run.result:
        picks = tuple(picks[index] for index in run.result.order)
    picked = dict.fromkeys(map(cell_of, picks))
    earlier = (cell for cell in scores if cell not in picked)
    for cell in chain(earlier, picked):
        if score := scores.get(cell):
            yield cell, Outcome(score.score, score.stderr)


def known_posterior(run: RecordedRun) -> RunPosterior | None:
    """The same, or None for a run without tasks, scores or measured checkpoints."""
    with suppress(DataError):
        return posterior_of(run)
    return None


def path_of(run: RecordedRun, posterior: RunPosterior | None = None) -> pandas.DataFrame:
    """The path of the latest search: every decision in order, as if each had its result before the
    next one.

    The columns are the ``number`` of the decision, its ``arm`` and ``stage``, the total cost
    ``spent`` until then, the ``best`` mean score known then, and the score that is ``expected`` of
    the arm by now; without a posterior in units of scores that is the best. The attributes are the
    ``unit`` of the costs, and the mean score of the ``default`` arm, or None.
    """
    import pandas

    unit = "estimated seconds"
    seconds = 1.0
    default = None
    if run.result:
        unit = "% of the time that all scores would take"
        exhaustive = run.result.exhaustive
        if run.result.fresh:  # both sums have the cost of the finalists, too
            exhaustive -= run.result.spent - fsum(pick["cost"] for pick in run.picks)
        seconds = exhaustive / 100
        default, _ = run.means.get(run.result.default_arm, (None, None))
    expected = {}
    if posterior:
        expected = posterior.estimates
    weights = run.weights
    points = []
    spent = 0.0
    best = math.nan
    paid = defaultdict[Arm, dict[str, Scored]](dict)
    for number, pick in enumerate(run.picks, 1):
        cell = cell_of(pick)
        arm = cell.arm
        spent += pick["cost"] / seconds
        score = run.recorded.get(arm, {}).get(cell.task)
        if score:
            paid[arm][cell.task] = score
            mean = mean_score(paid[arm], weights)
            if mean:
                best = np.fmax(best, mean[0])
        expected_score = expected.get(arm, (best,))[0]
        points.append((number, str(arm), pick["stage"], spent, best, expected_score))
    columns = ["number", "arm", "stage", "spent", "best", "expected"]
    path = pandas.DataFrame(points, columns=columns)
    path.attrs = {"unit": unit, "default": default}
    return path
