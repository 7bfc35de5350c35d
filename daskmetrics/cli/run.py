"""Verbs that do the work."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from daskmetrics.cli.common import end_as_by_ctrl_c, friendly
from daskmetrics.errors import ConfigError
from daskmetrics.layout import RunFolder

if TYPE_CHECKING:
    from daskmetrics.config import Config


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
        from daskmetrics.experiment.preview import preview

        Console().print(preview(prepared, place))
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
    from daskmetrics.cluster.allocation import present

    room = present(os.environ)
    count = workers or room.slots(wanted.cluster.threads)
    room.require(count, wanted.cluster.threads)
    changed = wanted.cluster.model_copy(update={"kind": "allocation", "workers": count, "scoring": None})
    return wanted.model_copy(update={"cluster": changed})


def _submit(wanted: Config, place: RunFolder) -> None:
    import yaml

    from daskmetrics.cluster import controller

    if wanted.cluster.kind in ("local", "allocation"):
        raise ConfigError(
            "--submit drives the run from a small job of its own, and its workers would be there, too: name a Slurm "
            "profile with --cluster. 'daskmetrics cluster list' shows them."
        )
    place.create()
    files = controller.Place(place.controller.resolve())
    told = controller.submit(wanted.cluster, wanted.name, files, yaml.safe_dump(wanted.as_dict(), sort_keys=False))
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


VERBS = (run,)
