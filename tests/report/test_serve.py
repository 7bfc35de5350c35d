"""The rows of runs; `daskmetrics runs serve` as its own process, asked over HTTP and by a browser."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import RunFolder
from daskmetrics.execution import Journal
from daskmetrics.report import server
from daskmetrics.report.server import RunCollection
from tests.browser import chromium, complaints
from tests.report.conftest import HOSTILE, SMALL, make_run

PAGE = "<!doctype html><title>report</title>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs")
    first = make_run(path / "first", replace(SMALL, outcomes=True)).folder
    first.report.mkdir()
    (first.report / "index.html").write_text(PAGE)
    make_run(path / "second", replace(SMALL, outcomes=True, budget=0.8))
    make_run(path / "killed", replace(SMALL, decisions=6, failing=("tiny@step8",)))
    shutil.copytree(path / "killed", path / "broken")
    (path / "broken" / "journal.jsonl").write_bytes(b"no journal\n")
    (path / "secret.txt").write_text("secret")
    return path


@pytest.fixture
def copied(folder, tmp_path):
    """The same runs, to be damaged."""
    return Path(shutil.copytree(folder, tmp_path / "runs"))


def rows_of(folder):
    return {row["name"]: row for row in RunCollection(folder).rows()}


def test_a_run_shows_its_answer_or_its_progress(copied):
    rows, overall = rows_of(copied), RunCollection(copied).run("second").verdict.overall
    done, killed = rows["second"], rows["killed"]
    assert (done["state"], done["arm"]) == ("finished", str(overall.arm))
    assert done["score"] == f"{overall.score:.3f} ± {overall.stderr:.3f}" and "%" in done["cost"]
    assert rows["first"]["arm"].endswith("(expected)") and "score" not in rows["first"]
    assert (killed["state"], killed["progress"]) == ("unfinished", "5 of 18 scores")
    assert "cost" not in killed and "problem" not in done
    lock = RunCollection(copied).run("killed").folder
    with Journal(lock.journal, lock.lock):  # the row is kept
        assert rows_of(copied)["killed"]["state"] == "running"


@pytest.mark.parametrize("damage", ["cut", "empty", "no configuration", "foreign"])
def test_a_broken_run_is_a_row_with_its_reason(copied, damage):
    journal = copied / "killed" / "journal.jsonl"
    match damage:
        case "cut":
            journal.write_bytes(journal.read_bytes()[:1000])
        case "empty":
            journal.write_bytes(b"")
        case "no configuration":
            (copied / "killed" / "config.yaml").unlink()
        case "foreign":
            journal.unlink()
            journal.mkdir()
    rows = rows_of(copied)
    assert rows["killed"]["state"] == "not readable" and rows["killed"]["problem"]
    assert rows["first"]["state"] == "finished"


def test_a_map_is_listed_and_is_not_broken(copied):
    folder = RunFolder(copied / "items").create()
    folder.items.write_bytes(b"")
    folder.journal.write_bytes(b"")
    row = rows_of(copied)["items"]
    assert row["state"] == "map" and "daskmetrics status" in row["problem"]


def test_the_latest_changed_run_is_first_and_read_again_only_when_its_journal_has_changed(copied):
    read, runs = server._row.cache_info, RunCollection(copied)
    os.utime(copied / "killed" / "journal.jsonl", (1e9, 1e9))
    before = read().misses
    for _ in range(3):
        assert [row["name"] for row in runs.rows()][-1] == "killed"
    assert read().misses == before + 4
    shutil.copy(copied / "first" / "journal.jsonl", copied / "killed" / "journal.jsonl")
    assert rows_of(copied)["killed"]["state"] == "finished" and read().misses == before + 5
    assert runs.run("first") is runs.run("first")


def test_only_folders_inside_are_runs_and_only_files_inside_are_reports(copied, tmp_path):
    shutil.copytree(copied / "killed", tmp_path / "secret")
    (copied / "link").symlink_to(tmp_path / "secret")
    (copied / "first" / "report" / "secret.html").symlink_to(copied / "first" / "config.yaml")
    runs = RunCollection(copied)
    for name in ("..", "../first", "/etc", "", "link"):
        with pytest.raises(ConfigError, match="Unknown run"):
            runs.run(name)
    assert rows_of(copied).keys() == {"first", "second", "killed", "broken"}
    with pytest.raises(ConfigError, match="is a run"):
        RunCollection(copied / "first")
    assert runs.file_of_report("first", "index.html").read_text() == PAGE
    for name in ("secret.html", "../config.yaml", "other.html"):
        assert runs.file_of_report("first", name) is None


@pytest.fixture(scope="module")
def link(folder):
    command = [sys.executable, "-m", "daskmetrics", "runs", "serve", str(folder)]
    remote = ("SSH_", "JUPYTERHUB_")
    plain = {name: text for name, text in os.environ.items() if not name.startswith(remote)}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, env=plain | {"PYTHONUNBUFFERED": "1"}, **options) as process:
        line = process.stdout.readline()
        yield re.fullmatch(r"Runs: (http://127\.0\.0\.1:\d+/[\w-]{30,}/)\n", line)[1]
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=30)[0]
    # no traceback, whatever was asked and whichever browser closed
    assert process.returncode == 0 and rest == ""


def get(url: str, **request: object) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, **request)) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_the_list_has_every_run_and_a_run_a_page_with_its_report(link):
    status, page = get(link)
    assert status == 200 and "not readable" in page and "5 of 18 scores" in page
    for name in ("first", "second", "killed", "broken"):
        assert f">{name}</a>" in page
    assert "report/first/index.html" in get(f"{link}run/first")[1]
    assert get(f"{link}report/first/index.html") == (200, PAGE)
    assert "report/killed" not in get(f"{link}run/killed")[1]
    # it only reads
    assert get(f"{link}run/first", method="POST", data=b"")[0] == 405


def test_without_the_token_nothing_is_served(link):
    host, token = re.fullmatch(r"(http://[^/]+/)([^/]+)/", link).groups()
    for path in ("", "run/first", "compare?run=first&run=second", "report/first/index.html", "x"):
        for wrong in ("", "wrong/", f"{token[:-1]}/", f"{token}x/"):
            assert get(f"{host}{wrong}{path}")[0] == 403
    assert get(f"{host}?token={token}")[0] == 403


@pytest.mark.parametrize(
    "path",
    [
        "report/first/..%2f..%2fsecret.txt",
        "report/%2e%2e/secret.txt",
        "run/..%2f..",
        "report/first/%2fetc%2fpasswd",
        "secret.txt",
        "first/config.yaml",
        "run/nothing",
        "report/killed/index.html",
    ],
)
def test_nothing_but_runs_and_their_reports_is_served(link, path):
    status, page = get(link + path)
    assert status == 404 and "secret" not in page.replace("secret.txt", "")


def test_what_runs_say_is_escaped(link):
    page = get(f"{link}run/killed")[1]
    assert HOSTILE.split("<")[0] in page and "<script>alert" not in page


def test_a_comparison_shows_settings_answers_and_scores(link):
    page = get(f"{link}compare?run=first&run=second&run=killed")[1]
    assert "<td>search.budget</td><td>0.5</td><td>0.8</td>" in page
    assert "second − first" in page and "no answer yet" in page and page.count(" ± ") > 6
    assert "Choose two or more" in get(f"{link}compare?run=first")[1]


@pytest.mark.browser
def test_runs_are_chosen_compared_and_followed(link, folder):
    live, killed = folder / "live", folder / "killed"
    make_run(live, replace(SMALL, decisions=2))
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 400, "height": 900}, color_scheme="dark")
        errors = complaints(page)
        page.goto(link)
        page.get_by_label("compare first").check()
        page.get_by_label("compare second").check()
        page.wait_for_timeout(4000)  # the list was read again meanwhile
        assert page.get_by_label("compare second").is_checked()
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 400
        page.get_by_role("button", name="Compare").click()
        page.get_by_text("first − second").wait_for()  # in the order of the list
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 400
        page.get_by_role("link", name="All runs").click()
        page.get_by_role("link", name=live.name).click()
        page.get_by_text("1 of 18 scores").wait_for()
        for name in ("journal.mark", "config.yaml", "journal.jsonl"):
            shutil.copy(killed / name, live)
        page.get_by_text("5 of 18 scores").first.wait_for(timeout=15_000)  # without a click
    shutil.rmtree(live)
    assert not errors
