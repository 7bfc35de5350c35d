"""What a finished run answers: one frozen value, whose serialisation is the JSON of `best`; with what
each choice of a readout is worth, and whether the choice holds on items that were kept back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal

from daskmetrics.answer.analysis import Cost, cost_of, failures
from daskmetrics.answer.recorded import RecordedRun, gain_over
from daskmetrics.answer.ties import LEVEL
from daskmetrics.answer.verdict import CheaperArm, Scores, Verdict, verdict_of
from daskmetrics.bandit.recommend import ScoreEstimate
from daskmetrics.core.failures import Failure
from daskmetrics.core.names import Arm
from daskmetrics.core.outcomes import (
    FRESH_SHARE,
    Difference,
    difference,
    mean_difference,
    mean_of_pairs,
    mean_score,
    means_of,
)
from daskmetrics.core.readouts import POOLINGS, Readout

Sureness = Literal["clear", "probable", "a tie"]
#: probability that no other arm is better, from which on a best arm is clear or probable
CLEAR, PROBABLE = 0.9, 0.5
Pair = tuple[Arm, Arm]  # the same but for one choice, which is the base choice in the second arm

# of the values of each choice: what comes first is the base
_ORDER: Mapping[str, Callable[[Readout], Any]] = {
    "pooling": lambda readout: ("", *POOLINGS).index(readout.pooling),
    "layers": lambda readout: (len(readout.together), readout.layers),
    "dimensions": lambda readout: (
        readout.kept is not None,
        readout.principal,
        -(readout.kept or 0),
    ),
}


@dataclass(frozen=True)
class Candidate:
    """An arm with its mean raw score over the tasks on which it and the other one were scored."""

    arm: Arm
    score: float | None
    stderr: float | None
    scores: Mapping[str, ScoreEstimate]  # by task


@dataclass(frozen=True)
class Worth:
    """What one choice is worth instead of the base choice.

    Attributes
    ----------
    choice : str
        What is chosen: pooling, layers or dimensions.
    value, base : str
        The choice and the base choice, as in the name of a readout; empty: as the protocol says.
    difference : Difference
        By how much the mean score with the choice exceeds that with the base choice: on each task
        the mean over all pairs of arms that were scored on it and differ in the choice alone,
        averaged over the tasks of the objective. All pairs share the items of a task, so its
        differences are averaged item by item before their error is taken over the items, which
        therefore does not shrink with the number of pairs; see
        `daskmetrics.core.outcomes.mean_of_pairs`. It is the error for these arms and other items.
    pairs : int
        The number of pairs.
    beyond : bool
        Whether the difference exceeds its error, at 95 % for all choices of a run together
        (Bonferroni).
    """

    choice: str
    value: str
    base: str
    difference: Difference
    pairs: int
    beyond: bool


def worths_of(recorded: Mapping[Arm, Scores], weights: Mapping[str, float]) -> tuple[Worth, ...]:
    """What each choice of the readouts of scored arms is worth; empty if no two differ in one
    alone.

    Parameters
    ----------
    recorded : mapping
        What the journal holds of every score, by arm and task.
    weights : mapping
        Weights of the tasks of the objective.

    Examples
    --------
    >>> from daskmetrics.core.results import Scored
    >>> scores = {"mean": Scored(0.7, 0.01), "last": Scored(0.6, 0.01)}
    >>> arms = {Arm("m", "main", 3, name): {"topics": score} for name, score in scores.items()}
    >>> [(worth.value, round(worth.difference.value, 3)) for worth in worths_of(arms, {"topics": 1.0})]
    [('last', -0.1)]
    """
    readouts = {arm: Readout.parse(arm.readout) for arm in recorded}
    differences: dict[tuple[str, str, str], tuple[Difference, int]] = {}
    for kind, order in _ORDER.items():
        base = getattr(min(readouts.values(), key=order, default=Readout()), kind)
        by_value: dict[str, list[Pair]] = {}
        for arm, readout in readouts.items():
            pairs = by_value.setdefault(getattr(readout, kind), [])
            other = replace(arm, readout=str(replace(readout, **{kind: base})))
            if other in recorded:
                pairs.append((arm, other))
        for value, pairs in by_value.items():
            if value != base and (gap := _mean_gap(recorded, weights, pairs)):
                differences[kind, value, base] = gap
    critical = NormalDist().inv_cdf(1 - LEVEL / 2 / max(1, len(differences)))
    return tuple(
        Worth(*choice, gap, count, beyond=abs(gap.value) > critical * gap.stderr)
        for choice, (gap, count) in differences.items()
    )


def _mean_gap(
    recorded: Mapping[Arm, Scores], weights: Mapping[str, float], pairs: Sequence[Pair]
) -> tuple[Difference, int] | None:
    """The mean difference of the pairs, and how many of them were scored on a common task; None if
    no pair was.
    """
    by_task = {}
    common = set()
    for task in weights:
        scored_pairs = [pair for pair in pairs if all(task in recorded[arm] for arm in pair)]
        common.update(scored_pairs)
        if scored_pairs:
            by_task[task] = mean_of_pairs(
                [(recorded[arm][task], recorded[other][task]) for arm, other in scored_pairs]
            )
    mean = mean_difference(list(by_task.values()), [weights[task] for task in by_task])
    if mean is None:
        return None
    return mean, len(common)


@dataclass(frozen=True)
class Finalist:
    """One arm: its mean score with the error in the search, if it was scored on all tasks there,
    and on fresh items.

    ``lead`` is the best arm's fresh score less this arm's, item by item; None for the best arm.
    """

    arm: Arm
    searched: tuple[float, float] | None
    fresh: tuple[float, float]
    lead: Difference | None


@dataclass(frozen=True)
class FreshItems:
    """The finalists of a search on the items that were kept back from it, the chosen arm first.

    Attributes
    ----------
    share : float
        Of the items that were kept back.
    finalists : tuple of Finalist
    unscored : tuple of Arm
        Finalists without a score on one of the tasks.
    best : Arm
        The finalist with the highest fresh score.
    holds : bool
        Whether none of the rivals is higher beyond the error.
    """

    share: float
    finalists: tuple[Finalist, ...]
    unscored: tuple[Arm, ...]
    best: Arm
    holds: bool


def fresh_items(run: RecordedRun) -> FreshItems | None:
    """The finalists of a finished search on fresh items; None if it kept none back, or the chosen
    arm has no score.
    """
    means = means_of(run.fresh, run.weights)
    chosen = next(iter(run.fresh), None)
    if chosen not in means:
        return None
    finalists = []
    for arm, mean in means.items():
        lead = None
        if arm != chosen:
            gaps = [
                difference(run.fresh[chosen][task], run.fresh[arm][task]) for task in run.weights
            ]
            lead = mean_difference(gaps, list(run.weights.values()))
        searched = mean_score(run.recorded.get(arm, {}), run.weights)
        finalists.append(Finalist(arm, searched, mean, lead))
    best = max(finalists, key=lambda finalist: finalist.fresh[0])
    limit = NormalDist().inv_cdf(1 - LEVEL / max(1, len(finalists) - 1))
    return FreshItems(
        share=FRESH_SHARE,
        finalists=tuple(finalists),
        unscored=tuple(arm for arm in run.fresh if arm not in means),
        best=best.arm,
        holds=best.lead is None or -best.lead.value <= limit * best.lead.stderr,
    )


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
        difference=gain_over(run, result.best_arm, result.default_arm, run.weights),
        relation=relation,
        differences=differences,
        confirmed=result.confirmed,
        probability=result.probability_best,
        sureness=_sureness(verdict, result.probability_best),
        cheaper=verdict.cheaper(),
        per_task=verdict.per_task,
        unscored_models=tuple(standing.model for standing in verdict.models if not standing.scores),
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
