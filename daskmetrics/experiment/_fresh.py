"""The finalists of a search, scored on items that were kept back from it: what `search.confirm:
fresh` adds.

The search has chosen its arm by its scores, so the score of that arm is too high on average, the
more so the more arms there are. The items kept back have not influenced the choice, so scores on
them are unbiased by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from daskmetrics.bandit import Budget, Problem, Recommendation
from daskmetrics.bandit.costs import PaidCosts
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.names import Arm
from daskmetrics.core.outcomes import difference, mean_difference
from daskmetrics.core.results import Scored
from daskmetrics.core.text import duration
from daskmetrics.execution import WorkUnit
from daskmetrics.experiment import search as search
from daskmetrics.experiment.preparation import Experiment

#: arms that are scored at most: the leader, arms that are within its error, and the default arm
FINALISTS = 5
RESERVED = 0.25  #: share of the budget that is reserved for them, unless two arms cost more
#: standard errors of a paired difference, within which an arm counts as good as the leader
TIED = 2.0


@dataclass(frozen=True)
class Allotment:
    """How a budget is divided between the search and the fresh items, in units of cost."""

    exhaustive: float  # all cells of the search, and `FINALISTS` arms on fresh items
    total: float  # what the search and the finalists may cost together
    reserved: float  # the part that the search leaves for the finalists

    @property
    def search(self) -> float:
        """What the search may cost; rounding takes nothing from an exhaustive one."""
        return (self.total - self.reserved) * (1 + 1e-12)


def allotment(limits: Budget, exhaustive: float, few: float, most: float) -> Allotment:
    """Divide a budget, given the costs of all cells of the search, and of two and of `FINALISTS`
    arms on fresh items.

    It is a `ConfigError` if two arms on fresh items would leave less than half of the budget for
    the search.

    >>> allotment(Budget(share=0.5), exhaustive=100.0, few=4.0, most=10.0)
    Allotment(exhaustive=110.0, total=55.0, reserved=10.0)
    """
    with_finalists = exhaustive + most
    total = limits.within(with_finalists)
    reserved = min(most, max(few, RESERVED * total))
    if total - reserved < min(exhaustive, total / 2) * (1 - 1e-9):
        needed = min(2 * few, exhaustive + few)
        raise ConfigError(
            "'search.confirm: fresh' scores at least two candidates on fresh items, which takes up"
            f" to {duration(few)} (estimated), but the search may spend only {duration(total)} in"
            f" all and needs half of it. Allow at least {duration(needed)}, for instance with"
            f" search.budget={min(1.0, np.ceil(100 * needed / with_finalists) / 100):g}, or remove"
            " 'search.confirm'."
        )
    return Allotment(with_finalists, total, reserved)


def allotment_of(experiment: Experiment, exhaustive: float | None = None) -> Allotment:
    """The division of an experiment's budget, for a search whose cells cost ``exhaustive`` on some
    device.
    """
    preview = search.build_problem(experiment, experiment.suites)
    assumed = preview.exhaustive_cost
    scale = 1.0 if exhaustive is None else exhaustive / assumed
    fresh = problem(experiment)
    divided = allotment(
        search.budget(experiment.config.search, preview),
        scale * assumed,
        few=scale * _dearest(fresh, 2),
        most=scale * _dearest(fresh, FINALISTS),
    )
    Budget(cost=divided.search / scale).require_cover(preview)
    return divided


def problem(experiment: Experiment) -> Problem:
    """All arms and tasks with the costs of fresh items."""
    return search.build_problem(
        replace(experiment, tasks=experiment.fresh, fresh=()), experiment.suites
    )


def _dearest(fresh: Problem, arms: int) -> float:
    """Cost of the most expensive arms on the objective, of different checkpoints as far as there
    are so many.
    """
    encode = (fresh.encode_cost + fresh.load_costs[:, None])[np.unique(fresh.first_of_checkpoint)]
    by_kind = [costs[:, fresh.in_objective].sum(axis=1) for costs in (encode, fresh.score_cost)]
    return float(sum(np.sort(costs)[::-1][:arms].sum() for costs in by_kind))


def finalists(
    best: Recommendation,
    scores: Mapping[Arm, Mapping[str, Scored]],
    fresh: Problem,
    remaining: float,
) -> tuple[tuple[Arm, ...], float]:
    """The arms to score on fresh items, the recommended one first, and what they cost.

    ``scores`` are the recorded ones by arm and task. The others are the arms that the posterior
    cannot tell from it, most likely first; those that paired differences of the scores cannot tell
    from it; the runner-up if there are none; and the default arm. At least two arms are chosen, and
    as many others as the remaining cost allows.
    """
    tasks = np.flatnonzero(fresh.in_objective)
    named = [fresh.tasks[task] for task in tasks]
    leader = scores.get(best.arm, {})
    behind: dict[Arm, float] = {}  # arms within `TIED` standard errors of the leader
    for arm, by_task in scores.items():
        if leader.keys() & by_task.keys() >= set(named):
            mean = mean_difference([difference(leader[task], by_task[task]) for task in named])
            if mean and mean.value <= TIED * mean.stderr:
                behind[arm] = mean.value
    ranked_arms = [*best.credible, *sorted(behind, key=behind.__getitem__)]
    tied = [arm for arm in ranked_arms if arm != best.arm]
    tied = tied or [summary.arm for summary in best.top if summary.arm != best.arm][:1]
    ranked = dict.fromkeys([best.arm, *tied[:1], best.default.arm, *tied])
    costs = PaidCosts(fresh)
    chosen: list[Arm] = []
    for arm in ranked:
        row = fresh.arm_index[arm]
        affordable = costs.spent + costs.cost()[row, tasks].sum() <= remaining * (1 + 1e-9)
        if len(chosen) < FINALISTS and (affordable or len(chosen) < 2):
            chosen.append(arm)
            for task in tasks:
                costs.charge(row, int(task))
    return tuple(chosen), costs.spent


def units(
    experiment: Experiment, arms: tuple[Arm, ...], fresh: Problem, scratch: Path
) -> Iterator[WorkUnit]:
    """The units that score the finalists; arms of one checkpoint follow each other, since they
    share encodings.
    """
    for task, needed in zip(experiment.fresh, fresh.in_objective, strict=True):
        if not needed:
            continue
        for arm in sorted(arms):
            yield search.score_unit(experiment, arm, task, scratch, "fresh", {"fresh": str(arm)})
