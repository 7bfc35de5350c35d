"""How far a run, a map or a training is, once or until its driver ends; what only `status` imports."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rich.console import Console
from rich.markup import escape

from daskmetrics import report
from daskmetrics.cli._common import INTERRUPTED, Output, Shown, note
from daskmetrics.core.errors import ConfigError, DaskmetricsError
from daskmetrics.core.files import RunFolder
from daskmetrics.core.telemetry import read_samples
from daskmetrics.core.text import duration
from daskmetrics.domain.training import STATUS, TrainingStatus
from daskmetrics.execution.journal import holder, read
from daskmetrics.execution.map.folder import is_map
from daskmetrics.execution.map.status import MapStatus

if TYPE_CHECKING:
    from daskmetrics.cluster.slurm.commands import QueuedJob
    from daskmetrics.cluster.slurm.driver_job import Submitted

INTERVAL = 5.0  # seconds between two updates, of Slurm too
LINE_INTERVAL = 30.0  # seconds between lines where there is no terminal

Workers: TypeAlias = Mapping[str, float]  # their numbers


def status(run: Path) -> Output:
    """How far a run, map or training is, and what drives it."""
    folder = RunFolder(run)
    if not folder.journal.exists() and (training := TrainingStatus.read(run)):
        return _training_output(folder, training)
    workers = _workers(folder, holder(folder.lock) is not None)
    if not folder.journal.exists() and (job := _driver_job(run)):
        # the job has not started the run, or trains models, each of which has a folder of its own
        return Output(
            lambda: {"folder": run, "finished": _is_completed(_state_of_driver(run)), "job": job},
            [job],
        )
    if is_map(run):
        progress = MapStatus.of(folder)
        job = None if progress.finished else _driver_job(run)
        document = {
            "folder": run,
            "finished": progress.finished,
            "items": progress.items,
            "counts": progress.counts,
            "attempts_repeated": progress.repeated,
            "workers_died": progress.died,
            "job": job,
            "workers": workers,
        }
        driver = _driver_lines(folder, workers, progress.finished)
        return Output(lambda: document, chain([job] if job else [], [progress.text], driver))
    # a map needs none of these
    from daskmetrics.answer import status_of

    loaded = report.Run(run)
    job = None
    if not loaded.finished:
        job = _driver_job(run)
    return Output(
        lambda: {**vars(status_of(loaded)), "job": job, "workers": workers},
        _run_lines(loaded, job, workers),
    )


def _training_output(folder: RunFolder, training: TrainingStatus) -> Output:
    job = _driver_job(folder.path)  # also of a program that has ended before, and begins again
    workers = _workers(folder, training.is_driven)
    document = {
        **vars(training),
        "driver": training.driver if training.is_driven else None,
        "folder": folder.path,
        "job": job,
        "workers": workers,
    }
    shown = chain(
        [job] if job else [],
        [_training_text(folder, training)],
        _driver_lines(folder, workers, training.finished),
    )
    return Output(lambda: document, shown)


def _training_text(folder: RunFolder, training: TrainingStatus) -> str:
    from daskmetrics.report.status import training_lines

    lines = [*training_lines(training), ("output", str(folder.path / "logs"))]
    return "\n".join(report.fact(*line) for line in lines)


def _run_lines(run: report.Run, job: str | None, workers: Workers | None) -> Shown:
    from daskmetrics.report.terminal import status_text

    if job:
        yield job
    yield status_text(run)
    yield from _driver_lines(run.folder, workers, run.finished)
    if run.driver and run.config["cluster"]["kind"] == "slurm":
        from daskmetrics.cluster.slurm.commands import queue_text
        from daskmetrics.cluster.slurm.script import job_name

        yield f"jobs        {queue_text(job_name(run.plan.name))}"


def _driver_lines(folder: RunFolder, workers: Workers | None, is_finished: bool) -> Shown:
    if not is_finished and (dead := holder(folder.lock, dead=True)):
        yield report.fact("driver", f"{dead} has died; run the same command again to resume")
    if workers:
        age = duration(max(0.0, time.time() - workers["at"]))  # a clock may have been set back
        text = f"{workers['known']:,} known: {workers['busy']:,} busy, {age} ago"
        yield report.fact("workers", text)


def _workers(folder: RunFolder, is_driven: bool) -> Workers | None:
    samples = read_samples(folder.telemetry)
    if not samples or not is_driven:
        return None
    doing = samples[-1].doing.values()
    return {"known": len(doing), "busy": sum(map(bool, doing)), "at": samples[-1].at}


def _driver_job(run: Path) -> str | None:
    folder = RunFolder(run).driver
    if not folder.exists():
        return None  # without an import of Dask
    from daskmetrics.cluster.slurm import driver_job

    job = driver_job.submitted(folder)
    if job is None:
        return None
    try:
        return driver_job.state_text(job, _job_state(job))
    except ConfigError as error:
        return f"Job {job.job} was submitted to drive the run. Its state is unknown: {error}"


def follow(run: Path) -> Shown:
    """Show progress until no process drives the run, then a summary.

    The process ends with exit code 1 if the driver ended before the run was finished.
    """
    from daskmetrics.cluster.slurm import driver_job
    from daskmetrics.report.terminal import best_text

    job = driver_job.submitted(RunFolder(run).driver)
    if job is None and TrainingStatus.read(run) is None:
        read(RunFolder(run).must_exist().journal)  # a missing or damaged one is an error now
    try:
        _show_progress(run, job)
    except KeyboardInterrupt:
        note(f"The run continues. Follow it again with: daskmetrics status --follow {run}")
        sys.exit(INTERRUPTED)
    state = _job_state(job)
    loaded = _load(run)
    if _is_completed(state) and not _written(RunFolder(run).journal) and loaded is None:
        return  # it has trained several models, each of which has a folder of its own
    job_failed = state is not None and state.state not in ("COMPLETED", "UNKNOWN")
    if isinstance(loaded, TrainingStatus):
        yield _training_text(RunFolder(run), loaded)
    if loaded is None or job_failed or not loaded.finished:
        note(driver_job.ended_text(job, state))
        sys.exit(1)
    if isinstance(loaded, MapStatus):
        yield loaded.text
    elif isinstance(loaded, report.Run):
        yield best_text(loaded, in_short=True)


def _show_progress(run: Path, job: Submitted | None) -> None:
    from daskmetrics.cluster.slurm.driver_job import state_text

    console = Console(stderr=True)
    folder = RunFolder(run)
    description = shown_progress = progress = ""
    shown_at = 0.0
    written, reading = -1, 0.0
    with console.status("Reading the run ...") as spinner:  # shows nothing without a terminal
        while True:
            state = _job_state(job)
            if job:
                new_description = state_text(job, state)
                if new_description != description:
                    description = new_description
                    console.print(description, highlight=False, markup=False, soft_wrap=True)
            newest = max(map(_written, (folder.journal, run / STATUS)))
            if newest != written:
                written = newest
                started = time.monotonic()
                progress = _progress(run)
                reading = time.monotonic() - started
            spinner.update(escape(f"{description}  {progress}"))
            is_new = not console.is_terminal and progress != shown_progress
            if is_new and time.monotonic() - shown_at > LINE_INTERVAL:
                shown_progress = progress
                shown_at = time.monotonic()
                console.print(escape(progress), highlight=False, soft_wrap=True)
            if job:
                has_ended = state is None or state.ended
            else:
                training = TrainingStatus.read(run)
                is_driven = training is not None and training.is_driven
                has_ended = not is_driven and holder(folder.lock) is None
            if has_ended:
                return
            time.sleep(max(INTERVAL, 4 * reading))  # others work on a login node, too


def _written(file: Path) -> int:
    """When a file was, in nanoseconds; 0 without it."""
    return file.stat().st_mtime_ns if file.exists() else 0


def _progress(run: Path) -> str:
    loaded = _load(run)
    if loaded is None:
        return "nothing is recorded yet"
    if isinstance(loaded, MapStatus):
        done = sum(loaded.counts.values())
        failed = done - loaded.counts.get("ok", 0)
        return f"{done} of {loaded.items} items, {failed} failed"
    if isinstance(loaded, TrainingStatus):
        from daskmetrics.report.status import training_step

        return f"step {training_step(loaded)}"
    from daskmetrics.answer import status_of
    from daskmetrics.report.status import progress

    texts = progress(status_of(loaded), bool(loaded.config["metrics"]))
    return ", ".join(f"{kind} {done}" for kind, done in texts.items())


def _job_state(job: Submitted | None) -> QueuedJob | None:
    from daskmetrics.cluster.slurm.commands import QueuedJob, SlurmError, job_state

    if job is None:
        return None
    try:
        return job_state(job.job)
    except SlurmError as error:  # Slurm's controller restarts; the run continues meanwhile
        return QueuedJob(job.job, "UNKNOWN", str(error))


def _state_of_driver(run: Path) -> QueuedJob | None:
    from daskmetrics.cluster.slurm import driver_job

    return _job_state(driver_job.submitted(RunFolder(run).driver))


def _is_completed(state: QueuedJob | None) -> bool:
    return state is not None and state.state == "COMPLETED"


def _load(run: Path) -> report.Run | MapStatus | TrainingStatus | None:
    """The run, map or training as recorded; None without any file."""
    with suppress(DaskmetricsError, StopIteration):
        if is_map(run):
            return MapStatus.of(RunFolder(run))
        if training := TrainingStatus.read(run):
            return training
        return report.Run(run)
    return None
