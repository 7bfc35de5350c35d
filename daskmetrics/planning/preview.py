"""What ``run --dry-run`` prints of the remaining work."""

from __future__ import annotations

from collections.abc import Mapping

from daskmetrics.core.files import RunFolder
from daskmetrics.core.table import Table
from daskmetrics.core.text import duration, listed, plural, shortened, size_text
from daskmetrics.domain.events import is_finished, records
from daskmetrics.domain.names import Checkpoint, Suite
from daskmetrics.domain.outcomes import FRESH_SHARE
from daskmetrics.execution.journal import read
from daskmetrics.experiment import Experiment
from daskmetrics.experiment.prefetch import free_space
from daskmetrics.experiment.problem import automatic_budget, build_problem, check
from daskmetrics.planning.estimate import measurements, workload
from daskmetrics.planning.work import Work, bounded, stage_on

MULTIPLES = (2, 4, 8)


def preview(experiment: Experiment, folder: RunFolder) -> Table:
    """The rows of the remaining work; nothing is submitted."""
    plan = experiment.plan
    entries = tuple(read(folder.journal))
    finished = is_finished(entries, plan.key)
    if not finished:
        check(experiment)
    config = experiment.config
    cluster = config.cluster
    calibrations = measurements(experiment, folder, entries)
    work = workload(experiment, entries, calibrations, cluster.device)
    to_do = sum(phase.units for phase in work.phases if phase.name != "search")
    units = to_do
    metrics = "none"
    if experiment.metrics:
        recorded = {record.key for record in records(entries)}
        units += len(recorded.intersection(plan.measure_keys.values()))
        chosen = [metric.name for metric in experiment.metrics]
        metrics = f"{len(chosen)}: {', '.join(chosen)}"
    arms = len(plan.arms)
    tasks = len(plan.tasks)
    free = free_space(folder.path.resolve())
    rows = []
    if finished:
        rows.append(("state", "finished: nothing is left to do"))
    rows += [
        ("models", ", ".join(map(model_text, plan.suites))),
        ("candidates", f"{arms:,} in {plural(len(plan.checkpoints), 'checkpoint')}"),
        (
            "vectors",
            vectors_text({name: r.protocol.summary for name, r in experiment.readers.items()}),
        ),
        ("metrics", metrics),
        ("tasks", f"{tasks:,}, so {plural(arms * tasks, 'score')}"),
        ("measuring", f"{plural(units, 'unit')}, {to_do:,} to do"),
        *search_rows(experiment, work.texts),
        ("workers", f"{cluster.workers} ({cluster.kind})"),
        ("time", time_text(work, cluster.workers, cluster.device)),
    ]
    # more workers of one machine would share its cores
    if work.stages and cluster.kind != "local":
        rows.append(("more workers", more_workers_text(work, cluster.workers, cluster.device)))
    if work.download:
        missing = f"{listed(work.missing)}, not on this machine: {work.download.source}"
        rolling = [f"; {m.name} through {m.disk} of disk" for m in config.models if m.disk]
        rows.append(("download", "".join([missing, *rolling])))
    size = f"{size_text(work.disk_bytes)} of results in '{folder.path}'"
    rows.append(("disk", f"{size}, {free / 1e9:,.0f} GB free"))
    for checkpoint, location in experiment.locations.items():
        if location.aliases:
            names = " = ".join([str(checkpoint), *location.aliases])
            rows.append(("identical", f"{names}: equal weights, measured and scored once"))
    rows += [("warning", warning) for warning in plan.warnings]
    return Table((), rows, f"{config.name} (nothing is submitted)")


def model_text(suite: Suite) -> str:
    """A model with its checkpoints and layers."""
    counts = f"{plural(len(suite.revisions), 'checkpoint')} x {plural(len(suite.layers), 'layer')}"
    if suite.has_readouts:
        counts += f", {len(suite.reads)} readouts"
    return f"{suite.model} ({counts})"


def vectors_text(summaries: Mapping[Checkpoint, str]) -> str:
    """How items become vectors, with the models where that differs."""
    models: dict[str, dict[str, None]] = {}
    for checkpoint, summary in summaries.items():
        models.setdefault(summary, {})[checkpoint.model] = None
    if len(models) == 1:
        return next(iter(models))
    return "; ".join(f"{', '.join(names)}: {summary}" for summary, names in sorted(models.items()))


def search_rows(experiment: Experiment, texts: str) -> list[tuple[str, str]]:
    """The texts of a search, its policy and its limits."""
    if not experiment.tasks:
        return [("search", "none: the run has no tasks")]
    section = experiment.config.search
    problem = build_problem(experiment)
    if section.budget == "auto":
        _, budget = automatic_budget(problem)
    else:
        budget = f"{section.budget:.1%} of the cost of every score"
    limits = [section.policy, f"budget {budget}"]
    if section.cells:
        limits.append(f"up to {plural(section.cells, 'score')}")
    if section.within and section.budget != 1:
        limits.append(f"until at most {section.within:.2%} of the score is expected to be gained")
    if section.confirm == "fresh":
        limits.append(f"{FRESH_SHARE:.0%} of the items are kept back from it, for the finalists")
    return [("texts", texts), ("search", "; ".join(limits))]


def time_text(work: Work, workers: int, device: str) -> str:
    """How long the work takes, by phase."""
    if not work.stages:
        return "0 s: nothing is left to do"
    total = work.on(workers, device)
    phases = [
        f"{phase.name} {duration(phase.units * phase.unit.expected)}" for phase in work.phases
    ]
    return (
        f"about {bounded(total.seconds)}: {', '.join(phases)} of worker time, and"
        f" {duration(work.start.expected)} to start the workers; {total.source}"
    )


def more_workers_text(work: Work, workers: int, device: str) -> str:
    """How long the phases take, and would take on more workers.

    >>> from daskmetrics.planning.work import Estimate, Phase, exactly
    >>> work = Work(((Phase("search", 6, Estimate(exactly(60.0)), at_once=6),),))
    >>> more_workers_text(work, 1, "cpu")
    '2, 4, 8 times as many: search 6.0 min -> 3.0 min, 2.0 min, 60 s'
    """
    parts = []
    for stage in work.stages:
        times = [
            duration(float(stage_on(stage, workers * multiple, device)[1]))
            for multiple in (1, *MULTIPLES)
        ]
        names = shortened([phase.name for phase in stage], 3)
        parts.append(f"{names} {times[0]} -> {', '.join(times[1:])}")
    return f"{', '.join(map(str, MULTIPLES))} times as many: {'; '.join(parts)}"
