"""What a run found, or how far it is, as tables and as text for a terminal: a run, its answer, one
candidate, candidates and runs side by side. Texts are at most 100 columns wide, except for trade-offs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

from daskmetrics.answer import analysis
from daskmetrics.answer.answer import Answer
from daskmetrics.answer.comparison import (
    Agreement,
    ArmComparison,
    PublishedComparison,
    RunComparison,
    compare_best,
    different_settings,
)
from daskmetrics.answer.posterior import arm_named, posterior_of
from daskmetrics.answer.recorded import RecordedRun, cell_of
from daskmetrics.answer.status import worker_use
from daskmetrics.answer.trade_offs import TradeOffs, trade_offs_of
from daskmetrics.core.table import Table, text_width
from daskmetrics.report._format import WIDTH, fact
from daskmetrics.report._run import Run, status_rows
from daskmetrics.report.templates import answer_rows, rows_of, table_of, text_of

MOST_ROWS = 8  #: of the table by task, beside the answer


def tables(answer: Answer) -> list[Table]:
    """Everything that an answer has beside its rows."""
    shown = [tasks_table(answer)]
    models = answer.verdict.models
    if len(models) > 1:
        shown.append(table_of("models", "By model", models=models))
    if answer.readouts:
        shown.append(table_of("readouts", "What each choice of a readout is worth", answer=answer))
    if answer.fresh:
        shown.append(table_of("fresh", "Fresh items", fresh=answer.fresh))
    return shown


def tasks_table(answer: Answer, most: int | None = None) -> Table:
    """The best candidate over all tasks, by kind and by task."""
    return table_of("tasks", "By task", answer=answer, most=most)


def trade_offs_table(compared: TradeOffs) -> Table:
    """The front of scores and costs, one candidate a row, and how the costs are known."""
    return table_of("trade_offs", compared=compared)


def folded_tables(run: RecordedRun) -> dict[str, Table]:
    """The tables that the page folds, by their titles; without rows if there is nothing to show."""
    folded = {}
    if run.means:
        folded["What a better score costs"] = trade_offs_table(trade_offs_of(run))
    if run.recorded:
        predictors = table_of("predictors", correlations=analysis.correlations(run))
        folded["Which metrics predict quality here"] = predictors
    folded["Workers"] = table_of("workers", uses=worker_use(run.entries, run.records))
    return folded


def status_text(run: Run) -> str:
    """Progress, what is missing or doubtful, the leading candidate and the location of the
    files.
    """
    (_, state), *rows = status_rows(run, problems=True)
    lines = [fact(label, text) for label, text in [(run.start.name, state), *rows]]
    return "\n\n".join(["\n".join(lines).strip(), text_of("files", folder=run.folder)])


def best_text(run: Run, in_short: bool = False) -> str:
    """The answer with all its tables and three paths; ``in_short``, as a run ends, with the best
    candidates of a few tasks, or how far the run is while it has no answer.
    """
    if in_short and not run.result:
        return status_text(run)
    rows = Table((), list(answer_rows(run.answer).items()))
    beside = [tasks_table(run.answer, MOST_ROWS)] if in_short else tables(run.answer)
    blocks = [table.as_text(text_width(WIDTH)) for table in (rows, *beside)]
    if run.watched:
        blocks.append(fact("watch", run.watched))
    return "\n\n".join([*blocks, text_of("files", folder=run.folder)])


def explain_tables(run: Run, name: str) -> list[Table]:
    """Rank, decisions, scores and metrics of an arm such as ``tiny@step8/3``."""
    posterior = posterior_of(run)
    checkpoint = name.rpartition("/")[0]
    name = run.measured_as.get(checkpoint, checkpoint) + name.removeprefix(checkpoint)
    arm = arm_named(name, posterior.problem.arms, "candidate")
    index = posterior.problem.arm_index[arm]
    leader = posterior.problem.arms[posterior.leader]
    picks = [pick for pick in run.picks if cell_of(pick).arm == arm]
    rows = rows_of(
        "explain",
        run=run,
        posterior=posterior,
        index=index,
        leader=leader if arm != leader else None,
        lead=posterior.lead(index),
        picks=picks,
    )
    scores = table_of("explain_scores", run=run, arm=arm, leader=leader)
    metrics = table_of(
        "metrics",
        metrics=analysis.metrics(run),
        layer=analysis.layer_of(arm),
        units=analysis.units(run),
    )
    return [table for table in (Table((), rows, str(arm)), scores, metrics) if table.rows]


def within_table(run: Run, within: float) -> Table:
    """The best arm, and the simplest that loses at most a share of its score."""
    simpler = run.verdict.cheaper(within)
    rows = rows_of(
        "within",
        rows=answer_rows(replace(run.answer, cheaper=simpler)),
        within=within,
        less=simpler and run.cost_of(simpler.arm),
        best=run.cost_of(run.answer.best.arm),
    )
    return Table((), rows)


def compare_tables(
    run: Run, other: Run, compared: RunComparison | ArmComparison | PublishedComparison
) -> list[Table]:
    """Two runs: their answers, costs, common scores and different settings; two candidates on every
    task, of which the second may be of another run; or a run beside published scores.
    """
    match compared:
        case ArmComparison():
            table = table_of(
                "arms",
                _mean(run, other, compared),
                compared=compared,
                scores=run.recorded[compared.arm],
                other_scores=other.recorded[compared.other],
            )
            return [table]
        case PublishedComparison(source, shared, left_out):
            return [_agreement(f"Published: {source}", shared, left_out)]
    runs = {"run": run, "other": other}
    shown = [answers(runs)]
    if compared.best_arms:
        title = _mean(other, run, compared.best_arms)
        shown.append(replace(scores(runs), title=title))
    shown.append(_agreement("Scores of both", compared.shared, compared.left_out))
    differing = settings(runs)
    if not differing.rows:
        differing = Table((), (), "Both runs have the same settings.")
    return [*shown, differing]


def _mean(run: Run, other: Run, compared: ArmComparison) -> str:
    """The difference of the mean scores over the objective of the first candidate's run, in the
    words of the verdict if one of the two is its best.
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
    return text_of("mean_difference", run=run, compared=compared, relation=relation)


def _agreement(title: str, shared: Agreement, left_out: Sequence[str]) -> Table:
    """How common scores differ, and what is left out."""
    return Table((), rows_of("agreement", shared=shared, left_out=left_out), title)


def answers(runs: Mapping[str, Run]) -> Table:
    """What runs have done and recommend, one column for each run."""
    import pandas

    columns = []
    for run in runs.values():
        column = {"candidates": f"{run.start.arms:,}", **dict(status_rows(run))}
        column["gain"] = "no answer yet"
        if run.result:
            column["gain"] = answer_rows(run.answer)["Gain"]
        columns.append(column)
    by_label = pandas.DataFrame(columns).fillna("").T
    return Table(("", *runs), list(by_label.itertuples(name=None)))


def scores(runs: Mapping[str, Run]) -> Table:
    """The scores of each run's recommended arm by task, and how much each exceeds that of the first
    finished run.

    Tasks of mteb over other subsets or splits are not subtracted.
    """
    best = {name: run.answer.best.scores for name, run in runs.items() if run.result}
    base, *others = best
    gaps = {name: compare_best(runs[base], runs[name]).tasks for name in others}
    differences = chain.from_iterable(by_task.values() for by_task in gaps.values())
    tasks = dict.fromkeys(chain.from_iterable(run.tasks for run in runs.values()))
    return table_of(
        "scores",
        runs=runs,
        base=base,
        others=others,
        tasks=tasks,
        best=best,
        gaps=gaps,
        differences=list(differences),
    )


def settings(runs: Mapping[str, Run]) -> Table:
    """Settings that differ, since scores are comparable only if these do not matter."""
    rows = []
    for key, values in different_settings(*runs.values()).items():
        texts = ["" if value is None else str(value) for value in values]
        rows.append((key, *texts))
    return Table(("different setting", *runs), rows)
