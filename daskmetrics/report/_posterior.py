"""The search's posterior of every arm, computed again from the journal: the numbers that it decided on."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from daskmetrics.bandit import Outcome, Problem, arm_features
from daskmetrics.bandit._features import measured
from daskmetrics.bandit._incremental import IncrementalPosterior
from daskmetrics.bandit._posterior import Posterior, first_max
from daskmetrics.bandit._problem import Observations
from daskmetrics.bandit._recommend import margin_of
from daskmetrics.bandit._rewards import RewardScale, reward_scale
from daskmetrics.core._events import succeeded
from daskmetrics.core.errors import DataError, unknown
from daskmetrics.core.names import Arm, Cell, Checkpoint
from daskmetrics.report import _analysis as analysis
from daskmetrics.report._recorded import RecordedRun, cell_of


@dataclass(frozen=True, eq=False)
class RunPosterior:
    """The posterior of a run's search; open decisions do not count as observed.

    The problem has costs of one: costs decide what the search pays for and do not change the posterior.
    """

    run: RecordedRun
    problem: Problem
    posterior: Posterior
    observations: Observations

    @cached_property
    def leader(self) -> int:
        """Index of the recommended arm, or of the arm with the greatest mean while there is none."""
        if self.run.result:
            return self.problem.arm_index[self.run.result.best_arm]
        return first_max(self.posterior.mean)

    def index(self, name: str) -> int:
        """Index of an arm by its name; `ConfigError` with the nearest names if no such arm was measured."""
        return self.problem.arm_index[arm_named(name, self.problem.arms, "arm")]

    def rank(self, arm: int) -> int:
        """Rank of an arm by its expected objective; 1 is the best."""
        return 1 + int((self.posterior.mean > self.posterior.mean[arm]).sum())

    def behind(self, arms: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """By how much the leader is better than each arm: mean and standard deviation, in units of the reward."""
        who, leader = np.asarray(arms, dtype=np.intp), np.array([self.leader])
        shared = self.posterior.covariance(who, leader)[:, 0]
        variance = self.posterior.variance[who] + self.posterior.variance[self.leader] - 2 * shared
        return self.posterior.mean[self.leader] - self.posterior.mean[who], np.sqrt(np.maximum(variance, 0.0))

    def chance_within(self, arms: Sequence[int], share: float) -> NDArray[np.float64]:
        """Probability that each arm lies within a share of the leader's mean score; share 0 means that it is better."""
        margin = margin_of(self.posterior, self.leader, self.observations, share) if share else 0.0
        mean, sd = self.behind(arms)
        return np.array([_below(margin - m, s) for m, s in zip(mean.tolist(), sd.tolist(), strict=True)])


def arm_named(name: str, arms: Iterable[Arm], kind: str) -> Arm:
    """The arm of this name; `ConfigError` with the nearest names, since a list of all would have thousands of arms."""
    known = {str(arm): arm for arm in arms}
    if name not in known:
        raise unknown(kind, name, difflib.get_close_matches(name, known, n=5, cutoff=0.4) or list(known)[:5])
    return known[name]


def posterior_of(run: RecordedRun) -> RunPosterior:
    """The posterior of a run's latest search; `DataError` if the search has no score yet."""
    problem = _problem(run)
    cells, outcomes = _history(run)
    places = [problem.locate(cell) for cell in cells]
    posterior = IncrementalPosterior(problem).posterior(places, outcomes)
    observations = problem.observe(zip(cells, outcomes, strict=True))
    if not len(observations):
        raise DataError(f"The run in '{run.folder.path}' has no scores yet, so its arms have no posterior.")
    return RunPosterior(run, problem, posterior, observations)


def objective_of(run: RecordedRun) -> tuple[Problem, RewardScale]:
    """The problem of a run's search, with the weights of its tasks, and the scale of its reward."""
    problem = _problem(run)
    return problem, reward_scale(problem, problem.observe(zip(*_history(run), strict=True)))


def _problem(run: RecordedRun) -> Problem:
    values = {Checkpoint.parse(record.name): record.value["values"] for record in succeeded(run.records, "measure")}
    suites, metrics = measured(analysis.suites(run), values)
    if not suites or not run.tasks:
        raise DataError(f"The run in '{run.folder.path}' has {'no tasks' if suites else 'no measured checkpoint yet'}.")
    arms = tuple(arm for suite in suites for arm in suite.arms())
    ones, search, weights = np.ones((len(arms), len(run.tasks))), run.config["search"], run.weights
    checkpoints = {str(arm.checkpoint): arm.checkpoint for arm in arms}
    baseline = run.measured_as.get(search["baseline"] or "", search["baseline"] or "")
    return Problem(
        arms=arms,
        tasks=tuple(run.tasks),
        features=arm_features(suites, metrics),
        encode_cost=ones,
        score_cost=ones,
        baseline=checkpoints.get(baseline, arms[-1].checkpoint),
        reward=search["reward"],
        weights=tuple(weights.get(task, 0.0) for task in run.tasks),
        kinds=tuple(run.kinds.values()),
        likeness=np.array(run.start.likeness) if run.start.likeness else None,
    )


def _history(run: RecordedRun) -> tuple[list[Cell], list[Outcome]]:
    """Cells with a result, in the order in which the search received them; those of earlier searches come first."""
    answered = {run.cells[record.key]: record for record in run.records if record.kind == "score"}
    order = run.result.order if run.result else range(len(run.picks))  # that of the decisions while a search goes on
    picked = [cell_of(run.picks[index]) for index in order]
    cells = [*(cell for cell in answered if cell not in set(picked)), *(cell for cell in picked if cell in answered)]
    records = [answered[cell] for cell in cells]
    return cells, [Outcome(r.value["score"], r.value["stderr"]) if r.ok else Outcome(None) for r in records]


def _below(distance: float, sd: float) -> float:
    """Probability that a normal deviate of this standard deviation is below the distance."""
    return float(distance >= 0) if sd < 1e-9 else 0.5 * math.erfc(-distance / sd / math.sqrt(2))
