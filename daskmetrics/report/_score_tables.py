"""Known scores from a CSV file, a folder of mteb results or the folder of a run."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from daskmetrics.bandit.replay._tables import ScoreRow, ScoreTable, score_table
from daskmetrics.core._events import Record, RunStarted
from daskmetrics.core._files import RunFolder
from daskmetrics.core.errors import ConfigError, DataError, unknown
from daskmetrics.core.names import Arm, Cell
from daskmetrics.execution._journal import read as read_journal
from daskmetrics.tasks import _mteb_results as results
from daskmetrics.tasks._mteb import LAYER_BY_LAYER

METRIC = "metric:"  #: prefix of the columns of metrics
ALIASES = {"score": "main_score", "seconds": "evaluation_time", "kind": "task_type"}  #: in the published table


def read(path: str | Path, models: Sequence[str] = (), metrics: str | Path | None = None) -> ScoreTable:
    """Read a table of known scores.

    Parameters
    ----------
    path : str or Path
        A CSV file (also ``.csv.gz``), the folder of a run, or a folder of mteb results.
    models : sequence of str
        Models to keep; all by default.
    metrics : str or Path, optional
        A CSV file of label-free metrics, one value per line; see `read_metrics`. By default the metrics of the table.

    Raises
    ------
    ConfigError
        If the path contains no scores, a column is missing, or a model is not in the table.
    DataError
        If a value cannot be read.
    """
    rows, metrics_of_arms = _source(Path(path))
    if metrics is not None:
        metrics_of_arms = read_metrics(metrics)
    known = dict.fromkeys(row.arm.model for row in rows)
    for model in models:
        if model not in known:
            raise unknown("model", model, known)
    return score_table((row for row in rows if not models or row.arm.model in models), metrics_of_arms)


def _source(path: Path) -> tuple[list[ScoreRow], dict[Arm, dict[str, float]]]:
    if path.is_file():
        return _from_csv(path)
    if (path / "journal.jsonl").is_file():
        return _from_run(RunFolder(path))
    if rows := list(_from_mteb(path)):
        return rows, {}
    raise ConfigError(
        f"No scores at '{path}': it is neither a CSV file, nor the folder of a run, nor a folder of mteb results "
        "(results/MODEL/REVISION/experiments/layer_N.../TASK.json)."
    )


def _from_csv(path: Path) -> tuple[list[ScoreRow], dict[Arm, dict[str, float]]]:
    rows, metrics = [], dict[Arm, dict[str, float]]()
    for number, line in _lines(path, ("layer", "task", "score")):
        try:
            seconds = _number(line.get("seconds", ""))
            row = ScoreRow(
                arm=_arm(line),
                task=line["task"],
                score=_number(line["score"]),
                stderr=max(0.0, _number(line.get("stderr", ""), 0.0)),
                seconds=seconds if math.isfinite(seconds) else None,
                encode=_number(line.get("encode_seconds", ""), 0.0),
                kind=line.get("kind", ""),
            )
        except (ValueError, KeyError) as error:
            raise DataError(f"'{path}', line {number}: {error} is not valid in a row of scores: {line}.") from None
        values = {name.removeprefix(METRIC): _number(value) for name, value in line.items() if name.startswith(METRIC)}
        metrics.setdefault(row.arm, {}).update((name, value) for name, value in values.items() if math.isfinite(value))
        if math.isfinite(row.score):
            rows.append(row)
    return rows, metrics


def _arm(line: Mapping[str, str]) -> Arm:
    model = line.get("model") or "-".join(filter(None, (line.get("family"), line.get("size"))))
    return Arm(model or "model", line.get("revision") or "main", int(line["layer"]))


def _number(text: str, otherwise: float = math.nan) -> float:
    return float(text) if text else otherwise


def read_metrics(path: str | Path) -> dict[Arm, dict[str, float]]:
    """Label-free metrics by arm, from a CSV file with a value per line.

    Columns: model (or family and size), revision, layer, metric, value, and optionally norm and dataset, which become
    part of the metric's name. The published metrics of "Layer by Layer" have this layout.
    """
    metrics: dict[Arm, dict[str, float]] = {}
    for number, line in _lines(Path(path), ("layer", "metric", "value")):
        name = " ".join(filter(None, (line["metric"], line.get("norm"), line.get("dataset"), line.get("split"))))
        try:
            arm, value = _arm(line), _number(line["value"])
        except ValueError as error:
            raise DataError(f"'{path}', line {number}: {error}.") from None
        if math.isfinite(value):
            metrics.setdefault(arm, {})[name] = value
    return metrics


def _lines(path: Path, needed: Iterable[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Lines of a CSV file by column, with our names for the columns of the published table."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8", newline="") as text:
        reader = csv.DictReader(text)
        names = {name: name for name in reader.fieldnames or ()}
        names |= {theirs: ours for ours, theirs in ALIASES.items() if ours not in names and theirs in names}
        for column in needed:
            if column not in names.values():
                raise ConfigError(f"'{path}' has no column '{column}'. Its columns: {', '.join(names)}.")
        for number, line in enumerate(reader, start=2):
            yield number, {names[name]: value for name, value in line.items() if name in names and value is not None}


def _from_run(folder: RunFolder) -> tuple[list[ScoreRow], dict[Arm, dict[str, float]]]:
    """Scores and metrics of a run, with the latest score of each cell and models in the order of the run."""
    kinds: dict[str, str] = {}
    models: list[str] = []
    rows: dict[str, ScoreRow] = {}
    metrics: dict[Arm, dict[str, float]] = {}
    for entry in read_journal(folder.journal):
        match entry:
            case RunStarted():
                kinds = {name: about["kind"] for name, about in entry.tasks.items()}
                models = list(entry.widths)
            case Record(kind="measure", status="ok", value=value):
                for layer, values in zip(value["layers"], value["values"], strict=True):
                    named = zip(value["names"], values, strict=True)
                    metrics[Arm.parse(f"{entry.name}/{layer}")] = {k: v for k, v in named if v is not None}
            case Record(kind="score", status="ok", value=value):
                cell, encode = Cell.parse(entry.name), float(value["encode_seconds"])
                rows[entry.name] = ScoreRow(
                    cell.arm, cell.task, value["score"], value["stderr"], entry.seconds + encode, encode
                )
    known = [row for row in rows.values() if row.task in kinds]
    known.sort(key=lambda row: models.index(row.arm.model) if row.arm.model in models else len(models))
    if not known:
        raise ConfigError(
            f"The run in '{folder.path}' has no scores. To score every cell, run it with --set search.policy=sweep "
            "--set search.budget=1."
        )
    return [ScoreRow(**{**vars(row), "kind": kinds[row.task]}) for row in known], metrics


def _from_mteb(folder: Path) -> Iterator[ScoreRow]:
    """Scores as mteb 2.26 and later stores them: each layer is a separate experiment."""
    origin: dict[tuple[Arm, str], Path] = {}
    for path in results.result_files(folder):
        result = results.read_result(path)
        if result is None:
            raise DataError(f"The layer of '{path.parent}' is unknown: its name has no 'layer_N'.")
        score = _main_score(result.content.get("scores", {}))
        if score is None:
            continue
        arm, task = Arm(result.model, result.revision, result.layer), result.task
        first = origin.setdefault((arm, task), path)
        if first != path:
            raise DataError(f"{arm} has two scores of {task}: '{first}' and '{path}'. Remove one of them.")
        seconds = result.content.get("evaluation_time")
        yield ScoreRow(arm, task, score, seconds=seconds and float(seconds), kind=LAYER_BY_LAYER.get(task, ""))


def _main_score(splits: Mapping[str, Sequence[Mapping[str, Any]]]) -> float | None:
    """Mean main score over the subsets of the test split, or of the only split; None if it is not finite."""
    subsets = splits.get("test") or next(iter(splits.values()), [])
    values = [float(each["main_score"]) for each in subsets if each.get("main_score") is not None]
    return sum(values) / len(values) if values and all(map(math.isfinite, values)) else None
