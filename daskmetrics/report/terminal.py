"""What a terminal shows of a run: its answer, its progress, and where its files are.

Texts are at most 100 columns wide.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from daskmetrics.answer.answer import is_guess
from daskmetrics.core.files import RunFolder
from daskmetrics.core.table import Table, text_width
from daskmetrics.report._format import WIDTH, Line, fact, percent, saving
from daskmetrics.report.lines import answer_lines, named, use
from daskmetrics.report.status import problem_lines, status_lines
from daskmetrics.report.tables import short_tasks_table, tables

if TYPE_CHECKING:
    from daskmetrics.answer.answer import Answer
    from daskmetrics.report._run import Run

#: rows of the answer that `daskmetrics best` adds to the last screen
OMITTED = ("Best of", "Decide")


def status_text(run: Run) -> str:
    """How far a run is, what is missing, and its files."""
    state, *others = status_lines(run, run.answer if run.result else None)
    blocks = [[Line(run.plan.name, state.text), *others], problem_lines(run)]
    texts = ["\n".join(fact(*line) for line in lines) for lines in blocks if lines]
    return "\n\n".join([*texts, files_text(run.folder)])


def best_text(run: Run, in_short: bool = False) -> str:
    """The answer with all its tables and three paths.

    ``in_short``, as a run ends, with the best candidates of a few tasks and without `OMITTED`; or how
    far the run is while it has no answer.
    """
    if in_short and not run.result:
        return status_text(run)
    lines = Table((), answer_lines(run.answer))
    beside = tables(run.answer)
    if in_short:
        lines = replace(lines, rows=[line for line in lines.rows if line[0] not in OMITTED])
        beside = [short_tasks_table(run.answer)]
    shown = [lines, *(table for table in beside if table.rows)]
    blocks = [table.as_text(text_width(WIDTH)) for table in shown]
    if run.watched:
        blocks.append(fact("watch", run.watched))
    return "\n\n".join([*blocks, files_text(run.folder)])


def files_text(folder: RunFolder) -> str:
    """The page as a link, or the folder, and where more is."""
    page = folder.report / "index.html"
    lines = [f"files       {folder.path}"]
    if page.exists():
        lines = [f"page        {page.resolve().as_uri()}"]
    lines += [f"more        daskmetrics best {folder.path}"]
    return "\n".join(lines)


def within_table(answer: Answer, within: float) -> Table:
    """The best arm, and the simplest with a bounded loss."""
    simpler = answer.verdict.cheaper(within)
    lines = [Line("Use", use(answer))]
    if is_guess(answer.over_floor):
        return Table((), lines)
    if simpler is None:
        lines.append(Line("Cheaper", f"none loses at most {percent(within)} of the score (95 %)"))
        return Table((), lines)
    name = named(answer, simpler.arm)
    lines.append(Line("Cheaper", f"{name}: {saving(simpler)}"))
    return Table((), lines)
