"""The verdict of a run: the arms that cannot be told from the best, over all tasks, by kind and by task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from daskmetrics.core._outcomes import Difference, mean_difference, mean_score
from daskmetrics.core._table import Table
from daskmetrics.core._text import plural
from daskmetrics.core.names import Arm
from daskmetrics.report._evidence import Evidence
from daskmetrics.report._format import apart, in_words, number, place, unpaired
from daskmetrics.report._ties import LEVEL, MOST

OVERALL = "all tasks"
NOTES = (
    "Tied: cannot be told from the best, of the arms scored on all tasks of the line (all lines: 95 %).",
    "Gains are somewhat optimistic, because the same scores selected the arm.",
)


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
        The best arm: the highest mean of the objective, or the search's choice while not all arms are scored.
    score, stderr : float or None
        Its mean raw score and the standard error; None if it lacks a task.
    tied : tuple of Arm
        The arms scored on all of the tasks that the test cannot tell from the best, simplest first; those that are
        not among the `MOST` with the greatest means come last.
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
    loss : Difference or None
        How far it is above the simplest of the tied ones.
    most_lost : float
        By how much the best arm of all is better than the simplest one at most, at the level of the test.
    gain : Difference or None
        How far its mean raw score is above the default arm's, on the tasks that both were scored on.
    over_best : Difference or None
        The same above the best arm over all tasks; None for that arm's own standing.
    critical : float
        Standard errors by which two arms must differ to be told apart.
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
    loss: Difference | None = None
    most_lost: float = 0.0
    gain: Difference | None = None
    critical: float = 0.0
    over_best: Difference | None = None

    @property
    def simplest(self) -> Arm:
        """The simplest of the tied arms."""
        return self.tied[0] if self.tied else self.arm

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


class Wording(NamedTuple):
    """Which arm is the best, in words."""

    answer: str  # short
    reason: str  # what follows the answer
    headline: str  # both, in one sentence


@dataclass(frozen=True)
class Verdict:
    """What a run concludes.

    Attributes
    ----------
    overall : Standing
        Over the tasks of the objective.
    parts : tuple of Standing
        By kind, if there are several kinds and several tasks of one, and by task. Their sets of tied arms contain the
        best arms of all parts together with 95 %.
    arms : tuple of Arm
        All arms that were measured.
    default : Arm
        The arm that one takes without a search.
    reward : str
        In whose units arms were compared; ``mean`` is the raw score.
    paired : bool
        Whether all errors of differences come from the outcomes of the same items.
    exact : tuple of str
        Tasks whose scores have no error at all, and count as exact.
    """

    overall: Standing
    parts: tuple[Standing, ...]
    arms: tuple[Arm, ...]
    default: Arm
    reward: str
    paired: bool
    exact: tuple[str, ...]

    @property
    def tied(self) -> tuple[Arm, ...]:
        """The arms scored on all tasks that cannot be told from the best, simplest first."""
        return self.overall.tied

    @property
    def answer(self) -> str:
        """The best arm, or how many are tied and the simplest of them; short, and without a full stop."""
        return self._wording.answer

    @property
    def explanation(self) -> str:
        """The whole verdict after the `answer`, which it does not repeat."""
        return " ".join(filter(None, (f"{self._wording.reason}.", self.advice, self.doubts, self.split)))

    @property
    def headline(self) -> str:
        """The best arm and by how much it is ahead, or the tied arms; and which arms are worse."""
        return f"{self._wording.headline}."

    @property
    def text(self) -> str:
        """The whole verdict: over all tasks, the simplest of a tie, what the model adds, and where tasks disagree."""
        return " ".join(filter(None, (self.headline, self.advice, self.doubts, self.split)))

    @property
    def doubts(self) -> str:
        """What only the model of the search says, of arms that lack tasks; empty if there are none."""
        one = self.overall
        known = one.tested + (one.arm not in (*one.tied, *one.worse))
        may, left = len(one.maybe) + one.unseen, len(self.arms) - known - len(one.maybe) - one.unseen
        named = in_words(one.maybe, self.arms) if one.maybe and not one.unseen else ", and"
        unseen = f", {one.unseen} of them without a score," if one.unseen else ""
        named = f"{plural(may, 'other arm')}{unseen}" if ", and" in named else named
        said = [f"{named} may be as good"] if may else []
        said += [f"{plural(left, 'arm')} that lack tasks {_are(left)} worse"] if left > 0 else []
        return f"By the model of the search alone, {' and '.join(said)}." if said else ""

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
            f"allows for their number, so that with 95 % every arm as good as the best is among the tied.{exact}"
        )

    @property
    def advice(self) -> str:
        """Of a tie, the simplest arm, what is lost at most by taking it, and the default arm; empty without a tie."""
        one = self.overall
        if len(one.tied) < 2 or one.loss is None:
            return ""
        simplest, highest = (in_words([arm], self.arms) for arm in (one.simplest, one.arm))
        default = " The default arm is among them." if self.default in one.tied else ""
        if one.simplest == one.arm:
            return f"{_capital(simplest)} is the simplest of them and the highest.{default}"
        return (
            f"{_capital(simplest)} is the simplest of them; {highest} is higher by {apart(one.loss)}{self._unit}. "
            f"Taking the simplest loses at most {one.most_lost:.3f} (95 %).{default}"
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

    def as_dict(self) -> dict[str, Any]:
        """The verdict as plain JSON values."""
        sentences = {name: getattr(self, name) for name in ("headline", "advice", "doubts", "split", "basis")}
        parts = [_plain(part) for part in (self.overall, *self.parts)]
        about = {"reward": self.reward, "paired": self.paired, "exact": list(self.exact)}
        return {**sentences, **about, "standings": parts}

    @property
    def _unit(self) -> str:
        return "" if self.reward == "mean" else f" ({self.reward})"

    @property
    def _worse(self) -> str:
        if not (count := len(self.overall.worse)):
            return ""
        named = in_words(self.overall.worse, self.arms)
        named = named if ", and" not in named else f"the other {plural(count, 'arm')} scored on all tasks"
        return f"; {named} {_are(count)} worse"

    @property
    def _wording(self) -> Wording:
        one = self.overall
        short, best = _capital(place(one.arm, self.arms)), _capital(in_words([one.arm], self.arms))
        if not one.tied:
            known = "the best by the model of the search, but lacks tasks"
            return Wording(f"{short} is expected to be the best", f"It is {known}", f"{best} is {known}")
        if len(one.tied) > 1:
            tied, simplest = in_words(one.tied, self.arms), place(one.simplest, self.arms)
            return Wording(
                f"{len(one.tied):,} arms are tied for the best; the simplest is {simplest}",
                f"The tied arms are {tied}{self._worse}",
                f"{_capital(tied)} are tied for the best{self._worse}",
            )
        if one.next is None or one.lead is None:
            known, why = "the best by the model of the search", "no other arm was scored on all tasks"
            return Wording(f"{short} is {known}", _capital(why), f"{best} is {known}: {why}")
        ahead = f"{apart(one.lead)}{self._unit} above the next best, {in_words([one.next], self.arms)}"
        return Wording(f"{short} is the best", f"It is {ahead}", f"{best} is the best: {ahead}")


def verdict_of(evidence: Evidence) -> Verdict:
    """The verdict of a finished search."""
    kinds = dict.fromkeys(evidence.kinds.values())
    by_kind = {kind: tuple(task for task, own in evidence.kinds.items() if own == kind) for kind in kinds}
    groups = {kind: tasks for kind, tasks in by_kind.items() if len(kinds) > 1 and len(tasks) > 1}
    groups |= {task: (task,) for task in evidence.kinds if len(evidence.kinds) > 1}
    groups = {what: tasks for what, tasks in groups.items() if what in by_kind or evidence.complete(tasks)}
    chosen = {each["kind"]: Arm(**each["arm"]) for each in evidence.answer.kinds}
    cells = [each for by_task in evidence.recorded.values() for each in by_task.items()]
    told = {task for task, each in cells if each["stderr"] or each.get("outcomes")}
    overall = _standing(evidence, OVERALL, tuple(evidence.weights), LEVEL, evidence.answer.best_arm)
    parts = []
    for what, tasks in groups.items():
        part = _standing(evidence, what, tasks, LEVEL / len(groups), chosen.get(what))
        parts.append(replace(part, over_best=evidence.gap(part.arm, overall.arm, tasks)))
    compared = [each for each in (overall.lead, overall.gain, *(part.gain for part in parts)) if each]
    return Verdict(
        overall=overall,
        parts=tuple(parts),
        arms=tuple(dict.fromkeys([*evidence.arms, *evidence.recorded])),
        default=evidence.default,
        reward=evidence.config["search"]["reward"],
        paired=all(each.paired for each in compared),
        exact=tuple(task for task in evidence.kinds if task in {name for name, _ in cells} - told),
    )


def _standing(evidence: Evidence, what: str, tasks: tuple[str, ...], level: float, chosen: Arm | None) -> Standing:
    """How the arms stand on some tasks; ``chosen`` is the search's choice, which counts while arms lack tasks."""
    arms, shares = evidence.complete(tasks), evidence.shares(tasks)
    weights = dict(zip(tasks, shares.tolist(), strict=True))
    partial = len(arms) < len(evidence.arms)
    if not arms or (partial and chosen is not None and chosen not in arms):  # known from the model alone
        arm = chosen or evidence.answer.best_arm
        maybe, unseen = _by_model(evidence, [arm]) if what == OVERALL else ((), 0)
        gain = evidence.gap(arm, evidence.default, tasks)
        return Standing(what, tasks, tuple(weights.values()), arm, maybe=maybe, unseen=unseen, gain=gain)
    beyond = []
    if len(arms) > MOST:
        order = np.argsort(-evidence.values(arms, tasks) @ shares, kind="stable")
        arms, beyond = ([arms[i] for i in np.sort(part)] for part in (order[:MOST], order[MOST:]))
    means = evidence.means(arms, tasks)
    tie, highest = means.tied(level), int(means.mean.argmax())
    tied = sorted((arms[i] for i in tie.arms), key=evidence.simplicity)
    as_good = evidence.not_worse(arms[highest], beyond, tasks, level)
    best = arms.index(chosen) if partial and chosen is not None and chosen in tied else highest
    others = np.delete(np.arange(len(arms)), best)
    second = int(others[means.mean[others].argmax()]) if len(others) else None
    simplest = arms.index(tied[0])
    score, stderr = mean_score(evidence.recorded[arms[best]], weights) or (None, None)
    maybe, unseen = _by_model(evidence, [*arms, *beyond]) if what == OVERALL else ((), 0)
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
        loss=means.difference(best, simplest),
        most_lost=means.most_lost(simplest, tie),
        gain=evidence.gap(arms[best], evidence.default, tasks),
        critical=tie.critical,
    )


def _by_model(evidence: Evidence, tested: Sequence[Arm]) -> tuple[tuple[Arm, ...], int]:
    """The other arms of the credible set of the search: those with a score, and the number of those without one."""
    known = set(tested)
    credible = [arm for plain in evidence.answer.credible if (arm := Arm(**plain)) not in known]
    seen = sorted((arm for arm in credible if evidence.recorded.get(arm)), key=evidence.simplicity)
    return tuple(seen), len(credible) - len(seen)


def _plain(one: Standing) -> dict[str, Any]:
    arms = {name: [str(arm) for arm in getattr(one, name)] for name in ("tied", "worse", "maybe")}
    gaps = {name: vars(gap) if (gap := getattr(one, name)) else None for name in ("lead", "loss", "gain", "over_best")}
    plain = {name: getattr(one, name) for name in ("what", "score", "stderr", "unseen", "most_lost", "critical")}
    return {**plain, "tasks": list(one.tasks), "arm": str(one.arm), "next": one.next and str(one.next), **arms, **gaps}


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
