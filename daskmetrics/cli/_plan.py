"""Commands about a run before it starts: measure how it scales, compare what is free."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from daskmetrics.cli._common import (
    AMOUNT,
    Output,
    Shown,
    all_settings,
    amount,
    answering,
    cluster_option,
    config_or_program,
    configuration,
    end_as_by_ctrl_c,
    example,
    fitted,
    folder_option,
    is_program,
    note,
    number_option,
    parsed_by,
    path_of,
    path_option,
    program_args,
    say,
    settings_option,
    text_option,
)
from daskmetrics.cli._train import script_config
from daskmetrics.core.errors import ConfigError

if TYPE_CHECKING:
    from daskmetrics.config import Config
    from daskmetrics.core.table import Table
    from daskmetrics.planning.bench import Runner
    from daskmetrics.planning.plan import Proposal

NO_OPTION = 1  # exit code of a plan in which no option can be used


def _increasing(text: str) -> tuple[int, ...]:
    """Numbers from text such as ``1,2,4``."""
    numbers = tuple(map(int, text.split(",")))
    if numbers[0] < 1 or any(a >= b for a, b in pairwise(numbers)):
        raise ValueError
    return numbers


def _sizes(text: str) -> list[float | None]:
    """Bytes of memory from text such as ``8GiB,32GiB``."""
    from dask.utils import parse_bytes

    sizes = [float(parse_bytes(size)) for size in text.split(",")]
    if min(sizes) <= 0:
        raise ValueError
    return list(sizes)


def _device_price(text: str) -> tuple[str, float]:
    device, _, number = text.rpartition("=")
    return device, amount(number)


NUMBERS = parsed_by(_increasing, "a list of increasing numbers, for instance 1,2,4,8")
SIZES = parsed_by(_sizes, "a list of sizes, for instance 8GiB,32GiB")
DEVICE_PRICE = parsed_by(_device_price, "a number, or DEVICE=NUMBER such as l40s=1.2")


@click.command(
    epilog=example(
        "daskmetrics bench mine.yaml --workers 1,2,4",
        "daskmetrics bench train.py --ranks 1,2,4 -- --output_dir {trial}",
    )
)
@config_or_program
@program_args
@settings_option
@cluster_option
@text_option("--workers", "N,N,...", "Numbers of workers to compare.", type=NUMBERS, default="1,2")
@text_option("--ranks", "N,N,...", "Numbers of ranks of PROGRAM, one per worker.", type=NUMBERS)
@number_option("--repeats", "Rounds, interleaved.", default=3)
@click.option(
    "--workload",
    type=click.Choice(["all", "train"]),
    default="all",
    help="Which part of the experiment to run: `all` measures and searches, `train` trains.",
)
@text_option("--function", "FUNCTION", "Bench a map of module.py:function instead of CONFIG.")
@number_option("--iterations", "Items of the map.", default=100)
@number_option("--batch-size", "Items per unit of the map.", default=1)
@text_option("--price", "PRICE", "Of one worker (GPU) for an hour.", type=AMOUNT)
@number_option("--simulate", "Also simulate up to N workers.", least=2)
@text_option(
    "--cores", "N,N,...", "With --simulate: also workers with so many cores.", type=NUMBERS
)
@text_option(
    "--memory",
    "SIZE,...",
    "With --simulate: also workers with so much memory, as 8GiB,32GiB.",
    type=SIZES,
)
@path_option("--output", "Folder for the tables as CSV.")
def bench(
    config: Path | None,
    args: tuple[str, ...],
    output: Path | None,
    **options: Any,
) -> None:
    """Run the same work with several numbers of workers and report how well it scales.

    A PROGRAM is a training program, timed as it stands, from the first step that it reports to the
    last; {trial} in an argument is a new folder for each trial. The measured times are kept as a
    calibration, which `plan` uses for its predictions.
    """
    from daskmetrics.planning import bench, calibration

    has_program = is_program(config)
    if not has_program and (args or options["ranks"]):
        raise ConfigError(
            "--ranks and arguments are those of a training program, such as train.py."
        )
    workers = options.pop("workers")  # several numbers, which are no setting
    counts = options["ranks"] or workers
    simulated = options["simulate"]
    cores = options["cores"]
    sizes = options["memory"]
    has_sizes = bool(cores or sizes)
    if has_sizes and not simulated:
        raise ConfigError("--cores and --memory are those of simulated workers: add --simulate N.")
    if options["function"] and (config or options["workload"] != "all"):
        raise ConfigError("Bench either CONFIG and its --workload or a map (--function), not both.")
    wanted = all_settings(options)
    if has_program:
        loaded = script_config(Path(str(config)), args, wanted, {"ranks": max(counts)})
    else:
        loaded = configuration(config, wanted)
    if has_sizes and (
        loaded.cluster.device != "cpu" or bench.ranks_share(loaded, options["workload"])
    ):
        raise ConfigError(
            "--cores and --memory simulate CPU workers that compute several units side by side. A"
            " unit on a GPU takes the whole GPU, and the ranks of a training share each unit: leave"
            " these options out."
        )
    end_as_by_ctrl_c()
    name, runner = _runner(loaded, options)
    result = bench.bench(
        name,
        runner,
        loaded.cluster,
        counts,
        options["repeats"],
        on_start=None if options["function"] or has_program else bench.warm,
        progress=note,
    )
    calibration_file = calibration.keep(bench.calibration_of(result, loaded.cluster.device))
    tables = {"bench": bench.bench_table(result, options["price"])}
    if simulated:
        tables["simulated"] = bench.simulation_table(result, simulated, options["price"])
    if has_sizes:
        cores = cores or (result.cores,)
        tables["sizes"] = bench.size_table(result, cores, sizes or [None], simulated)
    _show_tables(tables, output)
    say(f"Calibration: {calibration_file}")


def _show_tables(tables: Mapping[str, Table], output: Path | None) -> None:
    """Print tables, and write each into a folder, if one is given, as ``NAME.csv``."""
    import pandas as pd

    from daskmetrics.core.table import spreadsheet_frame

    for name, table in tables.items():
        say()
        table.show()
        if output:
            output.mkdir(parents=True, exist_ok=True)
            file = output / f"{name}.csv"
            frame = pd.DataFrame(list(table.rows), columns=list(table.header))
            spreadsheet_frame(frame).to_csv(file, index=False)
            say(file)


def _runner(config: Config, options: dict[str, Any]) -> tuple[str, Runner]:
    """The name of the work, and what does it."""
    from daskmetrics.planning import bench

    if config.models[0].program:
        from daskmetrics.experiment.train import program_of

        name = config.name
        if samples := program_of(config.models[0], config, Path()).step_samples:
            name += f", {samples} samples per step of a rank by its arguments"
        return name, bench.program_runner(config.models[0], config)
    if not options["function"]:
        runners = {"all": bench.experiment_runner, "train": bench.training_runner}
        return f"{config.name}, {options['workload']}", runners[options["workload"]](config)
    from daskmetrics.execution.map.function import load
    from daskmetrics.execution.map.source import MapOptions, make_spec

    name = options["function"]
    map_options = MapOptions(options["batch_size"], 0, None)
    spec = make_spec(load(name), range(options["iterations"]), map_options, reference=name)
    return spec.function.name, bench.map_runner(spec)


@click.command(
    epilog=example(
        "daskmetrics plan mine.yaml --profiles local,l40s --deadline 8h",
        "daskmetrics plan train.py --times 40 --workers 4,8,16 -- --output_dir out",
    )
)
@config_or_program
@program_args
@settings_option
@number_option(
    "--times", "How many times a training program does what `bench` has timed.  [default: 1]"
)
@text_option(
    "--profiles", "A,B,...", "Cluster profiles, by name or file.  [default: that of CONFIG]"
)
@text_option(
    "--workers",
    "N,N,...",
    "Numbers of workers for each profile.  [default: the profile's]",
    type=NUMBERS,
)
@click.option(
    "--purpose",
    type=click.Choice(["fastest", "cheapest"]),
    help="Compare 1, 2, 4, ... workers of each profile, and choose the option that is best in this.",
)
@text_option("--deadline", "TIME", "From now, waiting included: 8h, 90min, 2d.")
@text_option(
    "--price",
    "[DEVICE=]PRICE",
    "Of a worker-hour; may be repeated.",
    type=DEVICE_PRICE,
    multiple=True,
)
@folder_option
@click.option("--submit", type=click.IntRange(1), metavar="NUMBER", help="Run this option.")
@answering
def plan(
    config: Path | None,
    args: tuple[str, ...],
    submit: int | None,
    **options: Any,
) -> Output:
    """Compare what CONFIG can run on: when each option would finish, and at what cost.

    Nothing is submitted. Numbers that were not measured are marked as estimated; measure them with
    `bench`, or begin the run. A PROGRAM is a training program that `bench` has timed, on workers
    that each run one of its ranks; a model of CONFIG may be trained by one, too. The exit code is 1
    if no option can be used.
    """
    from daskmetrics.core.text import parse_duration
    from daskmetrics.planning.plan import PlanRequest, propose
    from daskmetrics.planning.table import proposal_document, proposal_tables

    has_program = is_program(config)
    if args and not has_program:
        raise ConfigError("Arguments are those of a training program, such as train.py.")
    if has_program and submit is not None:
        raise ConfigError("--submit runs a configuration. Start a program by the command shown.")
    loaded = None
    if has_program:
        loaded = script_config(Path(str(config)), args, options["settings"], {})
    request = PlanRequest(
        config=path_of(config),
        args=args,
        times=options["times"] or 0,
        is_program=has_program,
        profiles=tuple(filter(None, (options["profiles"] or "").split(","))),
        counts=options["workers"] or (),
        deadline=parse_duration(options["deadline"]),
        prices=dict(options["price"]),
        folder=options["folder"],
        settings=options["settings"],
        purpose=options["purpose"],
    )
    proposal = propose(request, loaded)
    shown = [fitted(proposal_tables(proposal))]
    if submit is not None:
        return Output(None, chain(shown, _submit(proposal, submit)))
    code = 0 if proposal.recommended else NO_OPTION
    return Output(lambda: proposal_document(proposal), shown, code)


def _submit(proposal: Proposal, number: int) -> Shown:
    """Run an option with `run`, an option of Slurm in a job of its own, and say so before."""
    from daskmetrics.cli._run import run
    from daskmetrics.core.files import RUNS, RunFolder

    option = proposal.option(number)
    run_folder = RunFolder(proposal.request.folder or RUNS / proposal.name)
    yield f"\nOption {number}: {proposal.command(option)}"
    click.get_current_context().invoke(
        run,
        config=proposal.request.config,
        settings=proposal.settings_of(option),
        folder=run_folder.path,
        submit=option.offer.partition is not None,
    )
