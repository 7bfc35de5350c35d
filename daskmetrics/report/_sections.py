"""What a run found, or how far it is, as tables and as text for a terminal: a run, its answer, one
candidate, candidates and runs side by side. Texts are at most 100 columns wide, except for trade-offs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import chain

from daskmetrics.answer import analysis
from daskmetrics.answer.answer import Answer, Verdict
from daskmetrics.answer.comparison import (
    Agreement,
    ArmComparison,
    PublishedComparison,
    RunComparison,
    compare_best,
    different_settings,
)
from daskmetrics.answer.posterior import posterior_of
from daskmetrics.answer.recorded import RecordedRun, cell_of
from daskmetrics.answer.status import worker_use
from daskmetrics.answer.trade_offs import TradeOffs, trade_offs_of
from daskmetrics.answer.worth import FreshItems, Worth
from daskmetrics.core.files import RunFolder
from daskmetrics.core.names import Arm
from daskmetrics.core.outcomes import WITHIN_ERROR
from daskmetrics.core.table import Table
from daskmetrics.core.text import plural
from daskmetrics.report._format import (
    LABEL,
    NO_PICTURES,
    WIDTH,
    answer_rows,
    apart,
    candidate,
    fact,
    number,
    percent,
    rows_of,
    si,
    table,
    template,
)
from daskmetrics.report._run import Run, status_rows

SHOWN = 6  #: decisions that are listed
MOST_ROWS = 8  #: of the table by task, beside the answer
NOT_MEASURED = (None, None)  # a score
ABOUT_RHO = (
    "Spearman's ρ between metric and score over the candidates scored on a task, averaged over the"
    " tasks of a kind, with the number of scores in brackets. 1: the metric ranks candidates as the"
    " scores do; -1: in reverse order; 0: unrelated. The search prefers promising candidates, and"
    " neighbouring layers are similar: ρ describes these scores and is not a statistical test."
)
COSTS = ("layers", "parameters", "operations", "texts/s", "dimensions", "bytes")


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
    default = answer.default.arm
    standings = (answer.verdict.overall, *answer.verdict.parts)
    rows = []
    for standing in standings[:most]:
        title = standing.what
        if len(standing.tasks) > 1:
            title = title.replace("_", " ")
        within = "not tested"
        if standing.tied:
            within = f"{len(standing.tied) - 1} of {standing.tested - 1}"
        score = standing.score, standing.stderr
        gain = "–" if standing.arm == default else standing.gain
        rows.append((title, standing.arm, score, gain, within))
    note = f"Gain: over {candidate(default)}. The same scores chose the best."
    if len(rows) < len(standings):
        note = f"{len(standings) - len(rows)} more rows: daskmetrics best {answer.folder}"
    return table(("for", "best", "score", "gain", "within its error"), rows, "By task", note)


def models_table(verdict: Verdict) -> Table:
    """The best candidate of every model beside its last layer."""
    rows = []
    for standing in verdict.models:
        missing = "not scored on every task" if standing.scores else "no score"
        scores = [score or NOT_MEASURED for score in (standing.score, standing.last_score)]
        rows.append((standing.model, standing.best or missing, *scores, standing.gain))
    return table(("model", "best", "score", "its last layer", "gain"), rows, "By model")


def readouts_table(worths: tuple[Worth, ...], weights: Mapping[str, float]) -> Table:
    """What each choice of a readout is worth."""
    rows = []
    for worth in worths:
        effect = "gains" if worth.difference.value > 0 else "loses"
        if not worth.beyond:
            effect = WITHIN_ERROR
        choices = worth.value or "default", worth.base or "default"
        rows.append((worth.choice, *choices, worth.difference, effect, worth.pairs))
    header = ("choice of", "is", "instead of", "difference", "effect", "pairs")
    note = template("readouts.txt").render(weights=list(weights.values()))
    return table(header, rows, "What each choice of a readout is worth", note)


def fresh_table(fresh: FreshItems) -> Table:
    """The finalists on items that were kept back from the search."""
    rows = [
        (finalist.arm, finalist.searched or NOT_MEASURED, finalist.fresh, finalist.lead)
        for finalist in fresh.finalists
    ]
    header = ("finalist", "in the search", "on fresh items", "chosen one higher by")
    notes = [f"{percent(fresh.share)} of the items were kept back from the search."]
    if fresh.unscored:
        notes.append(f"Not scored on all of them: {', '.join(map(str, fresh.unscored))}.")
    return table(header, rows, "Fresh items", *notes)


def trade_offs_table(compared: TradeOffs) -> Table:
    """The front of scores and costs, one candidate a row, and how the costs are known."""
    rows = []
    for row in compared.front:
        cost = row.cost
        kept = si(cost.parameters)
        if cost.whole is not None:
            kept += f" of {si(cost.whole)}"
        speed = "unknown" if cost.seconds is None else "–"
        if cost.texts_per_second:
            speed = si(cost.texts_per_second)
        sizes = cost.layers, kept, si(cost.flops), speed, cost.dimensions, cost.bytes
        rows.append((row.arm, (row.score, row.stderr), row.gain, *sizes))
    tokens = sorted({math.floor(size.tokens) for size in compared.sizes.values()})
    notes = [
        (
            f"The best of {plural(len(compared.arms), 'candidate')} scored on all tasks at each"
            " cost. Gain: above the row before."
        ),
        (
            f"For a text of {', '.join(map(str, tokens))} tokens. Texts/s: measured for the deepest"
            " layer."
        ),
    ]
    if not all(size.is_measured for size in compared.sizes.values()):
        notes.append("Tokens: the greatest length, where a run recorded none.")
    if assumed := [model for model, size in compared.sizes.items() if not size.network]:
        notes.append(f"Estimated for {', '.join(assumed)}: 12 width² weights a block.")
    return table(("candidate", "score", "gain", *COSTS), rows, "", *notes)


def folded_tables(run: RecordedRun) -> dict[str, Table]:
    """The tables that the page folds, by their titles; without rows if there is nothing to show."""
    folded = {}
    if run.means:
        folded["What a better score costs"] = trade_offs_table(trade_offs_of(run))
    if run.recorded:
        folded["Which metrics predict quality here"] = _predictors(run)
    return {**folded, "Workers": _workers(run)}


def _predictors(run: RecordedRun) -> Table:
    """How well each metric ranks candidates as the scores do, the closest first."""
    correlations = analysis.correlations(run)
    correlations["text"] = [
        f"{rho:+.2f} ({count:,})".replace("-", "\N{MINUS SIGN}") if count else "too few"
        for rho, count in correlations.itertuples(index=False)
    ]
    by_metric = correlations.groupby(level="metric", sort=False)["text"]
    rows = [(name, *texts) for name, texts in by_metric]
    return table(("metric", *correlations.index.unique("group")), rows, "", ABOUT_RHO)


def _workers(run: RecordedRun) -> Table:
    """How busy the workers were."""
    uses = worker_use(run.entries, run.records)
    for column, style in (("units", "{}"), ("busy", "{:.0%}"), ("cpu", "{:.0%}")):
        uses[column] = uses[column].map(style.format, na_action="ignore")
    for column in ("memory", "gpu_memory"):
        uses[column] = (uses[column] / 2**30).map("{:.1f} GiB".format, na_action="ignore")
    uses = uses.astype(object).fillna({"gpu_memory": "none"}).fillna("unknown")
    header = ("worker", "host", "units", "busy", "CPU", "memory", "GPU memory")
    return Table(header, list(uses.itertuples(name=None)))


def status_text(run: Run) -> str:
    """Progress, what is missing or doubtful, the leading candidate and the location of the
    files.
    """
    (_, state), *rows = status_rows(run, problems=True)
    lines = [fact(*row) for row in ((run.start.name, state), *rows)]
    return "\n".join(lines).strip() + f"\n\n{whereabouts(run.folder)}"


def best_text(run: Run, in_short: bool = False) -> str:
    """The answer with all its tables and three paths; ``in_short``, as a run ends, with the best
    candidates of a few tasks, or how far the run is while it has no answer.
    """
    if in_short and not run.result:
        return status_text(run)
    rows = Table((), list(answer_rows(run.answer).items()))
    beside = [tasks_table(run.answer, MOST_ROWS)] if in_short else tables(run.answer)
    blocks = [part.as_text(WIDTH) for part in (rows, *beside)]
    if run.watched:
        blocks.append(fact("watch", run.watched))
    return "\n\n".join([*blocks, whereabouts(run.folder)])


def whereabouts(folder: RunFolder) -> str:
    """The page as a link, which terminals open; the folder of a run; and where more is said.

    Where no figures were written because matplotlib is missing, that is said below the link.
    """
    page = folder.report / "index.html"
    lines = []
    if page.exists():
        lines.append(f"{'page':<{LABEL}}{page.resolve().as_uri()}")
        if find_spec("matplotlib") is None and not any(folder.report.glob("*.png")):
            lines.append(fact("figures", NO_PICTURES))
    lines += [f"{'files':<{LABEL}}{folder.path}", f"{'more':<{LABEL}}daskmetrics best --help"]
    return "\n".join(lines)


def explain_tables(run: Run, name: str) -> list[Table]:
    """Rank, decisions, scores and metrics of an arm such as ``tiny@step8/3``."""
    posterior = posterior_of(run)
    for alias, kept in run.measured_as.items():
        if name.startswith(f"{alias}/"):
            name = kept + name.removeprefix(alias)
    index = posterior.index(name)
    arm, leader = (posterior.problem.arms[i] for i in (index, posterior.leader))
    picks = [(pick, cell_of(pick)) for pick in run.picks]
    rows = rows_of(
        "explain.txt",
        run=run,
        posterior=posterior,
        index=index,
        leader=leader if arm != leader else None,
        lead=posterior.lead(index),
        picks=[(pick, cell.task) for pick, cell in picks if cell.arm == arm],
        most=SHOWN,
    )
    shown = [Table((), rows, str(arm)), _scores(run, arm, leader), _metrics(run, arm)]
    return [part for part in shown if part.rows]


def _scores(run: Run, arm: Arm, leader: Arm) -> Table:
    """The arm's score on every task beside the leader's and the best."""
    recorded = run.recorded.items()
    rows = []
    for task in run.tasks:
        by_arm = {other: by_task[task].score for other, by_task in recorded if task in by_task}
        best = max(by_arm.values(), default=None)
        compared = (by_arm.get(arm), by_arm.get(leader), best)
        rows.append((task, *map(number, compared)))
    return Table(("task", "this one", "leader", "best score"), rows)


def _metrics(run: Run, arm: Arm) -> Table:
    """The metrics of the arm's layer, and how they compare with those of all."""
    layer = analysis.layer_of(arm)
    units = analysis.units(run)
    rows = []
    for name, values in analysis.metrics(run).items():
        if layer not in values:
            rows.append((name, "undefined", "", ""))
            continue
        layer_value, _ = values[layer]
        below = sum(value < layer_value for value, _ in values.values()) / len(values)
        rows.append((name, f"{layer_value:.4g}", units[name], f"{percent(below)} of the layers"))
    return Table(("metric", "value", "units", "greater than"), rows)


def within_table(run: Run, within: float) -> Table:
    """The best arm, and the simplest that loses at most a share of its score."""
    simpler = run.verdict.cheaper(within)
    answer = answer_rows(replace(run.answer, cheaper=simpler))
    rows = {"Use": answer["Use"]}
    if simpler is None:
        rows["Cheaper"] = f"none loses at most {percent(within)} of the score (95 %)"
    else:
        less = run.cost_of(simpler.arm)
        best = run.cost_of(run.answer.best.arm)
        rows["Cheaper"] = answer["Cheaper"]
        rows["Saves"] = (
            f"{si(less.parameters)} weights in place of {si(best.parameters)}, "
            f"{si(less.flops)} operations for a text in place of {si(best.flops)}"
        )
    return Table((), list(rows.items()))


def compare_tables(
    run: Run, other: Run, compared: RunComparison | ArmComparison | PublishedComparison
) -> list[Table]:
    """Two runs: their answers, costs, common scores and different settings; two candidates on every
    task, of which the second may be of another run; or a run beside published scores.
    """
    match compared:
        case ArmComparison():
            return [_arms(run, other, compared)]
        case PublishedComparison(source, shared, left_out):
            return [_agreement(f"Published: {source}", shared, left_out)]
    runs = {"run": run, "other": other}
    shown = [answers(runs)]
    if compared.best_arms:
        shown.append(replace(scores(runs), title=_mean(run, other, compared.best_arms)))
    shown.append(_agreement("Scores of both", compared.shared, compared.left_out))
    differing = settings(runs)
    if not differing.rows:
        differing = Table((), (), "Both runs have the same settings.")
    return [*shown, differing]


def _arms(run: Run, other: Run, compared: ArmComparison) -> Table:
    rows = []
    for task, gap in compared.tasks.items():
        pair = run.recorded[compared.arm][task], other.recorded[compared.other][task]
        scores = ((score.score, score.stderr) for score in pair)
        rows.append((task, *scores, gap, gap.relation))
    header = ("task", str(compared.arm), str(compared.other), "difference", "")
    return table(header, rows, _mean(run, other, compared))


def _mean(run: Run, other: Run, compared: ArmComparison) -> str:
    """The difference of the mean scores, in the words of the verdict if one of the two is its
    best.
    """
    if compared.difference is None:
        return "No task of the objective was scored with both."
    relation = compared.difference.relation
    if run is other and run.result:
        overall = run.verdict.overall
        pair = [compared.arm, compared.other]
        if overall.arm in pair:
            pair.remove(overall.arm)
            relation = overall.relation(pair[0], compared.difference)
    return (
        f"{compared.arm} scores {apart(compared.difference)} more than {compared.other},"
        f" {relation}."
    )


def _agreement(title: str, shared: Agreement, left_out: Sequence[str]) -> Table:
    """How common scores differ, and what is left out."""
    rows = [("in common", f"{shared.cells:,}")]
    if shared.cells:
        greatest = f"{number(shared.greatest, sign=True)} ({shared.at})"
        rows += [("mean difference", number(shared.mean, sign=True)), ("greatest", greatest)]
    if shared.rho is not None:
        rows.append(("Spearman's ρ", f"{shared.rho:+.3f}"))
    if left_out:
        reason = f"{len(left_out):,} of other splits or subsets; for example {left_out[0]}"
        rows.append(("left out", reason))
    return Table((), rows, title)


def answers(runs: Mapping[str, Run]) -> Table:
    """What runs have done and recommend, one column for each run."""
    columns = []
    for run in runs.values():
        column = {"candidates": f"{run.start.arms:,}", **dict(status_rows(run))}
        column["gain"] = "no answer yet"
        if run.result:
            column["gain"] = answer_rows(run.answer)["Gain"]
        columns.append(column)
    labels = dict.fromkeys(chain.from_iterable(columns))
    rows = [(label, *(column.get(label, "") for column in columns)) for label in labels]
    return Table(("", *runs), rows)


def scores(runs: Mapping[str, Run]) -> Table:
    """The scores of each run's recommended arm by task, and how much each exceeds that of the first
    finished run.

    Tasks of mteb over other subsets or splits are not subtracted.
    """
    best = {name: run.answer.best.scores for name, run in runs.items() if run.result}
    base, *others = best
    gaps = {name: compare_best(runs[base], runs[name]).tasks for name in others}
    rows = []
    for task in dict.fromkeys(chain.from_iterable(run.tasks for run in runs.values())):
        row: list[object] = [task]
        for name in runs:
            score = best.get(name, {}).get(task)
            row.append((score.score, score.stderr) if score else NOT_MEASURED)
        for name in others:
            gap = gaps[name].get(task)
            is_shared = task in best[base] and task in best[name]
            row.append("other subsets" if is_shared and not gap else gap)
        rows.append(row)
    return table(("task", *runs, *(f"{name} − {base}" for name in others)), rows)


def settings(runs: Mapping[str, Run]) -> Table:
    """Settings that differ, since scores are comparable only if these do not matter."""
    rows = []
    for key, values in different_settings(*runs.values()).items():
        rows.append((key, *("" if value is None else str(value) for value in values)))
    return Table(("different setting", *runs), rows)
