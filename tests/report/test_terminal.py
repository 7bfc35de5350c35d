from __future__ import annotations

import webbrowser
from dataclasses import replace

import pytest
from click.testing import CliRunner

from daskmetrics.answer import analysis
from daskmetrics.cli import main
from daskmetrics.execution import Journal
from daskmetrics.report import Run, best_text, status_text, summary_text, whereabouts
from daskmetrics.report._sections import MOST_ROWS, tasks_section
from daskmetrics.report.page import page
from tests.report.conftest import STEPS, TASKS

TEXTS = (status_text, summary_text)


@pytest.mark.parametrize("text", [*TEXTS, best_text])
def test_no_line_is_too_wide_and_no_control_character_gets_through(finished, text):
    lines = text(finished).splitlines()
    assert all(len(line) <= 100 for line in lines if "tmp" not in line)
    assert all(line.isprintable() for line in lines)


def test_the_summary_gives_the_answer_in_at_most_twelve_lines(finished):
    text, answer = summary_text(finished), finished.answer
    lines = text.split("\n\n")[0].splitlines()
    assert len(lines) <= 12 and lines[0].startswith("Use ")
    assert f"{answer.best.score:.3f} ± {answer.best.stderr:.3f}" in lines[0]
    assert f"{finished.result.cells} of 105 scores" in text
    assert f"{answer.cost.share:.0%}".replace("%", " %") + " of the cost of scoring" in text
    assert answer.sureness in text and "best().save(" in text


def test_the_best_arm_of_every_kind_and_task_is_in_a_table_of_at_most_eight_rows(finished):
    rows = tasks_section(finished.answer, MOST_ROWS).table.rows
    assert [row[0] for row in rows] == ["all tasks", "classification", *TASKS]
    assert [row[1] for row in rows[1:]] == [str(part.arm) for part in finished.verdict.parts]
    verdict = replace(finished.verdict, parts=4 * finished.verdict.parts)
    many = replace(finished.answer, verdict=verdict)
    assert len(tasks_section(many, MOST_ROWS).table.rows) == 8
    assert len(tasks_section(many).table.rows) == 17


def test_a_result_without_kinds_of_tasks_is_read(a_run):
    run = a_run()
    run.result = replace(run.result, kinds=[])
    assert "classification" in summary_text(run)


def test_an_arm_that_was_not_scored_on_every_task_is_not_called_the_best(a_run):
    run = a_run(budget=0.09)
    answer, text = run.answer, " ".join(summary_text(run).split())
    scored = len(answer.best.scores)
    assert not answer.confirmed and 0 < scored < 3 and answer.sureness is None
    assert run.headline.endswith("the best so far")
    for shown in (text, run.best()._repr_html_(), page(run, [])):
        assert f"the best so far, scored on {scored} of 3 tasks" in shown


def test_an_arm_that_was_scored_on_every_task_is_the_best_of_these(a_run):
    run = a_run()
    means = analysis.mean_scores(run)
    assert run.answer.confirmed and run.answer.best.score == max(means.values())
    assert "so far" not in summary_text(run) and "units of the reward" not in best_text(run)


def test_mean_scores_are_over_the_tasks_of_the_objective(a_run):
    run = a_run(objective="retrieval")
    best, default = run.answer.best, run.answer.default
    assert len(best.scores) == 3
    assert best.score == best.scores["stdlib:retrieval"].score == analysis.leader(run)[1]
    assert run.answer.difference.value == pytest.approx(best.score - default.score)
    assert "mean of 1 task" in summary_text(run)


def test_the_certainty_names_the_test_and_why_the_search_ended(finished, a_run):
    text = " ".join(best_text(finished).split())
    assert "all pairs of the 3 candidates scored on all tasks, as independent where" in text
    assert "everything was scored" in best_text(a_run(budget=1.0))


def test_failures_have_a_count_a_reason_and_an_example(finished):
    for text in TEXTS:
        assert "1 x measure, error: ValueError: <script>alert('x')</script>" in text(finished)
        assert "tiny@step0" in text(finished)


def test_the_text_of_an_unfinished_run_names_the_leader(a_run):
    run = a_run(decisions=20)
    for text in TEXTS:
        assert "run the same command again to resume" in text(run) and "1 open" in text(run)
        assert str(analysis.leader(run)[0]) in text(run)
    assert "so far (assumed); budget: 50 %" in status_text(run)
    assert run.headline.startswith("unfinished, 10 of 10 checkpoints measured, 19 of 105 scores")


def test_a_running_run_names_its_driver(a_run):
    run = a_run(decisions=20)
    with Journal(run.folder.journal, run.folder.lock):
        assert "running, driven by process" in status_text(Run(run.folder.path))


def test_a_run_without_tasks(a_run):
    run = a_run(tasks=())
    for text in TEXTS:
        assert "none: the run has no tasks" in text(run)
    assert run.headline == "finished, 10 of 10 checkpoints measured, no tasks"


def test_nothing_measured_yet(a_run):
    checkpoints = tuple(f"tiny@step{step}" for step in (0, 1, 2, 4, 8))
    run = a_run(
        tasks=(),
        failing=(*checkpoints, *(c.replace("tiny", "small") for c in checkpoints)),
        trained=False,
    )
    assert "10 error" in status_text(run) and "time        none" in status_text(run)


def test_the_repr_and_the_locations_of_files(finished):
    assert repr(finished).startswith("<Run ") and finished.headline in repr(finished)
    assert "journal.jsonl" in whereabouts(finished.folder) and "store.zarr" in whereabouts(
        finished.folder
    )


def test_the_page_is_a_link_and_opens_in_the_browser(a_run, monkeypatch):
    opened = []
    monkeypatch.setenv("BROWSER", "true %s")  # a command that takes the link and shows nothing
    run = a_run()
    page = run.folder.report / "index.html"
    assert "file://" not in whereabouts(run.folder)
    done = CliRunner().invoke(main, ["report", str(run.folder.path), "--open"])
    assert done.exit_code == 0, done.output
    assert (
        f"report      {page.resolve().as_uri()}\n" in done.output
        and "No browser" not in done.output
    )
    monkeypatch.setattr(webbrowser, "open", lambda link: opened.append(link))
    assert (
        "No browser could be started"
        in CliRunner().invoke(main, ["report", str(run.folder.path), "--open"]).output
    )
    assert opened == [page.resolve().as_uri()]
    done = CliRunner().invoke(main, ["report", str(run.folder.path), "--open", "--format", "csv"])
    assert done.exit_code == 2 and "omit one of them" in done.output


def test_equal_weights_are_shown_as_one_and_doubts_are_warnings(a_run):
    aliases = {
        f"{model}@{step}": ("step9", "main") for model in ("tiny", "small") for step in STEPS
    }
    doubts = ("tiny: step2 cannot be read", "stdlib:order: 3 texts are empty (line 7: '!').")
    run = a_run(aliases=aliases, warnings=doubts)
    names = f"{run.best().arm.checkpoint} = step9 = main"
    for text in (status_text(run), summary_text(run), page(run, [])):
        assert names in text
    for text in (status_text(run), summary_text(run)):
        assert all(f"warning     {doubt}" in text for doubt in doubts)
    assert "tiny: step2 cannot be read" in page(run, [])
