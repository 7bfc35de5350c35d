"""Commands about a run before it starts: measure how it scales, compare what is free, check what it
needs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from daskmetrics.cli._common import (
    PATH,
    RUN,
    Output,
    answering,
    config_file,
    configuration,
    end_as_by_ctrl_c,
    example,
    friendly,
    path_of,
    say,
    settings_option,
)
from daskmetrics.core.errors import ConfigError

if TYPE_CHECKING:
    from daskmetrics.config import Config
    from daskmetrics.core.table import Table
    from daskmetrics.planning import Limits
    from daskmetrics.planning.bench import Bench, Runner
    from daskmetrics.planning.doctor import Finding
    from daskmetrics.planning.plan import Proposal

PROBES = ("allreduce", "loader", "precision")  # workloads of `planning.rank_bench`
NO_OPTION = 1  # exit code of a plan in which no option can be used


@click.command(epilog=example("daskmetrics bench mine.yaml --workers 1,2,4"))
@config_file
@settings_option
@click.option(
    "--workers",
    default="1,2",
    show_default=True,
    metavar="N,N,...",
    help="Numbers of workers to compare.",
)
@click.option(
    "--repeats", type=click.IntRange(1), default=3, show_default=True, help="Rounds, interleaved."
)
@click.option(
    "--workload",
    type=click.Choice(["all", "train", "measure", "search", *PROBES]),
    default="all",
    show_default=True,
    help="Which part of the experiment to run; `all` measures and searches. The others measure on the largest model "
    "that CONFIG trains: `allreduce` how fast ranks exchange gradients, `loader` how fast they "
    "read their examples, `precision` time and memory of number formats, accumulation and activation checkpointing.",
)
@click.option(
    "--function", metavar="FUNCTION", help="Bench a map of module.py:function instead of CONFIG."
)
@click.option(
    "--iterations", type=click.IntRange(1), default=100, show_default=True, help="Items of the map."
)
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Items per unit of the map.",
)
@click.option("--price", type=click.FloatRange(0), help="Of one worker (GPU) for an hour.")
@click.option(
    "--simulate", type=click.IntRange(2), metavar="N", help="Also simulate up to N workers."
)
@click.option(
    "--cores", metavar="N,N,...", help="With --simulate: also workers with so many cores."
)
@click.option(
    "--memory",
    metavar="SIZE,...",
    help="With --simulate: also workers with so much memory, as 8GiB,32GiB.",
)
@click.option("--output", type=PATH, help="Folder for bench.csv and bench.png.")
@friendly
def bench(
    config: Path | None, settings: tuple[str, ...], output: Path | None, **options: Any
) -> None:
    """Run the same work with several numbers of workers and report how well it scales.

    The measured times are kept as a calibration, which `plan` uses for its predictions.
    """
    from daskmetrics.planning import bench, calibration, report

    counts = numbers(options["workers"], "--workers")
    sizes = _worker_sizes(options["cores"], options["memory"])
    if sizes and not options["simulate"]:
        raise ConfigError("--cores and --memory are those of simulated workers: add --simulate N.")
    if options["function"] and config:
        raise ConfigError("Bench either CONFIG or a map (--function), not both.")
    loaded = configuration(config, settings)
    if sizes and (loaded.cluster.device != "cpu" or bench.ranks_share(loaded, options["workload"])):
        raise ConfigError(
            "--cores and --memory simulate CPU workers that compute several units side by side. A unit on a GPU takes "
            "the whole GPU, and the ranks of a training share each unit: leave these options out."
        )
    end_as_by_ctrl_c()
    if options["workload"] in PROBES:
        _probe_training(loaded, options["workload"], max(counts), output)
        return
    name, running = _runner(loaded, options)
    with running as runner:
        result = bench.bench(
            name,
            runner,
            loaded.cluster,
            counts,
            options["repeats"],
            price=options["price"],
            on_start=None if options["function"] else bench.warm,
            progress=lambda text: say(text, err=True),
        )
    calibration_file = calibration.save(result.calibration)
    simulated = options["simulate"]
    tables = [report.bench_table(result)]
    if simulated:
        tables.append(report.simulation_table(result, simulated))
    if sizes:
        cores, memory = sizes
        cores = cores or (result.cores,)
        tables.append(report.size_table(result, cores, memory, simulated))
    for table in tables:
        say()
        table.show()
    if output:
        _save(result, tables, output, simulated)
    say(f"Calibration: {calibration_file}")


def _probe_training(config: Config, workload: str, workers: int, output: Path | None) -> None:
    """Show what the ranks of a training measure."""
    from daskmetrics.planning import calibration, rank_bench

    result = rank_bench.probe(config, workload, workers, lambda text: say(text, err=True))
    for table in result.tables:
        say()
        table.show()
    if output:
        output.mkdir(parents=True, exist_ok=True)
        for number, table in enumerate(result.tables):
            name = output / f"{workload}{number or ''}.csv"
            name.write_text(table.as_csv(), encoding="utf-8")
            say(name)
    if result.calibration:
        say(f"Calibration: {calibration.save(result.calibration)}")


def _runner(config: Config, options: dict[str, Any]) -> tuple[str, AbstractContextManager[Runner]]:
    """The name of the work, and what does it."""
    from daskmetrics.planning.bench import experiment_runner, map_runner

    if not options["function"]:
        return f"{config.name}, {options['workload']}", experiment_runner(
            config, options["workload"]
        )
    from daskmetrics.execution.map.function import load
    from daskmetrics.execution.map.source import MapOptions, make_spec

    map_options = MapOptions(options["batch_size"], 0, None)
    function = load(options["function"])
    spec = make_spec(
        function, range(options["iterations"]), map_options, reference=options["function"]
    )
    return spec.function.name, map_runner(spec)


def _save(result: Bench, tables: Sequence[Table], folder: Path, simulated: int | None) -> None:
    from daskmetrics.planning import report

    folder.mkdir(parents=True, exist_ok=True)
    for name, table in zip(("bench", "simulated", "sizes"), tables, strict=False):
        (folder / f"{name}.csv").write_text(table.as_csv(), encoding="utf-8")
        say(folder / f"{name}.csv")
    try:
        say(report.draw(result, folder / "bench.png", simulated))
    except ImportError:
        say("No plot: matplotlib is not installed. Install daskmetrics[plot].")


@click.command(epilog=example("daskmetrics plan mine.yaml --profiles local,l40s --deadline 8h"))
@config_file
@settings_option
@click.option(
    "--profiles",
    metavar="A,B,...",
    help="Cluster profiles, by name or file.  [default: that of CONFIG]",
)
@click.option(
    "--workers",
    metavar="N,N,...",
    help="Numbers of workers for each profile.  [default: the profile's]",
)
@click.option(
    "--purpose",
    type=click.Choice(["develop", "production", "fastest", "cheapest"]),
    help="Preset: which numbers of workers to compare, and which option to choose.",
)
@click.option("--deadline", metavar="TIME", help="From now, waiting included: 8h, 90min, 2d.")
@click.option(
    "--budget", metavar="AMOUNT", help="Largest number of worker-hours, or of money: 200gpuh, 500."
)
@click.option(
    "--price",
    "prices",
    multiple=True,
    metavar="[DEVICE=]PRICE",
    help="Of a worker-hour; may be repeated.",
)
@click.option("--folder", type=PATH, help="Folder of the run.  [default: runs/NAME]")
@click.option(
    "--probe", is_flag=True, help="First measure a few units on a worker of CONFIG's cluster."
)
@click.option("--submit", type=click.IntRange(1), metavar="NUMBER", help="Run this option.")
@click.option(
    "--replace", metavar="JOB", help="With --submit: first cancel this pending job of yours."
)
@answering
def plan(
    config: Path | None, submit: int | None, replace: str | None, probe: bool, **options: Any
) -> Output:
    """Compare what CONFIG can run on: when each option would finish, and at what cost.

    Nothing is submitted. Numbers that were not measured are marked as assumed; measure them with
    `bench` or --probe. The exit code is 1 if no option can be used.
    """
    import time

    from daskmetrics.planning.plan import PlanRequest, propose
    from daskmetrics.planning.report import proposal_document, proposal_tables

    path = path_of(config)
    if replace and submit is None:
        raise ConfigError(
            "--replace needs --submit NUMBER: it cancels a job only to start another one."
        )
    counts: tuple[int, ...] = ()
    if options["workers"]:
        counts = numbers(options["workers"], "--workers")
    request = PlanRequest(
        profiles=tuple(filter(None, (options["profiles"] or "").split(","))),
        counts=counts,
        limits=_limits(options["deadline"], options["budget"]),
        prices=dict(_price(text) for text in options["prices"]),
        folder=options["folder"],
        settings=options["settings"],
        purpose=options["purpose"],
    )
    if probe:
        _probe(path, request.settings)
    proposal = propose(path, request)

    def show() -> None:
        for table in proposal_tables(proposal, time.time()):
            table.show()
            say()
        if submit is not None:
            _submit(click.get_current_context(), proposal, submit, replace, request.folder)

    def document() -> dict[str, Any]:
        if submit is not None:
            raise ConfigError("--json shows the options and --submit runs one: omit one of them.")
        return proposal_document(proposal)

    if submit is None and not proposal.suggestions:
        return Output(document, show, NO_OPTION)
    return Output(document, show)


def _probe(path: Path, settings: Sequence[str]) -> None:
    from daskmetrics.planning import bench, calibration

    config = configuration(path, settings)
    end_as_by_ctrl_c()
    say("Measuring a few units ...", err=True)
    measured = bench.probe(config.cluster, bench.probe_runner(config))
    say(f"Calibration: {calibration.save(measured)}", err=True)


def _submit(
    context: click.Context,
    proposal: Proposal,
    number: int,
    replace: str | None,
    folder: Path | None,
) -> None:
    """Run an option with `run`, an option of Slurm in a job of its own; first cancel the pending
    job ``replace``.
    """
    from daskmetrics.cli._run import run
    from daskmetrics.cluster.slurm import commands
    from daskmetrics.core.files import RunFolder
    from daskmetrics.planning.progress import keep

    option = proposal.option(number)
    if replace:
        rows = commands.queue([replace])
        if not rows:
            raise ConfigError(f"Job {replace} is not in your queue. See: squeue --me")
        if not rows[0].pending:
            message = f"Job {replace} is {rows[0].state.lower()}, not pending, so it stays. See: squeue --me"
            raise ConfigError(message)
        commands.cancel([replace])
        say(f"Cancelled the pending job {replace} ({rows[0].name}).")
    run_folder = RunFolder(folder or Path("runs") / proposal.name)
    keep(option, proposal.pairs[number - 1][1], proposal.at, run_folder)
    say(f"\nOption {number}: {proposal.command(option)}")
    context.invoke(
        run,
        config=Path(proposal.config),
        settings=proposal.settings_of(option),
        folder=run_folder.path,
        submit=option.offer.partition is not None,
    )


def _limits(deadline: str | None, budget: str | None) -> Limits:
    from daskmetrics.core.text import parse_duration
    from daskmetrics.planning import Limits

    if budget is None:
        return Limits(parse_duration(deadline))
    try:
        amount = float(budget.removesuffix("gpuh"))
    except ValueError:
        raise ConfigError(
            f"'--budget {budget}' is neither GPU-hours (200gpuh) nor money (500)."
        ) from None
    if budget.endswith("gpuh"):
        return Limits(parse_duration(deadline), worker_hours=amount)
    return Limits(parse_duration(deadline), cost=amount)


def _price(text: str) -> tuple[str, float]:
    device, _, number = text.rpartition("=")
    try:
        return device, float(number)
    except ValueError:
        raise ConfigError(
            f"'--price {text}' is not a number, or DEVICE=NUMBER such as l40s=1.2."
        ) from None


def _worker_sizes(
    cores: str | None, memory: str | None
) -> tuple[Sequence[int], Sequence[float | None]] | None:
    """Numbers of cores, none for those of the measured worker, and bytes of memory, None for any;
    None without both.
    """
    from dask.utils import parse_bytes

    if not (cores or memory):
        return None
    sizes: list[float] = []
    if memory:
        with suppress(ValueError):
            sizes = [float(parse_bytes(size)) for size in memory.split(",")]
        if min(sizes, default=0.0) <= 0:
            raise ConfigError(
                f"'--memory {memory}' is not a list of sizes, for instance 8GiB,32GiB."
            )
    if not cores:
        return (), sizes or [None]
    return numbers(cores, "--cores"), sizes or [None]


def numbers(text: str, option: str) -> tuple[int, ...]:
    """Increasing numbers from text such as ``1,2,4``; ConfigError for anything else."""
    from daskmetrics.planning.scaling import increasing

    words = text.split(",")
    result: tuple[int, ...] = ()
    if all(word.strip().isdigit() for word in words):
        result = tuple(map(int, words))
    if not increasing(result):
        raise ConfigError(
            f"'{option} {text}' is not a list of increasing numbers, for instance 1,2,4,8."
        )
    return result


MARKS = {"ok": "ok", "warning": "WARN", "failure": "FAIL"}
MOST = 100  # larger exit codes have other meanings in shells


@click.command(epilog=example("daskmetrics doctor l40s", "daskmetrics doctor demo"))
@click.argument("subject", default="local", shell_complete=RUN.shell_complete)
@click.option(
    "--all", "show_all", is_flag=True, help="Also show checks that passed or do not apply."
)
@answering
def doctor(subject: str, show_all: bool) -> Output:
    """Check what a profile, an experiment or a run needs, with a remedy for each failure.

    SUBJECT is the name or YAML of a cluster profile, an experiment's YAML, or the folder or name of
    a run. The exit code is the number of failures; warnings do not count. What only a worker can
    tell is checked by `cluster test`.
    """
    from daskmetrics.planning import doctor as checks

    findings = checks.examine(checks.collect(checks.subject(subject)))
    applied = [finding for finding in findings.values() if finding]
    failures = sum(finding.severity is checks.Severity.FAILURE for finding in applied)
    return Output(
        lambda: {name: finding or {"severity": "skipped"} for name, finding in findings.items()},
        lambda: _show_findings(findings, show_all),
        min(MOST, failures),
    )


def _show_findings(findings: Mapping[str, Finding | None], show_all: bool) -> None:
    counts = Counter(finding.severity.value for finding in findings.values() if finding)
    for name, finding in findings.items():
        if finding is None:
            if show_all:
                say(f"{'--':<5} {name:<20} does not apply")
        elif finding.remedy or show_all:
            say(f"{MARKS[finding.severity.value]:<5} {name:<20} {finding.message}")
            if finding.remedy:
                say(f"{'':<26} -> {finding.remedy}")
    applied = f"{counts['failure']} failed, {counts['warning']} warned, {counts['ok']} passed"
    skipped = len(findings) - counts.total()
    say(f"{len(findings)} checks: {applied}, {skipped} do not apply.")


COMMANDS = (bench, plan, doctor)
