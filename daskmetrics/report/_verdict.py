"""The verdict of a run: which arm to use, which are within its error, over all tasks, by kind and by task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daskmetrics.core._outcomes import Difference, mean_difference, mean_score
from daskmetrics.core._table import Table
from daskmetrics.core._text import listed, plural
from daskmetrics.core.names import Arm
from daskmetrics.report._evidence import Evidence
from daskmetrics.report._format import apart, in_words, number, percent, place, unpaired
from daskmetrics.report._ties import LEVEL, MOST

OVERALL = "all tasks"
WITHIN_ERROR = "within the error"
BEYOND_ERROR = "beyond the error"
PAIR = 2.0  #: standard errors of a single difference that count as its error, where no test of several arms is possible
ROUNDING = 1e-9  #: difference of means that counts as none
NOTES = (
    "Tied: within the error of the best, of the arms scored on all tasks of the line (all lines: 95 %).",
    "Gains are somewhat optimistic, because the same scores selected the arm.",
)


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
        The best arm: the highest mean of the arms scored on all of the tasks or, if there are none, the search's
        choice among the arms with a score.
    score, stderr : float or None
        Its mean raw score and the standard error; None if it lacks a task.
    tied : tuple of Arm
        The arms scored on all of the tasks that the test finds within the error of the best, simplest first; those that
        are not among the `MOST` with the greatest means come last.
    worse : tuple of Arm
        The arms scored on all of the tasks that are worse than the best.
    maybe : tuple of Arm
        Arms that lack some of the tasks and may be the best, by the model of the search; simplest first.
    unseen : int
        The number of further such arms that have no score at all.
    next : Arm or None
        The next best of the tested arms.
    lead : Difference or None
        How far the best arm is above the next best, in units of the reward.
    simpler : tuple of CheaperArm
        Those of the tied arms that are simpler than the best one, simplest first.
    gain : Difference or None
        How far its mean raw score is above the default arm's, on the tasks that both were scored on.
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
    def title(self) -> str:
        """What it is about, for readers."""
        return self.what.replace("_", " ") if len(self.tasks) > 1 else self.what

    @property
    def is_default(self) -> bool:
        """Whether the best arm is the default arm, or has its outcomes."""
        return self.gain is not None and not (self.gain.value or self.gain.stderr)

    @property
    def tested(self) -> int:
        """The number of arms that the test compared."""
        return len(self.tied) + len(self.worse)

    def relation(self, arm: Arm, gain: Difference) -> str:
        """Whether another arm, which the best one exceeds by ``gain``, is within its error: the same words everywhere.

        Arms that were scored on all tasks are compared by the test of all pairs, others by the error of the gain.
        """
        is_within = arm in self.tied
        if arm not in self.tied and arm not in self.worse:
            is_within = abs(gain.value) <= PAIR * gain.stderr
        return WITHIN_ERROR if is_within else BEYOND_ERROR


@dataclass(frozen=True)
class ModelStanding:
    """The best arm of a model among those scored on all tasks, beside its last layer; None where there is none."""

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
        By kind, if there are several kinds and several tasks of one, and by task. Their sets of tied arms contain the
        best arms of all parts together with 95 %.
    models : tuple of ModelStanding
        The best arm of each model beside its last layer.
    arms : tuple of Arm
        All arms that were measured.
    default : Arm
        What one takes without a search: by default the last layer of the best arm's model at its last checkpoint.
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
    arms: tuple[Arm, ...]
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
        """The simplest arm that loses at most a share of the score in the worst case (95 %); None if there is none.

        By default the share is `within`. Simpler is the smaller model, then the shallower layer, then the earlier
        checkpoint, then fewer bytes for a vector.
        """
        most = (self.within if within is None else within) * abs(self.score_unit)
        return next((simpler for simpler in self.overall.simpler if simpler.most_lost <= most), None)

    @property
    def answer(self) -> str:
        """Which arm to use and what that rests on; short, and without a full stop."""
        one, best = self.overall, place(self.overall.arm, self.arms)
        unseen = f"No layer of {listed(self.unscored_models)} has a score. " if self.unscored_models else ""
        if not one.tied:
            return f"{unseen}{_capital(best)} is the best so far, and was not scored on every task"
        if one.tested == 1:
            return f"{unseen}{_capital(best)} is the only one that was scored on every task"
        tied = f"; {plural(len(one.tied) - 1, 'other')} within the error" if len(one.tied) > 1 else ""
        return f"{unseen}{_capital(best)} is the best of {one.tested:,} scored on every task{tied}"

    @property
    def explanation(self) -> str:
        """The whole verdict after the `answer`, which it does not repeat."""
        return " ".join(filter(None, (self.advantage, self.rivals, self.advice, self.doubts, self.split)))

    @property
    def text(self) -> str:
        """The whole verdict: the answer, its advantage, its rivals, a cheaper arm, and where tasks disagree."""
        return f"{self.answer}. {self.explanation}"

    @property
    def advantage(self) -> str:
        """By how much the best arm exceeds the default arm and the next best, and whether that is beyond the error."""
        one, sentences = self.overall, []
        if one.gain and one.arm != self.default:
            default = "the last layer of its model"
            if not self._is_last_layer(self.default):
                default = place(self.default, self.arms)
            sentences.append(f"It exceeds {default} by {apart(one.gain)}, {self.relation_to_default}.")
        elif one.arm == self.default:
            sentences.append("It is what one takes without a search.")
        if one.lead and one.next and len(one.tied) == 1:
            ahead = f"{apart(one.lead)}{self._unit}, {BEYOND_ERROR}"
            sentences.append(f"The next best, {in_words([one.next], self.arms)}, is behind by {ahead}.")
        return " ".join(sentences)

    @property
    def relation_to_default(self) -> str:
        """Whether the best arm's gain over the default arm is within or beyond the error; empty if it is unknown."""
        gain = self.overall.gain
        return self.overall.relation(self.default, gain) if gain else ""

    @property
    def rivals(self) -> str:
        """Which arms are within the error of the best one."""
        others = [arm for arm in self.overall.tied if arm != self.overall.arm]
        return f"Within its error: {in_words(others, self.arms)}." if others else ""

    @property
    def advice(self) -> str:
        """A cheaper arm and what it loses at most; empty if none loses little enough."""
        if (cheaper := self.cheaper()) is None:
            return ""
        return (
            f"Cheaper: {in_words([cheaper.arm], self.arms)}, {apart(cheaper.loss)}{self._unit} below it, loses at most "
            f"{cheaper.most_lost:.3f} (95 %), less than {percent(self.within)} of the score."
        )

    @property
    def doubts(self) -> str:
        """What only the model of the search says, of arms that lack tasks; empty if there are none."""
        one = self.overall
        count = len(one.maybe) + one.unseen
        if not count:
            return ""
        unseen = f", {one.unseen:,} of them without a score" if one.unseen else ""
        return f"{plural(count, 'arm')} not scored on every task{unseen} may be as good, by the model of the search."

    @property
    def split(self) -> str:
        """For which kinds and tasks another arm is better than the best one over all; empty if for none."""
        best = in_words([self.overall.arm], self.arms)
        parts = [(part, gap) for part in self.parts if self.overall.arm in part.worse and (gap := part.over_best)]
        kinds = {(part.arm, task) for part, _ in parts if len(part.tasks) > 1 for task in part.tasks}
        parts = [(part, gap) for part, gap in parts if len(part.tasks) > 1 or (part.arm, part.tasks[0]) not in kinds]
        named = [f"for {p.title} {in_words([p.arm], self.arms)} exceeds {best} by {apart(gap)}" for p, gap in parts[:3]]
        more = [f"{len(parts) - 3} more in the table"] if len(parts) > 3 else []
        each, one = self.by_task, self.overall.gain
        worth = (
            f" An arm for each task would gain {apart(each)} over the default arm; one for all gains {apart(one)}."
            if each and one
            else ""
        )
        return f"No arm is the best everywhere: {'; '.join([*named, *more])}.{worth}" if named else ""

    @property
    def by_task(self) -> Difference | None:
        """The mean gain over the default arm with the best arm of each task; None if a task has none."""
        gains = {part.tasks[0]: part.gain for part in self.parts if len(part.tasks) == 1}
        known = [gain for task in self.overall.tasks if (gain := gains.get(task))]
        return mean_difference(known, self.overall.weights) if len(known) == len(self.overall.tasks) else None

    @property
    def basis(self) -> str:
        """How it was decided, in a sentence."""
        unit = "" if self.reward == "mean" else f", in units of the reward ({self.reward})"
        errors = "item by item" if self.paired else "as independent where outcomes of items are missing"
        exact = f" Scores without an error count as exact: {', '.join(self.exact)}." if self.exact else ""
        return (
            f"A test of all pairs of the {plural(self.overall.tested, 'arm')} scored on all tasks, {errors}{unit}; it "
            f"allows for their number, so that with 95 % every arm as good as the best is within its error.{exact}"
        )

    @property
    def table(self) -> Table:
        """The best arm of every kind and task with its gain over the default arm; without rows for a single task."""
        header = ("for", "best arm", "tied", "score", "gain over the default arm")
        rows = [
            (
                part.title,
                str(part.arm),
                f"{len(part.tied)} of {part.tested}" if part.tied else "by the model",
                number(part.score, part.stderr),
                "is the default" if part.is_default else apart(part.gain, " *"),
            )
            for part in (self.overall, *self.parts)
        ]
        notes = (*NOTES, *unpaired(each.gain for each in (self.overall, *self.parts)))
        return Table(header, tuple(rows) if self.parts else (), notes=notes)

    @property
    def model_table(self) -> Table:
        """The best arm of each model beside its last layer; without rows for a single model."""
        rows = []
        for standing in self.models:
            best, last = standing.score or (None, None), standing.last_score or (None, None)
            named = (
                str(standing.best) if standing.best else "not scored on every task" if standing.scores else "no score"
            )
            rows.append((standing.model, named, number(*best), number(*last), apart(standing.gain, " *")))
        header = ("model", "best arm", "score", "its last layer", "gain")
        notes = unpaired(standing.gain for standing in self.models)
        return Table(header, tuple(rows) if len(rows) > 1 else (), notes=notes)

    def as_dict(self) -> dict[str, Any]:
        """The verdict as plain JSON values."""
        sentences = ("answer", "advantage", "rivals", "advice", "doubts", "split", "basis")
        parts = [_plain(part) for part in (self.overall, *self.parts)]
        cheaper = self.cheaper()
        return {
            **{name: getattr(self, name) for name in sentences},
            "arm": str(self.overall.arm),
            "cheaper": cheaper and _plain_cheaper(cheaper),
            "unscored_models": list(self.unscored_models),
            "reward": self.reward,
            "paired": self.paired,
            "exact": list(self.exact),
            "standings": parts,
            "models": [_plain_model(standing) for standing in self.models],
        }

    def _is_last_layer(self, arm: Arm) -> bool:
        return any(arm == standing.last for standing in self.models if standing.model == self.overall.arm.model)

    @property
    def _unit(self) -> str:
        return "" if self.reward == "mean" else f" ({self.reward})"


def verdict_of(evidence: Evidence) -> Verdict:
    """The verdict of a finished search."""
    kinds = dict.fromkeys(evidence.kinds.values())
    by_kind = {kind: tuple(task for task, own in evidence.kinds.items() if own == kind) for kind in kinds}
    groups = {kind: tasks for kind, tasks in by_kind.items() if len(kinds) > 1 and len(tasks) > 1}
    groups |= {task: (task,) for task in evidence.kinds if len(evidence.kinds) > 1}
    groups = {what: tasks for what, tasks in groups.items() if what in by_kind or evidence.complete(tasks)}
    chosen = {each["kind"]: Arm(**each["arm"]) for each in evidence.answer.kinds}
    cells = [each for by_task in evidence.recorded.values() for each in by_task.items()]
    tasks_with_errors = {task for task, cell in cells if cell["stderr"] or cell.get("outcomes")}
    best = evidence.answer.best_arm
    overall = _standing(evidence, OVERALL, tuple(evidence.weights), LEVEL, best)
    parts = []
    for what, tasks in groups.items():
        part = _standing(evidence, what, tasks, LEVEL / len(groups), chosen.get(what))
        parts.append(replace(part, over_best=evidence.gap(part.arm, overall.arm, tasks)))
    compared = [each for each in (overall.lead, overall.gain, *(part.gain for part in parts)) if each]
    search = evidence.config["search"]
    return Verdict(
        overall=overall,
        parts=tuple(parts),
        models=tuple(_model_standing(evidence, model) for model in evidence.models),
        arms=tuple(dict.fromkeys([*evidence.arms, *evidence.recorded])),
        default=evidence.default,
        reward=search["reward"],
        score_unit=evidence.answer.score_unit if search["reward"] != "mean" else overall.score or 0.0,
        within=search["within"],
        paired=all(each.paired for each in compared),
        exact=tuple(task for task in evidence.kinds if task in {name for name, _ in cells} - tasks_with_errors),
    )


def _standing(evidence: Evidence, what: str, tasks: tuple[str, ...], level: float, chosen: Arm | None) -> Standing:
    """How the arms stand on some tasks; ``chosen`` is the search's choice, which counts where no arm has all scores."""
    arms, shares = evidence.complete(tasks), evidence.shares(tasks)
    weights = dict(zip(tasks, shares.tolist(), strict=True))
    if not arms:  # known from the model alone
        arm = chosen or evidence.answer.best_arm
        maybe, unseen = _by_model(evidence, [arm]) if what == OVERALL else ((), 0)
        gain = evidence.gap(arm, evidence.default, tasks)
        return Standing(what, tasks, tuple(weights.values()), arm, maybe=maybe, unseen=unseen, gain=gain)
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
        scores=sum(len(by_task) for arm, by_task in evidence.recorded.items() if arm.model == model),
    )


def _by_model(evidence: Evidence, tested: Sequence[Arm]) -> tuple[tuple[Arm, ...], int]:
    """The other arms of the credible set of the search: those with a score, and the number of those without one."""
    known = set(tested)
    credible = [arm for plain in evidence.answer.credible if (arm := Arm(**plain)) not in known]
    seen = sorted((arm for arm in credible if evidence.recorded.get(arm)), key=evidence.simplicity)
    return tuple(seen), len(credible) - len(seen)


def _plain(one: Standing) -> dict[str, Any]:
    arms = {name: [str(arm) for arm in getattr(one, name)] for name in ("tied", "worse", "maybe")}
    gaps = {name: vars(gap) if (gap := getattr(one, name)) else None for name in ("lead", "gain", "over_best")}
    plain = {name: getattr(one, name) for name in ("what", "score", "stderr", "unseen", "critical")}
    simpler = [_plain_cheaper(cheaper) for cheaper in one.simpler]
    named = {"arm": str(one.arm), "next": one.next and str(one.next), "simpler": simpler}
    return {**plain, "tasks": list(one.tasks), **named, **arms, **gaps}


def _plain_cheaper(cheaper: CheaperArm) -> dict[str, Any]:
    return {"arm": str(cheaper.arm), "loss": vars(cheaper.loss), "most_lost": cheaper.most_lost}


def _plain_model(standing: ModelStanding) -> dict[str, Any]:
    named = {"best": standing.best and str(standing.best), "last": str(standing.last)}
    return {**vars(standing), **named, "gain": standing.gain and vars(standing.gain)}


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
