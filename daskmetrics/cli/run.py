"""Verbs that do the work."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from daskmetrics.cli.common import end_as_by_ctrl_c, friendly
from daskmetrics.layout import RunFolder


@click.command()
@click.argument("config", type=click.Path(path_type=Path), required=False)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change the configuration, e.g. search.budget=0.1."
)
@click.option("--workers", type=int, help="Number of workers; short for --set cluster.workers=N.")
@click.option("--policy", help="How to search; short for --set search.policy=NAME. `sweep` scores every cell.")
@click.option("--budget", type=float, help="Share of the exhaustive cost; short for --set search.budget=SHARE.")
@click.option("--confidence", type=float, help="Stop once this sure, e.g. 0.95; short for --set search.confidence=P.")
@click.option("--within", type=float, help="Of being within this share of the best; short for --set search.within=W.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where the run lives.  [default: runs/NAME]")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and submit nothing.")
@friendly
def run(config: Path | None, settings: tuple[str, ...], folder: Path | None, dry_run: bool, **short: Any) -> None:
    """Measure, search and report what CONFIG asks for; without a file, the embedded demo.

    Running the same again resumes; a finished run is left as it is.
    """
    from rich.console import Console

    from daskmetrics import config as configuration

    sections = {"workers": "cluster", **dict.fromkeys(("policy", "budget", "confidence", "within"), "search")}
    if short["policy"] == "sweep" and short["budget"] is None:
        short["budget"] = 1.0  # everything is what it is for
    given = [f"{sections[name]}.{name}={value}" for name, value in short.items() if value is not None]
    settings = (*settings, *given)
    wanted = configuration.load(config or configuration.folder() / "demo.yaml", settings)
    place = RunFolder(folder or Path("runs") / wanted.name)
    from daskmetrics import experiment  # after the configuration was found good: Dask takes half a second

    console = Console(stderr=True)
    with console.status("Checking models, tasks and texts ...") if console.is_terminal else nullcontext():
        prepared = experiment.prepare(wanted)
    if dry_run:
        from daskmetrics.experiment.preview import preview

        Console().print(preview(prepared, place))
        return
    end_as_by_ctrl_c()
    with experiment.Display(console) as display:
        outcome = experiment.run(prepared, place, display)
    _last_screen(place, outcome.nothing_to_do)


def _last_screen(place: RunFolder, nothing_to_do: bool) -> None:
    from daskmetrics import report

    if nothing_to_do:
        click.echo(f"Nothing to do: the run in '{place.path}' is finished.")
    report.write(place)
    click.echo(report.summary_text(report.Run(place.path)))
    click.echo(report.whereabouts(place))


VERBS = (run,)
