"""The command that maps any function over many items, durably."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import click

from daskmetrics.cli._common import PATH, end_as_by_ctrl_c, example, friendly, say
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import RunFolder
from daskmetrics.core.table import Table
from daskmetrics.core.text import plural

if TYPE_CHECKING:
    from distributed import Client

    from daskmetrics.cluster import Pins
    from daskmetrics.config import Cluster
    from daskmetrics.execution import Journal
    from daskmetrics.execution.map import ItemResult
    from daskmetrics.execution.map.source import MapSpec
    from daskmetrics.experiment import Display

SOME_FAILED = 3  # exit code if every item has a result and some of them failed
SHOWN_FAILURES = 10


def _click(help: str, *names: str, **settings: Any) -> dict[str, Any]:
    """Settings of the click option of a field of `MapCommand`; the field gives its name and
    default.
    """
    return {"names": names, "help": help, "show_default": True, **settings}


def _number(help: str, least: int = 1) -> dict[str, Any]:
    return _click(help, type=click.IntRange(least), metavar="N")


@dataclass(frozen=True)
class MapCommand:
    """The arguments of ``daskmetrics map``; each field but the function is an option of the command
    line.
    """

    function: str
    iterations: Annotated[int | None, _number("The items are 0, 1, ..., N-1.")] = None
    items: Annotated[
        Path | None, _click("Read the items from a file: .jsonl, .csv, .parquet, .txt.", type=PATH)
    ] = None
    types: Annotated[
        str,
        _click("Columns of a CSV file that are numbers: rate=float,steps=int.", metavar="TYPES"),
    ] = ""
    workers: Annotated[
        int | None, _number("Number of workers.  [default: 2, or the profile's]")
    ] = None
    batch_size: Annotated[int, _number("Items per Dask task.")] = 10
    max_retries: Annotated[int, _number("How often a failed item is tried again.", 0)] = 3
    timeout: Annotated[str, _click("For one item: 90s, 5m, 2h, none.", metavar="TIME")] = "5m"
    seed: Annotated[
        int, _click("Seed of the run; a parameter 'seed' of FUNCTION receives one per item.")
    ] = 0
    version: Annotated[
        str | None, _click("Version of FUNCTION, instead of a hash of its source.")
    ] = None
    resume: Annotated[
        bool, _click("Continue the run in the folder, or refuse to.", "--resume/--no-resume")
    ] = True
    resume_from: Annotated[
        str | None,
        _click(
            "Continue from an older state: N items, or a time; later results are set aside.",
            metavar="N|TIME",
        ),
    ] = None
    checkpoint_interval: Annotated[int, _number("Wait for the disk once for N items.")] = 1
    retry_failed: Annotated[bool, _click("Run items that failed again.")] = False
    output: Annotated[Path | None, _click("Write .parquet, .csv, .jsonl or .json.", type=PATH)] = (
        None
    )
    cluster: Annotated[
        str | None, _click("Profile, or its YAML file.  [default: local]", metavar="PROFILE")
    ] = None
    cpus_per_worker: Annotated[int | None, _number("Pin each worker to N CPUs of its own.")] = None
    gpus_per_worker: Annotated[int | None, _number("Show each worker N GPUs of its own.", 0)] = None
    dashboard_port: Annotated[
        int | None,
        _click(
            "Port of the dashboard and of /metrics.", type=click.IntRange(1, 65535), metavar="N"
        ),
    ] = None
    folder: Annotated[
        Path | None, _click("Folder of the journal.  [default: runs/FUNCTION]", type=PATH)
    ] = None
    serial: Annotated[bool, _click("Debug: run in this process, without workers and timeouts.")] = (
        False
    )
    dry_run: Annotated[bool, _click("Show what would run, and start nothing.")] = False
    verify: Annotated[int | None, _number("Check the map: run N of its items again.", 0)] = None
    ignore: Annotated[
        tuple[str, ...],
        _click("With --verify: a field that may differ.", metavar="FIELD", show_default=False),
    ] = ()
    tolerance: Annotated[float, _click("With --verify: the relative difference allowed.")] = 0.0

    @property
    def run_folder(self) -> RunFolder:
        return RunFolder(self.folder or Path("runs") / self.function.rpartition(":")[2])


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    hints = get_type_hints(MapCommand, include_extras=True)
    for option in reversed(fields(MapCommand)[1:]):
        settings = dict(hints[option.name].__metadata__[0])
        names = settings.pop("names") or (f"--{option.name.replace('_', '-')}",)
        flag, multiple = isinstance(option.default, bool), option.default == ()
        command = click.option(
            *names, option.name, default=option.default, is_flag=flag, multiple=multiple, **settings
        )(command)
    return command


@click.command(
    "map",
    epilog=example(
        "daskmetrics map bench.py:step --iterations 500 --workers 10 --output results.csv"
    ),
)
@click.argument("function")
@_with_options
@friendly
def map_(**arguments: Any) -> None:
    """Run FUNCTION once per item, and record each item exactly once.

    FUNCTION is module.py:function or package.module:function. Run the same command again to resume.
    An item that raises an exception is tried again. An item that kills its worker, hangs or runs
    out of memory is found by halving its batch; the other items run again. The exit code is 3 if
    items failed.
    """
    from daskmetrics.execution.map.result_table import check_output, summary_text, write

    command = MapCommand(**arguments)
    if command.verify is not None:
        _verify(command)
        return
    if command.output:
        check_output(command.output)
    spec, (profile, pins) = _spec(command), _cluster(command)
    if command.dry_run:
        _preview(spec, command, profile, pins)
        return
    results = _run(spec, command, profile, pins)
    say(summary_text(results, len(results)))
    if command.output:
        say(f"Results: {write(results, command.output)}")
    say(f"Journal: {command.run_folder.journal}")
    if not all(result.ok for result in results):
        sys.exit(SOME_FAILED)


def _spec(command: MapCommand) -> MapSpec:
    from daskmetrics.execution.map.function import load, numeric_columns, read_items
    from daskmetrics.execution.map.source import MapOptions, make_spec

    if (command.iterations is None) == (command.items is None):
        raise ConfigError("Give the items: either --iterations N, or --items FILE.")
    options = MapOptions(
        command.batch_size,
        command.max_retries,
        command.timeout,
        checkpoint_interval=command.checkpoint_interval,
    )
    function = load(command.function)
    values: Sequence[Any] = range(command.iterations or 0)
    if command.items:
        values = read_items(command.items, _types(command.types))
        for column in numeric_columns(values):
            say(f"Column '{column}' holds texts. For numbers add --types {column}=float.", err=True)
    return make_spec(
        function,
        values,
        options,
        seed=command.seed,
        version=command.version,
        reference=command.function,
    )


def _types(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",") if pair]
    if not all(name and kind for name, _, kind in pairs):
        raise ConfigError(
            f"'--types {text}' is not columns and their types. Write for instance "
            "rate=float,steps=int."
        )
    return {name.strip(): kind.strip() for name, _, kind in pairs}


def _cluster(command: MapCommand) -> tuple[Cluster, Pins]:
    from daskmetrics import cluster, config

    settings = {
        "workers": command.workers,
        "threads": command.cpus_per_worker,
        "dashboard_port": command.dashboard_port,
    }
    if command.gpus_per_worker == 0:
        settings["gpus_per_job"] = 0
    profile = config.cluster(
        command.cluster, **{name: value for name, value in settings.items() if value is not None}
    )
    if profile.kind == "slurm" and (command.gpus_per_worker or 0) > 1:
        raise ConfigError(
            f"--gpus-per-worker {command.gpus_per_worker}: a worker on Slurm has one GPU. Omit "
            "the option."
        )
    if profile.kind != "local":
        # Slurm shows each job only its GPUs, and their numbers on the node are unknown
        return profile, cluster.Pins(command.cpus_per_worker)
    pins = cluster.Pins(command.cpus_per_worker, command.gpus_per_worker)
    if not command.serial:
        cluster.require(pins, profile.workers)
    return profile, pins


def _run(spec: MapSpec, command: MapCommand, profile: Cluster, pins: Pins) -> list[ItemResult]:
    from daskmetrics.execution.journal import read
    from daskmetrics.execution.map.api import open_journal, run
    from daskmetrics.execution.map.folder import earlier_state, retry_failed, set_aside
    from daskmetrics.execution.map.source import ItemTracker
    from daskmetrics.experiment import Display

    end_as_by_ctrl_c()
    folder = command.run_folder
    if folder.journal.exists() and not command.resume:
        raise ConfigError(
            f"'{folder.path}' already holds a run: choose another --folder, or omit --no-resume."
        )
    if command.resume_from:
        entries = tuple(read(folder.must_exist().journal))
        keep = earlier_state(spec, entries, command.resume_from)
        aside = set_aside(folder.journal, folder.lock, keep)
        say(
            f"Continues after entry {keep} of {len(entries)}; the whole journal is '{aside}'.",
            err=True,
        )
    with open_journal(folder.path) as journal, Display() as display, ExitStack() as stack:
        if command.retry_failed:
            retry_failed(spec, journal)
        tracker = ItemTracker(spec.items, spec.options.retries, journal.entries)
        finished = len(tracker.results())
        _report_earlier_runs(spec, journal, finished, display)
        display.phase("map", len(spec.items), finished)
        on_result = _progress(display, len(tracker.failed()))
        client = None
        if tracker.unfinished() and not command.serial:
            client = stack.enter_context(_client(profile, pins, folder, display))
        return run(spec, client, journal, on_result, display.message, profile.most_memory)


def _progress(display: Display, failed: int) -> Callable[[ItemResult], None]:
    """A callback that shows the progress and the first failures; the end of the run lists all of
    them by cause.
    """
    from rich.markup import escape

    shown = 0

    def on_result(result: ItemResult) -> None:
        nonlocal failed, shown
        failed += not result.ok
        if not result.ok and shown < SHOWN_FAILURES:
            shown += 1
            line = f"{escape(result.name)}: {result.status}, {escape(str(result.reason))}"
            if shown == SHOWN_FAILURES:
                line += "  (further failures at the end)"
            display.message(f"[yellow]{line}[/]")
        display.advance("map", f"{failed} failed" if failed else "")

    return on_result


def _report_earlier_runs(spec: MapSpec, journal: Journal, finished: int, display: Display) -> None:
    from daskmetrics.core.events import MapStarted, latest

    if finished:
        display.message(f"{finished} of {len(spec.items)} items are recorded already.")
    header = latest(journal.entries, MapStarted)
    if header and header.function != spec.function.name:
        display.message(
            f"[yellow]The folder was last used by {header.function}; its results are kept.[/]"
        )
    elif header and header.version != spec.function.version:
        display.message(
            "[yellow]The function's source has changed: results of the old source are not used.[/]"
        )


@contextmanager
def _client(profile: Cluster, pins: Pins, folder: RunFolder, display: Display) -> Iterator[Client]:
    from rich.markup import escape

    from daskmetrics.cluster import connect, pin_workers
    from daskmetrics.cluster.join import admitting

    name = folder.path.resolve().name
    with connect(
        profile, name, lambda text: display.message(escape(text)), on_start=display.message
    ) as client:
        pinned_workers = pin_workers(client, pins) if pins else {}
        for worker, pinned in pinned_workers.items():
            units = ", ".join(
                f"{unit} {' '.join(pinned[unit]) or 'none'}"
                for unit in ("cpus", "gpus")
                if pinned[unit] is not None
            )
            if pinned["node"] is not None:
                units += f", memory of node {pinned['node']}"
            display.message(f"Worker {worker}: {pinned['problem'] or units}")
        with admitting(client, profile, folder.scheduler):
            yield client


def _preview(spec: MapSpec, command: MapCommand, profile: Cluster, pins: Pins) -> None:
    from daskmetrics.execution.journal import read
    from daskmetrics.execution.map.folder import earlier_state
    from daskmetrics.execution.map.source import ItemTracker

    journal = command.run_folder.journal
    size = spec.options.batch_size
    entries = tuple(read(journal)) if journal.exists() else ()
    if command.resume_from:
        entries = entries[: earlier_state(spec, entries, command.resume_from)]
    tracker = ItemTracker(spec.items, spec.options.retries, entries)
    total = len(spec.items)
    unfinished = len(tracker.unfinished())
    counts = ((pins.cpus, "CPU"), (pins.gpus, "GPU"))
    reserved = [f"{plural(n, unit)} of its own" for n, unit in counts if n is not None]
    if profile.kind == "slurm":
        reserved.append(f"{min(1, profile.gpus_per_job)} GPU of its job")
    function = f"{spec.function.name}, version {spec.function.version[:12]}"
    if spec.function.seeded:
        function += ", seeded per item"
    workers = f"{profile.workers} ({profile.kind})"
    if command.serial:
        workers = "none: in this process"
    rows = (
        ("function", function),
        ("items", f"{total}, of which {total - unfinished} are recorded already"),
        ("batches", f"{-(-unfinished // size)} of up to {size} items"),
        ("each item", f"at most {command.timeout}; {spec.options.retries} retries"),
        ("workers", workers),
        ("each worker", ", ".join(reserved) or "not pinned"),
        ("threads", f"{profile.threads} per worker"),
        ("journal", str(journal)),
        ("results", str(command.output or "not written; add --output results.csv")),
    )
    Table((), rows, notes=("Nothing was started.",)).show()


def _verify(command: MapCommand) -> None:
    from daskmetrics.execution.map import verify

    verification = verify(
        command.run_folder.path,
        sample=command.verify or 0,
        seed=command.seed,
        ignore=command.ignore,
        tolerance=command.tolerance,
    )
    say(verification.text())
    if not verification.ok:
        sys.exit(1)


COMMANDS = (map_,)
