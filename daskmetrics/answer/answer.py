"""What a finished run answers: one frozen value, whose serialisation is the JSON of `best`; with its
verdict: which candidate to use, and which are within its error, over all tasks, by kind and by
task.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Literal, Protocol

from daskmetrics.answer import ties
from daskmetrics.answer.analysis import ALL_TASKS, Cost, cost_of, failures
from daskmetrics.answer.evidence import Evidence
from daskmetrics.answer.sizes import ArmCost
from daskmetrics.answer.ties import EQUAL, LEVEL
from daskmetrics.answer.worth import FreshItems, Worth, fresh_items, worths_of
from daskmetrics.domain.failures import Failure
from daskmetrics.domain.names import Arm, LayerNames, layer_name
from daskmetrics.domain.outcomes import (
    BEYOND_ERROR,
    PAIR,
    WITHIN_ERROR,
    Difference,
    Estimate,
    mean_difference,
)
from daskmetrics.domain.plan import Floor, TaskInfo
from daskmetrics.domain.recommendation import ArmSummary, ScoreEstimate
from daskmetrics.domain.scores import Scores

Sureness = Literal["clear", "probable", "a tie"]
WORTH = 0.01  #: share of the score that a simpler arm may lose at most to be offered
#: probability that no other arm is better, from which on a best arm is clear or probable
CLEAR, PROBABLE = 0.9, 0.5


class MeasuredTask(Protocol):
    """A task as an answer names it, with or without its data."""

    @property
    def name(self) -> str: ...
    @property
    def main_score(self) -> str: ...
    @property
    def floor(self) -> Floor | None: ...


@dataclass(frozen=True)
class CheaperArm:
    """A simpler arm than the best one, its loss, and what both cost."""

    arm: Arm
    loss: Difference  # how far the best arm is above it
    most_lost: float  # by how much the best arm, whichever it is, is above it at most (95 %)
    cost: ArmCost
    best_cost: ArmCost
    tied: bool  # whether it is within the error of the best one

    @property
    def speedup(self) -> float | None:
        """How many times as fast it is; None if no time is known, or nothing is computed."""
        if not self.cost.seconds or not self.best_cost.seconds:
            return None
        return self.best_cost.seconds / self.cost.seconds


def simpler_arms(
    tested: ties.TestedArms,
    simplicity: Callable[[Arm], tuple[object, ...]],
    cost: Callable[[Arm], ArmCost],
) -> tuple[CheaperArm, ...]:
    """The arms to take in place of the best, simplest first.

    They are those within its error, and those that may lose less than any simpler one.
    """
    best_cost = cost(tested.best_arm)
    least = math.inf
    simpler = []
    simplest_first = sorted(range(len(tested.arms)), key=lambda i: simplicity(tested.arms[i]))
    for i in takewhile(lambda i: i != tested.best, simplest_first):
        most_lost = tested.most_lost(i)
        is_tied = i in tested.equal
        if is_tied or most_lost < least:
            arm, loss = tested.arms[i], tested.means.difference(tested.best, i)
            simpler.append(CheaperArm(arm, loss, most_lost, cost(arm), best_cost, is_tied))
        least = min(least, most_lost)
    return tuple(simpler)


def simplest_within(
    simpler: Iterable[CheaperArm], score: float | None, within: float
) -> CheaperArm | None:
    """The first arm that loses at most a share of the score, in the worst case (95 %)."""
    limit = within * abs(score or 0.0)
    return next((arm for arm in simpler if arm.most_lost <= limit), None)


def offered(
    cheaper: CheaperArm | None, simpler: Iterable[CheaperArm], is_tie: bool
) -> CheaperArm | None:
    """The simpler arm that an answer names: one that loses little or, as of a tie, one of the tied."""
    if cheaper and (cheaper.tied or not is_tie):
        return cheaper
    return next((arm for arm in simpler if arm.tied), None)


@dataclass(frozen=True)
class Standing:
    """How the arms compare on some tasks.

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
        The arms to take in place of the best one, simplest first: those that are tied, and those
        that may lose less than any simpler one.
    gain : Difference or None
        How far its mean raw score is above the default arm's, on the tasks that both were scored
        on.
    over_best : Difference or None
        The same above the best arm over all tasks; None where that arm is compared itself.
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
        """How many times as many items would decide it.

        That many would put the next best beyond the error, if their difference stayed. None if it
        is beyond the error already, or nothing can be said.
        """
        if self.next not in self.tied or not self.lead or abs(self.lead.value) <= EQUAL:
            return None
        return (self.critical * self.lead.stderr / self.lead.value) ** 2

    def relation(self, arm: Arm, gain: Difference) -> str:
        """Whether another arm is within the error of the best.

        The best one exceeds it by ``gain``. The words are the same everywhere. Arms that were
        scored on all tasks are compared by the test of all pairs, others by the error of the gain.
        """
        if arm in self.tied:
            return WITHIN_ERROR
        if arm in self.worse:
            return BEYOND_ERROR
        return gain.relation


@dataclass(frozen=True)
class ModelStanding:
    """The best arm of a model beside its last layer.

    The best is that of the run, or else among those scored on all tasks. None where there is none.
    """

    model: str
    best: Arm | None
    score: Estimate | None  # mean raw score and standard error
    last: Arm  # the last of the run's layers of the last checkpoint
    is_last: bool  # whether that is the last layer of the model, alone
    last_score: Estimate | None
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
    """

    overall: Standing
    parts: tuple[Standing, ...]
    models: tuple[ModelStanding, ...]
    default: Arm

    def cheaper(self, within: float = WORTH) -> CheaperArm | None:
        """The simplest arm that loses at most a share.

        In the worst case (95 %) the loss is at most the share ``within`` of the score. None if
        there is no such arm. Simpler is the smaller model, then the shallower layer, then the
        earlier checkpoint, then fewer bytes for a vector.
        """
        return simplest_within(self.overall.simpler, self.overall.score, within)

    @property
    def disagreeing(self) -> tuple[Standing, ...]:
        """Kinds and tasks for which another arm is clearly better."""
        return tuple(standing for standing in self.parts if self.overall.arm in standing.worse)

    @property
    def per_task(self) -> Difference | None:
        """What an arm for each task would gain.

        That is over the best arm, on the tasks of the objective. None if one of them has no such
        gain.
        """
        gains = {part.what: part.over_best for part in self.parts if part.over_best}
        weights = dict(zip(self.overall.tasks, self.overall.weights, strict=True))
        if not gains.keys() >= weights.keys():
            return None
        return mean_difference(gains, weights)


def verdict_of(evidence: Evidence) -> Verdict:
    """How the arms compare over all tasks, by kind, by task and by model."""
    plan = evidence.plan
    best = evidence.recommendation
    what = ALL_TASKS
    if len(plan.weights) < len(plan.tasks):
        what = "the objective"
    overall = _standing(evidence, what, tuple(plan.weights), LEVEL, best.arm)
    compared = {overall.arm, *overall.tied, *overall.worse}
    groups = _groups(evidence)
    parts = []
    for name, tasks in groups.items():
        chosen = evidence.ended.kinds.get(name)
        parts.append(_standing(evidence, name, tasks, LEVEL / len(groups), chosen, overall.arm))
    models = dict.fromkeys(arm.model for arm in evidence.arms)
    return Verdict(
        overall=replace(overall, open=len(set(best.credible) - compared)),
        parts=tuple(parts),
        models=tuple(_model_standing(evidence, model, overall.arm) for model in models),
        default=best.default.arm,
    )


def _groups(evidence: Evidence) -> dict[str, tuple[str, ...]]:
    kinds = evidence.plan.kinds
    if len(kinds) < 2:
        return {}
    by_kind: dict[str, tuple[str, ...]] = {}
    for task, kind in kinds.items():
        by_kind[kind] = (*by_kind.get(kind, ()), task)
    groups = {}
    if len(by_kind) > 1:
        groups = {kind: tasks for kind, tasks in by_kind.items() if len(tasks) > 1}
    for task in kinds:
        if task in by_kind or evidence.compared.complete((task,)):
            groups[task] = (task,)
    return groups


def _standing(
    evidence: Evidence,
    what: str,
    tasks: tuple[str, ...],
    level: float,
    chosen: Arm | None,
    overall_best: Arm | None = None,
) -> Standing:
    """``chosen`` is the search's choice.

    It counts where no arm has all scores, or none that the search believes in. Without
    ``overall_best`` the tasks are those of the objective.
    """
    recommendation = evidence.recommendation
    shares = evidence.shares(tasks)
    tested = None
    if overall_best or recommendation.confirmed:  # else the search believes in none of those
        tested = ties.tested(evidence.compared, shares, level, chosen)
    best = tested.best_arm if tested else chosen or recommendation.arm
    gain = evidence.gain(best, recommendation.default.arm, tasks)
    over_best = None
    if overall_best:
        over_best = evidence.gain(best, overall_best, tasks)
    weights = tuple(shares.values())
    standing = Standing(what, tasks, weights, best, gain=gain, over_best=over_best)
    if tested is None:  # known from the model alone
        return standing
    means = tested.means
    equal = sorted(tested.equal_arms, key=evidence.simplicity)
    next_best = lead = None
    others = [i for i in range(len(tested.arms)) if i != tested.best]
    if others:
        i = max(others, key=means.mean.__getitem__)
        next_best = tested.arms[i]
        lead = means.difference(tested.best, i)
    worse = {*tested.arms, *tested.beyond} - tested.tied
    score, stderr = evidence.compared.mean(best, shares) or (None, None)
    return replace(
        standing,
        score=score,
        stderr=stderr,
        tied=(*equal, *sorted(tested.as_good, key=evidence.simplicity)),
        worse=tuple(sorted(worse, key=evidence.simplicity)),
        next=next_best,
        lead=lead,
        simpler=simpler_arms(tested, evidence.simplicity, evidence.cost),
        critical=tested.critical,
    )


def _model_standing(evidence: Evidence, model: str, overall_best: Arm) -> ModelStanding:
    weights = evidence.plan.weights
    last_layer = evidence.last_layer(model)
    means = {arm: mean for arm, mean in evidence.means.items() if arm.model == model}
    best = gain = behind = None
    if means:
        best = max(sorted(means), key=lambda arm: means[arm][0])
        if model == overall_best.model:
            best = overall_best  # which may lack a score, if the search believes in none of these
        if last_layer in means:
            gain = evidence.gain(best, last_layer, weights)
            behind = evidence.gain(overall_best, last_layer, weights)
    return ModelStanding(
        model=model,
        best=best,
        score=evidence.recorded.mean(best, weights) if best else None,
        last=last_layer,
        is_last=last_layer.layer == evidence.plan.by_model[model].depth,
        last_score=evidence.recorded.mean(last_layer, weights),
        gain=gain,
        behind=behind,
        scores=sum(len(row) for arm, row in evidence.compared.items() if arm.model == model),
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
    scores: Mapping[str, Estimate]
    rank: int | None = None
    mean: float | None = None
    stderr: float | None = None
    tied: bool | None = None


def ranked_arms(
    recorded: Scores,
    weights: Mapping[str, float],
    tied: Collection[Arm] | None,
    best: Arm | None,
) -> tuple[RankedArm, ...]:
    """Recorded scores in the order of their means.

    Those that lack a task come last.

    ``tied`` are the arms within the error of the best; None: they are tested by raw scores. Of
    equal means ``best`` comes first.
    """
    counted = {task: weight for task, weight in weights.items() if weight}
    means = recorded.means(counted)
    if tied is None and means:
        tested = ties.tested(recorded, counted)
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
        place = (rank, *means[arm], arm in (tied or ())) if arm in means else ()
        ranked.append(RankedArm(arm, scores, *place))
    return tuple(ranked)


@dataclass(frozen=True)
class Candidate:
    """An arm with its mean score; None while incomplete.

    The mean is of raw scores over the tasks of the objective.
    """

    arm: Arm
    score: float | None
    stderr: float | None
    scores: Mapping[str, ScoreEstimate]  # by task


@dataclass(frozen=True)
class Answer:
    """Which candidate to use, its gain, and its cost.

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
    expected_loss : float
        By how much the best arm, whichever it is, is expected to exceed this one.
    most_lost : float or None
        By how much no other arm exceeds it, with 95 %; None before that can be said.
    sureness : str or None
        ``clear`` if no other arm is within the error of the best, none that lacks scores may be as
        good, and no other is better with a probability of at least 90 %; else ``probable`` if that
        is at least a half; else ``a tie`` if others are within the error. None if too little is
        scored to say so.
    cheaper : CheaperArm or None
        The simplest arm that loses at most `WORTH` of the score in the worst case.
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
        Why the search ended, as `daskmetrics.bandit.Learner.ending` names it.
    weights : mapping
        Of the tasks of the objective.
    tasks : sequence of TaskInfo
        With the measure of each and what guessing scores.
    over_floor : Difference or None
        How far the best arm is above what guessing scores, over the objective; None if that is not
        known of each task.
    verdict : Verdict
        How the arms compare over all tasks, by kind, by task and by model.
    readouts : tuple of Worth
        What each choice of a readout gains.
    fresh : FreshItems or None
        The finalists on items that were kept back from the search.
    layer_names : mapping
        The names of the layers of models that do not number them.
    encoded_by : str
        The layer of the user's own encoder that makes the vectors; empty of models of texts.
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
    expected_loss: float
    most_lost: float | None
    sureness: Sureness | None
    cheaper: CheaperArm | None
    per_task: Difference | None
    unscored_models: tuple[str, ...]
    scored: int
    planned: int
    cost: Cost
    ending: str
    weights: Mapping[str, float]
    tasks: Sequence[TaskInfo]
    over_floor: Difference | None
    verdict: Verdict
    readouts: tuple[Worth, ...]
    fresh: FreshItems | None
    failures: Sequence[Failure]
    warnings: Sequence[str]
    layer_names: LayerNames
    encoded_by: str

    @property
    def cheapest(self) -> CheaperArm | None:
        """The simpler arm to name, see `offered`."""
        return offered(self.cheaper, self.verdict.overall.simpler, self.is_tie)

    @property
    def is_tie(self) -> bool:
        """Whether others may as well be taken."""
        return self.sureness == "a tie"

    def marked(self, quantity: str) -> dict[str, list[Arm]]:
        """The arms that a picture of a task, or of another quantity, marks: by kind of mark."""
        parts = (part for part in self.verdict.parts if part.what == quantity)
        standing = next(parts, self.verdict.overall)
        tied = [arm for arm in standing.tied if arm != standing.arm]
        return {"tied": tied, "best": [standing.arm], "default": [self.default.arm]}

    @property
    def more_search_is_idle(self) -> bool:
        """Whether what more search may find is less than these items can tell apart."""
        overall = self.verdict.overall
        if self.most_lost is None or overall.lead is None:
            return False
        return self.most_lost <= overall.critical * overall.lead.stderr


def floor_of(tasks: Iterable[MeasuredTask], weights: Mapping[str, float]) -> float | None:
    """The mean of what guessing scores, over the tasks with a weight; None if one is not known."""
    floors = {task.name: task.floor for task in tasks if weights.get(task.name)}
    known = {name: floor.value for name, floor in floors.items() if floor}
    if not known or len(known) < len(floors):
        return None
    total = math.fsum(weights[name] for name in known)
    return math.fsum(value * weights[name] for name, value in known.items()) / total


def over_floor(
    tasks: Iterable[MeasuredTask],
    weights: Mapping[str, float],
    score: float | None,
    stderr: float | None,
) -> Difference | None:
    """How far a mean score is above what guessing scores on the tasks with a weight."""
    floor = floor_of(tasks, weights)
    if floor is None or score is None or stderr is None:
        return None
    return Difference(score - floor, stderr, paired=False)


def is_guess(over: Difference | None) -> bool:
    """Whether a score is not beyond its error above what guessing scores."""
    return over is not None and over.value <= PAIR * over.stderr


def answer_of(evidence: Evidence) -> Answer:
    """The answer of a finished search."""
    plan = evidence.plan
    recommendation = evidence.recommendation
    best, default = recommendation.best, recommendation.default
    verdict = verdict_of(evidence)
    overall = verdict.overall
    relation = encoded_by = ""
    if overall.gain:
        relation = overall.relation(verdict.default, overall.gain)
    if encoder := plan.protocols.get(best.arm.model, {}).get("encoder"):
        encoded_by = f"layer {layer_name(best.arm, plan.layer_names)} of {encoder}"
    return Answer(
        name=plan.name,
        folder=evidence.folder,
        candidates=len(plan.arms),
        best=_candidate(evidence.means, best),
        default=_candidate(evidence.means, default),
        difference=overall.gain,
        relation=relation,
        differences=evidence.recorded.differences(best.arm, default.arm, evidence.recorded),
        confirmed=recommendation.confirmed,
        probability=recommendation.probability_best,
        expected_loss=recommendation.expected_loss,
        most_lost=recommendation.most_lost,
        sureness=_sureness(verdict, recommendation.probability_best),
        cheaper=verdict.cheaper(),
        per_task=verdict.per_task,
        unscored_models=tuple(standing.model for standing in verdict.models if not standing.scores),
        scored=evidence.compared.size,
        planned=plan.cells,
        cost=cost_of(recommendation),
        ending=evidence.ended.ending,
        weights=plan.weights,
        tasks=plan.tasks,
        over_floor=over_floor(plan.tasks, plan.weights, overall.score, overall.stderr),
        verdict=verdict,
        readouts=worths_of(evidence.compared, plan.weights),
        fresh=fresh_items(evidence.fresh, evidence.recorded, plan.weights),
        failures=failures(evidence.records),
        warnings=plan.warnings,
        layer_names=plan.layer_names,
        encoded_by=encoded_by,
    )


def _candidate(means: Mapping[Arm, Estimate], arm: ArmSummary) -> Candidate:
    score, stderr = means.get(arm.arm, (None, None))
    return Candidate(arm.arm, score, stderr, arm.scores)


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
