"""An answer as sections, each a title, one sentence and a table: the same for terminal, page and
notebook.
"""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain

from daskmetrics.answer import analysis
from daskmetrics.answer.answer import Answer
from daskmetrics.answer.fresh import FreshItems
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.answer.status import worker_use
from daskmetrics.answer.trade_offs import TradeOffs
from daskmetrics.answer.verdict import CheaperArm
from daskmetrics.answer.worth import Worth
from daskmetrics.core.outcomes import WITHIN_ERROR
from daskmetrics.core.table import Table, printable
from daskmetrics.core.text import listed, plural
from daskmetrics.report._format import (
    WIDTH,
    apart,
    candidate,
    number,
    over,
    percent,
    probability,
    si,
    unpaired,
)

MOST_ARMS = 64  #: that have a row of metrics
COSTS = ("layers", "parameters", "operations", "texts/s", "dimensions", "bytes")
MOST_ROWS = 8  #: of the table by task on the last screen of a run
#: why a search ended, by the name in `daskmetrics.bandit.Outlook`
ENDINGS = {
    "sure": "no score is left that may change the answer",
    "confidence": "the required confidence was reached",
    "budget": "the budget was spent",
    "cells": "the largest number of scores was reached",
    "complete": "everything was scored",
    "stopped": "the time limit was reached",
}
#: what a readout has where its name says nothing of a choice
DEFAULT_CHOICES = {
    "pooling": "the protocol's pooling",
    "layers": "one layer",
    "dimensions": "all dimensions",
    "whitening": "not whitened",
}


NO_TABLE = Table((), ())


@dataclass(frozen=True)
class ReportSection:
    """A part of what a run says."""

    title: str
    sentence: str = ""
    table: Table = NO_TABLE

    def as_text(self) -> str:
        """For a terminal."""
        blocks = [printable(self.title), textwrap.fill(printable(self.sentence), WIDTH)]
        if self.table.rows:
            blocks.append(self.table.as_text(WIDTH))
        return "\n\n".join(filter(None, blocks))

    def as_html(self) -> str:
        """For the page."""
        text = f"<h2>{html.escape(self.title)}</h2>"
        if self.sentence:
            text += f"<p>{html.escape(self.sentence)}</p>"
        if self.table.rows:
            text += f'<div class="scroll fit">{self.table.as_html()}</div>'
        return text


def sections(answer: Answer) -> list[ReportSection]:
    """Everything that an answer says beside its `facts`."""
    shown = [tasks_section(answer), certainty_section(answer)]
    if len(answer.verdict.models) > 1:
        shown.insert(1, models_section(answer))
    if answer.readouts:
        shown.append(readouts_section(answer.readouts, answer.weights))
    if answer.fresh:
        shown.append(fresh_section(answer.fresh))
    return shown


def facts(answer: Answer, folder: str) -> dict[str, str]:
    """The answer in a few lines, by label: what to use, what it gains, how sure that is."""
    rows = {}
    if answer.unscored_models:
        rows["Not known"] = f"no layer of {listed(answer.unscored_models)} has a score"
    best = answer.best
    if answer.confirmed:
        mean_score = number(best.score, best.stderr)
        score = f"score {mean_score} ({over(answer.weights.values())})"
    else:
        scored = sum(task in best.scores for task in answer.weights)
        score = f"the best so far, scored on {scored} of {plural(len(answer.weights), 'task')}"
    rows["Use"] = f"{candidate(best.arm)}: {score}"
    rows["Gain"] = gain(answer)
    rows["Sure"] = sureness(answer)
    if answer.cheaper:
        rows["Cheaper"] = cheaper(answer.cheaper)
    if answer.per_task and answer.verdict.disagreeing:
        rows["Per task"] = f"a candidate for each task would gain {apart(answer.per_task)} more"
    if answer.fresh:
        rows["Fresh items"] = fresh_verdict(answer.fresh)
    share = f"{percent(answer.cost.share or 0.0)} of the cost of scoring everything"
    rows["Cost"] = f"{answer.scored:,} of {answer.planned:,} scores, {share} (assumed)"
    rows["Save"] = f"import daskmetrics as dm; dm.open({folder!r}).best().save('my-encoder')"
    return rows


def use(answer: Answer) -> str:
    """Which candidate to use, in one line."""
    best = answer.best
    if answer.confirmed:
        return f"{candidate(best.arm)}, score {number(best.score, best.stderr)}"
    return f"{candidate(best.arm)}, the best so far"


def gain(answer: Answer) -> str:
    """What the best candidate gains over the default one, and whether that is beyond the error."""
    if answer.best.arm == answer.default.arm:
        return "none: it is what one would take without a search"
    default = candidate(answer.default.arm)
    for standing in answer.verdict.models:
        if standing.last == answer.default.arm and standing.model == answer.best.arm.model:
            default = "its last layer"
    if answer.difference is None:
        return f"not known: no task was scored with it and with {default}"
    return f"{apart(answer.difference)} over {default}, {answer.relation}"


def sureness(answer: Answer) -> str:
    """How sure the answer is, in one of three words and its numbers."""
    overall = answer.verdict.overall
    better = f"{probability(answer.probability)} that no other is better"
    if answer.sureness is None:
        return f"{better}; {plural(overall.tested, 'candidate')} scored on every task"
    rivals = len(overall.tied) - 1
    others = f"{plural(rivals, 'other')} of {overall.tested:,} within the error"
    return f"{answer.sureness}: {better}; {others}"


def cheaper(simpler: CheaperArm) -> str:
    """A simpler candidate, and what it loses."""
    return (
        f"{candidate(simpler.arm)} loses {number(simpler.loss.value, simpler.loss.stderr)}, "
        f"at most {simpler.most_lost:.3f} (95 %)"
    )


def tasks_section(answer: Answer, most: int | None = None) -> ReportSection:
    """The best candidate over all tasks, by kind and by task."""
    standings = (answer.verdict.overall, *answer.verdict.parts)
    shown = standings[:most]
    notes = [
        f"Gain: over {candidate(answer.default.arm)}; somewhat optimistic, since the same scores "
        "chose the best.",
        "Within the error: of the candidates scored on all tasks of the line (all lines: 95 %).",
    ]
    if len(shown) < len(standings):
        notes.append(f"{len(standings) - len(shown)} more lines: daskmetrics best")
    rows = []
    for standing in shown:
        within = "not tested"
        if standing.tied:
            within = f"{len(standing.tied)} of {standing.tested}"
        title = standing.what
        if len(standing.tasks) > 1:
            title = standing.what.replace("_", " ")
        score = number(standing.score, standing.stderr)
        rows.append((title, str(standing.arm), score, apart(standing.gain, " *"), within))
    header = ("for", "best", "score", "gain", "within the error")
    notes += unpaired(standing.gain for standing in shown)
    return ReportSection("By task", table=Table(header, tuple(rows), notes=tuple(notes)))


def models_section(answer: Answer) -> ReportSection:
    """The best candidate of every model beside its last layer."""
    rows = []
    for standing in answer.verdict.models:
        best = "no score"
        if standing.best:
            best = str(standing.best)
        elif standing.scores:
            best = "not scored on every task"
        score = number(*(standing.score or (None, None)))
        last_score = number(*(standing.last_score or (None, None)))
        rows.append((standing.model, best, score, last_score, apart(standing.gain, " *")))
    header = ("model", "best", "score", "its last layer", "gain")
    notes = unpaired(standing.gain for standing in answer.verdict.models)
    return ReportSection("By model", table=Table(header, tuple(rows), notes=notes))


def certainty_section(answer: Answer) -> ReportSection:
    """What the answer rests on."""
    verdict = answer.verdict
    unit = ""
    if verdict.reward != "mean":
        unit = f", in units of the reward ({verdict.reward})"
    errors = "item by item" if verdict.paired else "as independent where outcomes are missing"
    tested = verdict.overall.tested
    test = "none, since no other candidate was scored on all tasks"
    if tested > 1:
        test = (
            f"all pairs of the {tested:,} candidates scored on all tasks, {errors}{unit}; with "
            "95 % each that is as good as the best is within its error"
        )
    rows = [
        ("test", test),
        (
            "probability",
            f"{probability(answer.probability)} that no other is better, by the statistical model "
            "of the search, not by a test on fresh items",
        ),
    ]
    if answer.ending:
        rows.append(("ended", ENDINGS[answer.ending]))
    if doubtful := len(verdict.overall.maybe) + verdict.overall.unseen:
        rows.append(
            (
                "open",
                f"{plural(doubtful, 'candidate')} not scored on every task may be as good, by the "
                "model of the search",
            )
        )
    if verdict.exact:
        rows.append(("exact", f"scores without an error: {', '.join(verdict.exact)}"))
    return ReportSection("How sure this is", table=Table((), tuple(rows)))


def readouts_section(worths: tuple[Worth, ...], weights: Mapping[str, float]) -> ReportSection:
    """What each choice of a readout is worth."""
    rows = []
    for worth in worths:
        effect = WITHIN_ERROR
        if worth.beyond:
            effect = "gains" if worth.difference.value > 0 else "loses"
        single = f"{number(worth.low, sign=True)} to {number(worth.high, sign=True)}"
        rows.append(
            (
                worth.value or DEFAULT_CHOICES[worth.choice],
                worth.base or DEFAULT_CHOICES[worth.choice],
                apart(worth.difference, " *"),
                effect,
                f"{worth.pairs:,}",
                single,
                apart(worth.at_best),
            )
        )
    header = ("choice", "instead of", "difference", "effect", "pairs", "each pair", "at the best")
    notes = [
        "Pairs of candidates differ in the choice alone, and share the items of a task.",
        "At the best: of the two that are otherwise as the one with the greatest mean score.",
    ]
    if any(len(worth.tasks) < len(weights) for worth in worths):
        notes.append("Lines without such pairs on all tasks: over the tasks that have some.")
    notes += unpaired(worth.difference for worth in worths)
    sentence = f"Differences of the {over(weights.values())}, at 95 % for all lines together."
    return ReportSection(
        "What each choice of a readout is worth",
        sentence,
        Table(header, tuple(rows), notes=tuple(notes)),
    )


def fresh_section(fresh: FreshItems) -> ReportSection:
    """The finalists on items that were kept back from the search."""
    rows = []
    for finalist in fresh.finalists:
        searched = "not measured"
        if finalist.searched:
            searched = number(finalist.searched.value, finalist.searched.stderr)
        change = ""
        if finalist.change:
            change = number(finalist.change.value, finalist.change.stderr, sign=True)
        fresh_score = number(finalist.fresh.value, finalist.fresh.stderr)
        lead = apart(finalist.lead, " *")
        rows.append((str(finalist.arm), searched, fresh_score, change, lead))
    header = ("finalist", "in the search", "on fresh items", "change", "chosen one higher by")
    notes: tuple[str, ...] = ()
    if fresh.unscored:
        notes = (f"Not scored on all of them: {', '.join(map(str, fresh.unscored))}.",)
    sentence = (
        f"{percent(fresh.share)} of the items of {plural(len(fresh.tasks), 'task')} were kept back "
        f"from the search: {fresh_verdict(fresh)}."
    )
    return ReportSection("Fresh items", sentence, Table(header, tuple(rows), notes=notes))


def fresh_verdict(fresh: FreshItems) -> str:
    """Whether the choice holds on fresh items."""
    chosen = fresh.finalists[0].arm
    if len(fresh.finalists) < 2:
        return "there is no other finalist to compare the choice with"
    if fresh.best == chosen:
        return "the choice holds, no finalist is higher"
    if fresh.holds:
        return f"the choice holds, {candidate(fresh.best)} is higher within the error"
    return f"the choice does not hold, {candidate(fresh.best)} is higher beyond the error"


def trade_offs_table(compared: TradeOffs) -> Table:
    """The front of scores and costs, one arm a row, and how the costs are known."""
    rows = []
    for row in compared.front:
        cost = row.cost
        kept = si(cost.parameters)
        if cost.whole is not None:
            kept += f" of {si(cost.whole)}"
        speed = "–"
        if cost.texts_per_second:
            speed = si(cost.texts_per_second)
        elif cost.seconds is None:
            speed = "unknown"
        score = (str(row.arm), number(row.score, row.stderr), apart(row.gain, " *"))
        sizes = (f"{cost.dimensions:,}", f"{cost.bytes:,}")
        rows.append((*score, str(cost.layers), kept, si(cost.flops), speed, *sizes))
    sizes_of = compared.sizes.items()
    tokens = sorted({math.floor(size.tokens) for _, size in sizes_of})
    notes = [
        f"Those of the {plural(len(compared.arms), 'candidate')} scored on all tasks that no other "
        "beats in both score and cost. Gain: above the row before.",
        f"Operations and texts/s: for a text of {', '.join(map(str, tokens))} tokens; texts/s is "
        "measured for the deepest layer, and follows the operations elsewhere.",
    ]
    if not all(size.is_measured for _, size in sizes_of):
        notes.append("Tokens: the greatest length, where a run recorded none.")
    if assumed := [model for model, size in sizes_of if not size.weights]:
        notes.append(f"Assumed for {', '.join(assumed)}: 12 width² weights a block.")
    notes += unpaired(row.gain for row in compared.front)
    return Table(("arm", "score", "gain", *COSTS), tuple(rows), "Trade-offs", tuple(notes))


def folded_sections(run: RecordedRun) -> dict[str, Table]:
    """The tables that the page folds, by their titles; without rows if there is nothing to show."""
    compared = analysis.compared(run) if run.tasks else None
    return {
        "What a better score costs": trade_offs_table(compared) if compared else NO_TABLE,
        "The metrics of every arm": _metrics(run),
        "Which metrics predict quality here": _predictors(run),
        "Workers": _workers(run),
    }


def _metrics(run: RecordedRun) -> Table:
    """The metrics of every layer of a small run; without rows if there are too many layers."""
    metrics = analysis.metrics(run)
    layers = (replace(suite, readouts=("",)).arms() for suite in analysis.suites(run))
    arms = list(chain.from_iterable(layers))
    if not metrics or len(arms) > MOST_ARMS:
        return NO_TABLE
    rows = []
    for arm in arms:
        values = [by_arm.get(arm) for by_arm in metrics.values()]
        rows.append((str(arm), *("–" if value is None else f"{value:.4g}" for value in values)))
    return Table(("layer", *metrics), tuple(rows))


def _predictors(run: RecordedRun) -> Table:
    """How well each metric ranks candidates as the scores do, the closest first."""
    table = analysis.correlations(run) if run.recorded else {}
    groups = tuple(next(iter(table.values()), {}))
    rows = []
    for name in analysis.closest_first(table):
        cells = []
        for rho, count in table[name].values():
            text = f"{rho:+.2f} ({count:,})".replace("-", "\N{MINUS SIGN}")
            cells.append("too few" if math.isnan(rho) else text)
        rows.append((name, *cells))
    return Table(("metric", *groups), tuple(rows), notes=(analysis.ABOUT_RHO,))


def _workers(run: RecordedRun) -> Table:
    """How busy the workers were."""
    rows = []
    for use in worker_use(run):
        shares = ["unknown" if share is None else f"{share:.0%}" for share in (use.busy, use.cpu)]
        sizes = []
        for size, missing in ((use.memory, "unknown"), (use.gpu_memory, "none")):
            sizes.append(missing if size is None else f"{size / 2**30:.1f} GiB")
        rows.append((use.worker, use.host, str(use.units), *shares, *sizes))
    header = ("worker", "host", "units", "busy", "CPU", "memory", "GPU memory")
    return Table(header, tuple(rows))
