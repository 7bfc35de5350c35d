from __future__ import annotations

import webbrowser
from dataclasses import replace
from functools import partial

import pytest

from daskmetrics.answer import analysis
from daskmetrics.core.failures import Failure
from daskmetrics.core.names import grid
from daskmetrics.core.outcomes import Difference
from daskmetrics.execution import Journal
from daskmetrics.report import Run, best_text, status_text, whereabouts
from daskmetrics.report._format import answer_rows
from daskmetrics.report._sections import MOST_ROWS, tasks_table
from daskmetrics.report.page import page
from tests.report.conftest import STEPS, SUITES, TASKS, invoke, mean_scores

ALL = grid(SUITES)
TEXTS = (status_text, partial(best_text, in_short=True))
#: that a newcomer does not know
JARGON = ("arm", "cell", "reward", "exhaustive", "assumed", "simplest", "told from")


@pytest.mark.parametrize("text", [*TEXTS, best_text])
def test_no_line_is_too_wide_and_no_control_character_gets_through(finished, text):
    lines = text(finished).splitlines()
    assert all(len(line) <= 100 for line in lines if "tmp" not in line)
    assert all(line.isprintable() for line in lines)


STORIES = {
    "suite": {"outcomes": True},
    "tie": {"flat": True, "outcomes": True},
    "everything": {"outcomes": True, "budget": 1.0},
    "little": {"outcomes": True, "budget": 0.09},
    "failures": {"failing": ("small@step8/2:stdlib:order",), "warnings": ("a", "b")},
}


@pytest.mark.parametrize("story", STORIES)
def test_the_answer_has_at_most_twelve_rows_of_plain_words_in_short_sentences(a_run, story):
    run = a_run(**STORIES[story])
    rows = answer_rows(run.answer)
    labels = "Use, Best of, Gain, Sure, Cheaper, Per task, Fresh, Check, Cost, Save, Decide"
    order = labels.split(", ")
    assert list(rows) == [label for label in order if label in rows] and len(order) <= 12
    text = best_text(run, in_short=True)
    assert text.startswith("Use ")
    shown = " ".join(text.replace(str(run.folder.path), "RUN").lower().split())
    assert not [word for word in JARGON if f" {word}" in shown]
    for row in rows.values():
        assert len(row.split()) <= 25
    for view in (best_text(run), run.best()._repr_html_(), run._repr_html_()):
        assert all(label in view for label in rows)


def test_the_summary_has_the_numbers_of_the_answer(finished):
    text, answer = best_text(finished, in_short=True), finished.answer
    assert f"{answer.best.score:.3f} ± {answer.best.stderr:.3f}" in text.splitlines()[0]
    assert f"{finished.result.cells} of 105 scores" in text
    assert f"about {answer.cost.share:.0%}".replace("%", " %") + " of the time" in text
    assert f"best {finished.folder.path} --save my-encoder" in text
    assert f"the {answer.verdict.overall.tested} scored on every task, of 35 candidates" in text
    use, gain = str(finished.best()).splitlines()
    assert use in " ".join(text.split()) and gain in " ".join(text.split())


def test_no_more_is_claimed_than_was_scored(a_run):
    run = a_run(budget=0.09)
    answer, scored = run.answer, len(run.answer.best.scores)
    assert not answer.confirmed and 0 < scored < 3 and answer.sureness is None
    for shown in (best_text(run, in_short=True), run.best()._repr_html_()):
        assert f"the best so far, scored on {scored} of 3 tasks" in " ".join(shown.split())
    rows = answer_rows(answer)
    assert "none of 35 candidates" in rows["Best of"] and "too few scores" in rows["Sure"]
    assert rows["Decide"].endswith("--budget 1") and str(run.folder.path) in rows["Decide"]
    everything = replace(answer.verdict.overall, worse=ALL[1:], tied=ALL[:1])
    verdict = replace(answer.verdict, overall=everything)
    assert answer_rows(replace(answer, verdict=verdict))["Best of"] == "all 35 candidates"


def test_the_words_for_how_sure_it_is(finished):
    overall = replace(finished.answer.verdict.overall, open=2)
    verdict = replace(finished.answer.verdict, overall=overall)
    answer = replace(finished.answer, sureness="a tie", probability=0.17, verdict=verdict)
    sure = answer_rows(answer)["Sure"]
    assert sure.startswith("a tie: 17 % chance") and "2 have too few" in sure
    assert answer_rows(replace(answer, sureness=None))["Sure"].startswith("17 %")


def test_what_would_decide_a_tie_is_a_number_of_items(finished):
    overall = finished.answer.verdict.overall
    rival = next(arm for arm in (*overall.tied, *overall.worse) if arm != overall.arm)
    lead = Difference(0.01, 0.02, paired=True)
    tied = replace(overall, tied=(overall.arm, rival), next=rival, lead=lead, critical=2.0)
    assert tied.items_to_decide == pytest.approx(16.0)
    assert replace(tied, tied=(overall.arm,)).items_to_decide is None
    assert replace(tied, lead=Difference(0.0, 0.02, paired=True)).items_to_decide is None


def test_failures_and_warnings_are_one_row_and_undefined_metrics_are_none(finished):
    answer = replace(finished.answer, warnings=("tiny: step2 cannot be read", "b"))
    check = answer_rows(answer)["Check"]
    assert "2 values missing (ValueError" in check and "2 warnings (tiny: step2" in check
    undefined = Failure("curvature", "nan", 2, "tiny@step0/0", "Not defined for one token.")
    assert "Check" not in answer_rows(replace(answer, failures=(undefined,), warnings=()))
    without_score = replace(undefined, kind="score")
    assert "Check" in answer_rows(replace(answer, failures=(without_score,), warnings=()))


def test_the_best_of_every_kind_and_task_is_in_a_table_of_at_most_eight_rows(finished):
    rows = tasks_table(finished.answer, MOST_ROWS).rows
    assert [row[0] for row in rows] == ["all tasks", "classification", *TASKS]
    assert [row[1] for row in rows[1:]] == [str(part.arm) for part in finished.verdict.parts]
    verdict = replace(finished.verdict, parts=4 * finished.verdict.parts)
    many = replace(finished.answer, verdict=verdict)
    assert len(tasks_table(many, MOST_ROWS).rows) == 8
    assert len(tasks_table(many).rows) == 17


def test_a_result_without_kinds_of_tasks_is_read(a_run):
    run = a_run()
    run.result = replace(run.result, kinds=[])
    assert "classification" in best_text(run, in_short=True)


def test_mean_scores_are_over_the_tasks_of_the_objective(a_run):
    run = a_run(objective="retrieval")
    best, default = run.answer.best, run.answer.default
    assert len(best.scores) == 3
    assert best.score == best.scores["stdlib:retrieval"].score == analysis.leader(run)[1][0]
    assert run.answer.difference.value == pytest.approx(best.score - default.score)
    assert "(stdlib:retrieval)" in best_text(run, in_short=True).splitlines()[0]


def test_the_text_of_an_unfinished_run_names_the_leader(a_run):
    run = a_run(decisions=20)
    means = mean_scores(run)
    for text in TEXTS:
        assert "run the same command again to resume" in text(run) and "1 open" in text(run)
        assert f"the best of the {len(means)} scored so far" in text(run)
    assert "budget: 50 %" in status_text(run)
    assert "10 done of 10 checkpoints, 19 of 105 scores" in repr(run)
    with Journal(run.folder.journal, run.folder.lock):
        assert "running, driven by process" in status_text(Run(run.folder.path))


def test_a_run_without_tasks(a_run):
    run = a_run(tasks=())
    for text in TEXTS:
        assert "none: the run has no tasks" in text(run)
    assert "finished, 10 done of 10 checkpoints, none: the run has no tasks" in repr(run)


def test_nothing_measured_yet(a_run):
    failing = tuple(
        f"{model}@step{step}" for model in ("tiny", "small") for step in (0, 1, 2, 4, 8)
    )
    run = a_run(tasks=(), failing=failing, trained=False)
    assert "10 error" in status_text(run) and "time        none" in status_text(run)


def test_the_page_is_a_link_and_opens_in_the_browser(a_run, monkeypatch):
    opened = []
    monkeypatch.setenv("BROWSER", "true %s")  # a command that takes the link and shows nothing
    run = a_run()
    page = run.folder.report / "index.html"
    assert "file://" not in whereabouts(run.folder)

    report = partial(invoke, "report", run.folder.path, "--open")
    done = report()
    assert done.exit_code == 0, done.output
    link = f"page        {page.resolve().as_uri()}\n"
    assert done.output.count(link) == 1 and "No browser" not in done.output
    monkeypatch.setattr(webbrowser, "open", lambda link: opened.append(link))
    assert "No browser could be started" in report().output
    assert opened == [page.resolve().as_uri()]
    done = report("--format", "csv")
    assert done.exit_code == 2 and "omit one of them" in done.output


def test_equal_weights_are_shown_as_one_and_doubts_are_warnings(a_run):
    aliases = {
        f"{model}@{step}": ("step9", "main") for model in ("tiny", "small") for step in STEPS
    }
    doubts = ("tiny: step2 cannot be read", "stdlib:order: 3 texts are empty (line 7: '!').")
    run = a_run(aliases=aliases, warnings=doubts)
    names = f"{run.best().arm.checkpoint} = step9 = main"
    assert names in status_text(run) and names in page(run, [])
    assert all(f"warning     {doubt}" in status_text(run) for doubt in doubts)
    assert "tiny: step2 cannot be read" in page(run, [])


def test_the_score_of_the_answer_is_over_all_tasks_also_where_the_default_lacks_some(a_run):
    failing = ("tiny@step0", "small@step8/1:stdlib:package", "small@step8/3:stdlib:order")
    answer = a_run(failing=failing, outcomes=True).answer
    assert answer.confirmed and answer.best.scores.keys() != answer.default.scores.keys()
    mean = sum(score.score for score in answer.best.scores.values()) / 3
    assert f"score {mean:.3f} ± " in answer_rows(answer)["Use"]
