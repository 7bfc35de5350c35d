"""One rule decides which candidate to use; terminal, page and notebook show every section of it."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace

import pytest

from daskmetrics.answer.comparison import compare_runs
from daskmetrics.answer.posterior import posterior_of
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.serialization import as_json
from daskmetrics.domain.failures import Failure
from daskmetrics.domain.names import Arm, Suite
from daskmetrics.domain.plan import Floor
from daskmetrics.execution import Journal
from daskmetrics.report import Run, index
from daskmetrics.report._format import apart, candidate
from daskmetrics.report.comparison import answers_table, compare_tables
from daskmetrics.report.explanation import explain_tables
from daskmetrics.report.lines import answer_lines
from daskmetrics.report.page import figures, folded_tables, page
from daskmetrics.report.status import status_lines
from daskmetrics.report.tables import short_tasks_table, tables, tasks_table
from daskmetrics.report.terminal import best_text, status_text, within_table
from tests.report.conftest import (
    SMALL,
    SUITES,
    TASKS,
    Story,
    invoke,
    make_run,
    mean_scores,
    text_of,
)

#: words that a newcomer does not know
JARGON = {"arm", "arms", "cell", "cells", "reward", "exhaustive", "assumed", "simplest"}
STORIES = {
    "tie": Story(outcomes=True, flat=True),
    "little": Story(outcomes=True, budget=0.09),
    "everything": replace(SMALL, outcomes=True, budget=1.0),
    "failures": Story(failing=("small@step8/2:stdlib:order",), warnings=("doubtful", "b")),
}


@pytest.fixture(scope="module", params=STORIES)
def run(request, tmp_path_factory) -> Run:
    """A finished run of every story."""
    return make_run(tmp_path_factory.mktemp("views") / "demo", STORIES[request.param])


def flat(text: str) -> str:
    """A text without the ends of its lines."""
    return " ".join(text.split())


def test_terminal_notebook_and_page_show_every_section(run):
    text, document, rows = best_text(run), page(run, []), dict(answer_lines(run.answer))
    for label, words in rows.items():
        assert f"{label} {words}" in flat(text)
    for table in tables(run.answer):
        assert table.as_text(100) in text
        assert replace(table, title="").as_html() in document
    lines = [line for line in text.splitlines() if "tmp" not in line]
    assert max(map(len, lines)) <= 100 and all(map(str.isprintable, lines))
    rows.pop("Use")
    cards = run.best()._repr_html_(), run._repr_html_()
    for shown in map(html.unescape, cards):
        shown = re.sub("</?span[^>]*>", "", shown).replace("\u00a0", " ")
        assert all(f">{label}</td>" in shown and words in shown for label, words in rows.items())
    assert cards[0] in document
    assert all(warning in document for warning in run.answer.warnings)


def test_the_answer_has_at_most_twelve_short_plain_lines(run):
    rows = dict(answer_lines(run.answer))
    assert len(rows) <= 12
    assert all(len(row.split()) <= 27 for row in rows.values())
    shown = best_text(run, in_short=True).replace(str(run.folder.path), "RUN")
    assert not JARGON & set(re.findall(r"\w+", shown.lower()))


def test_every_view_names_the_same_candidate(run):
    arm, folder = run.result.recommendation.arm, run.folder.path
    assert run.verdict.overall.arm == arm == run.best().arm == run.answer.best.arm
    views = [best_text(run, in_short=True), status_text(run), repr(run), repr(run.best())]
    views += [
        run.best()._repr_html_(),
        run._repr_html_(),
        within_table(run.answer, 0.01).as_text(100),
    ]
    assert all(candidate(arm, {}) in flat(view) for view in views)
    document = json.loads(invoke("best", folder, "--json").stdout)
    assert document == json.loads(as_json(run.answer))
    assert document["best"]["arm"] == document["verdict"]["overall"]["arm"] == str(arm)
    assert json.loads(invoke("status", folder, "--json").stdout)["best"] == str(arm)
    (columns,) = (row for row in answers_table({"run": run, "other": run}).rows if row[0] == "best")
    assert all(candidate(arm, {}) in text for text in columns[1:])
    (row,) = index.rows(folder.parent)
    assert row["arm"].startswith(str(arm))
    if run.answer.confirmed:
        assert run.leaderboard().arms[0].arm == arm
        assert mean_scores(run)[arm] == max(mean_scores(run).values())


def test_the_gain_is_over_the_last_layer_of_the_same_model(run):
    answer = run.answer
    last = {suite.model: suite for suite in SUITES}[answer.best.arm.model]
    assert answer.default.arm == Arm(last.model, last.revisions[-1], last.layers[-1])
    if answer.difference is not None:
        last_layer = "its last layer"
        if answer.best.arm.revision != answer.default.arm.revision:
            last_layer = "the last layer of its last checkpoint"
        gain = f"{apart(answer.difference)} over {last_layer}, {answer.relation}"
        shown, overall = dict(answer_lines(answer))["Gain"], answer.verdict.overall
        assert shown.startswith(gain)
        # another difference has an error of its own alone
        is_tested = answer.default.arm in overall.tied + overall.worse
        assert (f"{gain} of choosing among {overall.tested}" in shown) == is_tested


def test_only_the_last_layer_of_a_model_is_called_so(a_run):
    suites = [replace(suite, layers=(0, 1), readouts=("", "last")) for suite in SUITES]
    merits = dict.fromkeys(TASKS, (0.6, 0.5))
    answer = a_run(suites=tuple(suites), outcomes=True, budget=1.0, merits=merits).answer
    assert f" over {candidate(answer.default.arm, {})}, " in dict(answer_lines(answer))["Gain"]
    (models,) = (table for table in tables(answer) if table.title == "By model")
    assert [row[3].partition(" (")[2] for row in models.rows] == ["tiny@step8/1)", "small@step8/1)"]


def test_rows_say_what_the_answer_knows(finished):
    answer, overall = finished.answer, finished.verdict.overall
    tie = replace(finished.verdict, overall=replace(overall, open=1))
    tied = replace(answer, verdict=tie, sureness="a tie", probability=0.17, most_lost=None)
    rows = dict(answer_lines(tied))
    assert f"{answer.best.score:.3f} ± {answer.best.stderr:.3f}" in rows["Use"]
    assert str(overall.tested) in rows["Best of"] and "35" in rows["Best of"]
    assert f"{answer.scored} of 105" in rows["Cost"]
    assert f"{100 * answer.cost.share:.0f} %" in rows["Cost"]
    assert rows["Sure"].startswith("a tie: too few scores") and "1 with too few" in rows["Sure"]
    assert rows["Use"].startswith(f"any of {len(overall.tied)}") or len(overall.tied) < 2
    undefined = Failure("curvature", "nan", 2, "tiny@step0/0", "Not defined for one token.")
    failed = replace(undefined, kind="score")
    warned = replace(answer, unscored_models=("tiny",), warnings=("step2 cannot be read", "b"))
    rows = dict(answer_lines(replace(warned, failures=(undefined, failed))))
    assert "no layer of tiny" in rows["Best of"]
    assert "2 values" in rows["Check"]  # a score's; a metric may be undefined
    assert "2 warnings (step2 cannot" in rows["Check"]


def test_no_more_is_claimed_than_was_scored(a_run):
    answer = a_run(budget=0.09).answer
    rows = dict(answer_lines(answer))
    assert not answer.confirmed and answer.sureness is None
    assert f"scored on {len(answer.best.scores)} of 3 tasks" in rows["Use"]
    assert "none of 35 candidates" in rows["Best of"]
    assert rows["Decide"].endswith("--budget 1") and str(answer.folder) in rows["Decide"]


def test_the_best_of_every_task_is_in_a_short_table(finished):
    answer, parts = finished.answer, finished.verdict.parts
    rows = tasks_table(answer).rows
    assert [row[0] for row in rows] == ["all tasks", "classification", *TASKS]
    assert [row[1] for row in rows[1:]] == [str(part.arm) for part in parts]
    assert [row[0] for row in short_tasks_table(answer).rows] == [*TASKS]
    many = replace(answer, verdict=replace(finished.verdict, parts=4 * parts))
    short = short_tasks_table(many)
    assert len(short.rows) == 8 < len(tasks_table(many).rows) == 17
    assert short.notes[0].startswith("4 more tasks: daskmetrics best ")


def test_what_guessing_scores_stands_beside_each_score(finished):
    floors = (Floor(0.5), Floor(0.25, "largest class alone"), None)
    tasks = [
        replace(task, floor=floor) for task, floor in zip(finished.plan.tasks, floors, strict=True)
    ]
    table = tasks_table(replace(finished.answer, tasks=tasks))
    at = table.header.index("guess")
    assert [row[at] for row in table.rows] == ["", "0.375", "0.500", "0.250", ""]


def test_the_last_screen_leaves_out_what_best_adds(finished):
    shown = best_text(finished, in_short=True)
    labels = [line.split("  ")[0] for line in shown.splitlines()]
    assert "Use" in labels and not {"Best of", "Decide"} & {*labels}
    assert f"more        daskmetrics best {finished.folder.path}" in shown


def test_a_gain_over_some_of_the_tasks_is_marked(finished):
    answer = finished.answer
    assert not any("†" in " ".join(row) for row in tasks_table(answer).rows)
    scores = {TASKS[0]: answer.default.scores[TASKS[0]]}
    table = tasks_table(replace(answer, default=replace(answer.default, scores=scores)))
    marked = {row[0] for row in table.rows if row[3].endswith("†")}
    assert {"all tasks", TASKS[1]} <= marked and TASKS[0] not in marked
    assert table.notes[-2].startswith("†")


def test_an_unfinished_run_names_the_leader_and_what_is_open(a_run):
    run = a_run(decisions=20)
    rows = dict(status_lines(run, None))
    assert "19 of 105 scores" in rows["search"] and "1 open" in rows["search"]
    assert f"the best of the {len(run.means)} scored" in rows["best"] and "50 %" in rows["cost"]
    assert best_text(run, in_short=True) == status_text(run)
    with Journal(run.folder.journal, run.folder.lock):
        assert Run(run.folder.path).state.startswith("running, driven by process")


def test_equal_weights_are_shown_as_one_and_doubts_are_warnings(a_run):
    equal = {f"{suite.model}@{step}": ("main",) for suite in SUITES for step in suite.revisions}
    run = a_run(aliases=equal, warnings=("tiny: step2 cannot be read",))
    for shown in (status_text(run), page(run, [])):
        assert f"{run.best().arm.checkpoint} = main" in shown
        assert "tiny: step2 cannot be read" in shown
    assert explain_tables(run, "small@main/2") == explain_tables(run, "small@step8/2")


def test_the_page_is_a_link_and_opens_in_the_browser(a_run, monkeypatch):
    monkeypatch.setattr("daskmetrics.report.page.find_spec", lambda name: None)  # no pictures
    monkeypatch.setenv("BROWSER", "true %s")  # a command that takes the link and shows nothing
    folder, opened = a_run(tasks=()).folder, []
    link = (folder.report / "index.html").resolve().as_uri()
    output = invoke("report", folder.path, "--open").output
    assert f"{link}\n" in output and "No browser" not in output
    monkeypatch.setattr("webbrowser.open", lambda link: opened.append(link))
    output = invoke("report", folder.path, "--open").output
    assert "No browser could be started" in output and opened == [link]
    for option in ("--open", "--svg"):
        assert invoke("report", folder.path, option, "--format", "csv").exit_code == 2
    of_numbers = invoke("report", folder.path, "--output", folder.path / "x.csv")
    assert of_numbers.exit_code == 2 and "add --format csv" in of_numbers.output


def test_a_candidate_is_explained_by_rank_decisions_and_scores(finished):
    arms = posterior_of(finished).problem.arms
    about, scores, metrics = explain_tables(finished, str(finished.best().arm))
    rows = dict(about.rows)
    assert rows["rank"].startswith(f"1 of {len(arms)} ") and " decisions: " in rows["chosen"]
    assert [row[0] for row in scores.rows] == list(TASKS)
    assert all(row[1] == row[2] <= row[3] for row in scores.rows)  # the best one is the leader
    assert "curvature" in [row[0] for row in metrics.rows]
    paid = {pick.cell.arm for pick in finished.picks}
    never = next(arm for arm in arms if arm not in paid)
    about, scores, _ = explain_tables(finished, str(never))
    rows = dict(about.rows)
    assert rows["chosen"].startswith("never") and str(finished.best().arm) in rows["leader"]
    assert {row[1] for row in scores.rows} == {"no score"} != {row[2] for row in scores.rows}
    with pytest.raises(ConfigError, match=r"Did you mean 'small@step8/\d'"):
        explain_tables(finished, "small@step8/9")


def test_a_last_layer_without_its_scores_has_no_stated_loss(a_run):
    run = a_run(failing=("small@step8/3:stdlib:order",))
    about, _, _ = explain_tables(run, "small@step8/3")
    assert "has its scores" in about.as_text() and "expected to be" not in about.as_text()
    about, _, _ = explain_tables(run, "small@step8/1")
    assert "expected to be" in about.as_text()


def test_what_a_simpler_candidate_saves(finished):
    simpler = finished.verdict.cheaper(0.3)
    rows = dict(within_table(finished.answer, 0.3).rows)
    for fact in (candidate(simpler.arm, {}), f"{simpler.most_lost:.3f}"):
        assert fact in rows["Cheaper"]
    assert "none loses" in dict(within_table(finished.answer, 1e-9).rows)["Cheaper"]
    for share in ("-1%", "much", "100%"):
        done = invoke("best", finished.folder.path, f"--within={share}")
        assert done.exit_code == 2 and "write 1% or 0.01" in done.output


def test_every_view_has_the_names_of_layers(a_run):
    layers = ("stem", "block/1", "block/2", "head")
    own = Suite("own", ("step4", "step8"), (0, 1, 2, 3), 3, ("", "16d"), layers)
    run = a_run(suites=(*SMALL.suites, own), tasks=SMALL.tasks, budget=1.0)
    folder = run.folder.path
    shown = {
        "answer": best_text(run),
        "decisions": text_of(*folded_tables(run).values()),
        "comparison": invoke(
            "compare", folder, "--arms", "own@step8/block/1", "own@step8/stem/16d"
        ).stdout,
        "explanation": invoke("best", folder, "--arm", "own@step4/head").stdout,
        "trade-offs": invoke("best", folder, "--pareto").stdout,
        "runs": text_of(*compare_tables(run, run, compare_runs(run, run))),
        "index": str(index.rows(folder.parent)),
        "page": page(run, ()),
    }
    for view, text in shown.items():
        assert re.search("own@step[0-9]+/(stem|block/[12]|head)", text), view
        assert not re.search("own@step[0-9]+/[0-9]", text), view
    # by the number, as records name it, it is the same candidate
    numbered = invoke("best", folder, "--arm", "own@step4/3").stdout
    assert numbered == shown["explanation"]
    wrong = invoke("best", folder, "--arm", "own@step4/haed")
    assert "Did you mean 'own@step4/head" in wrong.output
    assert set(run.to_frame()["layer"]) == {*layers, 0, 1, 2}
    axes = figures(run)["data"]["models"]
    assert axes["own"]["layers"] == axes["own"]["names"] == list(enumerate(layers))
    assert axes["tiny"]["names"] == []
