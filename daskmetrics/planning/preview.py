"""What ``run --dry-run`` prints: counts, disk, units and the estimated time of the remaining work,
and warnings about the data.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterator

from daskmetrics.core.events import is_finished, records
from daskmetrics.core.files import RunFolder
from daskmetrics.core.outcomes import FRESH_SHARE
from daskmetrics.core.table import Table
from daskmetrics.core.text import duration, equal_names, listed, plural, size_text
from daskmetrics.experiment import Experiment, measure, search
from daskmetrics.planning.estimate import measurements, recorded, workload
from daskmetrics.planning.options import bounded


def preview(experiment: Experiment, folder: RunFolder) -> Table:
    """The rows of the remaining work; nothing is submitted."""
    title = f"{experiment.config.name} (nothing is submitted)"
    rows = (*_grid_rows(experiment, folder), *_cost_rows(experiment, folder))
    return Table((), rows, title)


def _grid_rows(experiment: Experiment, folder: RunFolder) -> Iterator[tuple[str, str]]:
    """What is measured and scored, and what is left of it."""
    entries = recorded(folder)
    if is_finished(entries, experiment.key):
        yield "state", "finished: nothing is left to do"
    else:
        search.check(experiment)
    candidates = len(experiment.arms)
    metrics = [metric.name for metric in experiment.metrics]
    suites = []
    for suite in experiment.suites:
        grid = f"{plural(len(suite.revisions), 'checkpoint')} x {len(suite.layers)} layers"
        if suite.has_readouts:
            grid += f", {len(suite.reads)} readouts"
        suites.append(f"{suite.model} ({grid})")
    vectors: dict[str, dict[str, None]] = defaultdict(dict)
    for checkpoint, protocol in experiment.protocols.items():
        vectors[protocol.summary][checkpoint.model] = None
    summaries = list(vectors)
    if len(vectors) > 1:
        summaries = [f"{', '.join(models)}: {summary}" for summary, models in vectors.items()]
    scores = plural(candidates * len(experiment.tasks), "score")
    units = measure.planned_units(experiment, folder, records(entries))
    units_left = measure.units_left(experiment, folder, entries)
    yield "models", ", ".join(suites)
    yield "candidates", f"{candidates:,} in {plural(len(experiment.checkpoints), 'checkpoint')}"
    yield "vectors", "; ".join(summaries)
    yield "metrics", f"{len(metrics)}: {', '.join(metrics)}" if metrics else "none"
    yield "tasks", f"{len(experiment.tasks):,}, so {scores}"
    if experiment.looks:
        looks = search.build_problem(experiment, experiment.suites).is_look.sum()
        if looks:
            yield "looks", f"at a sixteenth of the items of {plural(int(looks), 'task')}"
    yield "measuring", f"{plural(len(units), 'unit')}, {len(units_left):,} to do"


def _cost_rows(experiment: Experiment, folder: RunFolder) -> Iterator[tuple[str, str]]:
    """What it takes, and what is remarkable about the data."""
    cluster = experiment.config.cluster
    work = workload(experiment, folder, measurements(experiment, folder), cluster.device)
    if experiment.tasks:
        yield "texts", work.texts
        yield "search", "; ".join(_limits(experiment))
    else:
        yield "search", "none: the run has no tasks"
    yield "workers", f"{cluster.workers} ({cluster.kind})"
    if work.phases:
        total = work.on(cluster.workers, cluster.device)
        phases = ", ".join(
            f"{phase.name} {duration(phase.units * phase.seconds.value)}" for phase in work.phases
        )
        worker_time = f"{phases} of worker time"
        yield "time", f"about {bounded(total.interval)}: {worker_time}; {total.source}"
    else:
        yield "time", "0 s: nothing is left to do"
    if work.download:
        limited = "".join(
            f"; {model.name} through {model.disk} of disk"
            for model in experiment.config.models
            if model.disk
        )
        missing = listed(work.missing)
        yield "download", f"{missing}, not on this machine: {work.download.source}{limited}"
    path = folder.path.resolve()
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    free = shutil.disk_usage(existing).free / 1e9
    results = size_text(work.disk_bytes)
    yield "disk", f"{results} of results in '{folder.path}', {free:,.0f} GB free"
    for checkpoint, location in experiment.locations.items():
        if location.aliases:
            same = equal_names(str(checkpoint), location.aliases)
            yield "identical", f"{same}: equal weights, measured and scored once"
    for warning in experiment.warnings:
        yield "warning", warning


def _limits(experiment: Experiment) -> Iterator[str]:
    """The policy, and what ends the search."""
    limits = experiment.config.search
    yield limits.policy
    if limits.budget == "auto":
        problem = search.build_problem(experiment, experiment.suites)
        _, allowed = search.automatic_budget(problem)
        yield f"budget {allowed}"
    else:
        yield f"budget {limits.budget:.1%} of the cost of every score"
    if limits.cells:
        yield f"up to {plural(limits.cells, 'score')}"
    if limits.confidence:
        yield f"until {limits.confidence:.0%} confidence to be within {limits.within:.1%}"
    if limits.confirm == "fresh":
        yield f"{FRESH_SHARE:.0%} of the items are kept back from it, for the finalists"
