"""Commands that read a run from its files, without torch and without a scheduler; `status --follow`
also follows one that another process drives.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click

from daskmetrics.cli._common import (
    INTERRUPTED,
    RUN,
    Output,
    Shown,
    answering,
    example,
    flag_option,
    note,
    parsed_by,
    path_option,
    run_folder,
    say,
)
from daskmetrics.core.errors import ConfigError, DaskmetricsError
from daskmetrics.core.files import RunFolder

if TYPE_CHECKING:
    from daskmetrics.answer.comparison import ArmComparison, PublishedComparison, RunComparison
    from daskmetrics.answer.status import MapStatus
    from daskmetrics.cluster.slurm.commands import QueuedJob
    from daskmetrics.cluster.slurm.driver_job import Submitted
    from daskmetrics.core.names import Cell
    from daskmetrics.core.table import Table
    from daskmetrics.experiment.score_tables import KnownScore
    from daskmetrics.report import Run, TradeOffs

WIDTH, TABLE_WIDTH = 100, 132  # columns of tables; a row of trade-offs has nine cells
Workers: TypeAlias = Mapping[str, float]  # their numbers
FORMATS = ("html", "csv", "parquet", "netcdf")
#: the environment variable with the folder of the published table
DATA = "DASKMETRICS_PUBLISHED_DATA"
INTERVAL = 5.0  # seconds between two updates, of Slurm too
LINE_INTERVAL = 30.0  # seconds between lines where there is no terminal
TAIL = 30  # lines of the log of a driver that failed


@click.command(epilog=example("daskmetrics status demo", "daskmetrics status --follow demo"))
@run_folder
@click.option(
    "--follow", "follows", is_flag=True, help="Show the progress until no process drives RUN."
)
@answering
def status(run: Path, follows: bool) -> Output:
    """Show the progress, the failures, the workers and the Slurm jobs of RUN.

    They are read from its files and from Slurm's queue. With --follow, Ctrl-C does not stop the
    run; the exit code is 0 if the run is finished, and 1 if its driver ended before that. In that
    case the end of the driver's log is shown.
    """
    from daskmetrics import report
    from daskmetrics.answer import status_of
    from daskmetrics.answer.status import MapStatus, idle_now
    from daskmetrics.execution.map.folder import is_map

    if follows:
        return Output(None, _follow(run))
    folder = RunFolder(run)
    workers = _workers(folder)
    if not folder.journal.exists() and (job := _driver_job(run)):
        # the job has not started the run
        return Output(lambda: {"folder": run, "finished": False, "job": job}, [job])
    if is_map(run):
        progress = MapStatus.of(folder)
        idle = idle_now(folder)
        document = {
            "folder": run,
            "finished": progress.finished,
            "items": progress.items,
            "counts": progress.counts,
            "idle_gpus": idle,
            "workers": workers,
        }
        idle_lines = (f"Worker {worker}: {reason}." for worker, reason in idle.items())
        driver = _driver_lines(folder, workers, progress.finished)
        return Output(lambda: document, chain([progress.text], driver, idle_lines))
    loaded = report.Run(run)
    job = None
    if not loaded.finished:
        job = _driver_job(run)
    return Output(
        lambda: {**vars(status_of(loaded)), "job": job, "workers": workers},
        _run_lines(loaded, job, workers),
    )


def _run_lines(run: Run, job: str | None, workers: Workers | None) -> Shown:
    """The progress of an experiment, what drives it, and what was predicted of it."""
    from daskmetrics import report
    from daskmetrics.planning.progress import prediction

    if job:
        yield job
    yield report.status_text(run)
    yield from _driver_lines(run.folder, workers, run.finished)
    if planned := prediction(run):
        yield report.fact("plan", planned.text)
    if run.driver and run.config["cluster"]["kind"] == "slurm":
        from daskmetrics.cluster.slurm.commands import queue_text
        from daskmetrics.cluster.slurm.script import job_name

        yield f"jobs        {queue_text(job_name(run.start.name))}"


def _driver_lines(folder: RunFolder, workers: Workers | None, is_finished: bool) -> Shown:
    """That the driver of an unfinished run has died, and what the workers of one do."""
    from daskmetrics import report
    from daskmetrics.core.text import duration
    from daskmetrics.execution.journal import holder

    if not is_finished and (dead := holder(folder.lock, dead=True)):
        yield report.fact("driver", f"{dead} has died; run the same command again to resume")
    if workers:
        age = duration(time.time() - workers["at"])
        text = f"{workers['known']:,} known: {workers['busy']:,} busy, {age} ago"
        yield report.fact("workers", text)


def _workers(folder: RunFolder) -> Workers | None:
    """How many workers the driver of a run has, how many of them compute, and when that was."""
    from daskmetrics.core.telemetry import read_samples
    from daskmetrics.execution.journal import holder

    samples = read_samples(folder.telemetry)
    if not samples or holder(folder.lock) is None:
        return None
    doing = samples[-1].doing.values()
    return {"known": len(doing), "busy": sum(map(bool, doing)), "at": samples[-1].at}


def _driver_job(run: Path) -> str | None:
    """The state of the job that drives the run, if the run was submitted as a job."""
    from daskmetrics.cluster.slurm import driver_job

    job = driver_job.submitted(RunFolder(run).driver)
    if job is None:
        return None
    try:
        return driver_job.describe(job, _job_state(job))
    except ConfigError as error:
        return f"Job {job.job} was submitted to drive the run. Its state is unknown: {error}"


def _follow(run: Path) -> Shown:
    """Show the progress of a run until no process drives it; then its summary.

    The process ends with exit code 1 if the driver ended before the run was finished.
    """
    from daskmetrics import report
    from daskmetrics.answer.status import MapStatus
    from daskmetrics.cluster.slurm import driver_job

    job = driver_job.submitted(RunFolder(run).driver)
    if job is None:
        RunFolder(run).must_exist()
    try:
        _show_progress(run, job)
    except KeyboardInterrupt:
        note(f"The run continues. Follow it again with: daskmetrics status --follow {run}")
        sys.exit(INTERRUPTED)
    state = _job_state(job)
    loaded = _load(run)
    job_failed = state is not None and state.state not in ("COMPLETED", "UNKNOWN")
    if loaded is None or job_failed or not loaded.finished:
        _report_failure(job, state)
        sys.exit(1)
    if isinstance(loaded, MapStatus):
        yield loaded.text
    else:
        yield report.best_text(loaded, in_short=True)


def _show_progress(run: Path, job: Submitted | None) -> None:
    """Show the state of the job and the progress, at intervals, until no process drives the run."""
    from rich.console import Console
    from rich.markup import escape

    from daskmetrics.cluster.slurm import driver_job
    from daskmetrics.execution.journal import holder

    console = Console(stderr=True)
    journal = RunFolder(run).journal
    description = shown_progress = progress = ""
    shown_at = 0.0
    size, reading = -1, 0.0
    with console.status("Reading the run ...") as spinner:  # shows nothing without a terminal
        while True:
            state = _job_state(job)
            if job and (new_description := driver_job.describe(job, state)) != description:
                description = new_description
                console.print(description, highlight=False, markup=False, soft_wrap=True)
            new_size = journal.stat().st_size if journal.exists() else 0
            if new_size != size:
                size = new_size
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
                has_ended = not size or holder(RunFolder(run).lock) is None
            if has_ended:
                return
            time.sleep(max(INTERVAL, 4 * reading))  # others work on a login node, too


def _progress(run: Path) -> str:
    """What is done so far of each kind of work, or of the items of a map."""
    from daskmetrics import report
    from daskmetrics.answer.status import MapStatus

    loaded = _load(run)
    if loaded is None:
        return "nothing is recorded yet"
    if isinstance(loaded, MapStatus):
        done = sum(loaded.counts.values())
        return f"{done} of {loaded.items} items, {done - loaded.counts.get('ok', 0)} failed"
    rows = dict(report.status_rows(loaded))
    kinds = (kind for kind in ("train", "measure", "search") if kind in rows)
    return ", ".join(f"{kind} {rows[kind]}" for kind in kinds)


def _job_state(job: Submitted | None) -> QueuedJob | None:
    from daskmetrics.cluster.slurm.commands import QueuedJob, SlurmError, job_state

    if job is None:
        return None
    try:
        return job_state(job.job)
    except SlurmError as error:  # Slurm's controller restarts; the run continues meanwhile
        return QueuedJob(job.job, "UNKNOWN", str(error))


def _load(run: Path) -> Run | MapStatus | None:
    """The run as recorded in its files, or how far a map is; None if there are none yet."""
    from daskmetrics import report
    from daskmetrics.answer.status import MapStatus
    from daskmetrics.execution.map.folder import is_map

    with suppress(DaskmetricsError, StopIteration):
        if is_map(run):
            return MapStatus.of(RunFolder(run))
        return report.Run(run)
    return None


def _report_failure(job: Submitted | None, state: QueuedJob | None) -> None:
    """Say how the driver ended, with the end of its log."""
    from daskmetrics.cluster.slurm import driver_job

    driver = f"Job {job.job}" if job else "The driver"
    reason = ""
    if state and driver_job.out_of_time(state):
        reason = " (out of walltime)"
    elif state:
        exit_code, _, _ = state.exit.partition(":")
        reason = f" ({state.state.lower()}, exit code {exit_code})"
    note(
        f"{driver} ended{reason} before the run was finished; run the same command again to"
        " resume.",
    )
    if job and Path(job.log).is_file():
        last_lines = Path(job.log).read_text(errors="replace").splitlines()[-TAIL:]
        note("\n  ".join([f"The end of its log, {job.log}:", *last_lines]))


@click.command(epilog=example("daskmetrics report demo", "daskmetrics report demo --format csv"))
@run_folder
@click.option(
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    default="html",
    show_default=True,
    help="A page, or numbers in one file.",
)
@path_option("--output", "File for the numbers.  [default: in RUN/report]")
@flag_option("--svg", "Write each figure as SVG, too.")
@click.option("--open", "open_page", is_flag=True, help="Open the page in the browser.")
def report(run: Path, kind: str, output: Path | None, svg: bool, open_page: bool) -> None:
    """Write the HTML report and the figures of RUN, or all its numbers for other programs."""
    from daskmetrics import report as reports
    from daskmetrics.execution.map.folder import is_map

    if is_map(run):
        if kind != "html" or svg or open_page:
            raise ConfigError(
                "Of a map, report writes one figure as PNG. Its results are written by map "
                "--output."
            )
        reports.need_matplotlib()
        from daskmetrics.report.figures import write_telemetry

        folder = RunFolder(run)
        drawn = write_telemetry(folder.telemetry, folder.report)
        if drawn is None:
            raise ConfigError(
                f"'{run}' has no telemetry: the map was too short, or ran in one process."
            )
        say(drawn)
        return
    loaded = reports.Run(run)
    if kind != "html":
        if open_page:
            raise ConfigError(
                f"--open shows the page, but --format {kind} writes numbers: omit one of them."
            )
        say(reports.export(loaded, kind, output))  # type: ignore[arg-type]  # click has checked it
        return
    page = reports.write(loaded, svg)
    say(reports.best_text(loaded, in_short=True))
    if open_page:
        import webbrowser

        if not webbrowser.open(page.resolve().as_uri()):
            note("No browser could be started here: open the link above yourself.")


def _share(text: str) -> float:
    """A share such as ``1%`` or ``0.01``."""
    share = float(text.removesuffix("%"))
    if text.endswith("%"):
        share /= 100
    if not 0 < share < 1:
        raise ValueError
    return share


@click.command(
    epilog=example(
        "daskmetrics best demo",
        "daskmetrics best demo --within 1%",
        "daskmetrics best demo --arm tiny-64@step512/3",
    )
)
@run_folder
@click.option(
    "--within",
    type=parsed_by(_share, "a share between 0 and 1: write 1% or 0.01"),
    metavar="SHARE",
    help=(
        "Show the cheapest candidate that loses at most this share of the score in the worst case, "
        "such as 1%."
    ),
)
@flag_option("--pareto", "Show the candidates that no other beats in both score and cost.")
@path_option("--output", "Draw scores against costs; with --pareto.", metavar="FILE.png")
@click.option(
    "--arm",
    metavar="MODEL@REVISION/LAYER",
    help="Explain why the search chose this one or not: posterior, decisions, scores, metrics.",
)
@path_option(
    "--save",
    "Save the best candidate as a sentence-transformers model that ends at its layer.",
    metavar="FOLDER",
)
@answering
def best(
    run: Path,
    within: float | None,
    pareto: bool,
    output: Path | None,
    arm: str | None,
    save: Path | None,
) -> Output:
    """Print the best candidate of RUN: what it gains, how sure that is, what it cost."""
    from daskmetrics import report

    if output and not pareto:
        raise ConfigError("--output draws scores against costs: add --pareto.")
    if sum(map(bool, (within, pareto, arm, save))) > 1:
        raise ConfigError("--within, --pareto, --arm and --save exclude each other: choose one.")
    loaded = report.Run(run)
    if save:
        saved = loaded.best().save(save)
        return Output(lambda: {"saved": saved}, [f"Saved in '{saved}'."])
    if arm:
        return Output(None, [_text(report.explain_tables(loaded, arm))])
    if pareto:
        compared = loaded.trade_offs()
        drawn = [_draw(compared, output)] if output else []
        front = report.trade_offs_table(compared).as_text(TABLE_WIDTH)
        shown = "\n\n".join([front, *map(str, drawn)])
        return Output(lambda: {**vars(compared), "files": drawn}, [shown])
    if within:
        document = {"within": within, "cheaper": loaded.verdict.cheaper(within)}
        return Output(lambda: document, [_text([report.within_table(loaded, within)])])
    return Output(lambda: loaded.answer, [report.best_text(loaded)])


def _draw(compared: TradeOffs, output: Path) -> Path:
    """Draw scores against costs into a file."""
    if output.suffix.lower() != ".png" or not output.parent.is_dir():
        raise ConfigError(
            f"--output '{output}' is not a file such as tradeoffs.png in a folder that exists."
        )
    from daskmetrics import report
    from daskmetrics.core.files import atomic_write

    report.need_matplotlib()
    from daskmetrics.report.figures import image, trade_offs

    return atomic_write(output, image(trade_offs(compared)))


@click.command(
    epilog=example(
        "daskmetrics compare demo minilm",
        "daskmetrics compare demo --arms tiny-64@step512/3 tiny-64@step512/0",
    )
)
@click.argument("run", type=RUN)
@click.argument("other", type=RUN, required=False)
@path_option(
    "--published",
    f"Table of published scores (CSV).  [default: published_scores.csv.gz in ${DATA}]",
)
@click.option(
    "--arms",
    nargs=2,
    metavar="NAME NAME",
    help="Compare two candidates; the second is of OTHER, if there is one.",
)
@answering
def compare(
    run: Path, other: Path | None, published: Path | None, arms: tuple[str, str] | None
) -> Output:
    """Compare two runs, a run with published scores of its models, or two candidates.

    Without OTHER, RUN is compared with the published scores. Differences of candidates are
    paired: their error comes from the outcomes of the same items.
    """
    from daskmetrics import report
    from daskmetrics.answer.comparison import compare_named, compare_published, compare_runs

    loaded = report.Run(run)
    beside = None if other is None else report.Run(other)
    documents: dict[str, object] = {}
    comparisons: list[RunComparison | ArmComparison | PublishedComparison] = []
    if arms:
        comparisons.append(compare_named(loaded, *arms, beside))
    elif beside:
        comparisons.append(compare_runs(loaded, beside))
    if comparisons:
        documents |= vars(comparisons[0])
    if not arms and (beside is None or published is not None):
        with_published = compare_published(loaded, *_published(published))
        documents["published"] = with_published
        comparisons.append(with_published)
    second = beside or loaded
    tables = (report.compare_tables(loaded, second, compared) for compared in comparisons)
    return Output(lambda: documents, [_text(chain.from_iterable(tables))])


def _text(tables: Iterable[Table]) -> str:
    return "\n\n".join(table.as_text(WIDTH) for table in tables)


def _published(path: Path | None) -> tuple[Mapping[Cell, KnownScore], str]:
    """The published scores, and where they are from."""
    from daskmetrics.experiment import score_tables

    if path is None:
        if (folder := os.environ.get(DATA)) is None:
            raise ConfigError(
                f"Give a second RUN, or a table of published scores by --published FILE or ${DATA}."
            )
        path = Path(folder) / "published_scores.csv.gz"
    return score_tables.published(path), str(path)
