"""Known scores from a table or the folder of a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from daskmetrics.bandit.replay import ScoreRow, ScoreTable, score_table
from daskmetrics.core.errors import ConfigError, DataError, unknown
from daskmetrics.core.events import Record, RunStarted, require_experiment
from daskmetrics.core.files import RunFolder
from daskmetrics.core.names import Arm, Cell
from daskmetrics.core.readouts import Readout
from daskmetrics.core.results import Scored
from daskmetrics.core.rows import check_names, read_rows
from daskmetrics.core.serialization import build, readable
from daskmetrics.execution.journal import read as read_journal
from daskmetrics.tasks import mteb_results as results

GREATEST = 1e15  #: no score and no time is greater
Count = Annotated[int, Field(ge=0, lt=10**6)]
Size = Annotated[float, Field(ge=0, le=GREATEST)]


@dataclass(frozen=True)
class _Row:
    """The columns that are read, by our names; of a table's other columns a misspelt one of these
    is an error.
    """

    layer: Count
    task: str
    score: Annotated[float, Field(ge=-GREATEST, le=GREATEST)] = math.nan
    model: str = ""
    family: str = ""
    size: str = ""
    revision: str = "main"
    readout: str = ""
    seconds: Size | None = None
    kind: str = ""
    n: str = ""
    encode_seconds: Size = 0.0
    split: str = ""
    n_en: Count = 0
    n_subsets: Count = 0
    protocol: str = ""

    @property
    def arm(self) -> Arm:
        words = filter(None, (self.family, self.size))
        model = self.model or "-".join(words) or "model"
        readout = str(Readout.parse(self.readout))
        return Arm(model, self.revision, self.layer, readout)


KNOWN = tuple(field.name for field in fields(_Row))
ALIASES = {
    "score": "main_score",
    "seconds": "evaluation_time",
    "kind": "task_type",
}  #: in the published table


COMPARED_BY = ("objective", "weights")  #: settings of a search that a table has


@dataclass(frozen=True)
class KnownScore:
    """A score of a run or a table, and what it is a mean of, as far as that is known.

    `content` is a result of mteb, with the score of each subset. A table has the split, and the
    number of subsets, all in English.
    """

    score: float
    content: Mapping[str, Any] | None = None
    split: str = ""
    subsets: int = 0

    @property
    def says_what(self) -> bool:
        return bool(self.content or (self.split and self.subsets))

    def over(self, wanted: Mapping[str, Any]) -> float:
        """The mean over the splits and subsets of another result; `DataError` if this score is not
        of these.
        """
        selection = results.selection_of(wanted)
        if self.content is not None:
            return results.mean(results.select(self.content, selection))
        if self.split and (self.split,) != selection.splits:
            raise DataError(
                f"is of the split '{self.split}', the run's of {', '.join(selection.splits)}"
            )
        if self.subsets and (
            self.subsets != len(selection.subsets) or not results.in_english(wanted)
        ):
            names = ", ".join(selection.subsets)[:100]
            raise DataError(f"is a mean of {self.subsets} subsets in English, the run's of {names}")
        return self.score


def published(path: str | Path) -> dict[Cell, KnownScore]:
    """The scores of a path as of `read`, with the splits and subsets that they are means of.

    Columns of a table: ``split``, and ``n_en`` or ``n_subsets``.
    """
    path = Path(path)
    if not path.is_file():
        scores_by_cell = read(path).cells()
        return {cell: KnownScore(score) for cell, score in scores_by_cell.items()}
    scores = {}
    for row, score in _score_rows(path):
        if math.isfinite(row.score):
            scores[Cell(row.arm, row.task)] = score
    return scores


def read(path: str | Path, models: Sequence[str] = ()) -> ScoreTable:
    """Read a table of known scores.

    Parameters
    ----------
    path : str or Path
        A table (CSV, TSV, JSON Lines, Parquet; also ``.csv.gz``), or the folder of a run.
    models : sequence of str
        Models to keep; all by default.

    Raises
    ------
    ConfigError
        If the path contains no scores, a column is missing, or a model is not in the table.
    DataError
        If a value cannot be read, or a cell has two different scores.
    """
    rows, search = _source(Path(path))
    models_of_rows = dict.fromkeys(row.arm.model for row in rows)
    for model in models:
        if model not in models_of_rows:
            raise unknown("model", model, models_of_rows)
    table = score_table(row for row in rows if not models or row.arm.model in models)
    return replace(table, **search).of_tasks(table.tasks)  # some weights may be of others


def _source(path: Path) -> tuple[list[ScoreRow], dict[str, Any]]:
    """The scores of a path, and what the search of a run compares by, as a table has it."""
    if (path / "journal.jsonl").is_file():
        with readable("The scores of the run", path):
            return _from_run(RunFolder(path))
    if not path.is_file():
        raise ConfigError(f"No scores at '{path}': it is neither a table nor the folder of a run.")
    return [row for row, _ in _score_rows(path) if math.isfinite(row.score)], {}


def _score_rows(path: Path) -> Iterator[tuple[ScoreRow, KnownScore]]:
    """The score of each row, and what it is a mean of; a score is NaN where the table has none.
    Columns of the published table have our names.
    """
    seen: dict[Cell, tuple[str, float]] = {}
    checked: set[tuple[str, ...]] = set()
    for position, values in read_rows(path):
        columns = tuple(values)
        if columns not in checked:
            check_names(path, columns, KNOWN)
            checked.add(columns)
        for ours, theirs in ALIASES.items():
            if theirs in values:
                values = {ours: values[theirs], **values}
        for column in ("layer", "task", "score"):
            if column not in values:
                raise ConfigError(
                    f"'{path}' has no column '{column}'. Its columns: {', '.join(columns)}."
                )
        given = {}
        for name in KNOWN:
            value = values.get(name)
            if value is not None and str(value).lower() not in ("", "nan"):
                given[name] = str(value)
        try:
            line = build(_Row, given)
            arm = line.arm
        except ValueError as error:
            raise DataError(f"'{path}', {position}: {error}.") from None
        row = ScoreRow(
            arm=arm,
            task=line.task,
            score=line.score,
            seconds=line.seconds,
            encode=line.encode_seconds,
            kind=line.kind,
        )
        cell = Cell(row.arm, row.task)
        earlier, score = seen.setdefault(cell, (position, row.score))
        if row.score != score and not math.isnan(row.score) and not math.isnan(score):
            raise DataError(
                f"'{path}', {position}: {cell} has the score {row.score:g}, and {score:g} in"
                f" {earlier}. Remove one of them."
            )
        yield row, KnownScore(row.score, None, line.split, line.n_en or line.n_subsets)


def _from_run(folder: RunFolder) -> tuple[list[ScoreRow], dict[str, Any]]:
    """Scores of a run, with the latest score of each cell and models in the order of the run; and
    the objective and weights of its search.
    """
    search: dict[str, Any] = {}
    kinds: dict[str, str] = {}
    models: list[str] = []
    rows: dict[str, ScoreRow] = {}
    entries = list(read_journal(folder.journal))
    require_experiment(entries, folder.path)
    for entry in entries:
        match entry:
            case RunStarted():
                kinds = {name: task["kind"] for name, task in entry.tasks.items()}
                models = list(entry.widths)
                settings = entry.config.get("search", {})
                search = {name: settings[name] for name in COMPARED_BY if name in settings}
            case Record(kind="score", value=Scored() as scored):
                cell = Cell.parse(entry.name)
                rows[entry.name] = ScoreRow(
                    cell.arm,
                    cell.task,
                    scored.score,
                    entry.seconds + scored.encode_seconds,
                    scored.encode_seconds,
                )
    scores = [replace(row, kind=kinds[row.task]) for row in rows.values() if row.task in kinds]
    if not scores:
        raise ConfigError(
            f"The run in '{folder.path}' has no scores. To score everything, run it with --set"
            " search.policy=sweep --set search.budget=1."
        )
    models += [row.arm.model for row in scores]  # those that the latest run does not name
    return sorted(scores, key=lambda row: models.index(row.arm.model)), search
