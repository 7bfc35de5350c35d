"""Two candidates, and two runs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from daskmetrics.answer.comparison import ArmComparison, compare_named, compare_runs
from daskmetrics.core.errors import DataError
from daskmetrics.domain.names import Arm, Suite
from daskmetrics.domain.scores import Scores
from daskmetrics.report.comparison import compare_tables
from tests.report.conftest import Story, invoke, make_run

LANGUAGES = "mteb:STS17"


def test_two_candidates_are_compared_by_task_and_weighted_mean(a_run):
    paired = a_run(outcomes=True)
    answer = paired.answer
    best, default = answer.best.arm, answer.default.arm
    pair = str(best), str(default)
    compared, back = compare_named(paired, *pair), compare_named(paired, *pair[::-1])
    assert compared.difference == answer.difference and compared.difference.value > 0
    assert back.difference.value == pytest.approx(-compared.difference.value)
    assert back.difference.stderr == pytest.approx(compared.difference.stderr)
    (table,) = compare_tables(paired, paired, compared)
    assert [row[0] for row in table.rows] == list(answer.differences)
    assert table.title.endswith(f"{answer.relation}.")  # the words of the verdict
    tasks = {task: gap for task, gap in compared.tasks.items() if task != "stdlib:order"}
    partly = ArmComparison.of(best, default, tasks, paired.weights)
    assert compare_tables(paired, paired, partly)[0].title.endswith(" (on 2 of 3 tasks).")
    tasks = [replace(task, weight=float(task.name == "stdlib:order")) for task in paired.plan.tasks]
    paired.plan = replace(paired.plan, tasks=tuple(tasks))
    compared = compare_named(paired, *pair)
    assert compared.difference.value == pytest.approx(compared.tasks["stdlib:order"].value)


def test_candidates_without_a_common_task_cannot_be_compared(a_run):
    run = a_run(decisions=20)
    one, other = list(run.recorded)[:2]
    apart = {one: {"stdlib:order": {}}, other: {"stdlib:package": {}}}
    run.recorded = Scores(apart, run.recorded.tasks)
    with pytest.raises(DataError, match="no scored task in common"):
        compare_named(run, str(one), str(other))
    assert not run.differences(Arm("nothing", "main", 0), one)


def test_two_runs_have_answers_common_scores_and_settings(finished, a_run):
    other = a_run(budget=0.8, flat=True)
    compared, shared = compare_runs(finished, other), compare_runs(finished, other).shared
    ours, theirs = (
        {(arm, task): score.score for arm, of in run.recorded.items() for task, score in of.items()}
        for run in (finished, other)
    )
    gaps = {cell: theirs[cell] - ours[cell] for cell in ours.keys() & theirs}
    assert shared.cells == len(gaps) and abs(shared.greatest) == max(map(abs, gaps.values()))
    assert shared.greatest == gaps[shared.at.arm, shared.at.task]
    assert shared.mean == pytest.approx(sum(gaps.values()) / len(gaps))
    answers, scores, agreement, settings = compare_tables(finished, other, compared)
    assert {"candidates", "cost", "gain"} <= {row[0] for row in answers.rows}
    assert [row[0] for row in scores.rows] == list(finished.kinds)
    assert dict(agreement.rows)["in common"] == str(shared.cells)
    assert settings.rows == [("search.budget", "0.5", "0.8")]


def test_a_run_is_like_itself_and_unlike_an_unfinished_one(finished, a_run):
    alike = compare_runs(finished, finished)
    assert not alike.settings and (alike.shared.mean, alike.shared.greatest) == (0, 0)
    assert alike.shared.rho == pytest.approx(1)
    unfinished = a_run(decisions=5)
    compared = compare_runs(finished, unfinished)
    assert compared.best_arms is None and compared.shared.cells <= 4
    assert compare_tables(finished, unfinished, compared)


def test_models_whose_names_differ_in_case_are_not_mixed_up(tmp_path):
    steps = ("step0", "step8")
    suites = tuple(Suite(name, steps, (0, 1, 2), 2) for name in ("Tiny", "tiny"))
    run = make_run(tmp_path / "run", Story(suites=suites, budget=1.0))
    assert compare_runs(run, run).shared.greatest == 0


def test_one_run_alone_is_not_compared(finished):
    done = invoke("compare", finished.folder.path)
    assert done.exit_code == 2 and "Give a second RUN, or two candidates" in done.output


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Small runs on a task of mteb, over one subset or several."""

    @cache
    def make(*subsets):
        suites = (Suite("tiny", ("step0", "step8"), (0, 1, 2), 2),)
        story = Story(suites, tasks=(LANGUAGES,), subsets=subsets, budget=1.0, trained=False)
        return make_run(tmp_path_factory.mktemp("subsets") / "run", story)

    return make


def test_a_run_of_more_subsets_is_reduced_to_those_of_the_other(runs):
    one, two = runs("eng"), runs("eng", "deu")
    compared = compare_runs(one, two)
    assert compared.shared.mean == pytest.approx(-0.05, abs=0.01) and not compared.left_out
    assert not compared.best_arms.tasks  # whose scores are means of different subsets
    back = compare_runs(two, one)
    assert back.shared.cells == 0 and len(back.left_out) == two.compared.size
    assert all("has no score of deu" in reason for reason in back.left_out)
