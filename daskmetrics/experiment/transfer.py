"""Export of scores in mteb's layout, and import of scores from a folder of mteb results.

Only the driver imports, since mteb's files allow one writer. An imported score is a record with the
key that the search would give it, so that the search uses it at no cost.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from daskmetrics.checkpoints.locations import is_hub_id
from daskmetrics.core.costs import UNKNOWN_TASK
from daskmetrics.core.errors import DataError
from daskmetrics.core.events import RunStarted, latest, records, require_experiment, scored
from daskmetrics.core.files import RunFolder, private, require_regular
from daskmetrics.core.names import Arm, Cell, Key
from daskmetrics.core.results import Scored
from daskmetrics.execution import Journal, Record
from daskmetrics.execution.journal import read as read_journal
from daskmetrics.experiment._run import begin
from daskmetrics.experiment.preparation import Experiment
from daskmetrics.tasks import mteb_results as results
from daskmetrics.tasks.mteb import MtebTask
from daskmetrics.tasks.mteb_results import BenchmarkResult


def to_mteb(folder: RunFolder, path: Path) -> tuple[int, int]:
    """Write the scores of mteb's tasks of a run's latest configuration in mteb's layout; return how
    many were written and how many were not.

    Each layer is an experiment of its model and revision, with the keywords ``layer`` and
    ``protocol``.
    """
    entries = list(read_journal(folder.must_exist().journal))
    require_regular(folder.export, below=True)
    require_experiment(entries, folder.path)
    start = latest(entries, RunStarted)
    config = yaml.safe_load(folder.config.read_text(encoding="utf-8"))
    names = _model_names(config["models"])
    latest_scores = {
        Cell.parse(record.name): (record, score) for record, score in scored(records(entries))
    }
    of_mteb = []
    others = 0
    for cell, (record, result) in sorted(latest_scores.items()):
        if start is None or cell.task not in start.tasks:
            continue
        arm = cell.arm
        detail = result.detail or {}
        if not detail.get("scores"):
            others += 1
            continue
        settings: dict[str, object] = {"layer": arm.layer}
        if result.protocol:
            settings["protocol"] = result.protocol[:12]
        if arm.readout:
            settings["readout"] = arm.readout
        content = {**detail, "evaluation_time": record.seconds, "kg_co2_emissions": None}
        task = content["task_name"]
        of_mteb.append(
            BenchmarkResult(names[arm.model], arm.revision, arm.layer, task, content, settings)
        )
    results.write(of_mteb, path)
    return len(of_mteb), others


def import_results(
    experiment: Experiment, folder: RunFolder, source: Path
) -> tuple[Counter[str], str]:
    """Import those results of a folder that belong to a run's arms and tasks into its journal.

    Returns how many are ``new``, and how many the run had (``known``); how many of both do not name
    their protocol (``unmarked``); and how many are left out, since they are of another protocol
    (``other_protocol``), not of the configuration (``elsewhere``), or lack a split or subset of the
    task (``incomplete``), with an example of the latter. Two different scores of one arm and task
    are a `DataError`.
    """
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
    counts = Counter[str]()
    example = ""
    accepted: dict[Key, tuple[Record, float, Path]] = {}
    for result in results.read(source):
        settings = result.settings
        candidate = result.model, result.revision, result.layer, str(settings.get("readout", ""))
        if candidate not in arms or result.task not in tasks:
            counts["elsewhere"] += 1
            continue
        arm = arms[candidate]
        protocol = settings.get("protocol")
        if not experiment.protocols[arm.checkpoint].key.startswith(str(protocol or "")):
            counts["other_protocol"] += 1
            continue
        for mteb_task in tasks[result.task]:
            try:
                content = results.select(result.content, mteb_task.selection)
            except DataError as error:
                counts["incomplete"] += 1
                example = example or f"'{result.path}' for {mteb_task.name}: {error}"
                continue
            record = _record(experiment, replace(result, content=content), arm, mteb_task)
            score = results.mean(content)
            _, other, path = accepted.setdefault(record.key, (record, score, result.path))
            if other != score:  # revisions of equal weights may have a result each
                raise DataError(
                    f"{record.name} has two scores: {other:g} in '{path}' and {score:g} in"
                    f" '{result.path}'. Remove one of them."
                )
            counts["unmarked"] += protocol is None
    folder.create()
    with private(), Journal(folder.journal, folder.lock) as journal:
        recorded = {record.key for record in journal.records() if record.ok}
        new = [record for record, *_ in accepted.values() if record.key not in recorded]
        starts = (entry.key for entry in journal.entries if isinstance(entry, RunStarted))
        if experiment.key not in starts:
            # entries before a run's start belong to another configuration
            begin(experiment, folder, journal)
        journal.append(*new)
    counts["new"] = len(new)
    counts["known"] = len(accepted) - len(new)
    return counts, example


def _record(experiment: Experiment, result: BenchmarkResult, arm: Arm, task: MtebTask) -> Record:
    score = results.score(result.content, task.kind, _items(task))
    seconds = float(result.content.get("evaluation_time") or 0.0)
    value = Scored(
        score=score.value,
        stderr=score.stderr,
        n=score.n,
        protocol=experiment.protocols[arm.checkpoint].key,
        versions={"mteb": str(result.content.get("mteb_version") or "unknown")},
        detail=score.detail,
        imported={"from": str(result.path), "settings": dict(result.settings)},
    )
    key = experiment.score_key(arm, task)
    name = str(Cell(arm, task.name))
    return Record(key, name, "score", "ok", value=value, seconds=seconds, worker="imported")


def _items(task: MtebTask) -> int:
    """The texts, pairs or queries that a score is over, as far as they are known without a run; of
    a task that the benchmark does not list, texts that a probe learns from are among them.
    """
    if task.statistics and task.statistics.scored:
        return task.statistics.scored
    texts = UNKNOWN_TASK.texts
    if task.is_local:
        if queries := list(task.roles()).count("query"):
            return queries
        texts = len(task.texts())
    if task.kind in ("sts", "pair_classification"):
        return texts // 2
    return texts


def _model_names(models: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """mteb's name of each model: the hub id, or the model's name after the organisation
    ``local``.
    """
    sources = {model["name"]: model["source"] or "" for model in models}
    return {
        name: source if "/" in source and is_hub_id(source) else f"local/{name}"
        for name, source in sources.items()
    }
