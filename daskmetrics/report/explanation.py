"""Why the search chose a candidate or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from daskmetrics.answer import analysis
from daskmetrics.answer.posterior import RunPosterior, arm_named, posterior_of
from daskmetrics.bandit import Pick
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.table import Table
from daskmetrics.core.text import score_text
from daskmetrics.domain.names import Arm, arm_name
from daskmetrics.domain.outcomes import Estimate
from daskmetrics.domain.recommendation import Recommendation
from daskmetrics.domain.results import Scored
from daskmetrics.domain.scores import Scores
from daskmetrics.report._format import Line, percent, probability_text

if TYPE_CHECKING:
    from daskmetrics.report._run import Run

MOST_PICKS = 6  # decisions shown


def explain_tables(run: Run, name: str) -> list[Table]:
    """Rank, decisions, scores and metrics of an arm such as ``tiny@step8/3``."""
    posterior = posterior_of(run)
    checkpoint = name.rpartition("/")[0]
    if checkpoint in run.plan.deleted:
        raise ConfigError(
            f"'{checkpoint}' is no checkpoint of this run any more: it was deleted, or left out of"
            " 'revisions'. Its scores stay recorded, but it cannot be chosen."
        )
    name = run.plan.measured_as.get(checkpoint, checkpoint) + name.removeprefix(checkpoint)
    arms = posterior.problem.arms
    named = partial(arm_name, names=run.plan.layer_names)
    arm = arm_named(name, arms, "candidate", run.plan.layer_names)
    leader = arms[posterior.leader]
    index = posterior.problem.arm_index[arm]
    rank = posterior.rank(index)
    expected = score_text(*posterior.estimates[arm])
    lines = [
        Line("rank", f"{rank} of {len(arms):,} by what the search expects"),
        Line("expected", f"{expected}, from its scores and those of similar candidates"),
        Line("leader", _leader(posterior, index, named(leader), run.recommendation, run.recorded)),
        Line("chosen", _chosen(run.picks, arm)),
    ]
    shown = [
        Table((), lines, named(arm)),
        _scores(run.kinds, run.recorded, arm, leader),
        _metrics(analysis.metrics(run.records), analysis.units(run.plan), analysis.layer_of(arm)),
    ]
    return [table for table in shown if table.rows]


def _leader(
    posterior: RunPosterior,
    index: int,
    name: str,
    recommended: Recommendation | None,
    recorded: Scores,
) -> str:
    leader = posterior.problem.arms[posterior.leader]
    if index != posterior.leader:
        arm = posterior.problem.arms[index]
        # scores often fall sharply at a last layer, and the posterior would smooth over that
        is_last = index in posterior.problem.default_arms
        if is_last and recorded.get(leader, {}).keys() - recorded.get(arm, {}).keys():
            return f"{name}; the difference is not known before this last layer has its scores"
        lead = posterior.lead(index)
        relation = "better" if lead.value >= 0 else "worse"
        gap = score_text(abs(lead.value), lead.stderr)
        chance = probability_text(1 - lead.probability)
        return f"{name} is expected to be {relation} by {gap}; {chance} that this one is better"
    if not recommended:
        return "the leading one so far"
    if recommended.confirmed:
        return "the recommended one, which has the best scores of those with all of them"
    return "the recommended one"


def _chosen(picks: Sequence[Pick], arm: Arm) -> str:
    mine = [pick for pick in picks if pick.cell.arm == arm]
    if not mine:
        return "never: the search expected more information per cost from other candidates"
    shown = [
        f"{pick.index + 1} ({pick.why['because']}, {pick.cell.task})" for pick in mine[:MOST_PICKS]
    ]
    text = f"{len(mine)} of {len(picks)} decisions: {', '.join(shown)}"
    if len(mine) > MOST_PICKS:
        text += f" and {len(mine) - MOST_PICKS} more"
    return text


def _scores(
    tasks: Iterable[str], recorded: Mapping[Arm, Mapping[str, Scored]], arm: Arm, leader: Arm
) -> Table:
    rows = []
    for task in tasks:
        scores = {arm: by_task[task].score for arm, by_task in recorded.items() if task in by_task}
        best = max(scores.values(), default=None)
        rows.append((task, *map(score_text, (scores.get(arm), scores.get(leader), best))))
    return Table(("task", "this one", "leader", "best score"), rows)


def _metrics(
    metrics: Mapping[str, Mapping[Arm, Estimate]], units: Mapping[str, str], layer: Arm
) -> Table:
    rows = []
    for name, values in metrics.items():
        if layer not in values:
            rows.append((name, "undefined", "", ""))
            continue
        value, _ = values[layer]
        lower = sum(other < value for other, _ in values.values())
        share = percent(lower / len(values))
        rows.append((name, f"{value:.4g}", units[name], f"{share} of the layers"))
    return Table(("metric", "value", "units", "greater than"), rows)
