"""The verdict of a run: which candidate to use, and which are within its error, over all tasks, by
kind and by task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from daskmetrics.answer.evidence import Evidence
from daskmetrics.answer.ties import LEVEL, MOST
from daskmetrics.core.names import Arm
from daskmetrics.core.outcomes import (
    BEYOND_ERROR,
    WITHIN_ERROR,
    Difference,
    mean_difference,
    mean_score,
)

OVERALL = "all tasks"
ROUNDING = 1e-9  #: difference of means that counts as none


@dataclass(frozen=True)
class CheaperArm:
    """A simpler arm than the best one, and what is lost by taking it."""

    arm: Arm
    loss: Difference  # how far the best arm is above it, in units of the reward
    most_lost: float  # by how much the best arm, whichever it is, is above it at most (95 %)


@dataclass(frozen=True)
class Standing:
    """How the arms stand on some tasks.

    Attributes
    ----------
    what : str
        ``all tasks``, a kind of task, or a task.
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
    maybe : tuple of Arm
        Arms that lack some of the tasks and may be the best, by the model of the search; simplest
        first.
    unseen : int
        The number of further such arms that have no score at all.
    next : Arm or None
        The next best of the tested arms.
    lead : Difference or None
        How far the best arm is above the next best, in units of the reward.
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
    maybe: tuple[Arm, ...] = ()
    unseen: int = 0
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
    """The best arm of a model among those scored on all tasks, beside its last layer; None where
    there is none.
    """

    model: str
    best: Arm | None
    score: tuple[float, float] | None  # mean raw score and standard error
    last: Arm  # the last layer of the last checkpoint
    last_score: tuple[float, float] | None
    gain: Difference | None  # of the best over the last layer, if both were scored on all tasks
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
    reward : str
        In whose units arms were compared; ``mean`` is the raw score.
    score_unit : float
        The mean score of the best arm, in units of the reward.
    within : float
        Share of the score that a cheaper arm may lose at most to be offered.
    paired : bool
        Whether all errors of differences come from the outcomes of the same items.
    exact : tuple of str
        Tasks whose scores have no error at all, and count as exact.
    """

    overall: Standing
    parts: tuple[Standing, ...]
    models: tuple[ModelStanding, ...]
    default: Arm
    reward: str
    score_unit: float
    within: float
    paired: bool
    exact: tuple[str, ...]

    @property
    def tied(self) -> tuple[Arm, ...]:
        """The arms scored on all tasks that are within the error of the best, simplest first."""
        return self.overall.tied

    @property
    def unscored_models(self) -> tuple[str, ...]:
        """Models of which nothing was scored: the verdict says nothing about them."""
        return tuple(standing.model for standing in self.models if not standing.scores)

    def cheaper(self, within: float | None = None) -> CheaperArm | None:
        """The simplest arm that loses at most a share of the score in the worst case (95 %); None
        if there is none.

        By default the share is `within`. Simpler is the smaller model, then the shallower layer,
        then the earlier checkpoint, then fewer bytes for a vector.
        """
        share = self.within if within is None else within
        for simpler in self.overall.simpler:
            if simpler.most_lost <= share * abs(self.score_unit):
                return simpler
        return None

    @property
    def relation_to_default(self) -> str:
        """Whether the best arm's gain over the default arm is within or beyond the error; empty if
        it is unknown.
        """
        if self.overall.gain is None:
            return ""
        return self.overall.relation(self.default, self.overall.gain)

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
        gains = [by_task[(task,)] for task in self.overall.tasks if (task,) in by_task]
        if len(gains) < len(self.overall.tasks):
            return None
        return mean_difference(gains, self.overall.weights)


def verdict_of(evidence: Evidence) -> Verdict:
    """The verdict of a finished search."""
    best = evidence.answer.best_arm
    overall = _standing(evidence, OVERALL, tuple(evidence.weights), LEVEL, best)
    chosen = {choice["kind"]: Arm(**choice["arm"]) for choice in evidence.answer.kinds}
    groups = _groups(evidence)
    standings = []
    for name, tasks in groups.items():
        standing = _standing(evidence, name, tasks, LEVEL / len(groups), chosen.get(name))
        over_best = evidence.gap(standing.arm, overall.arm, tasks)
        standings.append(replace(standing, over_best=over_best))
    gaps = [overall.lead, overall.gain, *(standing.gain for standing in standings)]
    search = evidence.config["search"]
    score_unit = evidence.answer.score_unit
    if search["reward"] == "mean":
        score_unit = overall.score or 0.0
    return Verdict(
        overall=overall,
        parts=tuple(standings),
        models=tuple(_model_standing(evidence, model) for model in evidence.models),
        default=evidence.default,
        reward=search["reward"],
        score_unit=score_unit,
        within=search["within"],
        paired=all(gap.paired for gap in gaps if gap),
        exact=tuple(task for task in evidence.kinds if _is_exact(evidence, task)),
    )


def _groups(evidence: Evidence) -> dict[str, tuple[str, ...]]:
    """The tasks of every kind, and every task that an arm was scored on, by name."""
    if len(evidence.kinds) < 2:
        return {}
    by_kind: dict[str, tuple[str, ...]] = {}
    for task, kind in evidence.kinds.items():
        by_kind[kind] = (*by_kind.get(kind, ()), task)
    groups = {}
    if len(by_kind) > 1:
        groups = {kind: tasks for kind, tasks in by_kind.items() if len(tasks) > 1}
    for task in evidence.kinds:
        if task in by_kind or evidence.complete((task,)):
            groups[task] = (task,)
    return groups


def _is_exact(evidence: Evidence, task: str) -> bool:
    """Whether the scores of a task have no error."""
    scores = [by_task[task] for by_task in evidence.recorded.values() if task in by_task]
    return bool(scores) and not any(score.stderr or score.outcomes for score in scores)


def _standing(
    evidence: Evidence, name: str, tasks: tuple[str, ...], level: float, chosen: Arm | None
) -> Standing:
    """How the arms stand on some tasks; ``chosen`` is the search's choice, which counts where no
    arm has all scores.
    """
    shares = evidence.shares(tasks)
    complete = evidence.complete(tasks)
    weights = dict(zip(tasks, shares.tolist(), strict=True))
    maybe: tuple[Arm, ...] = ()
    unseen = 0
    arm = chosen or evidence.answer.best_arm
    if name == OVERALL:
        maybe, unseen = _by_model(evidence, complete or [arm])
    if not complete:  # known from the model alone
        gain = evidence.gap(arm, evidence.default, tasks)
        return Standing(
            name, tasks, tuple(weights.values()), arm, maybe=maybe, unseen=unseen, gain=gain
        )
    arms = complete
    beyond: list[Arm] = []
    if len(complete) > MOST:
        order = np.argsort(-evidence.values(complete, tasks) @ shares, kind="stable")
        arms = [complete[i] for i in np.sort(order[:MOST])]
        beyond = [complete[i] for i in np.sort(order[MOST:])]
    means = evidence.means(arms, tasks)
    tie = means.tied(level)
    best = int(means.mean.argmax())
    if chosen in arms and means.mean[arms.index(chosen)] >= means.mean[best] - ROUNDING:
        best = arms.index(chosen)  # of equal means the one that the search recommends
    tied = sorted((arms[i] for i in tie.arms), key=evidence.simplicity)
    as_good = evidence.not_worse(arms[best], beyond, tasks, level)
    simpler = []
    if arms[best] in tied:
        for arm in tied[: tied.index(arms[best])]:
            i = arms.index(arm)
            simpler.append(CheaperArm(arm, means.difference(best, i), means.most_lost(i, tie)))
    next_best = lead = None
    others = np.delete(np.arange(len(arms)), best)
    if len(others):
        i = int(others[means.mean[others].argmax()])
        next_best, lead = arms[i], means.difference(best, i)
    score, stderr = mean_score(evidence.recorded[arms[best]], weights) or (None, None)
    return Standing(
        what=name,
        tasks=tasks,
        weights=tuple(weights.values()),
        arm=arms[best],
        score=score,
        stderr=stderr,
        tied=(*tied, *sorted(as_good, key=evidence.simplicity)),
        worse=tuple(sorted({*complete} - {*tied, *as_good}, key=evidence.simplicity)),
        maybe=maybe,
        unseen=unseen,
        next=next_best,
        lead=lead,
        simpler=tuple(simpler),
        gain=evidence.gap(arms[best], evidence.default, tasks),
        critical=tie.critical,
    )


def _model_standing(evidence: Evidence, model: str) -> ModelStanding:
    """The best arm of a model by the mean of the objective, and its last layer."""
    tasks = tuple(evidence.weights)
    last_layer = evidence.last_layer(model)
    complete = [arm for arm in evidence.complete(tasks) if arm.model == model]
    best = score = gain = None
    if complete:
        best = complete[int((evidence.values(complete, tasks) @ evidence.shares(tasks)).argmax())]
        score = mean_score(evidence.recorded[best], evidence.weights)
        if last_layer in complete:
            gain = evidence.gap(best, last_layer, tasks)
    return ModelStanding(
        model=model,
        best=best,
        score=score,
        last=last_layer,
        last_score=mean_score(evidence.recorded.get(last_layer, {}), evidence.weights),
        gain=gain,
        scores=sum(
            len(by_task) for arm, by_task in evidence.recorded.items() if arm.model == model
        ),
    )


def _by_model(evidence: Evidence, tested: Sequence[Arm]) -> tuple[tuple[Arm, ...], int]:
    """The other arms of the credible set of the search: those with a score, and the number of those
    without one.
    """
    credible = {Arm(**plain) for plain in evidence.answer.credible}.difference(tested)
    seen = sorted((arm for arm in credible if evidence.recorded.get(arm)), key=evidence.simplicity)
    return tuple(seen), len(credible) - len(seen)
