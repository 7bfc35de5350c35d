"""What ``run --dry-run`` prints: counts, disk, units and the estimated time of the remaining work,
and warnings about the data.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterator

from daskmetrics.core.events import is_finished, records
from daskmetrics.core.files import RunFolder
from daskmetrics.core.names import Suite
from daskmetrics.core.outcomes import FRESH_SHARE
from daskmetrics.core.table import Table
from daskmetrics.core.text import duration, equal_names, listed, plural, size_text
from daskmetrics.experiment import Experiment, remaining, search
from daskmetrics.planning.estimate import measurements, recorded, workload
from daskmetrics.planning.options import Workload


def preview(experiment: Experiment, folder: RunFolder) -> Table:
    """The rows of the remaining work; nothing is submitted."""
    entries = recorded(folder)
    if not is_finished(entries, experiment.key):
        search.check(experiment)
    device = experiment.config.cluster.device
    work = workload(experiment, folder, measurements(experiment, folder), device)
    units = remaining.units(experiment, folder, records(entries))
    missing_units = remaining.units_left(experiment, folder, entries)
    rows = (
        *_state_rows(is_finished(entries, experiment.key)),
        *_grid_rows(experiment),
        ("measuring", f"{plural(len(units), 'unit')}, {len(missing_units):,} to do"),
        *_cost_rows(experiment, folder, work),
    )
    return Table((), rows, f"{experiment.config.name} (nothing is submitted)")


def _state_rows(is_complete: bool) -> Iterator[tuple[str, str]]:
    if is_complete:
        yield "state", "finished: nothing is left to do"


def _grid_rows(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """What is measured and scored."""
    arms = len(experiment.arms)
    metrics = [metric.name for metric in experiment.metrics]
    metrics_text = "none"
    if metrics:
        metrics_text = f"{len(metrics)}: {', '.join(metrics)}"
    suites = (
        f"{suite.model} ({plural(len(suite.revisions), 'checkpoint')} x {_layers(suite)})"
        for suite in experiment.suites
    )
    yield "models", ", ".join(suites)
    yield "candidates", f"{arms:,} in {plural(len(experiment.checkpoints), 'checkpoint')}"
    yield "vectors", _vectors(experiment)
    yield "metrics", metrics_text
    yield "tasks", f"{len(experiment.tasks):,}, so {plural(arms * len(experiment.tasks), 'score')}"


def _cost_rows(
    experiment: Experiment, folder: RunFolder, work: Workload
) -> Iterator[tuple[str, str]]:
    """What it takes, and what is remarkable about the data."""
    cluster = experiment.config.cluster
    if experiment.tasks:
        yield "texts", work.texts
        yield "search", _limits(experiment)
    else:
        yield "search", "none: the run has no tasks"
    yield "workers", f"{cluster.workers} ({cluster.kind})"
    yield "time", _time(work, cluster.workers)
    if work.download:
        limited = "".join(
            f"; {model.name} through {model.disk} of disk"
            for model in experiment.config.models
            if model.disk
        )
        missing = listed(work.missing)
        yield "download", f"{missing}, not on this machine: {work.download.source}{limited}"
    for text in experiment.offered:
        yield "weights", text
    path = folder.path.resolve()
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    free = shutil.disk_usage(existing).free / 1e9
    results = size_text(work.disk_bytes)
    yield "disk", f"{results} of results in '{folder.path}', {free:,.0f} GB free"
    for checkpoint, names in experiment.aliases.items():
        same = equal_names(str(checkpoint), names)
        yield "identical", f"{same}: equal weights, measured and scored once"
    for warning in experiment.warnings:
        yield "warning", warning


def _time(work: Workload, workers: int) -> str:
    """The time on these workers, and the worker time of each phase."""
    if not work.phases:
        return "0 s: nothing is left to do"
    total = work.on(workers, work.device)
    low, value, high = map(duration, total.interval.bounds)
    phases = ", ".join(
        f"{phase.name} {duration(phase.units * phase.seconds.value)}" for phase in work.phases
    )
    return f"about {value} ({low} to {high}): {phases} of worker time; {total.source}"


def _layers(suite: Suite) -> str:
    """How many layers and readouts of a suite make its arms.

    >>> _layers(Suite("m", ("main",), (0, 1, 2), 2, ("", "64d", "mean0-2", "mean0-2,64d")))
    '3 layers x 2 readouts, and 2 of layers together'
    """
    together = sum(bool(readout.together) for readout in suite.reads)
    alone = len(suite.reads) - together
    text = f"{len(suite.layers)} layers"
    if suite.has_readouts:
        text += f" x {plural(alone, 'readout')}"
    if together:
        text += f", and {together} of layers together"
    return text


def _vectors(experiment: Experiment) -> str:
    """How texts become vectors, and for which models if they differ."""
    models: dict[str, dict[str, None]] = defaultdict(dict)
    for checkpoint, protocol in experiment.protocols.items():
        models[protocol.summary][checkpoint.model] = None
    if len(models) == 1:
        return next(iter(models))
    return "; ".join(f"{', '.join(names)}: {summary}" for summary, names in models.items())


def _limits(experiment: Experiment) -> str:
    """The policy, and what ends the search."""
    limits = experiment.config.search
    if limits.budget == "auto":
        budget = search.automatic_budget(search.build_problem(experiment, experiment.suites))
        rules = [f"budget {budget}"]
    else:
        rules = [f"budget {limits.budget:.1%} of the cost of every score"]
    if limits.cells:
        rules.append(f"up to {plural(limits.cells, 'score')}")
    if limits.confidence:
        rules.append(f"until {limits.confidence:.0%} confidence to be within {limits.within:.1%}")
    if limits.confirm == "fresh":
        share = f"{FRESH_SHARE:.0%} of the items"
        rules.append(f"{share} are kept back from it, for the finalists")
    return f"{limits.policy}, {'; '.join(rules)}"
