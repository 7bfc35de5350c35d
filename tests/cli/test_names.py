from __future__ import annotations

import json
import shutil
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from daskmetrics.cli import main
from daskmetrics.cli._common import RUN
from tests.cli.calling import call, fails


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with two folders that hold the journals of runs."""
    monkeypatch.chdir(tmp_path)
    for name in ("demo", "minilm"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "journal.jsonl").touch()
    return tmp_path


def test_every_command_with_a_run_takes_its_name():
    commands = [*main.commands.values(), *main.commands["runs"].commands.values()]
    parameters = [parameter for command in commands for parameter in command.params]
    runs = [parameter for parameter in parameters if parameter.name == "run"]
    assert len(runs) > 8 and all(parameter.type is RUN for parameter in runs)


def test_a_name_means_a_run_below_runs_unless_a_run_is_here(here):
    (here / "demo").mkdir()
    assert RUN.convert("demo", None, None) == Path("runs/demo")
    assert RUN.convert("runs/demo", None, None) == Path("runs/demo")
    done = call(here, "status ./demo")
    assert fails(done, "No run in 'demo'. Did you mean 'runs/demo'? Runs in 'runs': demo, minilm.")
    (here / "demo" / "journal.jsonl").touch()
    assert RUN.convert("demo", None, None) == Path("demo")


def test_doctor_takes_a_name_as_a_run_unless_it_is_a_profile(here):
    def is_run(name: str) -> bool:
        checks = json.loads(call(here, f"doctor {name} --json").output)
        return checks["failed-units"]["severity"] == "ok"

    assert is_run("demo")
    done = call(here, "doctor minilmm")
    assert fails(done, "Unknown cluster profile 'minilmm'.") and "'minilm'?" in done.stderr
    shutil.copytree(here / "runs" / "demo", here / "runs" / "local")
    assert not is_run("local")


def test_the_shell_completes_names_of_runs(here):
    context = click.Context(main.commands["status"])
    complete = RUN.shell_complete
    assert [item.value for item in complete(context, None, "m")] == ["minilm"]
    assert [item.type for item in complete(context, None, "./other")] == ["file"]


def test_the_shell_completes_nothing_after_what_is_no_command():
    words = ShellComplete(main, {}, "daskmetrics", "_DASKMETRICS_COMPLETE")
    assert words.get_completions(["nosuch"], "runs/") == []
