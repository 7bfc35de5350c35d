"""The verb that follows a run which something else drives."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from daskmetrics.cli.common import INTERRUPTED, friendly, run_folder
from daskmetrics.errors import DaskmetricsError
from daskmetrics.layout import RunFolder

if TYPE_CHECKING:
    from rich.console import Console

    from daskmetrics.cluster.controller import State, Submitted
    from daskmetrics.report import Run

EVERY = 5.0  # seconds between two looks, at Slurm too
PLAIN_EVERY = 30.0  # seconds between lines where there is no terminal
TAIL = 30  # lines of the log of a driver that died


@click.command()
@run_folder
@friendly
def attach(run: Path) -> None:
    """Follow RUN until it ends, whoever drives it; Ctrl-C leaves it alone.

    Progress is read from its files, the state of its job from Slurm. The exit code is 0 if the run is finished, and 1
    if its driver ended before that; then the end of the driver's log is shown.
    """
    from daskmetrics.cluster import controller

    place = controller.Place(RunFolder(run).controller)
    job = controller.submitted(place)
    if job is None:
        RunFolder(run).must_exist()
    try:
        _follow(run, job)
    except KeyboardInterrupt:
        click.echo(f"The run goes on. Follow it again with: daskmetrics attach {run}", err=True)
        sys.exit(INTERRUPTED)
    _end(run, job)


def _follow(run: Path, job: Submitted | None) -> None:
    """Show how it goes until nobody drives the run."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True)
    shown, said_at = "", 0.0
    with console.status("Looking ...") if console.is_terminal else nullcontext() as spinner:
        for told, progress in _looks(run, job, console):
            if spinner is not None:
                spinner.update(escape(f"{told}  {progress}"))
            elif progress != shown and time.monotonic() - said_at > PLAIN_EVERY:
                shown, said_at = progress, time.monotonic()
                console.print(escape(progress), highlight=False, soft_wrap=True)


def _looks(run: Path, job: Submitted | None, console: Console) -> Iterator[tuple[str, str]]:
    """What there is to say at each look; what happens once is printed."""
    from daskmetrics.cluster import controller

    before, size, loaded = "", -1, None
    while True:
        state = _state(job) if job else None
        told = controller.told(job, state) if job else ""
        if told != before:
            console.print(told, highlight=False, markup=False, soft_wrap=True)
            before = told
        if (now := _size(run)) != size:
            size, loaded = now, _loaded(run)
        yield told, _progress(loaded) if loaded else "nothing is recorded yet"
        if (state is None or state.ended) if job else (loaded is None or loaded.driver is None):
            return
        time.sleep(EVERY)


def _state(job: Submitted) -> State | None:
    from daskmetrics.cluster.controller import State, state_of
    from daskmetrics.cluster.queue import SlurmError

    try:
        return state_of(job.job)
    except SlurmError as error:  # the controller is restarted; the run goes on meanwhile
        return State("UNKNOWN", str(error))


def _size(run: Path) -> int:
    journal = RunFolder(run).journal
    return journal.stat().st_size if journal.exists() else 0


def _loaded(run: Path) -> Run | None:
    """The run as its files have it, or None while there are none."""
    from daskmetrics import report

    with suppress(DaskmetricsError, StopIteration):
        loaded = report.Run(run)
        return loaded if loaded.start else None
    return None


def _progress(run: Run) -> str:
    """How far a run is, in one line."""
    from daskmetrics.report import wording

    trained = run.counts["train", "ok"]
    parts = [f"train {trained:,}"] if trained else []
    parts += [f"measure {run.counts['measure', 'ok']:,} of {run.start['checkpoints']:,}"]
    parts += [f"search {wording.searched(run)}"] if run.tasks and run.picks else []
    return ", ".join(parts)


def _end(run: Path, job: Submitted | None) -> None:
    from daskmetrics import report

    state = _state(job) if job else None
    loaded = _loaded(run)
    died = state is not None and state.name not in ("COMPLETED", "UNKNOWN")
    if loaded is None or died or not loaded.finished:
        _tell_death(job, state)
        sys.exit(1)
    click.echo(report.summary_text(loaded))
    click.echo(report.whereabouts(loaded.folder))


def _tell_death(job: Submitted | None, state: State | None) -> None:
    who = "The driver" if job is None else f"Job {job.job}"
    how = f" ({state.name.lower()}, exit code {state.exit.partition(':')[0]})" if state else ""
    click.echo(f"{who} ended{how} before its work was done; the same command resumes it.", err=True)
    log = Path(job.log) if job else None
    if log and log.is_file():
        click.echo(f"The end of its log, {log}:", err=True)
        for line in log.read_text(errors="replace").splitlines()[-TAIL:]:
            click.echo(f"  {line}", err=True)


VERBS = (attach,)
