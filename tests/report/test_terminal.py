from __future__ import annotations

import re
import webbrowser
from dataclasses import replace

import pytest
from click.testing import CliRunner

from daskmetrics.cli import main
from daskmetrics.execution import Journal
from daskmetrics.report import Run, best_text, status_text, summary_text, whereabouts
from daskmetrics.report import _analysis as analysis
from daskmetrics.report._format import apart
from daskmetrics.report._html import page
from tests.report.conftest import STEPS

TEXTS = (status_text, summary_text)


@pytest.mark.parametrize("text", [*TEXTS, best_text])
def test_no_line_is_too_wide_and_no_control_character_gets_through(finished, text):
    lines = text(finished).splitlines()
    assert all(len(line) <= 100 for line in lines if "tmp" not in line and "=" not in line)
    assert all(line.isprintable() for line in lines)


def test_the_summary_gives_the_answer_its_confidence_and_its_price(finished):
    text, best = summary_text(finished), finished.best()
    assert f"best        {best.arm}" in text and f"default     {best.default}" in text
    assert f"{best.score:.3f} ± {best.stderr:.3f}" in text
    assert "probability that no other arm is better on these tasks" in " ".join(text.split())
    assert f"{finished.result.cells} of 105 cells scored" in text and "1 failed" in text
    assert f"{best.share:.0%}".replace("%", " %") + " of the exhaustive sweep's cost" in text
    assert "train 10 s, measure 9.0 s, encode" in text
    for task in finished.tasks:
        assert f"\n{task}" in text and f"\n# {task}" in best_text(finished)


def test_the_best_arm_of_every_kind_and_task_is_below_the_scores(finished):
    text = summary_text(finished)
    below = text[text.index("gain over the default") :]
    for part in finished.verdict.parts:
        assert re.search(rf"\n{re.escape(part.title)} +{re.escape(str(part.arm))}", below)


def test_a_result_without_kinds_of_tasks_is_read(a_run):
    run = a_run()
    run.result = replace(run.result, kinds=[])
    assert "gain over the default" in summary_text(run)


def test_an_arm_that_was_not_scored_on_every_task_is_not_called_the_best(a_run):
    run = a_run(budget=0.09)
    best, text = run.best(), summary_text(run)
    assert not best.confirmed and best.measured is None and 0 < len(best.scores) < 3
    assert f"best so far {best.arm}" in text and run.headline.startswith("best arm so far ")
    for shown in (" ".join(text.split()), run.headline, best._repr_html_(), page(run, [])):
        assert f"scored on {len(best.scores)} of 3 tasks" in shown


def test_an_arm_that_was_scored_on_every_task_is_the_best_of_these(a_run):
    run = a_run()
    best, text = run.best(), " ".join(summary_text(run).split())
    means = analysis.mean_scores(run)
    assert best.measured == pytest.approx(means[best.arm]) == max(means.values())
    assert "the greatest mean score of the arms that the search scored on every task" in text
    assert "xpected to be the best" not in text + page(run, []) and "units of the reward" not in text
    listed = [each["measured"] for each in run.result.top if each["measured"] is not None]
    assert len(listed) > 1 and listed == sorted(listed, reverse=True)
    assert all(f">{value:.3f}" in page(run, []) for value in listed)


def test_mean_scores_are_over_the_tasks_of_the_objective(a_run):
    run = a_run(objective="retrieval")
    best = run.best()
    assert best.shared == ("stdlib:retrieval",) and len(best.scores) == 3
    assert best.score == best.scores["stdlib:retrieval"]["score"] == analysis.leader(run)[1]
    assert best.gain.value == pytest.approx(best.score - best.default_score)
    assert "mean of 1 task" in summary_text(run)


def test_a_gain_beyond_the_error_is_reported_as_one(finished):
    assert finished.best().relation == "beyond the error"
    assert f"{apart(finished.best().gain)}, beyond the error." in " ".join(summary_text(finished).split())


def test_a_gain_within_the_error_is_reported_as_one(a_run):
    run = a_run(flat=True)
    assert run.best().arm == run.best().default or ", within the error." in summary_text(run)


def test_failures_have_a_count_a_reason_and_an_example(finished):
    for text in TEXTS:
        assert "1 x measure, error: ValueError: <script>alert('x')</script>" in text(finished)
        assert "tiny@step0" in text(finished)


def test_the_text_of_an_unfinished_run_names_the_leader(a_run):
    run = a_run(decisions=20)
    for text in TEXTS:
        assert "run the same command again to resume" in text(run) and "1 open" in text(run)
        assert "the greatest among the arms scored on every task" in text(run)
    assert "so far (assumed); the budget is 50 %" in status_text(run)
    assert run.headline.startswith("unfinished, 10 of 10 checkpoints measured, 19 of 105 cells")


def test_a_running_run_names_its_driver(a_run):
    run = a_run(decisions=20)
    with Journal(run.folder.journal, run.folder.lock):
        assert "running, driven by process" in status_text(Run(run.folder.path))


def test_a_run_without_tasks(a_run):
    run = a_run(tasks=())
    for text in TEXTS:
        assert "none: the run has no tasks" in text(run)
    assert run.headline == "finished, 10 of 10 checkpoints measured, no tasks to search"


def test_nothing_measured_yet(a_run):
    checkpoints = tuple(f"tiny@step{step}" for step in (0, 1, 2, 4, 8))
    run = a_run(tasks=(), failing=(*checkpoints, *(c.replace("tiny", "small") for c in checkpoints)), trained=False)
    assert "10 error" in status_text(run) and "time        none" in status_text(run)


def test_the_best_text_is_python(finished):
    compile(best_text(finished), "best", "exec")


def test_the_repr_and_the_locations_of_files(finished):
    assert repr(finished).startswith("<Run ") and "best arm" in repr(finished)
    assert "journal.jsonl" in whereabouts(finished.folder) and "store.zarr" in whereabouts(finished.folder)


def test_the_page_is_a_link_and_opens_in_the_browser(a_run, monkeypatch):
    opened = []
    monkeypatch.setenv("BROWSER", "true %s")  # a command that takes the link and shows nothing
    run = a_run()
    page = run.folder.report / "index.html"
    assert "file://" not in whereabouts(run.folder)
    done = CliRunner().invoke(main, ["report", str(run.folder.path), "--open"])
    assert done.exit_code == 0, done.output
    assert f"report      {page.resolve().as_uri()}\n" in done.output and "No browser" not in done.output
    monkeypatch.setattr(webbrowser, "open", lambda link: opened.append(link))
    assert "No browser could be started" in CliRunner().invoke(main, ["report", str(run.folder.path), "--open"]).output
    assert opened == [page.resolve().as_uri()]
    done = CliRunner().invoke(main, ["report", str(run.folder.path), "--open", "--format", "csv"])
    assert done.exit_code == 2 and "omit one of them" in done.output


def test_equal_weights_are_shown_as_one_and_doubts_are_warnings(a_run):
    aliases = {f"{model}@{step}": ("step9", "main") for model in ("tiny", "small") for step in STEPS}
    doubts = ("tiny: step2 lies out of order", "stdlib:order: 3 texts are empty (line 7: '!').")
    run = a_run(aliases=aliases, warnings=doubts)
    names = f"{run.best().arm.checkpoint} = step9 = main"
    for text in (status_text(run), summary_text(run), best_text(run), page(run, [])):
        assert names in text
    for text in (status_text(run), summary_text(run)):
        assert all(f"warning     {doubt}" in text for doubt in doubts)
    assert "tiny: step2 lies out of order" in page(run, [])
