"""The command `train`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from daskmetrics.cli._common import (
    PATH,
    all_settings,
    cluster_option,
    configuration,
    end_as_by_ctrl_c,
    example,
    exit_when_recorded,
    flag_option,
    ignore_input,
    is_program,
    number_option,
    program_args,
    require_jobs,
    say,
    settings_option,
    submit_config,
    submit_option,
    workers_option,
)
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import expanded
from daskmetrics.core.table import Table
from daskmetrics.core.text import plural

if TYPE_CHECKING:
    from daskmetrics.config import Config
    from daskmetrics.experiment.train import TrainedSuite
    from daskmetrics.training.ddp.ranks import Program


@click.command(
    epilog=example(
        "daskmetrics train configs/train-and-search.yaml --workers 2",
        "daskmetrics train train.py --ranks 8 --cluster site.yaml -- --lr 3e-4",
    )
)
@click.argument("program", type=PATH, metavar="CONFIG|PROGRAM")
@program_args
@settings_option
@workers_option
@click.option(
    "--folder",
    "suites",
    metavar="DIR",
    help="Where suites are kept, by name; short for --set ddp.folder=DIR.  [default: the cache]",
)
@cluster_option
@number_option("--ranks", "Processes of PROGRAM, one per worker and GPU.  [default: 1]")
@number_option(
    "--max-restarts",
    "Failures of PROGRAM in a row, without a further step, after which it starts again. "
    " [default: 3]",
    least=0,
)
@flag_option("--dry-run", "Show what would be done, and start nothing.")
@submit_option
def train(
    program: Path,
    args: tuple[str, ...],
    dry_run: bool,
    submit: bool,
    **options: Any,
) -> None:
    """Train the models of CONFIG that have a `train` section, or by a PROGRAM of your own.

    A PROGRAM is started once for each rank on the workers of the cluster, with the environment that
    torchrun gives; what follows -- is passed on. Run the same command again to resume. `run` with
    CONFIG measures and searches what was trained.
    """
    from daskmetrics.experiment import train as training

    wanted = all_settings(options)
    if is_program(program):
        loaded = script_config(program, args, wanted, options)
    elif args or options["ranks"] is not None or options["max_restarts"] is not None:
        raise ConfigError(f"'{program}' is a configuration: its ranks and arguments are in it.")
    else:
        loaded = configuration(program, wanted)
    suites = training.suites_to_train(loaded)
    kept = expanded(loaded.ddp.folder or "training")
    programs = [
        training.program_of(model, loaded, kept / model.name)
        for model in loaded.models
        if model.program
    ]
    if not suites and not programs:
        raise ConfigError(
            f"'{program}' trains nothing: no model has a 'train' section, such as train: "
            "{width: 64}."
        )
    if dry_run:
        _preview(suites, programs)
        return
    is_done = not programs and all(suite.is_done for suite in suites.values())
    if submit and not is_done:
        _submit(loaded, kept / loaded.name, suites, programs)
        return
    from daskmetrics import experiment
    from daskmetrics.cluster import connect
    from daskmetrics.dashboard import RUN_PAGE as page

    ignore_input()
    end_as_by_ctrl_c()
    # the workers end after all is written
    with exit_when_recorded() as ends, ExitStack() as cluster:
        if not is_done:
            with experiment.Display() as display:
                client = cluster.enter_context(
                    connect(
                        loaded.cluster,
                        loaded.name,
                        display.message,
                        on_start=display.message,
                        page=page,
                    )
                )
                training.train(client, loaded, display, suites, programs)
            for started in programs:
                say(f"{started.name} has ended. Output of the ranks: {started.folder / 'logs'}")
        if all(suite.is_done for suite in suites.values()):
            ends(0)
        _summary(suites, [started.folder for started in programs])


def script_config(
    program: Path,
    args: Sequence[str],
    settings: Sequence[str],
    options: Mapping[str, Any],
) -> Config:
    """A configuration that trains by a program.

    By default it has a worker for each rank.
    """
    from daskmetrics.config import load
    from daskmetrics.config.schema import name_of

    script: dict[str, object] = {"script": str(program), "args": list(args)}
    for key in ("ranks", "max_restarts"):
        if options.get(key) is not None:
            script[key] = options[key]
    name = name_of(program.stem)
    if not any(setting.startswith("cluster.workers=") for setting in settings):
        settings = (*settings, f"cluster.workers={script.get('ranks', 1)}")
    return load({"name": name, "models": [{"name": name, "train": script}]}, settings)


def _preview(suites: Mapping[str, TrainedSuite], programs: Sequence[Program]) -> None:
    from daskmetrics.training.data import effective
    from daskmetrics.training.ddp.ranks import Batch
    from daskmetrics.training.suite import disk, parameters, revisions

    for program in programs:
        batch = "not in its arguments"
        if program.batch:
            batch = f"{program.batch.text(program.ranks)}, by its arguments"
        rows = [
            ("program", f"{program.name}: {' '.join(program.words)}"),
            ("ranks", str(program.ranks)),
            ("effective batch", batch),
            ("steps", "as its bar or daskmetrics.progress(step, total) says"),
            ("output", str(program.folder / "logs")),
        ]
        Table((), rows).show()
        say()
    for name, suite in suites.items():
        recipe = suite.recipe
        sequences = effective(recipe)
        batch = Batch(recipe.batch, recipe.accumulate).text(recipe.ranks, "sequences")
        tokens = recipe.steps * sequences * recipe.context
        size = f"{disk(recipe) / 1e6:,.1f} MB"
        checkpoints = plural(len(revisions(recipe)), "checkpoint")
        rows = [
            ("suite", f"{name}, {parameters(recipe):,} parameters"),
            ("ranks", str(recipe.ranks)),
            ("effective batch", batch),
            ("steps", f"{recipe.steps:,}, at most {tokens:,} tokens"),
            ("disk", f"{size} of {checkpoints} in '{suite.folder}'"),
        ]
        Table((), rows).show()
        say()
    say("Nothing was started.")


def _submit(
    config: Config, kept: Path, suites: Mapping[str, TrainedSuite], programs: Sequence[Program]
) -> None:
    require_jobs(config.cluster)
    for suite in suites.values():
        suite.claim()  # its folder must be its own before it holds files of a job
    folders = [*(suite.folder for suite in suites.values()), *(each.folder for each in programs)]
    folder = folders[0] if len(folders) == 1 else kept
    submit_config(config, folder, ["train"], folders)


def _summary(suites: Mapping[str, TrainedSuite], of_programs: Sequence[Path]) -> None:
    from daskmetrics import training
    from daskmetrics.core.files import RunFolder

    for name, suite in suites.items():
        saved = training.revisions(suite.recipe)
        first_loss, last_loss = (
            training.summary(suite.folder, revision)["loss"] for revision in (saved[0], saved[-1])
        )
        say(
            f"{name}: {len(saved)} checkpoints, loss {first_loss:.3f} -> {last_loss:.3f}: {suite.folder}"
        )
    try:
        from daskmetrics.report.figures import write_losses, write_telemetry
    except ImportError:
        say("No figures of the training: they need matplotlib, pip install 'daskmetrics[plot]'.")
        return
    of_suites = [suite.folder for suite in suites.values()]
    for folder in of_suites:
        if (path := write_losses(folder)) is not None:
            say(f"Losses: {path}")
    for folder in (*of_suites, *of_programs):
        if (path := write_telemetry(RunFolder(folder).telemetry, folder)) is not None:
            say(f"Use of the workers: {path}")
