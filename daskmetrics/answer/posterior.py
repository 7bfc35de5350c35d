"""The search's posterior of every arm, computed again from the journal: the numbers that it decided
on.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

from daskmetrics.answer import analysis
from daskmetrics.answer.recorded import RecordedRun, cell_of
from daskmetrics.bandit import Outcome, Problem, arm_features
from daskmetrics.bandit.model import IncrementalPosterior, Posterior, first_max
from daskmetrics.bandit.problem import with_checkpoints
from daskmetrics.core import events
from daskmetrics.core.errors import DataError, unknown
from daskmetrics.core.names import Arm, Cell, Checkpoint
from daskmetrics.core.outcomes import Difference
from daskmetrics.core.results import Scored


@dataclass(frozen=True, eq=False)
class RunPosterior:
    """The posterior of a run's search; open decisions do not count as observed.

    The problem has costs of one: costs decide what the search pays for and do not change the
    posterior.
    """

    problem: Problem
    posterior: Posterior
    leader: int  # index of the recommended arm or, while there is none, of the greatest mean

    def index(self, name: str) -> int:
        """Index of an arm by its name; `ConfigError` with the nearest names if no such arm was
        measured.
        """
        return self.problem.arm_index[arm_named(name, self.problem.arms, "arm")]

    def rank(self, arm: int) -> int:
        """Rank of an arm by its expected objective; 1 is the best."""
        return 1 + int((self.posterior.mean > self.posterior.mean[arm]).sum())

    def lead(self, arm: int) -> Difference:
        """By how much the leader is expected to be better than an arm, in units of the reward."""
        mean, variance = self.posterior.mean, self.posterior.variance
        shared = self.posterior.covariance(np.array([arm]), np.array([self.leader]))[0, 0]
        spread = max(0.0, float(variance[arm] + variance[self.leader] - 2 * shared))
        return Difference(float(mean[self.leader] - mean[arm]), math.sqrt(spread), paired=True)


def arm_named(name: str, arms: Iterable[Arm], kind: str) -> Arm:
    """The arm of this name; `ConfigError` with the nearest names, since a list of all would have
    thousands of arms.
    """
    by_name = {str(arm): arm for arm in arms}
    if name not in by_name:
        nearest = difflib.get_close_matches(name, by_name, n=5, cutoff=0.4)
        raise unknown(kind, name, nearest or list(by_name)[:5])
    return by_name[name]


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
        missing = "no tasks" if suites else "no measured checkpoint yet"
        raise DataError(f"The run in '{run.folder.path}' has {missing}.")
    arms = tuple(chain.from_iterable(suite.arms() for suite in suites))
    ones = np.ones((len(arms), len(run.tasks)))
    weights = run.weights
    return Problem(
        arms=arms,
        tasks=tuple(run.tasks),
        features=arm_features(suites),
        encode_cost=ones,
        score_cost=ones,
        reward=run.config["search"]["reward"],
        weights=tuple(weights.get(task, 0.0) for task in run.tasks),
        kinds=tuple(run.kinds.values()),
    )


def _history(run: RecordedRun) -> Iterator[tuple[Cell, Outcome]]:
    """Cells with their outcomes, in the order in which the search received them; those of earlier
    searches come first.
    """
    answered = {
        run.cells[record.key]: record.value for record in run.records if record.kind == "score"
    }
    # while a search goes on, the order is that of its decisions
    picks = run.picks
    if run.result:
        picks = tuple(picks[index] for index in run.result.order)
    picked = [cell_of(pick) for pick in picks]
    earlier = answered.keys() - set(picked)
    cells = [cell for cell in answered if cell in earlier]
    cells += [cell for cell in picked if cell in answered]
    for cell in cells:
        result = answered[cell]
        if isinstance(result, Scored):
            yield cell, Outcome(result.score, result.stderr)
