"""The server of runs: `daskmetrics runs serve` as its own process, asked over HTTP and shown by a real
browser.
"""

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

import pytest

from tests.browser import chromium, complaints
from tests.report.conftest import HOSTILE, SUITES, TASKS, Story, make_run

SMALL = Story(suites=SUITES[:1], tasks=TASKS[:2])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs")
    first = make_run(path / "first", replace(SMALL, outcomes=True)).folder
    first.report.mkdir()
    (first.report / "index.html").write_text("<!doctype html><title>report</title>")
    make_run(path / "second", replace(SMALL, outcomes=True, budget=0.8))
    make_run(path / "killed", replace(SMALL, decisions=6, failing=("tiny@step8",)))
    shutil.copytree(path / "killed", path / "broken")
    (path / "broken" / "journal.jsonl").write_bytes(b"no journal\n")
    (path / "secret.txt").write_text("secret")
    return path


@pytest.fixture(scope="module")
def link(folder):
    command = [sys.executable, "-m", "daskmetrics", "runs", "serve", str(folder)]
    plain = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SSH_", "JUPYTERHUB_"))
    }
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=plain | {"PYTHONUNBUFFERED": "1"},
    ) as server:
        line = server.stdout.readline()
        yield re.fullmatch(r"Runs: (http://127\.0\.0\.1:\d+/[\w-]{30,}/)\n", line)[1]
        server.send_signal(signal.SIGINT)
        rest = server.communicate(timeout=30)[0]
    # no traceback, whatever was asked and whichever browser closed
    assert server.returncode == 0 and rest == ""


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_the_list_has_a_row_for_every_run(link):
    status, page = get(link)
    assert status == 200 and all(
        f">{name}</a>" in page for name in ("first", "second", "killed", "broken")
    )
    assert "4 runs" in page and "Line 1 of" in page and "not readable" in page
    for state in ("finished", "unfinished"):
        assert f">{state}</span>" in page
    assert "5 of 30 scores" in page and " % of scoring everything" in page


@pytest.mark.parametrize(
    "path", ["", "run/first", "compare?run=first&run=second", "report/first/index.html", "x"]
)
def test_without_the_token_nothing_is_served(link, path):
    host, token = re.fullmatch(r"(http://[^/]+/)([^/]+)/", link).groups()
    for wrong in ("", "wrong/", f"{token[:-1]}/", f"{token}x/"):
        assert get(f"{host}{wrong}{path}")[0] == 403
    assert get(f"{host}?token={token}")[0] == 403


@pytest.mark.parametrize(
    "path",
    [
        "report/first/..%2f..%2fsecret.txt", "report/first/..%2fconfig.yaml", "report/..%2ffirst/index.html",
        "report/%2e%2e/secret.txt", "run/..%2f..", "run/%2e%2e", "report/first/%2fetc%2fpasswd", "secret.txt",
        "report/first/../../secret.txt", "first/config.yaml", "run/nothing", "report/killed/index.html",
    ],
)  # fmt: skip
def test_nothing_but_runs_and_their_reports_is_served(link, path):
    status, page = get(link + path)
    assert status == 404 and "secret" not in page.replace("secret.txt", "")


def test_the_server_only_reads(link):
    request = urllib.request.Request(f"{link}run/first", method="POST", data=b"")
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(request)


def test_a_run_has_a_page_with_its_report(link, folder):
    assert "report/first/index.html" in get(f"{link}run/first")[1]
    assert (
        get(f"{link}report/first/index.html")[1]
        == (folder / "first" / "report" / "index.html").read_text()
    )
    assert "report/killed" not in get(f"{link}run/killed")[1]


def test_what_runs_say_is_escaped(link):
    page = get(f"{link}run/killed")[1]
    assert HOSTILE.split("<")[0] in page and "<script>alert" not in page


def test_a_comparison_shows_settings_answers_and_scores(link):
    page = get(f"{link}compare?run=first&run=second&run=killed")[1]
    assert "<td>search.budget</td><td>0.5</td><td>0.8</td>" in page
    assert "second − first" in page and "no answer yet" in page and page.count(" ± ") > 6
    assert "Choose two or more" in get(f"{link}compare?run=first")[1]


@pytest.mark.browser
def test_runs_are_chosen_compared_and_followed(link, folder, tmp_path, width=400):
    live = folder / "live"
    make_run(tmp_path / "early", replace(SMALL, decisions=2))
    shutil.copytree(tmp_path / "early", live)
    with chromium() as browser:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme="dark")
        errors = complaints(page)
        page.goto(link)
        page.get_by_label("compare first").check()
        page.get_by_label("compare second").check()
        page.wait_for_timeout(4000)  # the list was read again meanwhile
        assert page.get_by_label("compare second").is_checked()
        assert page.evaluate("document.scrollingElement.scrollWidth") <= width
        page.get_by_role("button", name="Compare").click()
        page.get_by_text("first − second").wait_for()  # in the order of the list
        assert page.evaluate("document.scrollingElement.scrollWidth") <= width
        page.get_by_role("link", name="All runs").click()
        page.get_by_role("link", name=live.name).click()
        page.get_by_text("1 of 30 scores").wait_for()
        journal = (folder / "killed" / "journal.jsonl").read_bytes()
        for name in ("journal.mark", "config.yaml"):
            shutil.copy(folder / "killed" / name, live)
        (live / "journal.jsonl").write_bytes(journal)
        page.get_by_text("5 of 30 scores").first.wait_for(timeout=15_000)  # without a click
    shutil.rmtree(live)
    assert not errors
