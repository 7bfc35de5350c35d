"""Known scores from a CSV file, a folder of mteb results or the folder of a run."""

from __future__ import annotations

import csv
import gzip
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from daskmetrics.bandit.replay._tables import ScoreRow, ScoreTable, score_table
from daskmetrics.core._events import Record, RunStarted
from daskmetrics.core._files import RunFolder
from daskmetrics.core.errors import ConfigError, DataError, unknown
from daskmetrics.core.names import Arm, Cell
from daskmetrics.execution._journal import read as read_journal
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
    results = path / "results" if (path / "results").is_dir() else path
    if rows := list(_from_mteb(results)):
        return rows, {}
    raise ConfigError(
        f"No scores at '{path}': it is neither a CSV file, nor the folder of a run, nor a folder of mteb results "
        "(results/MODEL/REVISION/experiments/layer_N.../TASK.json)."
    )


def _from_csv(path: Path) -> tuple[list[ScoreRow], dict[Arm, dict[str, float]]]:
    rows, metrics = [], dict[Arm, dict[str, float]]()
    for number, line in _lines(path, ("layer", "task", "score")):
        try:
            row = _row(line)
        except (ValueError, KeyError) as error:
            raise DataError(f"'{path}', line {number}: {error} is not valid in a row of scores: {line}.") from None
        values = {name.removeprefix(METRIC): _number(value) for name, value in line.items() if name.startswith(METRIC)}
        metrics.setdefault(row.arm, {}).update((name, value) for name, value in values.items() if math.isfinite(value))
        if math.isfinite(row.score):
            rows.append(row)
    return rows, metrics


def _row(line: Mapping[str, str]) -> ScoreRow:
    seconds = _number(line.get("seconds", ""))
    return ScoreRow(
        arm=_arm(line),
        task=line["task"],
        score=_number(line["score"]),
        stderr=max(0.0, _number(line.get("stderr", ""), 0.0)),
        seconds=seconds if math.isfinite(seconds) else None,
        encode=_number(line.get("encode_seconds", ""), 0.0),
        kind=line.get("kind", ""),
    )


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


def _from_mteb(results: Path) -> Iterator[ScoreRow]:
    """Scores as mteb 2.26 and later stores them: each layer is a separate experiment."""
    origin: dict[tuple[Arm, str], Path] = {}
    for path in sorted(results.glob("*/*/experiments/*/*.json")):
        if path.name == "model_meta.json":
            continue
        arm = Arm(path.parents[3].name.replace("__", "/"), path.parents[2].name, _layer(path.parent))
        row = _result(path, arm)
        if row is None:
            continue
        first = origin.setdefault((arm, row.task), path)
        if first != path:
            raise DataError(f"{arm} has two scores of {row.task}: '{first}' and '{path}'. Remove one of them.")
        yield row


def _layer(experiment: Path) -> int:
    """The layer of an experiment, from the metadata that mteb wrote or from its name."""
    about = experiment / "model_meta.json"
    if about.is_file():
        layer = (_json(about).get("experiment_kwargs") or {}).get("layer")
        if layer is not None:
            return int(layer)
    match = re.search(r"(?:^|_)layer_(\d+)(?:_|$)", experiment.name)
    if match is None:
        raise DataError(f"The layer of '{experiment}' is unknown: its name has no 'layer_N'.")
    return int(match.group(1))


def _result(path: Path, arm: Arm) -> ScoreRow | None:
    """Mean main score over the subsets of the test split, or of the only split."""
    content = _json(path)
    splits: Mapping[str, Any] = content.get("scores", {})
    scores: Sequence[Mapping[str, Any]] = splits.get("test") or next(iter(splits.values()), [])
    values = [float(each["main_score"]) for each in scores if each.get("main_score") is not None]
    if not values or not all(map(math.isfinite, values)):
        return None
    name = content.get("task_name", path.stem)
    seconds = content.get("evaluation_time")
    kind = LAYER_BY_LAYER.get(name, "")
    return ScoreRow(arm, name, sum(values) / len(values), seconds=seconds and float(seconds), kind=kind)


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"'{path}' is not a complete result: {error}. Delete it and evaluate the task again.") from None
