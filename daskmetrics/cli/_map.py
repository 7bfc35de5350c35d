"""The command that maps any function over many items, durably."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from daskmetrics.cli._common import (
    end_as_by_ctrl_c,
    example,
    exit_when_recorded,
    flag_option,
    ignore_input,
    note,
    noted_warnings,
    number_option,
    path_option,
    require_jobs,
    say,
    submit_driver,
    submit_option,
    text_option,
)
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import RUNS, RunFolder
from daskmetrics.core.table import Table
from daskmetrics.core.text import duration, parse_duration

if TYPE_CHECKING:
    from distributed import Client

    from daskmetrics.cluster import Pins
    from daskmetrics.config import Cluster
    from daskmetrics.domain.events import Event
    from daskmetrics.execution.map import ItemResult
    from daskmetrics.execution.map.folder import RecordedResults
    from daskmetrics.execution.map.source import MapSpec
    from daskmetrics.experiment import Display

SOME_FAILED = 3  # exit code if every item has a result and some of them failed
SHOWN_FAILURES = 10


@click.command(
    "map",
    epilog=example(
        "daskmetrics map bench.py:step --iterations 500 --workers 10 --output results.csv"
    ),
)
@click.argument("function")
@number_option("--iterations", "The items are 0, 1, ..., N-1.")
@path_option("--items", "Read the items from a file: .jsonl, .csv, .parquet, .txt.")
@number_option("--workers", "Number of workers.  [default: 2, or the profile's]")
@number_option("--batch-size", "Items per Dask task.", default=10)
@number_option("--max-retries", "How often a failed item is tried again.", least=0, default=3)
@text_option("--timeout", "TIME", "For one item: 90 (seconds), 5m, 2h, none.", default="5m")
@text_option(
    "--seed",
    "N",
    "Seed of the run; a parameter 'seed' of FUNCTION receives one per item.",
    type=int,
    default=0,
)
@text_option("--version", None, "Version of FUNCTION, instead of a hash of its source.")
@number_option(
    "--resume-from",
    "Continue from the state of N finished items; later results are set aside.",
    least=0,
)
@number_option("--checkpoint-interval", "Wait for the disk once for N items.", default=1)
@flag_option("--retry-failed", "Run items that failed again.")
@path_option("--output", "Write .parquet, .csv, .jsonl or .json.")
@text_option("--cluster", "PROFILE", "Profile, or its YAML file.  [default: local]")
@number_option("--cpus-per-worker", "Pin each worker to N CPUs of its own.")
@number_option("--gpus-per-worker", "Show each worker N GPUs of its own.", least=0)
@number_option("--dashboard-port", "Port of the dashboard and of /metrics.")
@path_option("--folder", "Folder of the journal.  [default: runs/FUNCTION]")
@flag_option("--serial", "Debug: run in this process, without workers and timeouts.")
@flag_option("--dry-run", "Show what would run, and start nothing.")
@submit_option
def map_(**options: Any) -> None:
    """Run FUNCTION once per item, and record each item exactly once.

    FUNCTION is module.py:function or package.module:function. Run the same command again to resume.
    An item that raises an exception is tried again. An item that kills its worker, hangs or runs
    out of memory is found by halving its batch; the other items run again. The exit code is 3 if
    items failed. `runs verify` checks the results.
    """
    from daskmetrics.execution.map.result_table import Summary, check_output, write

    ignore_input()
    given = SimpleNamespace(**options)
    if given.output:
        check_output(given.output)
    folder = RunFolder(given.folder or RUNS / given.function.rpartition(":")[2])
    spec, (profile, pins) = _spec(given), _cluster(given)
    if given.dry_run:
        _preview(spec, given, folder, profile)
        return
    if given.submit:
        from daskmetrics.config.schema import name_of

        require_jobs(profile)
        folder.create()
        name = name_of(folder.path.resolve().name)
        submit_driver(profile, name, folder.path, _words(), [folder.path])
        return
    # the workers end after all is written
    with exit_when_recorded() as ends, ExitStack() as cluster:
        results, died = _run(spec, given, folder, profile, pins, cluster)
        try:
            written = None
            if given.output:
                with noted_warnings():
                    written = write(results, given.output)
            if len(results) == len(spec.items):
                ends(SOME_FAILED if results.tracker.failed else 0)
        finally:
            say(Summary.of(results).text(len(results), died))
        if written:
            say(f"Results: {written}")
        say(f"Journal: {folder.journal}")


def _words() -> list[str]:
    """This command line without --submit, for the driver's job."""
    context = click.get_current_context()
    words = ["map"]
    for parameter in context.command.params:
        value = context.params.get(str(parameter.name))
        is_default = value is None or value is False or value == parameter.get_default(context)
        if is_default or parameter.name == "submit":
            continue
        if isinstance(parameter, click.Option):
            words.append(parameter.opts[0])
        if value is not True:
            words.append(str(value))
    return words


def _spec(given: SimpleNamespace) -> MapSpec:
    from daskmetrics.execution.map.function import load, read_items
    from daskmetrics.execution.map.source import MapOptions, make_spec

    if (given.iterations is None) == (given.items is None):
        raise ConfigError("Give the items: either --iterations N, or --items FILE.")
    options = MapOptions(
        given.batch_size,
        given.max_retries,
        parse_duration(given.timeout),
        checkpoint_interval=given.checkpoint_interval,
    )
    function = load(given.function)
    values: Sequence[Any] = range(given.iterations or 0)
    if given.items:
        values = read_items(given.items)
    return make_spec(
        function,
        values,
        options,
        seed=given.seed,
        version=given.version,
        reference=given.function,
    )


def _cluster(given: SimpleNamespace) -> tuple[Cluster, Pins]:
    from daskmetrics import cluster, config

    settings = {
        "workers": given.workers,
        "threads": given.cpus_per_worker,
        "dashboard_port": given.dashboard_port,
        "gpus_per_job": 0 if given.gpus_per_worker == 0 else None,
    }
    changes = {name: value for name, value in settings.items() if value is not None}
    profile = config.cluster(given.cluster, **changes)
    if profile.kind == "slurm" and (given.gpus_per_worker or 0) > 1:
        raise ConfigError(
            f"--gpus-per-worker {given.gpus_per_worker}: a worker on Slurm has one GPU. Omit "
            "the option."
        )
    if profile.kind != "local":
        # Slurm shows each job only its GPUs, and their numbers on the node are unknown
        return profile, cluster.Pins(given.cpus_per_worker)
    pins = cluster.Pins(given.cpus_per_worker, given.gpus_per_worker)
    if not given.serial:
        cluster.require(pins, profile.workers)
    return profile, pins


def _run(
    spec: MapSpec,
    given: SimpleNamespace,
    folder: RunFolder,
    profile: Cluster,
    pins: Pins,
    cluster: ExitStack,
) -> tuple[RecordedResults, int]:
    """The results of all items, and how many workers died.

    ``cluster`` ends the workers and releases the folder.
    """
    from daskmetrics.execution.journal import JournalReading, read
    from daskmetrics.execution.map.api import open_journal, run
    from daskmetrics.execution.map.folder import continued, earlier_state, retry_failed, set_aside
    from daskmetrics.execution.map.result_table import deaths
    from daskmetrics.execution.map.source import RESULTS, ItemTracker
    from daskmetrics.experiment import Display

    end_as_by_ctrl_c()
    if given.resume_from is not None:
        path = folder.must_exist().journal
        spec = continued(spec, read(path, RESULTS), given.retry_failed)
        keep, number = earlier_state(spec, path, given.resume_from)
        aside = set_aside(folder.journal, folder.lock, keep)
        note(
            f"Continues after entry {keep} of {number}; the whole journal is '{aside}'.",
        )
    journal = cluster.enter_context(open_journal(folder.path))
    with Display() as display:
        spec = continued(spec, journal.entries, given.retry_failed)
        if given.retry_failed:
            retry_failed(spec, journal)
        tracker = ItemTracker(spec.items, spec.options.retries, JournalReading(journal.path))
        finished = tracker.finished
        if finished:
            display.say(f"{finished} of {len(spec.items)} items are recorded already.")
        display.phase("map", len(spec.items), finished)
        on_result = _progress(display, tracker.failed)
        client = None
        if finished < len(spec.items) and not given.serial:
            client = cluster.enter_context(_client(profile, pins, folder, display))
        results = run(spec, client, journal, on_result, display.message, profile.most_memory)
        return results, deaths(journal.entries)


def _progress(display: Display, failed: int) -> Callable[[ItemResult], None]:
    """A callback that shows the progress and the first failures; the end of the run lists all of
    them by cause.
    """
    shown = 0

    def on_result(result: ItemResult) -> None:
        nonlocal failed, shown
        failed += not result.ok
        if not result.ok and shown < SHOWN_FAILURES:
            shown += 1
            display.say(f"{result.name}: {result.status}, {result.reason}")
        display.advance("map", f"{failed} failed" if failed else "")

    return on_result


@contextmanager
def _client(profile: Cluster, pins: Pins, folder: RunFolder, display: Display) -> Iterator[Client]:
    from daskmetrics.cluster import connect, pin_workers
    from daskmetrics.cluster.join import admitting

    name = folder.path.resolve().name
    with connect(profile, name, display.say, on_start=display.message) as client:
        if pins:
            lines = []
            for worker, pinned in pin_workers(client, pins).items():
                devices = [
                    f"{kind} {' '.join(pinned[kind]) or 'none'}"
                    for kind in ("cpus", "gpus")
                    if pinned[kind] is not None
                ]
                lines.append(f"Worker {worker}: {pinned['problem'] or ', '.join(devices)}")
            display.say("\n".join(lines))
        with admitting(client, profile, folder.scheduler):
            yield client


def _preview(spec: MapSpec, given: SimpleNamespace, folder: RunFolder, profile: Cluster) -> None:
    from daskmetrics.execution.journal import JournalReading, read
    from daskmetrics.execution.map.folder import continued, earlier_state, unused
    from daskmetrics.execution.map.source import RESULTS, ItemTracker

    spec = continued(spec, read(folder.journal, RESULTS), given.retry_failed)
    keep = None
    if given.resume_from is not None:
        keep, _ = earlier_state(spec, folder.journal, given.resume_from)

    def entries() -> Iterator[Event]:
        return islice(JournalReading(folder.journal), keep)

    recorded = ItemTracker(spec.items, spec.options.retries, entries()).finished
    unfinished = len(spec.items) - recorded
    function, options = spec.function, spec.options
    seeded = ", seeded per item" if "seed" in function.accepted else ""
    batches = math.ceil(unfinished / options.batch_size)
    limit = f"at most {duration(options.timeout)}" if options.timeout else "no time limit"
    workers = f"{profile.workers} ({profile.kind})"
    if given.serial:
        workers = "none: in this process"
    rows = [
        ("function", f"{function.name}, version {function.version}{seeded}"),
        ("items", f"{len(spec.items)}, of which {recorded} are recorded already"),
        ("batches", f"{batches} of up to {options.batch_size} items"),
        ("each item", f"{limit}; {options.retries} retries"),
        ("workers", workers),
        ("journal", str(folder.journal)),
        ("results", str(given.output or "not written; add --output results.csv")),
    ]
    notes = filter(None, [unused(spec, entries), "Nothing was started."])
    Table((), rows, notes=tuple(notes)).show()
