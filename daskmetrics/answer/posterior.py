"""The search's posterior of every arm, computed again from the journal: the numbers that it decided
on; and the path of its decisions.
"""

from __future__ import annotations

import difflib
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from math import fsum
from typing import TYPE_CHECKING

import numpy as np

from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.bandit import Outcome, Pick, Problem, problem_of
from daskmetrics.bandit.model import IncrementalPosterior, Posterior, first_max
from daskmetrics.bandit.problem import with_checkpoints
from daskmetrics.bandit.recommend import confidence
from daskmetrics.core.errors import ConfigError, DataError, unknown
from daskmetrics.domain import events
from daskmetrics.domain.names import Arm, Cell, LayerNames, arm_name
from daskmetrics.domain.outcomes import Difference, Estimate, mean_score
from daskmetrics.domain.record import Record
from daskmetrics.domain.results import Scored

if TYPE_CHECKING:
    import pandas

LOSSES = 24  # decisions at which the expected loss is computed again


@dataclass(frozen=True, eq=False)
class RunPosterior:
    """The posterior of a run's search, from the known scores.

    The problem has costs of one: costs decide what the search pays for and do not change the
    posterior.
    """

    problem: Problem
    posterior: Posterior
    leader: int  # index of the recommended arm or, while there is none, of the greatest mean

    @property
    def estimates(self) -> dict[Arm, Estimate]:
        """Mean and standard deviation of every arm."""
        mean = self.posterior.mean.tolist()
        sd = self.posterior.value_sd.tolist()
        return {arm: (mean[i], sd[i]) for i, arm in enumerate(self.problem.arms)}

    def rank(self, arm: int) -> int:
        """Rank of an arm by its expected objective, from 1."""
        mean = self.posterior.mean
        better = mean > mean[arm]
        return 1 + int(better.sum())

    def lead(self, arm: int) -> Difference:
        """How much better than an arm the leader is expected to be."""
        leader = self.leader
        mean = self.posterior.mean
        gap = mean[leader] - mean[arm]
        (variance,) = self.posterior.difference_variance(np.array([arm]), leader)
        stderr = math.sqrt(max(0.0, variance))
        return Difference(float(gap), stderr, paired=True)


def arm_named(name: str, arms: Collection[Arm], kind: str, layer_names: LayerNames) -> Arm:
    """The arm of this name, which may also number a layer that has a name.

    Raises
    ------
    ConfigError
        If there is none; it names the nearest, since a list of all would have thousands. Or if one
        layer has the number of another as its name.
    """
    called = {arm_name(arm, layer_names): arm for arm in arms}
    numbered = {str(arm): arm for arm in arms}
    by_name = numbered | called
    if name not in by_name:
        nearest = difflib.get_close_matches(name, called, n=5, cutoff=0.4)
        raise unknown(kind, name, nearest or list(called)[:5])
    arm, numbered_arm = by_name[name], numbered.get(name)
    if numbered_arm not in (None, arm):
        other = arm_name(numbered_arm, layer_names)
        raise ConfigError(
            f"'{name}' is the name of one layer and the number of another. Write {arm} for the"
            f" first, and {other} for the second."
        )
    return arm


@lru_cache(maxsize=1)  # the page of a run and its pictures show the same one
def posterior_of(run: RecordedRun) -> RunPosterior:
    """The posterior of a run's latest search.

    Raises
    ------
    DataError
        If the run has no tasks, no measured checkpoint, or no score yet.
    """
    plan = run.plan
    suites = with_checkpoints(plan.suites, plan.measured(run.records))
    if not suites or not plan.tasks:
        missing = "no tasks" if suites else "no measured checkpoint yet"
        raise DataError(f"The run in '{run.folder.path}' has {missing}.")
    problem = problem_of(suites, plan.tasks)
    # while a search goes on, the order is that of its decisions
    picks = run.picks
    if run.result:
        picks = tuple(picks[index] for index in run.result.order)
    earlier, outcomes = _outcomes(run.records, run.picks)
    decided = [pick.cell for pick in picks if pick.cell in outcomes]
    finished = problem.observe((cell, outcomes[cell]) for cell in (*earlier, *decided))
    if not len(finished.scores):
        raise DataError(
            f"The run in '{run.folder.path}' has no scores yet, so its candidates have no"
            " posterior."
        )
    posterior = IncrementalPosterior(problem).posterior(finished)
    leader = first_max(posterior.mean)
    if run.recommendation:
        leader = problem.arm_index[run.recommendation.arm]
    return RunPosterior(problem, posterior, leader)


def _outcomes(
    records: Iterable[Record], picks: Iterable[Pick]
) -> tuple[list[Cell], dict[Cell, Outcome]]:
    """The cells of earlier searches, and the outcomes of all."""
    outcomes = {
        Cell.parse(record.name): Outcome(score.score, score.stderr)
        for record, score in events.scored(records)
    }
    picked = {pick.cell for pick in picks}
    return [cell for cell in outcomes if cell not in picked], outcomes


def known_posterior(run: RecordedRun) -> RunPosterior | None:
    """The posterior of a run; None without tasks, scores or measured checkpoints."""
    with suppress(DataError):
        return posterior_of(run)
    return None


@lru_cache(maxsize=1)
def path_of(run: RecordedRun) -> pandas.DataFrame:
    """Every decision of the latest search, in order.

    Each is shown as if it had its result before the next one. The columns are the ``number`` of the
    decision, its ``arm``, ``task`` and ``stage``, ``why`` in a word, its ``score``, the total cost
    ``spent`` until then, the ``best`` mean score known then, the score that is
    ``expected`` of the arm by now (without a posterior the best), and the expected ``loss`` of the
    arm that led then, NaN but at `LOSSES` of them. The attributes are the ``unit`` of the costs, and
    the mean score of the ``default`` arm, or None.
    """
    import pandas

    unit = "estimated seconds"
    seconds = 1.0
    default = None
    if run.result:
        unit = "% of the time that all scores would take"
        recommended = run.result.recommendation
        exhaustive = recommended.exhaustive
        if run.result.fresh:  # both sums have the cost of the finalists, too
            exhaustive -= recommended.spent - fsum(pick.cost for pick in run.picks)
        seconds = exhaustive / 100
        default, _ = run.means.get(recommended.default.arm, (None, None))
    expected = {}
    losses = {}
    if posterior := known_posterior(run):
        expected = posterior.estimates
        losses = _expected_losses(posterior.problem, run.records, run.picks, run.plan.seed)
    weights = run.weights
    points = []
    spent = 0.0
    best = math.nan
    paid = defaultdict[Arm, dict[str, Scored]](dict)
    for number, pick in enumerate(run.picks, 1):
        cell = pick.cell
        arm = cell.arm
        spent += pick.cost / seconds
        score = run.recorded.get(arm, {}).get(cell.task)
        if score:
            paid[arm][cell.task] = score
            mean = mean_score(paid[arm], weights)
            if mean:
                best = np.fmax(best, mean[0])
        point = {
            "number": number,
            "arm": arm_name(arm, run.plan.layer_names),
            "task": cell.task,
            "stage": pick.stage,
            "why": pick.why["because"],
            "score": score.score if score else math.nan,
            "spent": spent,
            "best": best,
            "expected": expected.get(arm, (best,))[0],
            "loss": losses.get(number, math.nan),
        }
        points.append(point)
    path = pandas.DataFrame(points)
    path.attrs = {"unit": unit, "default": default}
    return path


def _expected_losses(
    problem: Problem, records: Iterable[Record], picks: Sequence[Pick], seed: int
) -> dict[int, float]:
    """By how much the best arm was expected to exceed the leader, after some of the decisions."""
    growing = IncrementalPosterior(problem)
    usable = np.ones(len(problem.arms), dtype=bool)
    earlier, outcomes = _outcomes(records, picks)
    history = [(cell, outcomes[cell]) for cell in earlier]
    shown = {*np.linspace(1, len(picks), LOSSES).astype(int).tolist()}
    losses = {}
    for number, pick in enumerate(picks, 1):
        if pick.cell in outcomes:
            history.append((pick.cell, outcomes[pick.cell]))
        if history and number in shown:
            posterior = growing.posterior(problem.observe(history))
            leader = first_max(posterior.mean)
            losses[number] = confidence(posterior, leader, seed, usable).loss
    return losses
