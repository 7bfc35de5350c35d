"""What a run would do, as a table; nothing is started."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from daskmetrics import config
from daskmetrics.core._costs import UNKNOWN_TASK
from daskmetrics.core._files import RunFolder
from daskmetrics.core._table import Table
from daskmetrics.core._text import duration
from daskmetrics.core.errors import DaskmetricsError
from daskmetrics.execution._journal import read, records
from daskmetrics.experiment import _measure as measure
from daskmetrics.experiment._estimate import RunEstimate, estimate
from daskmetrics.experiment._prepare import Experiment


def preview(experiment: Experiment, folder: RunFolder) -> Table:
    """Counts, disk, units and assumed time of what is still to be done."""
    known = list(records(read(folder.journal))) if folder.journal.is_file() else []
    plan = estimate(experiment, folder, known)
    done = {record.key for record in known}
    units = measure.units(experiment, folder, known)
    rows = tuple(_rows(experiment, folder, plan, sum(unit.key not in done for unit in units)))
    return Table((), rows, title=f"{experiment.config.name}: nothing is submitted")


def _rows(experiment: Experiment, folder: RunFolder, plan: RunEstimate, units_left: int) -> list[tuple[str, str]]:
    models = ", ".join(
        f"{s.model} ({len(s.revisions)} checkpoints x {len(s.layers)} layers)" for s in experiment.suites
    )
    missing = sum(map(len, experiment.missing.values()))
    rows = [
        ("models", models),
        ("arms", f"{plan.arms:,} in {plan.checkpoints:,} checkpoints"),
        ("metrics", f"{plan.metrics}: {', '.join(metric.name for metric in experiment.metrics)}"),
        ("tasks", f"{plan.tasks:,}, hence {plan.cells:,} cells"),
        ("measuring", f"{plan.units:,} units, {units_left:,} to do"),
        ("search", _limits(experiment.config.search)),
        ("workers", f"{plan.workers} ({experiment.config.cluster.kind})"),
        (
            "time",
            f"about {duration(plan.wall_seconds)} (assumed, not measured), against "
            f"{duration((plan.measure_seconds + plan.exhaustive_seconds) / plan.workers)} for every cell",
        ),
        ("disk", f"{plan.disk_bytes / 1e6:,.1f} MB in '{folder.path}', {_free(folder.path) / 1e9:,.0f} GB free"),
    ]
    unknown = sum(not task.is_local for task in experiment.tasks)
    if unknown:
        rows.append(
            (
                "assumed",
                f"the data of {unknown} tasks was not looked at; {UNKNOWN_TASK.texts:,} texts of each were assumed",
            )
        )
    if missing:
        rows.append(("missing", f"{missing:,} checkpoints are not on this machine and would be fetched from the hub"))
    return rows


def _free(path: Path) -> int:
    there = next(parent for parent in (path.resolve(), *path.resolve().parents) if parent.exists())
    return shutil.disk_usage(there).free


def _limits(search: config.Search) -> str:
    """The policy, and what ends it."""
    limits = [
        f"{search.budget:.1%} of the exhaustive cost",
        f"{search.cells:,} cells" if search.cells else "",
        f"{search.gpu_hours:g} hours of workers" if search.gpu_hours else "",
        f"{search.wall_hours:g} h of wall time" if search.wall_hours else "",
        f"{search.confidence:.0%} sure of being within {search.within:.1%}" if search.confidence else "",
    ]
    return f"{search.policy}, up to " + " or ".join(filter(None, limits))


@dataclass(frozen=True)
class Cost:
    """Median seconds of a task.

    Attributes
    ----------
    encode : float
        Of one checkpoint, all layers.
    score : float
        Of one layer.
    cells : int
        Scores that this was seen in.
    """

    encode: float
    score: float
    cells: int


def costs(runs: Path) -> Mapping[str, Cost]:
    """The cost of each task in the runs of a folder; a journal that cannot be read is passed over."""
    seen: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for journal in sorted(runs.glob("*/journal.jsonl")):
        try:
            known = list(records(read(journal)))
        except DaskmetricsError:
            continue
        for record in known:
            if record.kind == "score" and record.ok and record.worker != "imported":
                task = record.name.partition(":")[2]
                seen[task].append((record.value["encode_seconds"], record.seconds))
    return {
        task: Cost(median(encode for encode, _ in found), median(score for _, score in found), len(found))
        for task, found in seen.items()
    }
