"""What a finished run answers: one frozen value, whose serialisation is the JSON of `best`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from daskmetrics.answer.analysis import Failure, failures
from daskmetrics.answer.fresh import FreshItems, fresh_items
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.answer.verdict import CheaperArm, Verdict, verdict_of
from daskmetrics.answer.worth import Worth, worths_of
from daskmetrics.bandit.recommend import ScoreEstimate
from daskmetrics.core.names import Arm
from daskmetrics.core.outcomes import Difference, mean_difference

Sureness = Literal["clear", "probable", "a tie"]
#: probability that no other arm is better, from which on a best arm is clear or probable
CLEAR, PROBABLE = 0.9, 0.5


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
    name, folder : str, Path
        Of the run.
    candidates : int
        That the run asks about.
    best : Candidate
        The arm to use: the highest mean of those scored on every task or, if none of them can be
        as good as an arm that lacks a score, the search's choice among the arms with a score.
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
        ``clear`` if no other arm is within the error of the best, none that lacks scores may be as
        good, and no other is better with a probability of at least 90 %; else ``probable`` if that
        is at least a half; else ``a tie`` if others are within the error. None if too little is
        scored to say so.
    cheaper : CheaperArm or None
        The simplest arm that loses at most `Verdict.within` of the score in the worst case.
    per_task : Difference or None
        What an arm for each task would gain over the best arm.
    failures : sequence of Failure
        Values that are missing, by cause.
    warnings : sequence of str
        What is doubtful about weights and data.
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
    folder: Path
    candidates: int
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
    failures: Sequence[Failure]
    warnings: Sequence[str]


def answer_of(run: RecordedRun) -> Answer:
    """The answer of a run.

    Raises
    ------
    DataError
        If the run has no tasks, or its search is not finished.
    """
    result = run.finished_search()
    verdict = verdict_of(run)
    differences = run.differences(result.best_arm, result.default_arm)
    shared = [task for task in run.weights if task in differences]
    overall = verdict.overall
    relation = ""
    if overall.gain:
        relation = overall.relation(verdict.default, overall.gain)
    return Answer(
        name=run.start.name,
        folder=run.folder.path,
        candidates=run.start.arms,
        best=_candidate(result.best_arm, result.best),
        default=_candidate(result.default_arm, result.default),
        difference=mean_difference(
            [differences[task] for task in shared], [run.weights[task] for task in shared]
        ),
        relation=relation,
        differences=differences,
        confirmed=result.confirmed,
        probability=result.probability_best,
        sureness=_sureness(verdict, result.probability_best),
        cheaper=verdict.cheaper(),
        per_task=verdict.per_task,
        unscored_models=tuple(part.model for part in verdict.models if not part.scores),
        scored=run.counts["score", "ok"],
        planned=run.cells_planned,
        cost=cost_of(run),
        ending=result.ending,
        weights=run.weights,
        reward=result.reward,
        verdict=verdict,
        readouts=worths_of(run.recorded, run.weights),
        fresh=fresh_items(run),
        failures=failures(run),
        warnings=run.start.warnings,
    )


def cost_of(run: RecordedRun) -> Cost:
    """The assumed cost of the search so far, and of scoring every cell."""
    result = run.result
    if result is None:
        return Cost(sum(pick["cost"] for pick in run.picks), None, None)
    return Cost(result.spent, result.exhaustive, result.spent / result.exhaustive)


def _candidate(arm: Arm, recorded: Mapping[str, Any]) -> Candidate:
    mean = recorded["mean"] or {"score": None, "stderr": None}
    scores = {task: ScoreEstimate(**score) for task, score in recorded["scores"].items()}
    return Candidate(arm, mean["score"], mean["stderr"], scores)


def _sureness(verdict: Verdict, probability: float) -> Sureness | None:
    overall = verdict.overall
    if overall.tested < 2:
        return None
    is_alone = len(overall.tied) == 1
    if is_alone and not overall.open and probability >= CLEAR:
        return "clear"
    if probability >= PROBABLE:
        return "probable"
    # no scored candidate is within the error, but one that lacks scores may be better
    return None if is_alone else "a tie"
