"""Verbs that do the work."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from daskmetrics.cli._common import INTERRUPTED, end_as_by_ctrl_c, friendly, run_folder
from daskmetrics.core._files import RunFolder
from daskmetrics.core.errors import ConfigError, DaskmetricsError

if TYPE_CHECKING:
    from rich.console import Console

    from daskmetrics.cluster.slurm._commands import JobState
    from daskmetrics.cluster.slurm._driver_job import Submitted
    from daskmetrics.config import Config
    from daskmetrics.report import Run


@click.command()
@click.argument("config", type=click.Path(path_type=Path), required=False)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change the configuration, e.g. search.budget=0.1."
)
@click.option("--cluster", metavar="PROFILE", help="A profile's name, or its YAML file.  [default: CONFIG's, or local]")
@click.option("--workers", type=int, help="Number of workers; short for --set cluster.workers=N.")
@click.option("--policy", help="How to search; short for --set search.policy=NAME. `sweep` scores every cell.")
@click.option("--budget", type=float, help="Share of the exhaustive cost; short for --set search.budget=SHARE.")
@click.option("--confidence", type=float, help="Stop once this sure, e.g. 0.95; short for --set search.confidence=P.")
@click.option("--within", type=float, help="Of being within this share of the best; short for --set search.within=W.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where the run lives.  [default: runs/NAME]")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and submit nothing.")
@click.option("--submit", is_flag=True, help="Let a Slurm job of its own drive the run, and return. See `attach`.")
@click.option("--in-job", is_flag=True, help="Use the Slurm job that this runs in: one worker per GPU, by srun.")
@friendly
def run(
    config: Path | None,
    settings: tuple[str, ...],
    cluster: str | None,
    folder: Path | None,
    dry_run: bool,
    submit: bool,
    in_job: bool,
    **short: Any,
) -> None:
    """Measure, search and report what CONFIG asks for; without a file, the embedded demo.

    Running the same again resumes; a finished run is left as it is.
    """
    from rich.console import Console

    from daskmetrics import config as configuration

    if submit and in_job:
        raise ConfigError("--submit and --in-job are two ways to run: choose one.")
    file = config or configuration.folder() / "demo.yaml"
    wanted = configuration.load(file, _settings(settings, cluster, short))
    if in_job:
        wanted = _inside(wanted, short["workers"])
    place = RunFolder(folder or Path("runs") / wanted.name)
    from daskmetrics import experiment  # after the configuration was found good: Dask takes half a second

    console = Console(stderr=True)
    with console.status("Checking models, tasks and texts ...") if console.is_terminal else nullcontext():
        prepared = experiment.prepare(wanted)
    if dry_run:
        from daskmetrics.experiment._preview import preview

        preview(prepared, place).show()
        return
    if submit:
        _submit(wanted, place)
        return
    end_as_by_ctrl_c()
    with experiment.Display(console) as display:
        outcome = experiment.run(prepared, place, display)
    _last_screen(place, outcome.nothing_to_do)


def _settings(own: tuple[str, ...], cluster: str | None, short: dict[str, Any]) -> list[str]:
    """The settings that options stand for; those given with --set count for more than a profile."""
    sections = {"workers": "cluster", **dict.fromkeys(("policy", "budget", "confidence", "within"), "search")}
    if short["policy"] == "sweep" and short["budget"] is None:
        short["budget"] = 1.0  # everything is what it is for
    given = [f"{sections[name]}.{name}={value}" for name, value in short.items() if value is not None]
    return [*([f"cluster={cluster}"] if cluster else []), *own, *given]


def _inside(wanted: Config, workers: int | None) -> Config:
    """The same on the present Slurm job: on all of it, unless so many workers are asked for."""
    from daskmetrics.cluster.slurm._allocation import present

    room = present(os.environ)
    count = workers or room.slots(wanted.cluster.threads)
    room.require(count, wanted.cluster.threads)
    changed = wanted.cluster.model_copy(update={"kind": "allocation", "workers": count, "scoring": None})
    return wanted.model_copy(update={"cluster": changed})


def _submit(wanted: Config, place: RunFolder) -> None:
    import yaml

    from daskmetrics.cluster.slurm import _driver_job as driver_job

    if wanted.cluster.kind in ("local", "allocation"):
        raise ConfigError(
            "--submit drives the run from a small job of its own, and its workers would be there, too: name a Slurm "
            "profile with --cluster. 'daskmetrics cluster list' shows them."
        )
    place.create()
    files = driver_job.DriverFiles(place.driver.resolve())
    told = driver_job.submit(wanted.cluster, wanted.name, files, yaml.safe_dump(wanted.as_dict(), sort_keys=False))
    click.echo(f"Job {told.job} will drive the run in '{place.path}'.")
    rows = {
        "follow": f"daskmetrics attach {place.path}",
        "look": f"daskmetrics status {place.path}",
        "stop": f"scancel --batch --signal=TERM {told.job}    (submit again to resume)",
        "log": told.log,
    }
    for name, text in rows.items():
        click.echo(f"  {name:<8}{text}")


def _last_screen(place: RunFolder, nothing_to_do: bool) -> None:
    from daskmetrics import report

    if nothing_to_do:
        click.echo(f"Nothing to do: the run in '{place.path}' is finished.")
    report.write(place)
    click.echo(report.summary_text(report.Run(place.path)))
    click.echo(report.whereabouts(place))


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
    from daskmetrics.cluster.slurm import _driver_job as driver_job

    place = driver_job.DriverFiles(RunFolder(run).driver)
    job = driver_job.submitted(place)
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
    from daskmetrics.cluster.slurm import _driver_job as driver_job

    before, size, loaded = "", -1, None
    while True:
        state = _state(job) if job else None
        told = driver_job.describe(job, state) if job else ""
        if told != before:
            console.print(told, highlight=False, markup=False, soft_wrap=True)
            before = told
        if (now := _size(run)) != size:
            size, loaded = now, _loaded(run)
        yield told, _progress(loaded) if loaded else "nothing is recorded yet"
        if (state is None or state.ended) if job else (loaded is None or loaded.driver is None):
            return
        time.sleep(EVERY)


def _state(job: Submitted) -> JobState | None:
    from daskmetrics.cluster.slurm._commands import JobState, SlurmError, job_state

    try:
        return job_state(job.job)
    except SlurmError as error:  # the controller is restarted; the run goes on meanwhile
        return JobState("UNKNOWN", str(error))


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
    trained = run.counts["train", "ok"]
    parts = [f"train {trained:,}"] if trained else []
    parts += [f"measure {run.counts['measure', 'ok']:,} of {run.start.checkpoints:,}"]
    parts += [f"search {run.searched}"] if run.tasks and run.picks else []
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


def _tell_death(job: Submitted | None, state: JobState | None) -> None:
    who = "The driver" if job is None else f"Job {job.job}"
    how = f" ({state.name.lower()}, exit code {state.exit.partition(':')[0]})" if state else ""
    click.echo(f"{who} ended{how} before its work was done; the same command resumes it.", err=True)
    log = Path(job.log) if job else None
    if log and log.is_file():
        click.echo(f"The end of its log, {log}:", err=True)
        for line in log.read_text(errors="replace").splitlines()[-TAIL:]:
            click.echo(f"  {line}", err=True)


VERBS = (run, attach)
