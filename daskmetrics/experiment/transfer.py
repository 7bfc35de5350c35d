"""Export of scores as CSV or in mteb's layout, and import of scores from a folder of mteb results.

Only the driver imports, since mteb's files allow one writer. An imported score is a record with the
key that the search would give it, so that the search uses it at no cost.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from daskmetrics.checkpoints.locations import is_hub_id
from daskmetrics.core.costs import UNKNOWN_TASK
from daskmetrics.core.errors import DataError
from daskmetrics.core.events import RunStarted, latest, records, require_printable, scored
from daskmetrics.core.files import RunFolder, private
from daskmetrics.core.names import Arm, Cell
from daskmetrics.core.results import Scored
from daskmetrics.core.table import spreadsheet_cell
from daskmetrics.execution import Journal, Record
from daskmetrics.execution.journal import read as read_journal
from daskmetrics.experiment._run import begin
from daskmetrics.experiment.preparation import Experiment
from daskmetrics.tasks import mteb_results as results
from daskmetrics.tasks.mteb import MtebTask
from daskmetrics.tasks.mteb_results import BenchmarkResult

PLACE = ("model", "revision", "layer", "task", "kind")
COLUMNS = (*PLACE, "score", "stderr", "n", "seconds", "encode_seconds", "protocol")


@dataclass(frozen=True)
class ImportCounts:
    """How many results of a folder were imported, and how many were not."""

    new: int
    known: int  # the run had them
    elsewhere: int  # left out: not in the configuration
    other_protocol: int  # left out: made with another protocol of daskmetrics
    unmarked: int  # new and known ones that do not name their protocol
    # new and known ones of more splits or subsets than the task has, which are not used
    reduced: int
    incomplete: int  # left out: they lack a split or subset of the task
    example: str = ""  # of one that is incomplete, and what it lacks


def _scores(folder: RunFolder) -> list[tuple[Cell, str, Record, Scored]]:
    """All scores of a run's latest configuration with the kinds of their tasks, by model, revision,
    layer and task.
    """
    entries = list(read_journal(folder.must_exist().journal))
    require_printable(entries, folder.path)
    start = latest(entries, RunStarted)
    tasks = start.tasks if start else {}
    by_cell = {
        Cell.parse(record.name): (record, score) for record, score in scored(records(entries))
    }
    return [
        (cell, tasks[cell.task]["kind"], *by_cell[cell])
        for cell in sorted(by_cell)
        if cell.task in tasks
    ]


def to_csv(folder: RunFolder, path: Path) -> int:
    """Write a run's scores as CSV for `daskmetrics runs replay`, one per line; return their number."""
    scores = _scores(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as text:
        writer = csv.writer(text, lineterminator="\n")
        has_readouts = any(cell.arm.readout for cell, *_ in scores)
        writer.writerow([*COLUMNS, "readout"] if has_readouts else COLUMNS)
        for cell, kind, record, result in scores:
            arm = cell.arm
            score = [result.score, result.stderr, result.n]
            cost = [record.seconds, result.encode_seconds, result.protocol]
            readout = [arm.readout] if has_readouts else []
            row = [arm.model, arm.revision, arm.layer, cell.task, kind, *score, *cost, *readout]
            writer.writerow(map(spreadsheet_cell, row))
    return len(scores)


def to_mteb(folder: RunFolder, path: Path) -> tuple[int, int]:
    """Write a run's scores of mteb's tasks in mteb's layout; return how many were written and how
    many were not.

    Each layer is an experiment of its model and revision, with the keywords ``layer`` and
    ``protocol``.
    """
    names = _model_names(
        yaml.safe_load(folder.must_exist().config.read_text(encoding="utf-8"))["models"]
    )
    scores = _scores(folder)
    of_mteb = [
        (cell.arm, record, result)
        for cell, _, record, result in scores
        if result.detail and result.detail.get("scores")
    ]
    results.write(results.merge(_result(*score, names) for score in of_mteb), path)
    return len(of_mteb), len(scores) - len(of_mteb)


def _result(arm: Arm, record: Record, result: Scored, names: Mapping[str, str]) -> BenchmarkResult:
    settings: dict[str, Any] = {"layer": arm.layer}
    if result.protocol:
        settings["protocol"] = result.protocol[:12]
    if arm.readout:
        settings["readout"] = arm.readout
    plain = {**(result.detail or {}), "evaluation_time": record.seconds, "kg_co2_emissions": None}
    return BenchmarkResult(
        names[arm.model], arm.revision, arm.layer, plain["task_name"], plain, settings
    )


def import_results(experiment: Experiment, folder: RunFolder, source: Path) -> ImportCounts:
    """Import those results of a folder that belong to a run's arms and tasks into its journal."""
    names = _model_names([model.model_dump() for model in experiment.config.models])
    arms = {}
    for arm, (alias, checkpoint) in product(experiment.arms, experiment.by_name.items()):
        if checkpoint == arm.checkpoint:
            # mteb may use the hub id, or the model's name with or without ``local/``
            for name in (names[arm.model], arm.model):
                arms[name, alias.revision, arm.layer, arm.readout] = arm
    tasks = defaultdict[str, list[MtebTask]](list)  # several if they differ by their options
    for task in experiment.tasks:
        if isinstance(task, MtebTask):
            tasks[task.benchmark_name].append(task)
    accepted: list[Record] = []
    left_out: list[str] = []
    counts: Counter[str] = Counter()
    for result in results.read(source):
        readout = result.settings.get("readout", "")
        result_arm = arms.get((result.model, result.revision, result.layer, readout))
        if result_arm is None or result.task not in tasks:
            counts["elsewhere"] += 1
            continue
        protocol = result.settings.get("protocol")
        run_protocol = experiment.protocols[result_arm.checkpoint].key
        if protocol is not None and not run_protocol.startswith(str(protocol)):
            counts["other protocol"] += 1
            continue
        for mteb_task in tasks[result.task]:
            try:
                content = results.select(result.content, mteb_task.selection)
            except DataError as error:
                left_out.append(f"'{result.path}' for {mteb_task.name}: {error}")
                continue
            of_task = replace(result, content=content)
            accepted.append(_record(experiment, of_task, result_arm, mteb_task))
            counts["unmarked"] += protocol is None
            counts["reduced"] += _parts(of_task) < _parts(result)
    folder.create()
    with private(), Journal(folder.journal, folder.lock) as journal:
        recorded = {record.key for record in journal.records() if record.ok}
        new = {record.key: record for record in accepted if record.key not in recorded}
        starts = (entry.key for entry in journal.entries if isinstance(entry, RunStarted))
        if experiment.key not in starts:
            # entries before a run's start belong to another configuration
            begin(experiment, folder, journal)
        journal.append(*new.values())
    return ImportCounts(
        new=len(new),
        known=len(accepted) - len(new),
        elsewhere=counts["elsewhere"],
        other_protocol=counts["other protocol"],
        unmarked=counts["unmarked"],
        reduced=counts["reduced"],
        incomplete=len(left_out),
        example=next(iter(left_out), ""),
    )


def _parts(result: BenchmarkResult) -> int:
    """Number of subsets of all splits."""
    return sum(map(len, result.content["scores"].values()))


def _record(experiment: Experiment, result: BenchmarkResult, arm: Arm, task: MtebTask) -> Record:
    plain = results.reduce(result.content)
    texts = UNKNOWN_TASK.texts
    if task.statistics:
        texts = task.statistics.texts
    elif task.is_local:
        texts = len(task.texts())
    score = results.score(plain, task.kind, texts)
    seconds = float(result.content.get("evaluation_time") or 0.0)
    value = Scored(
        score=score.value,
        stderr=score.stderr,
        n=score.n,
        protocol=experiment.protocols[arm.checkpoint].key,
        versions={"mteb": plain["mteb_version"]},
        detail=score.detail,
        imported={"from": str(result.path), "settings": dict(result.settings)},
    )
    key = experiment.score_key(arm, task)
    name = str(Cell(arm, task.name))
    return Record(key, name, "score", "ok", value=value, seconds=seconds, worker="imported")


def _model_names(models: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """mteb's name of each model: the hub id, or the model's name after the organisation ``local``."""
    sources = {model["name"]: model["source"] or "" for model in models}
    return {
        name: source if "/" in source and is_hub_id(source) else f"local/{name}"
        for name, source in sources.items()
    }
