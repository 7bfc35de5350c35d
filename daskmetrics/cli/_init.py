"""The command `init`: a first configuration from answers or options."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote

import click

from daskmetrics.cli._common import (
    PATH,
    example,
    flag_option,
    path_option,
    say,
    text_option,
)
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import expanded

TASKS = "stdlib:demo"

_MODEL = """\
  - name: {name}
    source: {source}
    revisions: {usual}, every 1000, every 1000 to 143000; or a list of names
    layers: all # or blocks, without the embeddings; or a list such as [4, 5, 6]
"""

_FILE = """\
# {name}: which layer of which checkpoint gives the best embeddings?
#
#   daskmetrics run {path} --dry-run    # counts, disk and time; nothing is started
#   daskmetrics run {path}              # again to resume
#   daskmetrics best {name}

name: {name} # results are in runs/{name}

models: # each is a folder of one model, a folder with a sub-folder per revision, or a hub id
{models}
# What the texts of a task are scored by. `daskmetrics list tasks` lists the built-in ones; others are mteb:NAME,
# preset:layer-by-layer-32, and your own files: file:PATH(text=COLUMN, label=COLUMN).
tasks: {tasks}

# Label-free metrics of every layer: `daskmetrics list metrics` lists them, `all` measures them all, `[]` none.
# metrics: [prompt_entropy, curvature, effective_rank]

# Texts on which the metrics are measured: those of Python's library, or a file with one prompt per line.
# corpus: {{source: prompts.txt, prompts: 500}}

search:
  budget: auto # a share of the cost of every score; auto: all of a small grid, else 0.3; 1: every score
  # within: 0.01 # end earlier, when no more than this share of the score is expected to be gained

cluster: local # where to run: a profile of `daskmetrics list profiles`, or your own YAML file
"""

Ask = Callable[[str, str], str]
Columns = dict[str, str | None]  # by their role


@click.command(
    epilog=example(
        "daskmetrics init",
        "daskmetrics init --model ./all-MiniLM-L6-v2 --data reviews.csv --text body --label stars "
        "-o mine.yaml --yes",
    )
)
@text_option("--model", "SOURCE", "A folder or a hub id; may be repeated.", multiple=True)
@path_option("--data", "Your labelled texts: .csv, .tsv, .jsonl, .parquet or a folder.")
@text_option(
    "--text", "COLUMN", "The column of --data with the texts.  [default: recognised by name]"
)
@text_option(
    "--label", "COLUMN", "The column of --data with the labels.  [default: recognised by name]"
)
@text_option(
    "--tasks",
    "NAME,NAME,...",
    f"Tasks, as `list tasks` shows them.  [default: {TASKS}, or --data]",
)
@click.option("-o", "--output", type=PATH, help="File to write.  [default: NAME-OF-THE-MODEL.yaml]")
@flag_option("--yes", "Ask nothing: take the defaults for what is not given.")
@flag_option("--force", "Replace a file that exists.")
def init(
    model: tuple[str, ...],
    data: Path | None,
    text: str | None,
    label: str | None,
    tasks: str | None,
    output: Path | None,
    yes: bool,
    force: bool,
) -> None:
    """Write a configuration with comments that `run` accepts as it is.

    What is not given by an option is asked for. Nothing is started or downloaded.
    """
    from daskmetrics.checkpoints.locations import is_hub_id

    def ask(question: str, default: str) -> str:
        if yes:
            return default
        return str(click.prompt(question, default, show_default=default != ""))

    sources = model or (ask("Model: a folder, or a hub id such as EleutherAI/pythia-14m", ""),)
    for source in sources:
        if not source:
            raise ConfigError("No model: name its folder or hub id with --model.")
        if not expanded(source).is_dir() and not is_hub_id(source):
            raise ConfigError(
                f"--model '{source}' is neither a folder nor a hub id such as gpt2 or"
                " EleutherAI/pythia-14m."
            )
    names = _tasks(ask, data, {"text": text, "label": label}, tasks)
    output = output or Path(ask("File to write", f"{_absolute(sources[0]).name}.yaml"))
    _write(output, starter(output, sources, names), force)
    command = f"daskmetrics run {quote(str(output))} --dry-run"
    say(f"Wrote '{output}'. See what it takes with: {command}")


def _tasks(ask: Ask, data: Path | None, columns: Columns, tasks: str | None) -> list[str]:
    """Names of the tasks, each resolved: a file is read and checked."""
    from daskmetrics.tasks import resolve

    if any(columns.values()) and data is None:
        raise ConfigError("--text and --label name columns of a file: add --data FILE.")
    names = [name.strip() for name in (tasks or "").split(",") if name.strip()]
    if data is None and not names:
        answer = ask("Your labelled texts, a file (empty: built-in tasks)", "")
        if answer:
            data = Path(answer)
            for role in columns:
                columns[role] = ask(f"Column with the {role}s (empty: recognised by its name)", "")
    if data is not None:
        options = ", ".join(f"{role}={column}" for role, column in columns.items() if column)
        if options:
            options = f"({options})"
        names.insert(0, f"file:{data}{options}")
    names = names or [TASKS]
    resolve(names)
    return names


def _write(output: Path, content: str, force: bool) -> None:
    import yaml

    from daskmetrics.config import parse

    if output.exists() and not force:
        raise ConfigError(
            f"'{output}' already exists: choose another file with -o, or replace it with --force."
        )
    if not output.parent.is_dir():
        raise ConfigError(f"No folder '{output.parent}' for '{output.name}': create it first.")
    parse(yaml.safe_load(content), where=str(output))
    output.write_text(content, encoding="utf-8")


def starter(path: Path, sources: Sequence[str], tasks: Sequence[str]) -> str:
    """The text of a configuration, whose name is that of its file.

    >>> text = starter(Path("mine.yaml"), ["EleutherAI/pythia-14m"], ["stdlib:demo"])
    >>> print(text.splitlines()[6])
    name: mine # results are in runs/mine
    """
    from daskmetrics.checkpoints.locations import is_hub_id
    from daskmetrics.config.schema import name_of

    names = [name_of(str(_absolute(source))) for source in sources]
    models = ""
    for number, (model_name, source) in enumerate(zip(names, sources, strict=True), 1):
        if names.count(model_name) > 1:
            model_name += f"-{number}"
        usual = "main # or all, log" if is_hub_id(source) else "all # or log"
        models += _MODEL.format(
            name=model_name, source=json.dumps(source, ensure_ascii=False), usual=usual
        )
    return _FILE.format(
        name=name_of(path.stem),
        path=quote(str(path)),
        models=models,
        tasks=json.dumps(tasks, ensure_ascii=False),  # every JSON text is YAML
    )


def _absolute(source: str) -> Path:
    """The path of a source; a link keeps its own name."""
    return Path(os.path.abspath(expanded(source)))  # noqa: PTH100
