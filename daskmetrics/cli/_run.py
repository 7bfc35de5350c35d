"""The commands `run`, `watch`, a run that follows checkpoints, and `attach`, which follows a run in another process."""

from __future__ import annotations

import os
import sys
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from daskmetrics.cli._common import (
    INTERRUPTED,
    PATH,
    config_file,
    configuration,
    end_as_by_ctrl_c,
    example,
    friendly,
    run_folder,
    say,
    settings_option,
)
from daskmetrics.core._files import RunFolder
from daskmetrics.core.errors import ConfigError, DaskmetricsError

if TYPE_CHECKING:
    from daskmetrics.cluster.slurm._commands import JobState
    from daskmetrics.cluster.slurm._driver_job import Submitted
    from daskmetrics.config import Config
    from daskmetrics.report import Run

INTERVAL = 5.0  # seconds between two updates, of Slurm too
LINE_INTERVAL = 30.0  # seconds between lines where there is no terminal
WATCHED = ("until_idle", "keep", "poll")  # options of `watch` with the names of keys of its section
TAIL = 30  # lines of the log of a driver that failed


cluster_option = click.option(
    "--cluster", metavar="PROFILE", help="A profile's name, or its YAML file.  [default: CONFIG's, or local]"
)
workers_option = click.option("--workers", type=int, help="Number of workers; short for --set cluster.workers=N.")
folder_option = click.option("--folder", type=PATH, help="Folder of the run.  [default: runs/NAME]")


@click.command(epilog=example("daskmetrics run", "daskmetrics run mine.yaml --dry-run"))
@config_file
@settings_option
@cluster_option
@workers_option
@click.option("--policy", help="Search policy; short for --set search.policy=NAME. `sweep` scores every cell.")
@click.option("--budget", metavar="SHARE", help="Share of the cost of every score, or auto: --set search.budget=SHARE.")
@click.option("--spend", type=float, help="Spend this share even if sure earlier; short for --set search.spend=SHARE.")
@click.option("--confidence", type=float, help="Stop at this confidence; short for --set search.confidence=P.")
@click.option("--within", type=float, help="Tolerance of --confidence; short for --set search.within=W.")
@folder_option
@click.option("--dry-run", is_flag=True, help="Show what would be done, and submit nothing.")
@click.option("--submit", is_flag=True, help="Submit a Slurm job that drives the run, and return. See `attach`.")
@click.option("--in-job", is_flag=True, help="Use the Slurm job of this shell: one worker per GPU, by srun.")
@friendly
def run(
    config: Path | None,
    settings: tuple[str, ...],
    cluster: str | None,
    folder: Path | None,
    dry_run: bool,
    submit: bool,
    in_job: bool,
    **options: Any,
) -> None:
    """Measure, search and report what CONFIG describes; without a file, the embedded demo.

    Run the same command again to resume; a finished run is not changed.
    """
    from rich.console import Console

    if submit and in_job:
        raise ConfigError("--submit and --in-job exclude each other: choose one.")
    loaded = configuration(config, _settings(settings, cluster, options))
    if in_job:
        loaded = _on_allocation(loaded, options["workers"])
    place = RunFolder(folder or Path("runs") / loaded.name)
    from daskmetrics import experiment  # after the configuration is valid: importing Dask takes half a second

    console = Console(stderr=True)
    with console.status("Checking models, tasks and texts ...") if console.is_terminal else nullcontext():
        prepared = experiment.prepare(loaded, on_message=console.print)
    if dry_run:
        from daskmetrics.experiment._estimate import preview

        preview(prepared, place).show()
        return
    if submit:
        _submit(loaded, place)
        return
    end_as_by_ctrl_c()
    with experiment.Display(console) as display:
        result = experiment.run(prepared, place, display)
    if result.nothing_to_do:
        say(f"Nothing to do: the run in '{place.path}' is finished.")
    from daskmetrics import report

    finished = report.Run(place.path)
    report.write(finished)
    _show_summary(finished)


def _settings(settings: tuple[str, ...], cluster: str | None, options: dict[str, Any]) -> list[str]:
    """All settings: the profile, then those of --set, then the other options."""
    search = ("policy", "budget", "spend", "confidence", "within")
    sections = {"workers": "cluster", **dict.fromkeys(search, "search"), **dict.fromkeys(WATCHED, "watch")}
    if options.get("policy") == "sweep" and options["budget"] is None:
        options["budget"] = 1.0  # a sweep scores every cell
    given = [f"{sections[name]}.{name}={value}" for name, value in options.items() if value is not None]
    return [*([f"cluster={cluster}"] if cluster else []), *settings, *given]


def _on_allocation(config: Config, workers: int | None) -> Config:
    """The configuration with the Slurm job of this shell as its cluster, by default with all of its slots."""
    from daskmetrics.cluster.slurm._allocation import present

    allocation = present(os.environ)
    count = workers or allocation.slots(config.cluster.threads)
    allocation.require(count, config.cluster.threads)
    cluster = config.cluster.model_copy(update={"kind": "allocation", "workers": count, "scoring": None})
    return config.model_copy(update={"cluster": cluster})


def _submit(config: Config, place: RunFolder) -> None:
    import yaml

    from daskmetrics.cluster.slurm import _driver_job as driver_job

    if config.cluster.kind in ("local", "allocation"):
        raise ConfigError(
            "--submit runs the driver in a small job, and a local cluster would share that job: name a Slurm profile "
            "with --cluster. 'daskmetrics cluster list' shows them."
        )
    place.create()
    text = yaml.safe_dump(config.as_dict(), sort_keys=False)
    job = driver_job.submit(config.cluster, config.name, place.driver.resolve(), text)
    say(f"Job {job.job} will drive the run in '{place.path}'.")
    say(f"  follow  daskmetrics attach {place.path}")
    say(f"  look    daskmetrics status {place.path}")
    say(f"  stop    scancel --batch --signal=TERM {job.job}    (submit again to resume)")
    say(f"  log     {job.log}")


def _show_summary(run: Run) -> None:
    from daskmetrics import report

    say(report.summary_text(run))
    say(report.whereabouts(run.folder))


@click.command(
    epilog=example("daskmetrics watch mine.yaml", "daskmetrics watch mine.yaml --until-idle 10m --keep 'best(3)'")
)
@click.argument("config", type=PATH)
@settings_option
@cluster_option
@workers_option
@click.option("--budget", metavar="SHARE", help="Share of the cost of every score, or auto: --set search.budget=SHARE.")
@click.option("--until-idle", metavar="TIME", help="End without a new checkpoint for this time, such as 10m.")
@click.option("--keep", metavar="best(N)", help="Name checkpoints that may be deleted. Nothing is deleted.")
@click.option("--poll", metavar="TIME", help="Time between two looks at the folders.  [default: 5s]")
@folder_option
@friendly
def watch(config: Path, settings: tuple[str, ...], cluster: str | None, folder: Path | None, **options: Any) -> None:
    """Measure and score checkpoints as a training writes them, and say when the score has stopped rising.

    The models of CONFIG are folders or hub ids to which checkpoints are added (`step500`, `checkpoint-500`); a folder
    may not exist yet. Report, live page and `events.jsonl` in the folder of the run follow. The watch ends with the
    training: when `training.finished` is in the folder, or the last checkpoint is that of the last step of a trainer.
    Ctrl-C ends it, too; the same command goes on.
    """
    from daskmetrics import report
    from daskmetrics.experiment import Display
    from daskmetrics.experiment._watch import watch as follow

    loaded = configuration(config, _settings(settings, cluster, options))
    place = RunFolder(folder or Path("runs") / loaded.name)
    end_as_by_ctrl_c()
    with Display() as display:
        follow(loaded, place, display, on_round=lambda: report.write(report.Run(place.path)))
    _show_summary(report.Run(place.path))


@click.command(epilog=example("daskmetrics attach demo"))
@run_folder
@friendly
def attach(run: Path) -> None:
    """Follow RUN until it ends, whichever process drives it; Ctrl-C does not stop the run.

    Progress is read from its files, the state of its job from Slurm. The exit code is 0 if the run is finished, and 1
    if its driver ended before that; in that case the end of the driver's log is shown.
    """
    from daskmetrics.cluster.slurm import _driver_job as driver_job

    job = driver_job.submitted(RunFolder(run).driver)
    if job is None:
        RunFolder(run).must_exist()
    try:
        _follow(run, job)
    except KeyboardInterrupt:
        say(f"The run continues. Follow it again with: daskmetrics attach {run}", err=True)
        sys.exit(INTERRUPTED)
    state = _state(job) if job else None
    loaded = _loaded(run)
    failed = state is not None and state.name not in ("COMPLETED", "UNKNOWN")
    if loaded is None or failed or not loaded.finished:
        _report_failure(job, state)
        sys.exit(1)
    _show_summary(loaded)


def _follow(run: Path, job: Submitted | None) -> None:
    """Show the state of the job and the progress of the run, at intervals, until no process drives the run."""
    from rich.console import Console
    from rich.markup import escape

    from daskmetrics.cluster.slurm import _driver_job as driver_job

    console, journal = Console(stderr=True), RunFolder(run).journal
    before, shown, shown_at, size, loaded = "", "", 0.0, -1, None
    with console.status("Reading the run ...") if console.is_terminal else nullcontext() as spinner:
        while True:
            state = _state(job) if job else None
            description = driver_job.describe(job, state) if job else ""
            if description != before:
                console.print(description, highlight=False, markup=False, soft_wrap=True)
                before = description
            if (now := journal.stat().st_size if journal.exists() else 0) != size:
                size, loaded = now, _loaded(run)
            progress = _progress(loaded) if loaded else "nothing is recorded yet"
            if spinner is not None:
                spinner.update(escape(f"{description}  {progress}"))
            elif progress != shown and time.monotonic() - shown_at > LINE_INTERVAL:
                shown, shown_at = progress, time.monotonic()
                console.print(escape(progress), highlight=False, soft_wrap=True)
            if (state is None or state.ended) if job else (loaded is None or loaded.driver is None):
                return
            time.sleep(INTERVAL)


def _state(job: Submitted) -> JobState | None:
    from daskmetrics.cluster.slurm._commands import JobState, SlurmError, job_state

    try:
        return job_state(job.job)
    except SlurmError as error:  # Slurm's controller restarts; the run continues meanwhile
        return JobState("UNKNOWN", str(error))


def _loaded(run: Path) -> Run | None:
    """The run as recorded in its files, or None if there are none yet."""
    from daskmetrics import report

    with suppress(DaskmetricsError, StopIteration):
        loaded = report.Run(run)
        return loaded if loaded.start else None
    return None


def _progress(run: Run) -> str:
    """The progress of a run in one line."""
    trained = run.counts["train", "ok"]
    parts = [f"train {trained:,}"] if trained else []
    parts += [f"measure {run.counts['measure', 'ok']:,} of {run.start.checkpoints:,}"]
    parts += [f"search {run.searched}"] if run.tasks and run.picks else []
    return ", ".join(parts)


def _report_failure(job: Submitted | None, state: JobState | None) -> None:
    driver = "The driver" if job is None else f"Job {job.job}"
    how = f" ({state.name.lower()}, exit code {state.exit.partition(':')[0]})" if state else ""
    say(f"{driver} ended{how} before the run was finished; run the same command again to resume.", err=True)
    log = Path(job.log) if job else None
    if log and log.is_file():
        say(f"The end of its log, {log}:", err=True)
        for line in log.read_text(errors="replace").splitlines()[-TAIL:]:
            say(f"  {line}", err=True)


COMMANDS = (run, watch, attach)
