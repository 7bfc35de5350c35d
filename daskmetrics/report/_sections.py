"""What a run found as rows and tables: the same for terminal, page and notebook."""

from __future__ import annotations

import math
from collections.abc import Mapping

from daskmetrics.answer import analysis
from daskmetrics.answer.answer import Answer
from daskmetrics.answer.fresh import FreshItems
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.answer.status import worker_use
from daskmetrics.answer.trade_offs import TradeOffs, trade_offs_of
from daskmetrics.answer.verdict import Verdict
from daskmetrics.answer.worth import Worth
from daskmetrics.core.outcomes import WITHIN_ERROR
from daskmetrics.core.table import Table
from daskmetrics.core.text import plural
from daskmetrics.report._format import (
    apart,
    candidate,
    number,
    over,
    percent,
    rows_of,
    si,
    unpaired,
)

MOST_ROWS = 8  #: of the table by task, beside the answer
COSTS = ("layers", "parameters", "operations", "texts/s", "dimensions", "bytes")
NO_TABLE = Table((), ())


def answer_rows(answer: Answer) -> dict[str, str]:
    """The answer by label, in at most twelve rows: what to use, its gain, how sure that is, its
    cost, and what to do next.
    """
    return dict(rows_of("answer.txt", answer=answer))


def tables(answer: Answer) -> list[Table]:
    """Everything that an answer has beside its rows."""
    shown = [tasks_table(answer)]
    if len(answer.verdict.models) > 1:
        shown.append(models_table(answer.verdict))
    if answer.readouts:
        shown.append(readouts_table(answer.readouts, answer.weights))
    if answer.fresh:
        shown.append(fresh_table(answer.fresh))
    return shown


def tasks_table(answer: Answer, most: int | None = None) -> Table:
    """The best candidate over all tasks, by kind and by task."""
    standings = (answer.verdict.overall, *answer.verdict.parts)
    rows = []
    for standing in standings[:most]:
        title = standing.what
        if len(standing.tasks) > 1:
            title = title.replace("_", " ")
        within = "not tested"
        if standing.tied:
            within = f"{len(standing.tied) - 1} of {standing.tested - 1}"
        score = number(standing.score, standing.stderr)
        gained = "–"
        if standing.arm != answer.default.arm:
            gained = apart(standing.gain, " *")
        rows.append((title, str(standing.arm), score, gained, within))
    notes = [f"Gain: over {candidate(answer.default.arm)}. The same scores chose the best."]
    if len(rows) < len(standings):
        notes = [f"{len(standings) - len(rows)} more rows: daskmetrics best {answer.folder}"]
    notes += unpaired(standing.gain for standing in standings[:most])
    header = ("for", "best", "score", "gain", "within its error")
    return Table(header, tuple(rows), "By task", tuple(notes))


def models_table(verdict: Verdict) -> Table:
    """The best candidate of every model beside its last layer."""
    rows = []
    for standing in verdict.models:
        best = "no score"
        if standing.best:
            best = str(standing.best)
        elif standing.scores:
            best = "not scored on every task"
        scores = [number(*(score or (None,))) for score in (standing.score, standing.last_score)]
        rows.append((standing.model, best, *scores, apart(standing.gain, " *")))
    header = ("model", "best", "score", "its last layer", "gain")
    notes = unpaired(standing.gain for standing in verdict.models)
    return Table(header, tuple(rows), "By model", notes)


def readouts_table(worths: tuple[Worth, ...], weights: Mapping[str, float]) -> Table:
    """What each choice of a readout is worth."""
    rows = []
    for worth in worths:
        effect = "loses"
        if not worth.beyond:
            effect = WITHIN_ERROR
        elif worth.difference.value > 0:
            effect = "gains"
        difference = apart(worth.difference, " *")
        choices = (worth.value or "default", worth.base or "default")
        rows.append((worth.choice, *choices, difference, effect, f"{worth.pairs:,}"))
    header = ("choice of", "is", "instead of", "difference", "effect", "pairs")
    notes = [
        f"Of the {over(weights.values())}, over pairs that differ in this alone, at 95 % for all.",
        *unpaired(worth.difference for worth in worths),
    ]
    title = "What each choice of a readout is worth"
    return Table(header, tuple(rows), title, tuple(notes))


def fresh_table(fresh: FreshItems) -> Table:
    """The finalists on items that were kept back from the search."""
    rows = []
    for finalist in fresh.finalists:
        scores = [number(*score) for score in (finalist.searched or (None,), finalist.fresh)]
        rows.append((str(finalist.arm), *scores, apart(finalist.lead, " *")))
    header = ("finalist", "in the search", "on fresh items", "chosen one higher by")
    notes = [f"{percent(fresh.share)} of the items were kept back from the search."]
    if fresh.unscored:
        notes.append(f"Not scored on all of them: {', '.join(map(str, fresh.unscored))}.")
    return Table(header, tuple(rows), "Fresh items", tuple(notes))


def trade_offs_table(compared: TradeOffs) -> Table:
    """The front of scores and costs, one candidate a row, and how the costs are known."""
    rows = []
    for row in compared.front:
        cost = row.cost
        kept = si(cost.parameters)
        if cost.whole is not None:
            kept += f" of {si(cost.whole)}"
        speed = "unknown"
        if cost.texts_per_second:
            speed = si(cost.texts_per_second)
        elif cost.seconds is not None:
            speed = "–"
        score = (str(row.arm), number(row.score, row.stderr), apart(row.gain, " *"))
        sizes = (f"{cost.dimensions:,}", f"{cost.bytes:,}")
        rows.append((*score, str(cost.layers), kept, si(cost.flops), speed, *sizes))
    tokens = sorted({math.floor(size.tokens) for size in compared.sizes.values()})
    notes = (
        (
            f"The best of {plural(len(compared.arms), 'candidate')} scored on all tasks at each"
            " cost. Gain: above the row before."
        ),
        (
            f"For a text of {', '.join(map(str, tokens))} tokens. Texts/s: measured for the deepest"
            " layer."
        ),
        *unpaired(row.gain for row in compared.front),
    )
    if not all(size.is_measured for size in compared.sizes.values()):
        notes += ("Tokens: the greatest length, where a run recorded none.",)
    if assumed := [model for model, size in compared.sizes.items() if not size.network]:
        notes += (f"Estimated for {', '.join(assumed)}: 12 width² weights a block.",)
    return Table(("candidate", "score", "gain", *COSTS), tuple(rows), notes=notes)


def folded_tables(run: RecordedRun) -> dict[str, Table]:
    """The tables that the page folds, by their titles; without rows if there is nothing to show."""
    trade_offs = NO_TABLE
    if run.tasks and run.means:
        trade_offs = trade_offs_table(trade_offs_of(run))
    return {
        "What a better score costs": trade_offs,
        "Which metrics predict quality here": _predictors(run),
        "Workers": _workers(run),
    }


def _predictors(run: RecordedRun) -> Table:
    """How well each metric ranks candidates as the scores do, the closest first."""
    table = analysis.correlations(run) if run.recorded else {}
    groups = tuple(next(iter(table.values()), {}))
    rows = []
    for name, by_group in table.items():
        cells = []
        for rho, count in by_group.values():
            text = "too few"
            if not math.isnan(rho):
                text = f"{rho:+.2f} ({count:,})".replace("-", "\N{MINUS SIGN}")
            cells.append(text)
        rows.append((name, *cells))
    return Table(("metric", *groups), tuple(rows), notes=(analysis.ABOUT_RHO,))


def _workers(run: RecordedRun) -> Table:
    """How busy the workers were."""
    rows = []
    for worker in worker_use(run):
        shares = [
            "unknown" if share is None else f"{share:.0%}" for share in (worker.busy, worker.cpu)
        ]
        sizes = []
        for size, missing in ((worker.memory, "unknown"), (worker.gpu_memory, "none")):
            sizes.append(missing if size is None else f"{size / 2**30:.1f} GiB")
        rows.append((worker.worker, worker.host, str(worker.units), *shares, *sizes))
    header = ("worker", "host", "units", "busy", "CPU", "memory", "GPU memory")
    return Table(header, tuple(rows))
