"""What a finished run answers: one frozen value, whose serialisation is the JSON of `best`; with its
verdict: which candidate to use, and which are within its error, over all tasks, by kind and by
task.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

import numpy as np

from daskmetrics.answer.analysis import Cost, cost_of, failures
from daskmetrics.answer.analysis import suites as suites_of
from daskmetrics.answer.recorded import RecordedRun, gain_over, shares_of
from daskmetrics.answer.ties import EQUAL, LEVEL, ScoreMatrix, Scores
from daskmetrics.answer.worth import FreshItems, Worth, fresh_items, worths_of
from daskmetrics.bandit.recommend import ScoreEstimate
from daskmetrics.core.events import measured
from daskmetrics.core.failures import Failure
from daskmetrics.core.names import Arm, Checkpoint, grid, training_order
from daskmetrics.core.outcomes import (
    BEYOND_ERROR,
    WITHIN_ERROR,
    Difference,
    mean_difference,
    mean_score,
    means_of,
)
from daskmetrics.core.readouts import Readout

OVERALL = "all tasks"
Sureness = Literal["clear", "probable", "a tie"]
#: probability that no other arm is better, from which on a best arm is clear or probable
CLEAR, PROBABLE = 0.9, 0.5


@dataclass(frozen=True)
class CheaperArm:
    """A simpler arm than the best one, and what is lost by taking it."""

    arm: Arm
    loss: Difference  # how far the best arm is above it
    most_lost: float  # by how much the best arm, whichever it is, is above it at most (95 %)


@dataclass(frozen=True)
class Standing:
    """How the arms stand on some tasks.

    Attributes
    ----------
    what : str
        ``all tasks``, or ``the objective`` if it does not have all of them, a kind of task, or a
        task.
    tasks : tuple of str
        The tasks; over all, those of the objective.
    weights : tuple of float
        Weight of each task in means over them, with the sum 1: that of the objective.
    arm : Arm
        The best arm: the highest mean of the arms scored on all of the tasks or, if there are none,
        the search's choice among the arms with a score.
    score, stderr : float or None
        Its mean raw score and the standard error; None if it lacks a task.
    tied : tuple of Arm
        The arms scored on all of the tasks that the test finds within the error of the best,
        simplest first; those that are not among the `MOST` with the greatest means come last.
    worse : tuple of Arm
        The arms scored on all of the tasks that are worse than the best.
    open : int
        The number of arms that lack some of the tasks and may be the best, by the model of the
        search.
    next : Arm or None
        The next best of the tested arms.
    lead : Difference or None
        How far the best arm is above the next best.
    simpler : tuple of CheaperArm
        Those of the tied arms that are simpler than the best one, simplest first.
    gain : Difference or None
        How far its mean raw score is above the default arm's, on the tasks that both were scored
        on.
    over_best : Difference or None
        The same above the best arm over all tasks; None for that arm's own standing.
    critical : float
        Standard errors by which two arms must differ to be beyond the error.
    """

    what: str
    tasks: tuple[str, ...]
    weights: tuple[float, ...]
    arm: Arm
    score: float | None = None
    stderr: float | None = None
    tied: tuple[Arm, ...] = ()
    worse: tuple[Arm, ...] = ()
    open: int = 0
    next: Arm | None = None
    lead: Difference | None = None
    simpler: tuple[CheaperArm, ...] = ()
    gain: Difference | None = None
    critical: float = 0.0
    over_best: Difference | None = None

    @property
    def tested(self) -> int:
        """The number of arms that the test compared."""
        return len(self.tied) + len(self.worse)

    @property
    def items_to_decide(self) -> float | None:
        """How many times as many items would put the next best beyond the error, if their
        difference stayed; None if it is beyond the error already, or nothing can be said.
        """
        if self.next not in self.tied or not self.lead or abs(self.lead.value) <= EQUAL:
            return None
        return (self.critical * self.lead.stderr / self.lead.value) ** 2

    def relation(self, arm: Arm, gain: Difference) -> str:
        """Whether another arm, which the best one exceeds by ``gain``, is within its error: the
        same words everywhere.

        Arms that were scored on all tasks are compared by the test of all pairs, others by the
        error of the gain.
        """
        if arm in self.tied:
            return WITHIN_ERROR
        if arm in self.worse:
            return BEYOND_ERROR
        return gain.relation


@dataclass(frozen=True)
class ModelStanding:
    """The best arm of a model, that of the run or else among those scored on all tasks, beside its
    last layer; None where there is none.
    """

    model: str
    best: Arm | None
    score: tuple[float, float] | None  # mean raw score and standard error
    last: Arm  # the last of the run's layers of the last checkpoint
    is_last: bool  # whether that is the last layer of the model, alone
    last_score: tuple[float, float] | None
    # of the best over the last layer, if that was scored on all tasks; over those of the best
    gain: Difference | None
    behind: Difference | None  # the same of the best arm over all models
    scores: int  # number of scores of the model


@dataclass(frozen=True)
class Verdict:
    """What a run concludes.

    Attributes
    ----------
    overall : Standing
        Over the tasks of the objective; its arm is the one to use.
    parts : tuple of Standing
        By kind, if there are several kinds and several tasks of one, and by task. Their sets of
        tied arms contain the best arms of all parts together with 95 %.
    models : tuple of ModelStanding
        The best arm of each model beside its last layer.
    default : Arm
        What one takes without a search: by default the last layer of the best arm's model at its
        last checkpoint.
    within : float
        Share of the score that a cheaper arm may lose at most to be offered.
    """

    overall: Standing
    parts: tuple[Standing, ...]
    models: tuple[ModelStanding, ...]
    default: Arm
    within: float

    def cheaper(self, within: float | None = None) -> CheaperArm | None:
        """The simplest arm that loses at most a share of the score in the worst case (95 %); None
        if there is none.

        By default the share is `within`. Simpler is the smaller model, then the shallower layer,
        then the earlier checkpoint, then fewer bytes for a vector.
        """
        if within is None:
            within = self.within
        limit = within * abs(self.overall.score or 0.0)
        acceptable = (arm for arm in self.overall.simpler if arm.most_lost <= limit)
        return next(acceptable, None)

    @property
    def disagreeing(self) -> tuple[Standing, ...]:
        """The kinds and tasks for which another arm is beyond the error of the best one."""
        return tuple(standing for standing in self.parts if self.overall.arm in standing.worse)

    @property
    def per_task(self) -> Difference | None:
        """What an arm for each task of the objective would gain over the best arm; None if one of
        them has no such gain.
        """
        by_task = {
            standing.tasks: standing.over_best for standing in self.parts if standing.over_best
        }
        objective = [(task,) for task in self.overall.tasks]
        if not by_task.keys() >= set(objective):
            return None
        gains = [by_task[tasks] for tasks in objective]
        return mean_difference(gains, self.overall.weights)


class Evidence:
    """What a verdict rests on: the scores of a run with a finished search, and what its arms
    are.
    """

    def __init__(self, run: RecordedRun) -> None:
        self.run = run
        self.ended = run.finished_search()
        self.weights = run.weights
        compared = run.compared
        self.scores = ScoreMatrix(compared, tuple(run.kinds))
        suites = run.plan.template.suites if run.plan else suites_of(run)
        checkpoints = {Checkpoint.parse(record.name) for record, _ in measured(run.records)}
        arms = [arm for arm in grid(suites) if arm.checkpoint in checkpoints]
        #: all that were measured, and those with scores
        self.arms = [*arms, *compared]
        self.depths = {suite.model: suite.depth for suite in suites}
        self.sizes = {  # of models, in any unit
            model: run.start.widths.get(model, 0) ** 2.0 * depth
            for model, depth in self.depths.items()
        }
        revisions = training_order({arm.revision for arm in self.arms})
        self._order = {name: i for i, name in enumerate(revisions)}

    def last_layer(self, model: str) -> Arm:
        """What one takes of a model without a search: the last layer of its last checkpoint, by the
        first readout.
        """
        arms = (arm for arm in self.arms if arm.model == model)
        # of equal ones, which are readouts of a layer, the first
        return max(arms, key=lambda arm: (self._order[arm.revision], arm.layer))

    def simplicity(self, arm: Arm) -> tuple[float, str, int, int, float, str]:
        """Orders arms from simple to complex: the smaller model, the shallower layer, the earlier
        checkpoint, the shorter vector.
        """
        width = self.run.start.widths.get(arm.model, 1)
        dimensions = Readout.parse(arm.readout).width(width)
        size = self.sizes.get(arm.model, 0.0)
        age = self._order[arm.revision]
        return size, arm.model, arm.layer, age, dimensions, arm.readout


def verdict_of(run: RecordedRun) -> Verdict:
    """The verdict of a finished search; `DataError` if the run has none."""
    evidence = Evidence(run)
    ended = evidence.ended
    search = run.config["search"]
    overall = _standing(evidence, OVERALL, tuple(evidence.weights), LEVEL, ended.best_arm)
    credible = {Arm(**plain) for plain in ended.credible}
    compared = {overall.arm, *overall.tied, *overall.worse}
    overall = replace(overall, open=len(credible - compared))
    if len(evidence.weights) < len(run.kinds):
        overall = replace(overall, what="the objective")
    chosen = {choice["kind"]: Arm(**choice["arm"]) for choice in ended.kinds}
    groups = _groups(evidence)
    standings = []
    for name, tasks in groups.items():
        standing = _standing(evidence, name, tasks, LEVEL / len(groups), chosen.get(name))
        over_best = gain_over(run, standing.arm, overall.arm, tasks)
        standings.append(replace(standing, over_best=over_best))
    models = dict.fromkeys(arm.model for arm in evidence.arms)
    return Verdict(
        overall=overall,
        parts=tuple(standings),
        models=tuple(_model_standing(evidence, model, overall.arm) for model in models),
        default=ended.default_arm,
        within=search["within"],
    )


def _groups(evidence: Evidence) -> dict[str, tuple[str, ...]]:
    """The tasks of every kind, and every task that an arm was scored on, by name."""
    kinds = evidence.run.kinds
    if len(kinds) < 2:
        return {}
    by_kind: dict[str, tuple[str, ...]] = {}
    for task, kind in kinds.items():
        by_kind[kind] = (*by_kind.get(kind, ()), task)
    groups = {}
    if len(by_kind) > 1:
        groups = {kind: tasks for kind, tasks in by_kind.items() if len(tasks) > 1}
    for task in kinds:
        if task in by_kind or evidence.scores.complete((task,)):
            groups[task] = (task,)
    return groups


def _standing(
    evidence: Evidence,
    name: str,
    tasks: tuple[str, ...],
    level: float,
    chosen: Arm | None,
) -> Standing:
    """How the arms stand on some tasks; ``chosen`` is the search's choice, which counts where no
    arm has all scores, or none that it believes in.
    """
    run = evidence.run
    ended = evidence.ended
    shares = shares_of(run, tasks)
    tested = None
    if name != OVERALL or ended.confirmed:  # else the search believes in none of those
        tested = evidence.scores.tested(tasks, shares, level, chosen)
    best = chosen or ended.best_arm
    if tested:
        best = tested.arms[tested.best]
    gain = gain_over(run, best, ended.default_arm, tasks)
    standing = Standing(name, tasks, tuple(shares.tolist()), best, gain=gain)
    if tested is None:  # known from the model alone
        return standing
    means = tested.means
    equal = sorted((tested.arms[i] for i in tested.equal), key=evidence.simplicity)
    simpler = []
    for arm in takewhile(lambda arm: arm != best, equal):
        i = tested.arms.index(arm)
        loss = means.difference(tested.best, i)
        most_lost = means.most_lost(i, tested.equal, tested.critical)
        simpler.append(CheaperArm(arm, loss, most_lost))
    next_best = lead = None
    others = [i for i in range(len(tested.arms)) if i != tested.best]
    if others:
        i = max(others, key=means.mean.__getitem__)
        next_best = tested.arms[i]
        lead = means.difference(tested.best, i)
    worse = {*tested.arms, *tested.beyond} - tested.tied
    weights = dict(zip(tasks, standing.weights, strict=True))
    score, stderr = mean_score(run.recorded[best], weights) or (None, None)
    return replace(
        standing,
        score=score,
        stderr=stderr,
        tied=(*equal, *sorted(tested.as_good, key=evidence.simplicity)),
        worse=tuple(sorted(worse, key=evidence.simplicity)),
        next=next_best,
        lead=lead,
        simpler=tuple(simpler),
        critical=tested.critical,
    )


def _model_standing(evidence: Evidence, model: str, overall_best: Arm) -> ModelStanding:
    """The best arm of a model by the mean of the objective, and its last layer."""
    run = evidence.run
    tasks = tuple(evidence.weights)
    last_layer = evidence.last_layer(model)
    last_score = mean_score(run.recorded.get(last_layer, {}), evidence.weights)
    scores = sum(len(scores) for arm, scores in run.compared.items() if arm.model == model)
    complete = [arm for arm in evidence.scores.complete(tasks) if arm.model == model]
    best = score = gain = behind = None
    if complete:
        means = evidence.scores.values(complete, tasks) @ shares_of(run, tasks)
        best = complete[int(means.argmax())]
        if model == overall_best.model:
            best = overall_best  # which may lack a score, if the search believes in none of these
        score = mean_score(run.recorded[best], evidence.weights)
        if last_layer in complete:
            gain = gain_over(run, best, last_layer, tasks)
            behind = gain_over(run, overall_best, last_layer, tasks)
    is_alone = not Readout.parse(last_layer.readout).layers
    return ModelStanding(
        model=model,
        best=best,
        score=score,
        last=last_layer,
        is_last=is_alone and last_layer.layer == evidence.depths.get(model, last_layer.layer),
        last_score=last_score,
        gain=gain,
        behind=behind,
        scores=scores,
    )


@dataclass(frozen=True)
class RankedArm:
    """A row of a `Leaderboard`.

    Attributes
    ----------
    arm : Arm
    scores : mapping
        Raw score and standard error by task, of the tasks that the arm was scored on.
    rank : int or None
        Place by the mean score, from 1; None, as the following, for an arm that lacks tasks of the
        objective.
    mean, stderr : float or None
        Weighted mean of the raw scores over the tasks of the objective, and its standard error.
    tied : bool or None
        Whether the arm is within the error of the best one; the best arm itself is True.
    """

    arm: Arm
    scores: Mapping[str, tuple[float, float]]
    rank: int | None = None
    mean: float | None = None
    stderr: float | None = None
    tied: bool | None = None


def ranked_arms(
    recorded: Mapping[Arm, Scores],
    weights: Mapping[str, float],
    tied: Collection[Arm] | None,
    best: Arm | None,
) -> tuple[RankedArm, ...]:
    """Recorded scores in the order of their means; those that lack a task come last.

    ``tied`` are the arms within the error of the best; None: they are tested by raw scores. Of
    equal means ``best`` comes first.
    """
    counted = {task: weight for task, weight in weights.items() if weight}
    means = means_of(recorded, counted)
    if tied is None and means:
        tasks = tuple(counted)
        shares = np.array([*counted.values()])
        tested = ScoreMatrix(recorded, tasks).tested(tasks, shares, LEVEL)
        tied = tested.tied if tested else ()
    complete = sorted(means, key=lambda arm: (-round(means[arm][0], 9), arm != best, arm))
    partial = list(recorded.keys() - means.keys())
    partial.sort(key=lambda arm: (-len(recorded[arm]), arm))
    ranked = []
    for rank, arm in enumerate([*complete, *partial], 1):
        by_task = recorded[arm]
        scores = {
            task: (by_task[task].score, by_task[task].stderr) for task in weights if task in by_task
        }
        row = RankedArm(arm, scores)
        if arm in means:
            mean, stderr = means[arm]
            is_tied = arm in (tied or ())
            row = replace(row, rank=rank, mean=mean, stderr=stderr, tied=is_tied)
        ranked.append(row)
    return tuple(ranked)


@dataclass(frozen=True)
class Candidate:
    """An arm with its mean raw score over the tasks of the objective; None while it lacks one."""

    arm: Arm
    score: float | None
    stderr: float | None
    scores: Mapping[str, ScoreEstimate]  # by task


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
    scored, planned, looks : int
        Scores that the search paid for, those of an exhaustive sweep, and looks: scores of a share
        of a task's items, which only the search uses.
    cost : Cost
    ending : str
        Why the search ended, as `daskmetrics.bandit.Outlook` names it.
    weights : mapping
        Of the tasks of the objective.
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
    looks: int
    cost: Cost
    ending: str
    weights: Mapping[str, float]
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
        best=_candidate(run, result.best_arm, result.best),
        default=_candidate(run, result.default_arm, result.default),
        difference=gain_over(run, result.best_arm, result.default_arm, run.weights),
        relation=relation,
        differences=differences,
        confirmed=result.confirmed,
        probability=result.probability_best,
        sureness=_sureness(verdict, result.probability_best),
        cheaper=verdict.cheaper(),
        per_task=verdict.per_task,
        unscored_models=tuple(standing.model for standing in verdict.models if not standing.scores),
        scored=run.cells_scored,
        planned=run.cells_planned,
        looks=run.counts["look", "ok"],
        cost=cost_of(run),
        ending=result.ending,
        weights=run.weights,
        verdict=verdict,
        readouts=worths_of(run.compared, run.weights),
        fresh=fresh_items(run),
        failures=failures(run),
        warnings=run.start.warnings,
    )


def _candidate(run: RecordedRun, arm: Arm, concluded: Mapping[str, Any]) -> Candidate:
    score, stderr = run.means.get(arm, (None, None))
    scores = {task: ScoreEstimate(**score) for task, score in concluded["scores"].items()}
    return Candidate(arm, score, stderr, scores)


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
