"""Why the search chose a candidate or did not, which cheaper ones lose little, and what a better
score costs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from daskmetrics.answer import analysis
from daskmetrics.answer.posterior import posterior_of
from daskmetrics.answer.recorded import cell_of
from daskmetrics.answer.trade_offs import ArmCost, ModelSize, TradeOffs
from daskmetrics.answer.verdict import CheaperArm
from daskmetrics.core.names import Arm
from daskmetrics.core.table import Table
from daskmetrics.core.text import plural
from daskmetrics.report._format import (
    WIDTH,
    apart,
    number,
    percent,
    probability,
    si,
    unpaired,
)
from daskmetrics.report._run import Run
from daskmetrics.report._sections import ReportSection, cheaper, use

TABLE_WIDTH = 132  #: columns, since a row of trade-offs has nine cells
SHOWN = 6  #: decisions that are listed
COSTS = ("layers", "parameters", "operations", "texts/s", "dimensions", "bytes")


def explain_text(run: Run, name: str) -> str:
    """Rank, decisions, scores and metrics of an arm such as ``tiny@step8/3``, for a terminal."""
    posterior = posterior_of(run)
    for alias, kept in run.measured_as.items():
        if name.startswith(f"{alias}/"):
            name = kept + name.removeprefix(alias)
    index = posterior.index(name)
    arm, leader = (posterior.problem.arms[i] for i in (index, posterior.leader))
    reward, mean = posterior.problem.reward, posterior.posterior.mean[index]
    lead = posterior.lead(index)
    ahead = "the recommended one" if run.result else "the leading one so far"
    if arm != leader:
        ahead = (
            f"{leader} is expected to be better by {number(lead.value, lead.stderr, sign=True)}; "
            f"{probability(1 - lead.probability)} that this one is better"
        )
    rank = f"{posterior.rank(index)} of {len(posterior.problem.arms):,} by the posterior mean"
    expected = f"{number(mean, posterior.posterior.sd[index], sign=True)} (reward {reward})"
    rows = [
        ("rank", rank),
        ("expected", expected),
        ("leader", ahead),
        ("chosen", _decisions(run, arm)),
    ]
    shown = [
        ReportSection(str(arm), table=Table((), tuple(rows))),
        ReportSection("", table=_scores(run, arm, leader)),
    ]
    if metrics := _metrics(run, arm):
        shown.append(ReportSection("", table=metrics))
    return "\n\n".join(section.as_text() for section in shown)


def _decisions(run: Run, arm: Arm) -> str:
    picks = [pick for pick in run.picks if cell_of(pick).arm == arm]
    if not picks:
        return "never: the search expected more information per cost from other candidates"
    texts = [f"{pick['index'] + 1} ({pick['stage']}, {cell_of(pick).task})" for pick in picks]
    text = f"{len(picks)} of {len(run.picks)} decisions: {', '.join(texts[:SHOWN])}"
    if len(texts) > SHOWN:
        text += f" and {len(texts) - SHOWN} more"
    return text


def _scores(run: Run, arm: Arm, leader: Arm) -> Table:
    """The arm's score on every task beside the leader's and the best."""
    scores = analysis.scores(run)
    rows = []
    for task in run.tasks:
        by_arm = {scored: by_task.get(task) for scored, by_task in scores.items()}
        best = max((score for score in by_arm.values() if score is not None), default=None)
        rows.append((task, *map(number, (by_arm.get(arm), by_arm.get(leader), best))))
    return Table(("task", "this one", "leader", "best score"), tuple(rows))


def _metrics(run: Run, arm: Arm) -> Table | None:
    """The metrics of the arm's layer, and how they compare with those of all; None without any."""
    layer = analysis.layer_of(arm)
    rows = []
    for name, values in analysis.metrics(run).items():
        if layer not in values:
            rows.append((name, "undefined", "", ""))
            continue
        below = sum(value < values[layer] for value in values.values()) / len(values)
        value = f"{values[layer]:.4g}"
        rows.append((name, value, analysis.units(run, name), f"{percent(below)} of the layers"))
    if not rows:
        return None
    return Table(("metric", "value", "units", "greater than"), tuple(rows))


def within_text(run: Run, within: float) -> str:
    """The best arm, and the simplest that loses at most a share of its score, for a terminal."""
    simpler = run.verdict.cheaper(within)
    rows = [("best", use(run.answer))]
    if simpler is None:
        rows.append(("cheaper", f"none loses at most {percent(within)} of the score (95 %)"))
    else:
        rows += [("cheaper", cheaper(simpler)), ("saves", _saved(run, simpler))]
    return Table((), tuple(rows)).as_text(WIDTH)


def _saved(run: Run, simpler: CheaperArm) -> str:
    less, best = run.cost_of(simpler.arm), run.cost_of(run.answer.best.arm)
    weights = f"{si(less.parameters)} weights in place of {si(best.parameters)}"
    return f"{weights}, {si(less.flops)} operations for a text in place of {si(best.flops)}"


def trade_offs_text(run: Run) -> str:
    """Scores against what arms take, for a terminal."""
    return trade_offs_table(run.trade_offs()).as_text(TABLE_WIDTH)


def trade_offs_table(compared: TradeOffs) -> Table:
    """The front, one arm a row."""
    rows = [
        (
            str(row.arm),
            number(row.score, row.stderr),
            apart(row.gain, " *"),
            *_cost_cells(row.cost),
        )
        for row in compared.front
    ]
    front = (
        f"Those of the {plural(len(compared.arms), 'candidate')} scored on all tasks that no other "
        "beats in both score and cost. Gain: above the row before."
    )
    notes = (front, *_sources(compared.sizes), *unpaired(row.gain for row in compared.front))
    return Table(("arm", "score", "gain", *COSTS), tuple(rows), "Trade-offs", notes)


def _cost_cells(cost: ArmCost) -> tuple[str, ...]:
    kept = si(cost.parameters)
    if cost.whole is not None:
        kept += f" of {si(cost.whole)}"
    speed = "–"
    if cost.texts_per_second:
        speed = si(cost.texts_per_second)
    elif cost.seconds is None:
        speed = "unknown"
    sizes = (f"{cost.dimensions:,}", f"{cost.bytes:,}")
    return f"{cost.layers}", kept, si(cost.flops), speed, *sizes


def _sources(sizes: Mapping[str, ModelSize]) -> list[str]:
    """How the costs of a table are known."""
    tokens = sorted({math.floor(size.tokens) for size in sizes.values()})
    lines = [
        f"Operations and texts/s: for a text of {', '.join(map(str, tokens))} tokens; texts/s is "
        "measured for the deepest layer, and follows the operations elsewhere."
    ]
    if not all(size.is_measured for size in sizes.values()):
        lines.append("Tokens: the greatest length, where a run recorded none.")
    assumed = [model for model, size in sizes.items() if not size.weights]
    if assumed:
        lines.append(f"Assumed for {', '.join(assumed)}: 12 width² weights a block.")
    return lines
