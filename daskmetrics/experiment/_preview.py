"""What a run would do, as a table; nothing is started."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from daskmetrics import config
from daskmetrics.core._costs import UNKNOWN_TASK
from daskmetrics.core._files import RunFolder
from daskmetrics.core._table import Table
from daskmetrics.core._text import duration
from daskmetrics.execution import Record
from daskmetrics.execution._journal import read, records
from daskmetrics.experiment import _measure as measure
from daskmetrics.experiment._estimate import estimate
from daskmetrics.experiment._prepare import Experiment


def preview(experiment: Experiment, folder: RunFolder) -> Table:
    """Counts, disk, units and assumed time of the remaining work."""
    past = tuple(records(read(folder.journal))) if folder.journal.is_file() else ()
    return Table((), tuple(_rows(experiment, folder, past)), f"{experiment.config.name} (nothing is submitted)")


def _rows(experiment: Experiment, folder: RunFolder, past: tuple[Record, ...]) -> Iterator[tuple[str, str]]:
    plan = estimate(experiment, folder, past)
    done = {record.key for record in past}
    remaining = sum(unit.key not in done for unit in measure.units(experiment, folder, past))
    exhaustive = (plan.measure_seconds + plan.exhaustive_seconds) / plan.workers
    path = folder.path.resolve()
    free = shutil.disk_usage(next(each for each in (path, *path.parents) if each.exists())).free
    suites = (f"{s.model} ({len(s.revisions)} checkpoints x {len(s.layers)} layers)" for s in experiment.suites)
    yield "models", ", ".join(suites)
    yield "arms", f"{plan.arms:,} in {plan.checkpoints:,} checkpoints"
    yield "metrics", f"{plan.metrics}: {', '.join(metric.name for metric in experiment.metrics)}"
    yield "tasks", f"{plan.tasks:,}, so {plan.cells:,} cells"
    yield "measuring", f"{plan.units:,} units, {remaining:,} to do"
    yield "search", _limits(experiment.config.search)
    yield "workers", f"{plan.workers} ({experiment.config.cluster.kind})"
    time = f"about {duration(plan.wall_seconds)} (assumed, not measured); every cell would take {duration(exhaustive)}"
    yield "time", time
    yield "disk", f"{plan.disk_bytes / 1e6:,.1f} MB in '{folder.path}', {free / 1e9:,.0f} GB free"
    if unknown := sum(not task.is_local for task in experiment.tasks):
        yield "assumed", f"{UNKNOWN_TASK.texts:,} texts for each of {unknown} tasks whose data is not on this machine"
    if missing := sum(map(len, experiment.missing.values())):
        yield "missing", f"{missing:,} checkpoints are not on this machine and would be downloaded from the hub"


def _limits(search: config.Search) -> str:
    """The policy, and what ends the search."""
    limits = [
        f"{search.budget:.1%} of the exhaustive cost",
        f"{search.cells:,} cells" if search.cells else "",
        f"{search.gpu_hours:g} hours of workers" if search.gpu_hours else "",
        f"{search.wall_hours:g} h of wall time" if search.wall_hours else "",
        f"{search.confidence:.0%} confidence to be within {search.within:.1%}" if search.confidence else "",
    ]
    return f"{search.policy}, up to " + " or ".join(filter(None, limits))
