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
        most = (self.within if within is None else within) * abs(self.score_unit)
        return next(
            (simpler for simpler in self.overall.simpler if simpler.most_lost <= most), None
        )

    @property
    def relation_to_default(self) -> str:
        """Whether the best arm's gain over the default arm is within or beyond the error; empty if
        it is unknown.
        """
        gain = self.overall.gain
        return self.overall.relation(self.default, gain) if gain else ""

    @property
    def disagreeing(self) -> tuple[Standing, ...]:
        """The kinds and tasks for which another arm is beyond the error of the best one."""
        return tuple(part for part in self.parts if self.overall.arm in part.worse)

    @property
    def per_task(self) -> Difference | None:
        """What an arm for each task of the objective would gain over the best arm; None if one of
        them has no such gain.
        """
        gains = {part.what: part.over_best for part in self.parts if len(part.tasks) == 1}
        known = [gain for task in self.overall.tasks if (gain := gains.get(task))]
        if len(known) < len(self.overall.tasks):
            return None
        return mean_difference(known, self.overall.weights)


def verdict_of(evidence: Evidence) -> Verdict:
    """The verdict of a finished search."""
    kinds = dict.fromkeys(evidence.kinds.values())
    by_kind = {
        kind: tuple(task for task, own in evidence.kinds.items() if own == kind) for kind in kinds
    }
    groups = {kind: tasks for kind, tasks in by_kind.items() if len(kinds) > 1 and len(tasks) > 1}
    groups |= {task: (task,) for task in evidence.kinds if len(evidence.kinds) > 1}
    groups = {
        what: tasks for what, tasks in groups.items() if what in by_kind or evidence.complete(tasks)
    }
    chosen = {each["kind"]: Arm(**each["arm"]) for each in evidence.answer.kinds}
    cells = [each for by_task in evidence.recorded.values() for each in by_task.items()]
    tasks_with_errors = {task for task, cell in cells if cell.stderr or cell.outcomes}
    best = evidence.answer.best_arm
    overall = _standing(evidence, OVERALL, tuple(evidence.weights), LEVEL, best)
    parts = []
    for what, tasks in groups.items():
        part = _standing(evidence, what, tasks, LEVEL / len(groups), chosen.get(what))
        parts.append(replace(part, over_best=evidence.gap(part.arm, overall.arm, tasks)))
    compared = [
        each for each in (overall.lead, overall.gain, *(part.gain for part in parts)) if each
    ]
    search = evidence.config["search"]
    return Verdict(
        overall=overall,
        parts=tuple(parts),
        models=tuple(_model_standing(evidence, model) for model in evidence.models),
        default=evidence.default,
        reward=search["reward"],
        score_unit=evidence.answer.score_unit
        if search["reward"] != "mean"
        else overall.score or 0.0,
        within=search["within"],
        paired=all(each.paired for each in compared),
        exact=tuple(
            task
            for task in evidence.kinds
            if task in {name for name, _ in cells} - tasks_with_errors
        ),
    )


def _standing(
    evidence: Evidence, what: str, tasks: tuple[str, ...], level: float, chosen: Arm | None
) -> Standing:
    """How the arms stand on some tasks; ``chosen`` is the search's choice, which counts where no
    arm has all scores.
    """
    arms, shares = evidence.complete(tasks), evidence.shares(tasks)
    weights = dict(zip(tasks, shares.tolist(), strict=True))
    if not arms:  # known from the model alone
        arm = chosen or evidence.answer.best_arm
        maybe, unseen = _by_model(evidence, [arm]) if what == OVERALL else ((), 0)
        gain = evidence.gap(arm, evidence.default, tasks)
        return Standing(
            what, tasks, tuple(weights.values()), arm, maybe=maybe, unseen=unseen, gain=gain
        )
    beyond = []
    if len(arms) > MOST:
        order = np.argsort(-evidence.values(arms, tasks) @ shares, kind="stable")
        arms, beyond = ([arms[i] for i in np.sort(part)] for part in (order[:MOST], order[MOST:]))
    means = evidence.means(arms, tasks)
    tie, best = means.tied(level), int(means.mean.argmax())
    if chosen in arms and means.mean[arms.index(chosen)] >= means.mean[best] - ROUNDING:
        best = arms.index(chosen)  # of equal means the one that the search recommends
    tied = sorted((arms[i] for i in tie.arms), key=evidence.simplicity)
    as_good = evidence.not_worse(arms[best], beyond, tasks, level)
    others = np.delete(np.arange(len(arms)), best)
    second = int(others[means.mean[others].argmax()]) if len(others) else None
    score, stderr = mean_score(evidence.recorded[arms[best]], weights) or (None, None)
    maybe, unseen = _by_model(evidence, [*arms, *beyond]) if what == OVERALL else ((), 0)
    simpler = tied[: tied.index(arms[best])] if arms[best] in tied else []
    return Standing(
        what=what,
        tasks=tasks,
        weights=tuple(weights.values()),
        arm=arms[best],
        score=score,
        stderr=stderr,
        tied=(*tied, *sorted(as_good, key=evidence.simplicity)),
        worse=tuple(sorted({*arms, *beyond} - {*tied, *as_good}, key=evidence.simplicity)),
        maybe=maybe,
        unseen=unseen,
        next=None if second is None else arms[second],
        lead=None if second is None else means.difference(best, second),
        simpler=tuple(
            CheaperArm(arm, means.difference(best, i), means.most_lost(i, tie))
            for arm in simpler
            for i in [arms.index(arm)]
        ),
        gain=evidence.gap(arms[best], evidence.default, tasks),
        critical=tie.critical,
    )


def _model_standing(evidence: Evidence, model: str) -> ModelStanding:
    """The best arm of a model by the mean of the objective, and its last layer."""
    tasks = tuple(evidence.weights)
    last = evidence.last_layer(model)
    complete = [arm for arm in evidence.complete(tasks) if arm.model == model]
    best = None
    if complete:
        best = complete[int((evidence.values(complete, tasks) @ evidence.shares(tasks)).argmax())]
    return ModelStanding(
        model=model,
        best=best,
        score=mean_score(evidence.recorded[best], evidence.weights) if best else None,
        last=last,
        last_score=mean_score(evidence.recorded.get(last, {}), evidence.weights),
        gain=evidence.gap(best, last, tasks) if best and last in complete else None,
        scores=sum(
            len(by_task) for arm, by_task in evidence.recorded.items() if arm.model == model
        ),
    )


def _by_model(evidence: Evidence, tested: Sequence[Arm]) -> tuple[tuple[Arm, ...], int]:
    """The other arms of the credible set of the search: those with a score, and the number of those
    without one.
    """
    known = set(tested)
    credible = [arm for plain in evidence.answer.credible if (arm := Arm(**plain)) not in known]
    seen = sorted((arm for arm in credible if evidence.recorded.get(arm)), key=evidence.simplicity)
    return tuple(seen), len(credible) - len(seen)
