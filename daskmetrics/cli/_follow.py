"""Follow a run that another process drives, as `status --follow` does, until it ends."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from daskmetrics.cli._common import INTERRUPTED, say, show_summary
from daskmetrics.core.errors import DaskmetricsError
from daskmetrics.core.files import RunFolder

if TYPE_CHECKING:
    from daskmetrics.cluster.slurm.commands import JobState
    from daskmetrics.cluster.slurm.driver_job import Submitted
    from daskmetrics.report import Run

INTERVAL = 5.0  # seconds between two updates, of Slurm too
LINE_INTERVAL = 30.0  # seconds between lines where there is no terminal
TAIL = 30  # lines of the log of a driver that failed


def follow(run: Path) -> None:
    """Show the progress of a run until no process drives it, then its summary.

    The process ends with exit code 1 if the driver ended before the run was finished.
    """
    from daskmetrics.cluster.slurm import driver_job

    job = driver_job.submitted(RunFolder(run).driver)
    if job is None:
        RunFolder(run).must_exist()
    try:
        _show_progress(run, job)
    except KeyboardInterrupt:
        say(f"The run continues. Follow it again with: daskmetrics status --follow {run}", err=True)
        sys.exit(INTERRUPTED)
    state = _job_state(job)
    loaded = _load(run)
    job_failed = state is not None and state.name not in ("COMPLETED", "UNKNOWN")
    if loaded is None or job_failed or not loaded.finished:
        _report_failure(job, state)
        sys.exit(1)
    show_summary(loaded)


def _show_progress(run: Path, job: Submitted | None) -> None:
    """Show the state of the job and the progress, at intervals, until no process drives the run."""
    from rich.console import Console
    from rich.markup import escape

    from daskmetrics import report
    from daskmetrics.cluster.slurm import driver_job

    console = Console(stderr=True)
    journal = RunFolder(run).journal
    description = shown_state = shown_progress = ""
    shown_at = 0.0
    loaded = None
    size = -1
    with ExitStack() as stack:
        spinner = None
        if console.is_terminal:
            spinner = stack.enter_context(console.status("Reading the run ..."))
        while True:
            state = _job_state(job)
            if job:
                description = driver_job.describe(job, state)
            if description != shown_state:
                console.print(description, highlight=False, markup=False, soft_wrap=True)
                shown_state = description
            new_size = journal.stat().st_size if journal.exists() else 0
            if new_size != size:
                size = new_size
                loaded = _load(run)
            progress = "nothing is recorded yet"
            if loaded:
                rows = report.status_rows(loaded)
                kinds = ("train", "measure", "search")
                progress = ", ".join(f"{name} {text}" for name, text in rows if name in kinds)
            if spinner is not None:
                spinner.update(escape(f"{description}  {progress}"))
            elif progress != shown_progress and time.monotonic() - shown_at > LINE_INTERVAL:
                shown_progress = progress
                shown_at = time.monotonic()
                console.print(escape(progress), highlight=False, soft_wrap=True)
            if job is None and (loaded is None or loaded.driver is None):
                return
            if job is not None and (state is None or state.ended):
                return
            time.sleep(INTERVAL)


def _job_state(job: Submitted | None) -> JobState | None:
    from daskmetrics.cluster.slurm.commands import JobState, SlurmError, job_state

    if job is None:
        return None
    try:
        return job_state(job.job)
    except SlurmError as error:  # Slurm's controller restarts; the run continues meanwhile
        return JobState("UNKNOWN", str(error))


def _load(run: Path) -> Run | None:
    """The run as recorded in its files; None if there are none yet."""
    from daskmetrics import report

    with suppress(DaskmetricsError, StopIteration):
        loaded = report.Run(run)
        if loaded.start:
            return loaded
    return None


def _report_failure(job: Submitted | None, state: JobState | None) -> None:
    """Say how the driver ended, with the end of its log."""
    from daskmetrics.cluster.slurm import driver_job

    driver = f"Job {job.job}" if job else "The driver"
    reason = ""
    if state and driver_job.out_of_time(state):
        reason = " (out of walltime)"
    elif state:
        exit_code, _, _ = state.exit.partition(":")
        reason = f" ({state.name.lower()}, exit code {exit_code})"
    say(
        f"{driver} ended{reason} before the run was finished; run the same command again to"
        " resume.",
        err=True,
    )
    if job and Path(job.log).is_file():
        say(f"The end of its log, {job.log}:", err=True)
        for line in Path(job.log).read_text(errors="replace").splitlines()[-TAIL:]:
            say(f"  {line}", err=True)
