"""The page that lists the runs in a folder."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from daskmetrics.core.files import RunFolder
from daskmetrics.execution import Journal
from daskmetrics.report import Run, index
from tests.browser import chromium, complaints
from tests.report.conftest import SMALL, invoke, make_run


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs")
    first = make_run(path / "first", replace(SMALL, outcomes=True)).folder
    first.report.mkdir()
    (first.report / "index.html").write_text("<!doctype html><title>report</title>")
    make_run(path / "second", replace(SMALL, outcomes=True, budget=0.8))
    make_run(path / "killed", replace(SMALL, decisions=6, failing=("tiny@step8",)))
    shutil.copytree(path / "killed", path / "broken")
    (path / "broken" / "journal.jsonl").write_bytes(b"no journal\n")
    return path


@pytest.fixture
def folder(made, tmp_path):
    """The same runs, to be damaged."""
    return Path(shutil.copytree(made, tmp_path / "runs"))


def rows_of(folder):
    return {row["name"]: row for row in index.rows(folder)}


def test_a_run_shows_its_answer_or_its_progress(folder):
    rows, overall = rows_of(folder), Run(folder / "second").verdict.overall
    done, killed = rows["second"], rows["killed"]
    assert (done["state"], done["arm"]) == ("finished", str(overall.arm))
    mean = f"score {overall.score:.3f} ± {overall.stderr:.3f} (mean of 2 tasks)"
    assert done["score"] == mean and "%" in done["cost"]
    assert rows["first"]["arm"].endswith("(expected)") and "score" not in rows["first"]
    assert (killed["state"], killed["progress"]) == ("unfinished", "5 of 18 scores")
    assert "cost" not in killed and "problem" not in done
    lock = RunFolder(folder / "killed")
    with Journal(lock.journal, lock.lock):
        assert rows_of(folder)["killed"]["state"] == "running"


@pytest.mark.parametrize("damage", ["cut", "empty", "foreign"])
def test_a_broken_run_is_a_row_with_its_reason(folder, damage):
    journal = folder / "killed" / "journal.jsonl"
    match damage:
        case "cut":
            journal.write_bytes(journal.read_bytes()[:1000])
        case "empty":
            journal.write_bytes(b"")
        case "foreign":
            journal.unlink()
            journal.mkdir()
    rows = rows_of(folder)
    assert rows["killed"]["state"] == "not readable" and rows["killed"]["problem"]
    assert rows["first"]["state"] == "finished"


def test_a_map_is_listed_and_is_not_broken(folder):
    items = RunFolder(folder / "items").create()
    items.items.write_bytes(b"")
    items.journal.write_bytes(b"")
    row = rows_of(folder)["items"]
    assert row["state"] == "map" and "daskmetrics status" in row["problem"]


def test_the_latest_changed_run_is_first_and_links_are_left_out(folder, tmp_path):
    shutil.copytree(folder / "killed", tmp_path / "elsewhere")
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    for number, name in enumerate(("second", "killed", "broken", "first")):
        os.utime(folder / name / "journal.jsonl", (0, 1e9 + number / 10))
    names = [row["name"] for row in index.rows(folder)]
    assert names == ["first", "broken", "killed", "second"]


def test_the_command_lists_runs_and_links_to_written_reports(folder):
    done = invoke("report", folder)
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert done.stdout == f"{(folder / 'index.html').as_uri()}\n"
    assert 'href="first/report/index.html"' in page and "second/report" not in page
    assert "5 of 18 scores" in page and "not readable" in page
    refused = invoke("report", folder, "--format", "csv")
    assert refused.exit_code and "holds runs, and is none" in refused.stderr


def test_what_runs_say_is_escaped(folder):
    (folder / "broken").rename(folder / "<img src=x onerror=alert(1)>")
    page = index.write_index(folder).read_text(encoding="utf-8")
    assert "&lt;img src=x" in page and "<img" not in page


@pytest.mark.browser
def test_the_list_fits_a_small_screen_and_leads_to_a_report(folder):
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 400, "height": 900}, color_scheme="dark")
        errors = complaints(page)
        page.goto(index.write_index(folder).as_uri())
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 400
        page.get_by_role("link", name="first").click()
        assert page.title() == "report"
    assert not errors
