"""Whether the choice of a search holds on items that were kept back from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from daskmetrics.core._outcomes import Difference, difference, mean_difference, mean_score
from daskmetrics.core._table import Table
from daskmetrics.core._text import plural
from daskmetrics.core.names import Arm
from daskmetrics.report._format import apart, number, percent, size
from daskmetrics.report._run import Run

CLUSTERING = "A clustering scores higher on fewer texts: compare finalists, not the two columns."
LEVEL = 0.05  #: probability of calling a choice wrong that is right, over all rivals together


@dataclass(frozen=True)
class Finalist:
    """One arm, scored in the search and on fresh items: means over the same tasks, with the weights of the objective.

    ``change`` is the fresh score less that of the search; the items differ, so its error is that of independent scores.
    ``lead`` is the best arm's fresh score less this arm's, item by item.
    """

    arm: Arm
    searched: Difference | None
    fresh: Difference
    change: Difference | None
    lead: Difference | None


@dataclass(frozen=True)
class FreshItems:
    """The finalists of a search on the items that were kept back from it, the chosen arm first."""

    share: float
    finalists: tuple[Finalist, ...]
    tasks: tuple[str, ...]
    unscored: tuple[Arm, ...]  # finalists without a score on one of the tasks
    clustering: bool  # whether one of the tasks is a clustering

    @property
    def best(self) -> Finalist:
        """The finalist with the highest fresh score."""
        return max(self.finalists, key=lambda each: each.fresh.value)

    @property
    def verdict(self) -> str:
        """Whether the choice holds, in a sentence."""
        chosen, best = self.finalists[0], self.best
        rivals = [each for each in self.finalists[1:] if each.lead]
        if not rivals:
            return "There is no other finalist to compare the choice with."
        if best is chosen:
            second = max(rivals, key=lambda each: each.fresh.value)
            assert second.lead
            return f"The choice holds: the next finalist, {second.arm}, is lower by {size(second.lead)}."
        assert best.lead
        limit = NormalDist().inv_cdf(1 - LEVEL / len(rivals))
        above = f"{best.arm} is higher by {size(best.lead)}"
        if -best.lead.value <= limit * best.lead.stderr:
            return f"The choice holds within the error: {above}, less than {limit:.1f} standard errors."
        return f"The choice does not hold: {above}, more than {limit:.1f} standard errors. Prefer {best.arm}."

    @property
    def sentence(self) -> str:
        """What was scored, the verdict, and how far the search's score of its choice was from the fresh one."""
        change = self.finalists[0].change
        tasks = plural(len(self.tasks), "task")
        parts = [f"{percent(self.share)} of the items of {tasks} were kept back from the search.", self.verdict]
        if change:
            parts.append(f"The score of the chosen arm changed by {number(change.value, change.stderr, sign=True)}.")
        if self.unscored:
            parts.append(f"Not scored on all of them: {', '.join(map(str, self.unscored))}.")
        return " ".join(parts)

    @property
    def table(self) -> Table:
        """One row per finalist: its score in the search and on fresh items, and the difference from the chosen arm."""
        rows = tuple(
            (
                str(each.arm),
                number(each.searched.value, each.searched.stderr) if each.searched else "not measured",
                number(each.fresh.value, each.fresh.stderr),
                number(each.change.value, each.change.stderr, sign=True) if each.change else "",
                apart(each.lead, " *"),
            )
            for each in self.finalists
        )
        header = ("finalist", "in the search", "on fresh items", "change", "chosen arm higher by")
        return Table(header, rows, notes=(CLUSTERING,) if self.clustering else ())


def fresh_items(run: Run) -> FreshItems | None:
    """The finalists of a finished search on fresh items; None if it kept none back, or the chosen arm has no score."""
    complete = [arm for arm, own in run.fresh.items() if run.weights.keys() <= own.keys()]
    chosen = next(iter(run.fresh), None)
    if chosen is None or chosen not in complete:
        return None
    return FreshItems(
        share=run.config["search"]["fresh_share"],
        finalists=tuple(_finalist(run, arm, chosen) for arm in complete),
        tasks=tuple(run.weights),
        unscored=tuple(arm for arm in run.fresh if arm not in complete),
        clustering="clustering" in {run.kinds[task] for task in run.weights},
    )


def _finalist(run: Run, arm: Arm, chosen: Arm) -> Finalist:
    weights = run.weights
    means = (mean_score(each.get(arm, {}), weights) for each in (run.recorded, run.fresh))
    searched, fresh = (mean and Difference(*mean, paired=False) for mean in means)
    assert fresh is not None
    change = searched and Difference(
        fresh.value - searched.value, math.hypot(fresh.stderr, searched.stderr), paired=False
    )
    leads = [difference(run.fresh[chosen][task], run.fresh[arm][task]) for task in weights]
    lead = None if arm == chosen else mean_difference(leads, list(weights.values()))
    return Finalist(arm, searched, fresh, change, lead)
