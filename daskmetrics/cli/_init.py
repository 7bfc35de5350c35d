"""The command `init`: a first configuration from answers or options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from daskmetrics.cli._common import PATH, example, friendly, say
from daskmetrics.core.errors import ConfigError

TASKS, BUDGET, CLUSTER = "stdlib:demo", "auto", "local"

Ask = Callable[..., Any]


@click.command(
    epilog=example(
        "daskmetrics init",
        "daskmetrics init --model ./all-MiniLM-L6-v2 --data reviews.csv --text body --label stars -o mine.yaml --yes",
    )
)
@click.option("--model", "models", multiple=True, metavar="SOURCE", help="A folder or a hub id; may be repeated.")
@click.option("--data", type=PATH, help="Your labelled texts: .csv, .tsv, .jsonl, .parquet or a folder.")
@click.option("--text", metavar="COLUMN", help="The column of --data with the texts.  [default: recognised by name]")
@click.option("--label", metavar="COLUMN", help="The column of --data with the labels.  [default: recognised by name]")
@click.option("--tasks", metavar="NAME,NAME,...", help=f"Tasks, as `tasks` lists them.  [default: {TASKS}, or --data]")
@click.option("--budget", metavar="SHARE", help=f"Share of the cost of every score, or auto.  [default: {BUDGET}]")
@click.option("--cluster", metavar="PROFILE", help=f"Where to run.  [default: {CLUSTER}]")
@click.option("-o", "--output", type=PATH, help="File to write.  [default: NAME-OF-THE-MODEL.yaml]")
@click.option("--yes", is_flag=True, help="Ask nothing: take the defaults for what is not given.")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@friendly
def init(
    models: tuple[str, ...],
    data: Path | None,
    text: str | None,
    label: str | None,
    tasks: str | None,
    budget: str | None,
    cluster: str | None,
    output: Path | None,
    yes: bool,
    force: bool,
) -> None:
    """Write a configuration with comments that `run` accepts as it is.

    What is not given by an option is asked for. Nothing is started or downloaded.
    """
    from daskmetrics.config import _starter as starter

    ask: Ask = (lambda _, default: default) if yes else _prompt
    sources = [starter.require_source(source) for source in models or _asked_model(ask)]
    names = _tasks(ask, data, text, label, tasks)
    if budget is None:
        budget = str(ask("Share of the cost of every score to spend, between 0 and 1, or auto", BUDGET))
    cluster = cluster or ask("Cluster profile, or its YAML file", CLUSTER)
    output = output or Path(ask("File to write", f"{Path(sources[0]).expanduser().resolve().name}.yaml"))
    content = starter.starter(output, sources, names, budget, cluster)
    _write(output, content, force)
    say(f"Wrote '{output}'. See what it takes with: daskmetrics run {output} --dry-run")


def _prompt(question: str, default: Any) -> Any:
    return click.prompt(question, default, show_default=default != "")


def _asked_model(ask: Ask) -> list[str]:
    source = ask("Model: a folder, or a hub id such as EleutherAI/pythia-14m", "")
    if not source:
        raise ConfigError("No model: name its folder or hub id with --model.")
    return [source]


def _tasks(ask: Ask, data: Path | None, text: str | None, label: str | None, tasks: str | None) -> list[str]:
    """The names of the tasks, each of which is resolved: a file is read and checked."""
    from daskmetrics.tasks import resolve

    if (text or label) and data is None:
        raise ConfigError("--text and --label name columns of a file: add --data FILE.")
    names = [name.strip() for name in (tasks or "").split(",") if name.strip()]
    if data is None and not names and (given := ask("Your labelled texts, a file (empty: built-in tasks)", "")):
        data = Path(given)
    if data is not None:
        names.insert(0, _file(ask, data, text, label))
    names = names or [TASKS]
    resolve(names)
    return names


def _file(ask: Ask, data: Path, text: str | None, label: str | None) -> str:
    """The task on a file; asks for its columns if their names do not tell what they are."""
    from daskmetrics.tasks import resolve

    def task(**columns: str | None) -> str:
        options = ", ".join(f"{role}={column}" for role, column in columns.items() if column)
        return f"file:{data}({options})" if options else f"file:{data}"

    try:
        resolve([task(text=text, label=label)])
    except ConfigError as error:
        missing = [role for role, column in (("text", text), ("label", label)) if column is None]
        if not missing or not data.exists():
            raise
        say(error, err=True)
        text = text or ask("Column with the texts", "") or None
        label = label or ask("Column with the labels", "") or None
        if not text and not label:
            raise
    return task(text=text, label=label)


def _write(output: Path, content: str, force: bool) -> None:
    """Write a configuration that is valid, and never over another file without ``force``."""
    import yaml

    from daskmetrics.config import parse

    if output.exists() and not force:
        raise ConfigError(f"'{output}' already exists: choose another file with -o, or replace it with --force.")
    if not output.parent.is_dir():
        raise ConfigError(f"No folder '{output.parent}' for '{output.name}': create it first.")
    parse(yaml.safe_load(content), where=str(output))
    output.write_text(content, encoding="utf-8")


COMMANDS = (init,)
