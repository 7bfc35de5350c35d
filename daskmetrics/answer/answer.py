"""What a finished run answers: one frozen value, whose serialisation is the JSON of `best`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from daskmetrics.answer.evidence import evidence_of
from daskmetrics.answer.fresh import FreshItems, fresh_items
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.answer.verdict import CheaperArm, Verdict, verdict_of
from daskmetrics.answer.worth import Worth, worths_of
from daskmetrics.bandit.recommend import ScoreEstimate
from daskmetrics.core.events import SearchEnded
from daskmetrics.core.names import Arm
from daskmetrics.core.outcomes import Difference, mean_difference

Sureness = Literal["clear", "probable", "a tie"]
PROBABLE = 0.5  #: probability that no other arm is better, from which on a best arm is probable


@dataclass(frozen=True)
class Candidate:
    """An arm with its mean raw score over the tasks on which it and the other one were scored."""

    arm: Arm
    score: float | None
    stderr: float | None
    scores: Mapping[str, ScoreEstimate]  # by task


@dataclass(frozen=True)
class Cost:
    """The cost of a search and of scoring everything, in assumed seconds."""

    spent: float
    exhaustive: float | None  # None while the search continues
    share: float | None


@dataclass(frozen=True)
class Answer:
    """Which candidate to use, what it gains, how sure that is, and what it cost.

    Attributes
    ----------
    name : str
        Of the run.
    best : Candidate
        The arm to use: the highest mean of those scored on every task or, without any, the search's
        choice among the arms with a score.
    default : Candidate
        What one takes without a search: by default the last layer of the last checkpoint of the
        best arm's own model.
    difference : Difference or None
        Mean score of the best arm above the default arm's; None without a task that both were
        scored on.
    relation : str
        Whether this difference is ``within the error`` or ``beyond the error``, by the test of the
        verdict; empty if it is unknown.
    differences : mapping
        The same by task.
    confirmed : bool
        Whether the best arm was scored on every task of the objective.
    probability : float
        That no other arm is better, under the search's posterior.
    sureness : str or None
        ``clear`` if no other arm is within the error of the best, else ``probable`` if no other arm
        is better with a probability of at least a half, else ``a tie``; None if the best arm is the
        only one that was scored on every task, or was not.
    cheaper : CheaperArm or None
        The simplest arm that loses at most `Verdict.within` of the score in the worst case.
    per_task : Difference or None
        What an arm for each task would gain over the best arm.
    unscored_models : tuple of str
        Models without a score, about which nothing is said.
    scored, planned : int
        Scores that the search paid for, and those of an exhaustive sweep.
    cost : Cost
    ending : str
        Why the search ended, as `daskmetrics.bandit.Outlook` names it.
    weights : mapping
        Of the tasks of the objective.
    reward : str
        What the search compared arms by; ``mean`` is the mean of the raw scores.
    verdict : Verdict
        How the arms stand over all tasks, by kind, by task and by model.
    readouts : tuple of Worth
        What each choice of a readout is worth.
    fresh : FreshItems or None
        The finalists on items that were kept back from the search.
    """

    name: str
    best: Candidate
    default: Candidate
    difference: Difference | None
    relation: str
    differences: Mapping[str, Difference]
    confirmed: bool
    probability: float
    sureness: Sureness | None
    cheaper: CheaperArm | None
    per_task: Difference | None
    unscored_models: tuple[str, ...]
    scored: int
    planned: int
    cost: Cost
    ending: str
    weights: Mapping[str, float]
    reward: str
    verdict: Verdict
    readouts: tuple[Worth, ...]
    fresh: FreshItems | None


def answer_of(run: RecordedRun) -> Answer:
    """The answer of a run.

    Raises
    ------
    DataError
        If the run has no tasks, or its search is not finished.
    """
    result = run.finished_search()
    verdict = verdict_of(evidence_of(run))
    differences = run.differences(result.best_arm, result.default_arm)
    shared = [task for task in run.weights if task in differences]
    return Answer(
        name=run.start.name,
        best=_candidate(result.best_arm, result.best),
        default=_candidate(result.default_arm, result.default),
        difference=mean_difference(
            [differences[task] for task in shared], [run.weights[task] for task in shared]
        ),
        relation=verdict.relation_to_default,
        differences=differences,
        confirmed=result.confirmed,
        probability=result.probability_best,
        sureness=_sureness(verdict, result.probability_best),
        cheaper=verdict.cheaper(),
        per_task=verdict.per_task,
        unscored_models=verdict.unscored_models,
        scored=run.counts["score", "ok"],
        planned=run.cells_planned,
        cost=cost_of(run),
        ending=result.ending,
        weights=run.weights,
        reward=result.reward,
        verdict=verdict,
        readouts=worths_of(run.recorded, run.weights),
        fresh=fresh_items(run),
    )


def cost_of(run: RecordedRun) -> Cost:
    """The assumed cost of the search so far, and of scoring every cell."""
    result: SearchEnded | None = run.result
    if result is None:
        return Cost(sum(pick["cost"] for pick in run.picks), None, None)
    return Cost(result.spent, result.exhaustive, result.spent / result.exhaustive)


def _candidate(arm: Arm, recorded: Mapping[str, Any]) -> Candidate:
    mean = recorded["mean"] or {"score": None, "stderr": None}
    scores = {task: ScoreEstimate(**score) for task, score in recorded["scores"].items()}
    return Candidate(arm, mean["score"], mean["stderr"], scores)


def _sureness(verdict: Verdict, probability: float) -> Sureness | None:
    if verdict.overall.tested < 2:
        return None
    if len(verdict.overall.tied) == 1:
        return "clear"
    return "probable" if probability >= PROBABLE else "a tie"
