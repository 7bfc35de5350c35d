"""The rows of a folder of runs: from whole, unfinished, broken and foreign folders."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from daskmetrics.core.errors import ConfigError
from daskmetrics.execution import Journal
from daskmetrics.report import server
from daskmetrics.report.server import RunCollection
from tests.report.conftest import SUITES, TASKS, Story, make_run

SMALL = Story(suites=SUITES[:1], tasks=TASKS[:2])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    make_run(folder / "done", SMALL)
    make_run(folder / "killed", replace(SMALL, decisions=6))
    return folder


@pytest.fixture
def folder(made, tmp_path):
    return Path(shutil.copytree(made, tmp_path / "runs"))


def row(folder, name):
    return {each.name: each for each in RunCollection(folder).rows()}[name]


def test_a_finished_run_shows_its_answer_with_error_and_cost(folder):
    done, run = row(folder, "done"), RunCollection(folder).run("done")
    best = run.best()
    assert (done.state, done.arm.split()[0], done.problem) == ("finished", str(best.arm), "")
    assert done.score == f"{best.score:.3f} ± {best.stderr:.3f}" and done.cost.endswith(
        " % of scoring everything"
    )


def test_an_unfinished_run_shows_its_progress(folder):
    killed = row(folder, "killed")
    assert (
        killed.state == "unfinished" and killed.progress == "5 of 30 scores" and killed.cost == ""
    )


def test_a_run_that_a_process_drives_now_is_running(folder):
    killed = RunCollection(folder).run("killed").folder
    assert row(folder, "killed").state == "unfinished"  # the row is kept
    with Journal(killed.journal, killed.lock):
        assert row(folder, "killed").state == "running"


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "no configuration", "foreign"])
def test_a_broken_run_is_a_row_with_its_reason(folder, damage):
    place = folder / "killed"
    journal = place / "journal.jsonl"
    content = journal.read_bytes()
    if damage == "no configuration":
        (place / "config.yaml").unlink()
    elif damage == "foreign":
        journal.unlink()
        journal.mkdir()
    else:
        half = len(content) // 2
        journal.write_bytes(
            {
                "cut": content[:half],
                "flipped": content[:half] + b"?" + content[half + 1 :],
                "empty": b"",
            }[damage]
        )
    broken = row(folder, "killed")
    assert broken.state == "not readable" and broken.problem and "Traceback" not in broken.problem
    assert row(folder, "done").state == "finished"


def test_the_latest_changed_run_is_first(folder):
    os.utime(folder / "killed" / "journal.jsonl", (1e9, 1e9))
    assert [each.name for each in RunCollection(folder).rows()] == ["done", "killed"]


def test_a_run_is_read_again_only_when_its_journal_has_changed(folder):
    read, runs = server._row.cache_info, RunCollection(folder)
    before = read().misses
    for _ in range(3):
        runs.rows()
    assert read().misses == before + 2
    shutil.copy(folder / "done" / "journal.jsonl", folder / "killed" / "journal.jsonl")
    assert {row.state for row in runs.rows()} == {"finished"} and read().misses == before + 3
    assert runs.run("done") is runs.run("done")


@pytest.mark.parametrize("name", ["..", "../done", "/etc", "", "link"])
def test_only_folders_inside_are_runs(folder, tmp_path_factory, name):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "secret"
    shutil.copytree(folder / "killed", elsewhere)
    (folder / "link").symlink_to(elsewhere)
    with pytest.raises(ConfigError, match="Unknown run"):
        RunCollection(folder).run(name)
    assert {each.name for each in RunCollection(folder).rows()} == {"done", "killed"}


def test_a_file_of_a_report_is_not_a_link_to_another_place(folder):
    report = folder / "done" / "report"
    report.mkdir(exist_ok=True)
    (report / "index.html").write_text("page")
    (report / "secret.html").symlink_to(folder / "done" / "config.yaml")
    runs = RunCollection(folder)
    assert runs.file_of_report("done", "index.html").read_text() == "page"
    assert all(
        runs.file_of_report("done", name) is None
        for name in ("secret.html", "../config.yaml", "other.html")
    )


def test_the_folder_of_a_run_is_not_a_folder_of_runs(folder):
    with pytest.raises(ConfigError, match="is a run"):
        RunCollection(folder / "done")
    with pytest.raises(ConfigError, match="is not a folder"):
        RunCollection(folder / "nothing")
