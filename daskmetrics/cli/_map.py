"""The verb that maps any function over many items, durably."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from daskmetrics.cli._common import end_as_by_ctrl_c, friendly
from daskmetrics.core._files import RunFolder
from daskmetrics.core._times import parse_duration
from daskmetrics.core.errors import ConfigError

if TYPE_CHECKING:
    from distributed import Client

    from daskmetrics.cluster import Pins
    from daskmetrics.config import Cluster
    from daskmetrics.execution import Journal
    from daskmetrics.execution.map import Job, Ledger, Result
    from daskmetrics.experiment import Display

SOME_FAILED = 3
"""Exit code when every item has its result and some of them are failures."""
SHOWN_FAILURES = 10


@click.command("map")
@click.argument("function")
@click.option("--iterations", type=click.IntRange(1), metavar="N", help="The items are 0, 1, ..., N-1.")
@click.option(
    "--items",
    type=click.Path(path_type=Path),
    help="The items are those of a file: .jsonl, .csv, .txt.",
)
@click.option("--workers", type=click.IntRange(1), help="Number of workers.  [default: 2, or the profile's]")
@click.option("--batch-size", type=click.IntRange(1), default=10, show_default=True, help="Items per call of a worker.")
@click.option("--max-retries", type=click.IntRange(0), default=3, show_default=True, help="After an item has failed.")
@click.option("--timeout", default="5m", show_default=True, metavar="TIME", help="For one item: 90s, 5m, 2h, none.")
@click.option("--seed", type=int, default=0, show_default=True, help="A parameter 'seed' gets one per item.")
@click.option("--version", metavar="TEXT", help="Names the function's version, instead of a hash of its source.")
@click.option("--resume/--no-resume", default=True, help="Go on from what the folder holds, or refuse to.")
@click.option("--retry-failed", is_flag=True, help="Give items that failed before another chance.")
@click.option("--output", type=click.Path(path_type=Path), help="results.parquet, .csv, .jsonl, .zarr or .nc.")
@click.option("--cluster", metavar="PROFILE", help="A profile's name, or its YAML file.  [default: local]")
@click.option("--cpus-per-worker", type=click.IntRange(1), metavar="N", help="Pin each worker to N CPUs of its own.")
@click.option("--gpus-per-worker", type=click.IntRange(0), metavar="N", help="Show each worker N GPUs of its own.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where the journal lives.  [default: runs/FUNCTION]")
@click.option("--serial", is_flag=True, help="In this process, without workers and deadlines: for debugging.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and start nothing.")
@click.option("--verify", "sample", type=click.IntRange(0), metavar="N", help="Check a map: run N items again.")
@click.option("--ignore", multiple=True, metavar="FIELD", help="With --verify: a field that may differ.")
@click.option("--tolerance", type=float, default=0.0, help="With --verify: relative difference allowed.")
@friendly
def map_(**options: Any) -> None:
    """Run FUNCTION (module.py:function or package.module:function) once per item, each recorded exactly once.

    Running the same again resumes. An item that raises is tried again; one that kills its worker, hangs or needs too
    much memory is found by halving its batch, and its neighbours are run again. The exit code is 3 if items failed.
    """
    from daskmetrics.execution import map

    wanted = Wanted(**options)
    if wanted.sample is not None:
        _verify(wanted)
        return
    if wanted.output:
        map.check_output(wanted.output)
    job, (profile, pins) = _job(wanted), _where(wanted)
    if wanted.dry_run:
        _preview(job, wanted, profile, pins)
        return
    results = _run(job, wanted, profile, pins)
    _last_screen(results, wanted)
    if not all(result.ok for result in results):
        sys.exit(SOME_FAILED)


@dataclass(frozen=True)
class Wanted:
    """The options of the command line."""

    function: str
    iterations: int | None
    items: Path | None
    workers: int | None
    batch_size: int
    max_retries: int
    timeout: str
    seed: int
    version: str | None
    resume: bool
    retry_failed: bool
    output: Path | None
    cluster: str | None
    cpus_per_worker: int | None
    gpus_per_worker: int | None
    folder: Path | None
    serial: bool
    dry_run: bool
    sample: int | None
    ignore: tuple[str, ...]
    tolerance: float

    @property
    def place(self) -> RunFolder:
        return RunFolder(self.folder or Path("runs") / self.function.rpartition(":")[2])


def _job(wanted: Wanted) -> Job:
    from daskmetrics.execution import map
    from daskmetrics.execution.map._function import load
    from daskmetrics.execution.map._items import from_file

    if (wanted.iterations is None) == (wanted.items is None):
        raise ConfigError("Say what to run on: either --iterations N, or --items FILE.")
    options = map.Options(wanted.batch_size, wanted.max_retries, parse_duration(wanted.timeout))
    function = load(wanted.function)
    values = from_file(wanted.items) if wanted.items else range(wanted.iterations or 0)
    return map.job(function, values, options, seed=wanted.seed, version=wanted.version, reference=wanted.function)


def _where(wanted: Wanted) -> tuple[Cluster, Pins]:
    from daskmetrics import cluster, config

    own = {"workers": wanted.workers, "threads": wanted.cpus_per_worker, "gpus_per_job": None}
    if wanted.gpus_per_worker == 0:
        own["gpus_per_job"] = 0
    profile = config.cluster(wanted.cluster, **{key: value for key, value in own.items() if value is not None})
    # Slurm shows a job its own GPUs; which numbers they have on the node is not to be known there
    pins = cluster.Pins(wanted.cpus_per_worker, wanted.gpus_per_worker if profile.kind == "local" else None)
    if profile.kind == "slurm" and (wanted.gpus_per_worker or 0) > 1:
        raise ConfigError(
            f"--gpus-per-worker {wanted.gpus_per_worker}: a worker of a Slurm job owns one GPU. Leave it out."
        )
    if profile.kind == "local" and not wanted.serial:
        cluster.require(pins, profile.workers)
    return profile, pins


def _run(job: Job, wanted: Wanted, profile: Cluster, pins: Pins) -> list[Result]:
    from daskmetrics import experiment
    from daskmetrics.execution import map
    from daskmetrics.execution.map._api import opened

    end_as_by_ctrl_c()
    if wanted.place.journal.exists() and not wanted.resume:
        raise ConfigError(f"'{wanted.place.path}' holds a run already: choose another --folder, or let it --resume.")
    with opened(wanted.place.path) as journal, experiment.Display() as display:
        if wanted.retry_failed:
            map.give_chance(job, journal)
        ledger = map.Map(job.function, job.items, job.options, journal.entries).ledger
        _say_of_the_past(job, journal, ledger, display)
        display.phase("map", len(job.items), len(job.items) - len(ledger.open()))
        counted = _Counted(display, len(ledger.failed()))
        needed = bool(ledger.open()) and not wanted.serial
        name = wanted.place.path.resolve().name
        with _client(profile, pins, name, display) if needed else nullcontext() as client:
            return map.run(job, client, journal, counted, display.message)


class _Counted:
    """Shows how far it is and what failed: the first failures one by one, all of them by cause at the end."""

    def __init__(self, display: Display, failed: int) -> None:
        self.display, self.failed, self.shown = display, failed, 0

    def __call__(self, result: Result) -> None:
        self.failed += not result.ok
        if not result.ok and self.shown < SHOWN_FAILURES:
            from rich.markup import escape

            self.shown += 1
            last = "  (further failures at the end)" if self.shown == SHOWN_FAILURES else ""
            self.display.message(
                f"[yellow]{escape(result.name)}: {result.status}, {escape(str(result.reason))}{last}[/]"
            )
        self.display.advance("map", f"{self.failed} failed" if self.failed else "")


def _say_of_the_past(job: Job, journal: Journal, ledger: Ledger, display: Display) -> None:
    done = len(job.items) - len(ledger.open())
    if done:
        display.message(f"{done} of {len(job.items)} items are recorded already.")
    headers = [entry for entry in journal.entries if entry["type"] == "map"]
    if headers and headers[-1]["function"] != job.function.name:
        display.message(
            f"[yellow]The folder was last used by {headers[-1]['function']}; its results stay where they are.[/]"
        )
    elif headers and headers[-1]["version"] != job.function.version:
        display.message(
            "[yellow]The function's source has changed: what was recorded of the old one does not count.[/]"
        )


@contextmanager
def _client(profile: Cluster, pins: Pins, name: str, display: Display) -> Iterator[Client]:
    from rich.markup import escape

    from daskmetrics.cluster import connect, pin_workers

    with connect(profile, name, lambda text: display.message(escape(text)), on_start=display.message) as client:
        for name, told in pin_workers(client, pins).items() if pins else ():
            shown = ", ".join(
                f"{what} {' '.join(told[what]) or 'none'}" for what in ("cpus", "gpus") if told[what] is not None
            )
            display.message(f"Worker {name}: {told['problem'] or shown}")
        yield client


def _preview(job: Job, wanted: Wanted, profile: Cluster, pins: Pins) -> None:
    from daskmetrics.execution import map
    from daskmetrics.execution._journal import read

    ledger = map.Ledger(job.items, job.options.retries)
    if wanted.place.journal.exists():
        ledger.replay(read(wanted.place.journal))
    left, size = len(ledger.open()), job.options.batch_size
    each = [f"{n} {what} of its own" for n, what in ((pins.cpus, "CPUs"), (pins.gpus, "GPUs")) if n is not None]
    if profile.kind == "slurm":
        each.append(f"{min(1, profile.gpus_per_job)} GPU of its job")
    rows = {
        "function": f"{job.function.name}, version {job.function.version[:12]}"
        + (", seeded per item" if job.function.seeded else ""),
        "items": f"{len(job.items)}, of which {len(job.items) - left} are recorded already",
        "batches": f"{-(-left // size)} of up to {size} items",
        "an item": f"at most {wanted.timeout}; {job.options.retries} retries",
        "workers": "none: in this process" if wanted.serial else f"{profile.workers} ({profile.kind})",
        "each worker": ", ".join(each) or "not pinned",
        "threads": f"{profile.threads} per worker",
        "journal": str(wanted.place.journal),
        "results": str(wanted.output or "not written; give --output results.csv"),
    }
    for name, text in rows.items():
        click.echo(f"{name:<12} {text}")
    click.echo("Nothing was started.")


def _last_screen(results: Sequence[Result], wanted: Wanted) -> None:
    from daskmetrics.execution import map

    click.echo(map.summary_text(results, len(results)))
    if wanted.output:
        map.write(results, wanted.output)
        click.echo(f"Results: {wanted.output}")
    click.echo(f"Journal: {wanted.place.journal}")


def _verify(wanted: Wanted) -> None:
    from daskmetrics.execution import map

    found = map.verify(
        wanted.place.path, sample=wanted.sample or 0, seed=wanted.seed, ignore=wanted.ignore, tolerance=wanted.tolerance
    )
    click.echo(found.text())
    if not found.ok:
        sys.exit(1)


VERBS = (map_,)
