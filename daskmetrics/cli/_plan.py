"""Verbs that say beforehand what a run will take: by trials, and by what is free."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from daskmetrics.cli._common import end_as_by_ctrl_c, friendly
from daskmetrics.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daskmetrics.config import Config
    from daskmetrics.planning._bench import Bench, Work
    from daskmetrics.planning._plan import Proposal
    from daskmetrics.planning._report import Sheet
    from daskmetrics.planning.doctor import Finding

NO_OPTION = 1
"""Exit code of a plan of which no option will do."""

config_file = click.argument("config", type=click.Path(path_type=Path), required=False)
settings_option = click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="As for `run`.")


@click.command()
@config_file
@settings_option
@click.option("--workers", default="1,2", show_default=True, metavar="N,N,...", help="Numbers of workers to try.")
@click.option("--repeats", type=click.IntRange(1), default=3, show_default=True, help="Rounds, interleaved.")
@click.option(
    "--workload",
    type=click.Choice(["all", "train", "measure", "search"]),
    default="all",
    show_default=True,
    help="Which part of the experiment; `all` is measuring and searching.",
)
@click.option("--function", metavar="FUNCTION", help="Bench a map of module.py:function instead of CONFIG.")
@click.option("--iterations", type=click.IntRange(1), default=100, show_default=True, help="Items of the map.")
@click.option("--batch-size", type=click.IntRange(1), default=1, show_default=True, help="Items per unit of the map.")
@click.option("--price", type=click.FloatRange(0), help="Of one worker (GPU) for an hour.")
@click.option("--simulate", type=click.IntRange(2), metavar="N", help="Also simulate up to N workers.")
@click.option("--units", type=click.IntRange(1), help="Units of the simulation.  [default: as many as were measured]")
@click.option("--output", type=click.Path(path_type=Path), help="Folder for bench.csv, bench.html and bench.png.")
@friendly
def bench(config: Path | None, settings: tuple[str, ...], output: Path | None, **how: Any) -> None:
    """Run the same workload at several numbers of workers, and say how well it scales.

    What was measured is kept as a calibration, which `plan` predicts with.
    """
    from daskmetrics import config as configuration
    from daskmetrics.planning import _bench as benches
    from daskmetrics.planning import _calibration as calibration

    counts = numbers(how["workers"], "--workers")
    if how["function"] and config:
        raise ConfigError("Bench either CONFIG or a map (--function), not both.")
    wanted = configuration.load(config or configuration.folder() / "demo.yaml", settings)
    end_as_by_ctrl_c()

    def say(text: str) -> None:
        click.echo(text, err=True)

    warm = None if how["function"] else benches.warm
    with _work(wanted, how) as (name, doing):
        measured = benches.bench(
            name, doing, wanted.cluster, counts, how["repeats"], price=how["price"], before=warm, say=say
        )
    kept = calibration.save(measured.calibration)
    _show_bench(measured, (how["simulate"], how["units"]), output)
    click.echo(f"Calibration: {kept}")


@contextmanager
def _work(wanted: Config, how: dict[str, Any]) -> Iterator[tuple[str, Work]]:
    from daskmetrics.planning import _bench as work

    if how["function"]:
        from daskmetrics.execution.map._function import load
        from daskmetrics.execution.map._spec import MapOptions, make_spec

        options = MapOptions(how["batch_size"], 0, None)
        spec = make_spec(load(how["function"]), range(how["iterations"]), options, reference=how["function"])
        with work.of_map(spec) as doing:
            yield spec.function.name, doing
    else:
        with work.of_experiment(wanted, how["workload"]) as doing:
            yield f"{wanted.name}, {how['workload']}", doing


def _show_bench(measured: Bench, simulate: tuple[int | None, int | None], output: Path | None) -> None:
    from daskmetrics.planning import _report as report

    sheets = [report.bench_sheet(measured)]
    most, units = simulate
    sheets += [report.simulation_sheet(measured, most, units)] if most else []
    for sheet in sheets:
        _show(sheet)
    if output:
        _save(measured, sheets, output, simulate)


def _show(sheet: Sheet) -> None:
    from daskmetrics.planning import _report as report

    click.echo(f"\n{report.as_text(sheet)}")


def _save(measured: Bench, sheets: Sequence[Sheet], folder: Path, simulate: tuple[int | None, int | None]) -> None:
    from daskmetrics.planning import _report as report

    folder.mkdir(parents=True, exist_ok=True)
    for name, sheet in zip(("bench", "simulated"), sheets, strict=False):
        (folder / f"{name}.csv").write_text(report.as_csv(sheet), encoding="utf-8")
        click.echo(folder / f"{name}.csv")
    try:
        picture = report.draw(measured, folder / "bench.png", *simulate)
        click.echo(picture)
    except ImportError:
        picture = None
        click.echo("No plot: matplotlib is not installed. Install daskmetrics[plot].")
    click.echo(report.write_page(measured.name, sheets, folder / "bench.html", picture))


@click.command()
@config_file
@settings_option
@click.option("--profiles", metavar="A,B,...", help="Cluster profiles, by name or file.  [default: CONFIG's own]")
@click.option("--workers", metavar="N,N,...", help="Numbers of workers of each profile.  [default: the profile's]")
@click.option("--offers", type=click.Path(path_type=Path), help="Partitions on paper (YAML), instead of profiles.")
@click.option("--recorded", type=click.Path(path_type=Path), help="Folder of sinfo's and squeue's words, see --record.")
@click.option("--record", type=click.Path(path_type=Path), help="Keep what sinfo and squeue print in this folder.")
@click.option("--deadline", metavar="TIME", help="From now, waiting included: 8h, 90min, 2d.")
@click.option("--budget", metavar="AMOUNT", help="Worker-hours or money at most: 200gpuh, 500.")
@click.option("--price", "prices", multiple=True, metavar="[DEVICE=]PRICE", help="Of a worker-hour; may be repeated.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where the run lives.  [default: runs/NAME]")
@click.option("--probe", is_flag=True, help="First measure a few units on workers of CONFIG's cluster.")
@click.option("--submit", type=click.IntRange(1), metavar="NUMBER", help="Run this option.")
@click.option("--replace", metavar="JOB", help="With --submit: cancel this pending job of yours first.")
@click.pass_context
@friendly
def plan(context: click.Context, config: Path | None, submit: int | None, probe: bool, **how: Any) -> None:
    """Compare what there is to run CONFIG on: when each would be done, and at what cost. Nothing is submitted.

    CONFIG is an experiment, or a workload on paper (YAML with 'phases'). Numbers that were not measured are called
    assumed; `bench` or --probe measures them. The exit code is 1 if no option will do.
    """
    import time

    from daskmetrics import config as configuration
    from daskmetrics.planning import _plan as plans
    from daskmetrics.planning import _report as report

    path = config or configuration.folder() / "demo.yaml"
    if how["replace"] and submit is None:
        raise ConfigError("--replace needs --submit NUMBER: a job is cancelled only for what takes its place.")
    request = plans.PlanRequest(
        profiles=tuple(filter(None, (how["profiles"] or "").split(","))),
        counts=numbers(how["workers"], "--workers") if how["workers"] else (),
        offers=how["offers"],
        recorded=how["recorded"],
        keep=how["record"],
        limits=_limits(how["deadline"], how["budget"]),
        prices=dict(_price(text) for text in how["prices"]),
        folder=how["folder"],
        settings=how["settings"],
    )
    if probe:
        _probe(path, request.settings)
    proposal = plans.propose(path, request)
    _show(report.proposal_sheet(proposal, time.time()))
    if submit is not None:
        _submit(context, proposal, submit, how)
    elif not proposal.suggestions:
        sys.exit(NO_OPTION)


def _probe(path: Path, settings: Sequence[str]) -> None:
    from daskmetrics import config as configuration
    from daskmetrics.planning import _bench as benches
    from daskmetrics.planning import _bench as work
    from daskmetrics.planning import _calibration as calibration

    wanted = configuration.load(path, settings)
    end_as_by_ctrl_c()
    click.echo("Measuring a few units ...", err=True)
    found = benches.probe(wanted.cluster, work.probing(wanted))
    click.echo(f"Calibration: {calibration.save(found)}", err=True)


def _submit(context: click.Context, proposal: Proposal, number: int, how: dict[str, Any]) -> None:
    """Run an option as `run` would, in a job of its own where `run` can."""
    from daskmetrics.cli._run import run
    from daskmetrics.core._files import RunFolder
    from daskmetrics.planning._plan import keep

    if proposal.config is None:
        raise ConfigError("What is on paper cannot be run: plan an experiment, with --profiles.")
    option = proposal.option(number)
    if how["replace"]:
        _cancel(how["replace"])
    place = RunFolder(how["folder"] or Path("runs") / proposal.name)
    keep(proposal, option, place)
    click.echo(f"\nOption {number}: {proposal.command(option)}")
    detached = {"submit": True} if any(each.name == "submit" for each in run.params) and _is_slurm(option) else {}
    given = {"config": Path(proposal.config), "settings": proposal.settings_of(option), "folder": place.path}
    context.invoke(run, **given, **detached)


def _is_slurm(option: Any) -> bool:
    return option.offer.partition is not None


def _cancel(job: str) -> None:
    """Cancel a job of one's own that has not started."""
    from daskmetrics.cluster.slurm import _commands as commands

    rows = commands.queue([job])
    if not rows:
        raise ConfigError(f"Job {job} is not in your queue. See: squeue --me")
    if not rows[0].pending:
        raise ConfigError(f"Job {job} is {rows[0].state.lower()}, not pending: it is left alone. See: squeue --me")
    commands.cancel([job])
    click.echo(f"Cancelled the pending job {job} ({rows[0].name}).")


def _limits(deadline: str | None, budget: str | None) -> Any:
    from daskmetrics.core._times import parse_duration
    from daskmetrics.planning import Limits

    hours = money = None
    if budget is not None:
        number = budget.removesuffix("gpuh")
        try:
            amount = float(number)
        except ValueError:
            raise ConfigError(f"'--budget {budget}' is neither GPU-hours (200gpuh) nor money (500).") from None
        hours, money = (amount, None) if number != budget else (None, amount)
    return Limits(parse_duration(deadline), hours, money)


def _price(text: str) -> tuple[str, float]:
    device, _, number = text.rpartition("=")
    try:
        return device, float(number)
    except ValueError:
        raise ConfigError(f"'--price {text}' is not a number, or DEVICE=NUMBER such as l40s=1.2.") from None


def numbers(text: str, option: str) -> tuple[int, ...]:
    """Increasing numbers from ``1,2,4``.

    Raises
    ------
    ConfigError
        If it is something else.
    """
    from daskmetrics.planning._scaling import increasing

    parts = text.split(",")
    found = tuple(int(part) for part in parts) if all(part.strip().isdigit() for part in parts) else ()
    if not increasing(found):
        raise ConfigError(f"'{option} {text}' is not a list of increasing numbers, for instance 1,2,4,8.")
    return found


MARKS = {"ok": "ok", "warning": "WARN", "failure": "FAIL"}
MOST = 100
"""Larger exit codes have other meanings in shells."""


@click.command()
@click.argument("subject", default="local")
@click.option("--worker", is_flag=True, help="Also start one worker by the profile, and check its machine.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--all", "show_all", is_flag=True, help="Also show checks that passed or do not apply.")
@friendly
def doctor(subject: str, worker: bool, as_json: bool, show_all: bool) -> None:
    """Check what a profile, an experiment or a run needs, and show a remedy for each failure.

    SUBJECT is the name or YAML of a cluster profile, an experiment's YAML, or a run's folder. The exit code is the
    number of failures; warnings do not count.
    """
    from daskmetrics.planning import doctor as checks

    findings = checks.examine(checks.collect(checks.subject(subject), start_worker=worker))
    click.echo(_json(findings) if as_json else _text(findings, show_all))
    sys.exit(min(MOST, sum(each is not None and each.severity.value == "failure" for each in findings.values())))


def _text(findings: Mapping[str, Finding | None], show_all: bool) -> str:
    from daskmetrics.core._text import plural

    lines = []
    for name, finding in findings.items():
        if finding is None:
            lines += [f"{'--':<5} {name:<20} does not apply, or needs --worker"] if show_all else []
        elif finding.remedy or show_all:
            lines.append(f"{MARKS[finding.severity.value]:<5} {name:<20} {finding.message}")
            lines += [f"{'':<26} -> {finding.remedy}"] if finding.remedy else []
    severities = [finding.severity.value for finding in findings.values() if finding]
    failed, warned = plural(severities.count("failure"), "failure"), plural(severities.count("warning"), "warning")
    skipped = f", {len(findings) - len(severities)} do not apply" if len(severities) < len(findings) else ""
    summary = f"{failed}, {warned}, {severities.count('ok')} passed{skipped}"
    return "\n".join([*lines, f"{plural(len(findings), 'check')}: {summary}."])


def _json(findings: Mapping[str, Finding | None]) -> str:
    rows = {
        name: {"severity": finding.severity.value, "message": finding.message, "remedy": finding.remedy}
        if finding
        else {"severity": "skipped"}
        for name, finding in findings.items()
    }
    return json.dumps(rows, indent=1)


VERBS = (bench, plan, doctor)
