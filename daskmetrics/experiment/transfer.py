"""Export of scores in mteb's layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from daskmetrics.checkpoints.locations import is_hub_id
from daskmetrics.core.events import RunStarted, latest, records, require_experiment, scored
from daskmetrics.core.files import RunFolder, require_regular
from daskmetrics.core.names import Cell
from daskmetrics.execution.journal import read as read_journal
from daskmetrics.tasks import mteb_results as results
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
        of_mteb.append(BenchmarkResult(names[arm.model], arm.revision, task, content, settings))
    results.write(of_mteb, path)
    return len(of_mteb), others


def _model_names(models: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """mteb's name of each model: the hub id, or the model's name after the organisation
    ``local``.
    """
    sources = {model["name"]: model["source"] or "" for model in models}
    return {
        name: source if "/" in source and is_hub_id(source) else f"local/{name}"
        for name, source in sources.items()
    }
