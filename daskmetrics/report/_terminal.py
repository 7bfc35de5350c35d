"""A run as plain text for a terminal, at most 100 columns wide, except for tables of trade-offs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec

from daskmetrics.answer import analysis
from daskmetrics.answer.posterior import posterior_of
from daskmetrics.answer.recorded import cell_of
from daskmetrics.core.files import RunFolder
from daskmetrics.core.names import Arm
from daskmetrics.core.table import Table
from daskmetrics.report._format import (
    LABEL,
    NO_PICTURES,
    WIDTH,
    fact,
    number,
    percent,
    rows_of,
    si,
)
from daskmetrics.report._run import Run, status_rows
from daskmetrics.report._sections import (
    MOST_ROWS,
    answer_rows,
    tables,
    tasks_table,
)

SHOWN = 6  #: decisions that are listed


def status_text(run: Run) -> str:
    """Progress, what is missing or doubtful, the leading candidate and the location of the
    files.
    """
    rows = status_rows(run, problems=True)
    rows[0] = run.start.name, run.state
    lines = [line for row in rows for line in fact(*row) or [""]]
    return "\n".join(lines).strip() + f"\n\n{whereabouts(run.folder)}"


def summary_text(run: Run) -> str:
    """What a run ends with: the answer, the best candidates of a few tasks, and three paths."""
    if not run.result:
        return status_text(run)
    return best_text(run, [tasks_table(run.answer, MOST_ROWS)])


def best_text(run: Run, beside: Sequence[Table] | None = None) -> str:
    """The answer, with all its tables or those that are given."""
    rows = Table((), tuple(answer_rows(run.answer).items()))
    blocks = [table.as_text(WIDTH) for table in (rows, *(beside or tables(run.answer)))]
    if run.watched:
        blocks.append("\n".join(fact("watch", run.watched)))
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
            lines += fact("figures", NO_PICTURES)
    lines += [f"{'files':<{LABEL}}{folder.path}", f"{'more':<{LABEL}}daskmetrics best --help"]
    return "\n".join(lines)


def explain_text(run: Run, name: str) -> str:
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
    shown = [Table((), tuple(rows), str(arm)), _scores(run, arm, leader), _metrics(run, arm)]
    return "\n\n".join(table.as_text(WIDTH) for table in shown if table.rows)


def _scores(run: Run, arm: Arm, leader: Arm) -> Table:
    """The arm's score on every task beside the leader's and the best."""
    recorded = run.recorded.items()
    rows = []
    for task in run.tasks:
        by_arm = {other: by_task[task].score for other, by_task in recorded if task in by_task}
        best = max(by_arm.values(), default=None)
        rows.append((task, *map(number, (by_arm.get(arm), by_arm.get(leader), best))))
    return Table(("task", "this one", "leader", "best score"), tuple(rows))


def _metrics(run: Run, arm: Arm) -> Table:
    """The metrics of the arm's layer, and how they compare with those of all."""
    layer = analysis.layer_of(arm)
    rows = []
    for name, values in analysis.metrics(run).items():
        if layer not in values:
            rows.append((name, "undefined", "", ""))
            continue
        below = sum(value < values[layer] for value in values.values()) / len(values)
        value = f"{values[layer]:.4g}"
        rows.append((name, value, analysis.units(run, name), f"{percent(below)} of the layers"))
    return Table(("metric", "value", "units", "greater than"), tuple(rows))


def within_text(run: Run, within: float) -> str:
    """The best arm, and the simplest that loses at most a share of its score."""
    simpler = run.verdict.cheaper(within)
    answer = answer_rows(replace(run.answer, cheaper=simpler))
    rows = {"Use": answer["Use"]}
    if simpler is None:
        rows["Cheaper"] = f"none loses at most {percent(within)} of the score (95 %)"
    else:
        less, best = run.cost_of(simpler.arm), run.cost_of(run.answer.best.arm)
        rows["Cheaper"] = answer["Cheaper"]
        rows["Saves"] = (
            f"{si(less.parameters)} weights in place of {si(best.parameters)}, "
            f"{si(less.flops)} operations for a text in place of {si(best.flops)}"
        )
    return Table((), tuple(rows.items())).as_text(WIDTH)
