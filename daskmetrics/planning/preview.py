"""What ``run --dry-run`` prints: counts, disk, units and the estimated time of the remaining work,
and warnings about the data.
"""

from __future__ import annotations

from daskmetrics.core.events import is_finished, records
from daskmetrics.core.files import RunFolder
from daskmetrics.core.outcomes import FRESH_SHARE
from daskmetrics.core.table import Table
from daskmetrics.core.text import size_text
from daskmetrics.execution.journal import read
from daskmetrics.experiment import Experiment, measure, search
from daskmetrics.experiment.prefetch import free_space
from daskmetrics.planning.estimate import measurements, workload
from daskmetrics.planning.options import bounded
from daskmetrics.report.templates import rows_of


def preview(experiment: Experiment, folder: RunFolder) -> Table:
    """The rows of the remaining work; nothing is submitted."""
    config = experiment.config
    entries = tuple(read(folder.journal))
    finished = is_finished(entries, experiment.key)
    if not finished:
        search.check(experiment)
    looks = 0
    allowed = ""
    if experiment.tasks:
        problem = search.build_problem(experiment)
        looks = int(problem.is_look.sum())
        if config.search.budget == "auto":
            _, allowed = search.automatic_budget(problem)
    device = config.cluster.device
    calibrations = measurements(experiment, folder, entries)
    work = workload(experiment, folder, entries, calibrations, device)
    rows = rows_of(
        "preview",
        experiment=experiment,
        folder=folder.path,
        is_finished=finished,
        looks=looks,
        allowed=allowed,
        fresh_share=FRESH_SHARE,
        units=len(measure.planned_units(experiment, folder, records(entries))),
        units_left=len(measure.units_left(experiment, folder, entries)),
        work=work,
        total=work.run(config.cluster.workers, device),
        free=free_space(folder.path.resolve()),
        bounded=bounded,
        size_text=size_text,
    )
    return Table((), rows, f"{config.name} (nothing is submitted)")
