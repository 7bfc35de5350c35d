from __future__ import annotations

import shutil
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from daskmetrics.cli import main
from daskmetrics.cli._common import RUN


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with two folders that hold the journals of runs."""
    monkeypatch.chdir(tmp_path)
    for name in ("demo", "minilm"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "journal.jsonl").touch()
    return tmp_path


def invoke(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def takes_run(command: click.Command) -> list[click.Parameter]:
    return [parameter for parameter in command.params if parameter.type is RUN]


def test_every_command_with_a_run_takes_its_name():
    commands = {**main.commands, **main.commands["runs"].commands}
    named = {name for name, command in commands.items() if takes_run(command)}
    with_run = {
        name
        for name, command in commands.items()
        if any(parameter.name == "run" for parameter in command.params)
    }
    assert {"status", "report", "best", "compare", "logs", "verify", "replay"} <= named
    assert with_run <= named


def test_a_name_stands_for_the_run_below_runs(here):
    assert RUN.convert("demo", None, None) == Path("runs/demo")
    assert RUN.convert("runs/demo", None, None) == Path("runs/demo")


def test_a_name_is_that_of_the_run_unless_the_folder_here_is_a_run(here):
    (here / "demo").mkdir()
    assert RUN.convert("demo", None, None) == Path("runs/demo")
    done = invoke("status", "./demo")
    assert done.exit_code == 2
    assert (
        "No run in 'demo'. Did you mean 'runs/demo'? Runs in 'runs': demo, minilm." in done.output
    )


@pytest.mark.parametrize(
    "command",
    ["status", "report", "runs journal", "runs retry", "runs verify"],
)
def test_the_error_lists_the_runs_that_exist(here, command):
    done = invoke(*command.split(), "minilmm")
    assert done.exit_code == 2
    assert (
        "No run in 'minilmm'. Did you mean 'minilm'? Runs in 'runs': demo, minilm." in done.output
    )


def test_doctor_takes_the_name_of_a_run_unless_it_is_that_of_a_profile(here):
    assert "unfinished, and no process drives it" in invoke("doctor", "demo").output
    done = invoke("doctor", "minilmm")
    assert done.exit_code == 2
    assert (
        "Unknown cluster profile 'minilmm'." in done.output
        and "Did you mean 'minilm'?" in done.output
    )
    shutil.copytree(here / "runs" / "demo", here / "runs" / "local")
    assert "unfinished" not in invoke("doctor", "local").output


def test_the_shell_completes_names_of_runs(here):
    status = main.commands["status"]
    context = click.Context(status)
    assert [item.value for item in RUN.shell_complete(context, status.params[0], "m")] == ["minilm"]
    assert [item.type for item in RUN.shell_complete(context, status.params[0], "./other")] == [
        "file"
    ]


def test_a_folder_that_is_a_run_goes_before_one_below_runs(here):
    (here / "demo").mkdir()
    (here / "demo" / "journal.jsonl").touch()
    assert RUN.convert("demo", None, None) == Path("demo")
