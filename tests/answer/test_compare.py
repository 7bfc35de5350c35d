"""Two candidates, two runs, and a run beside published scores."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from daskmetrics.answer.comparison import (
    compare_arms,
    compare_named,
    compare_published,
    compare_runs,
    known_scores,
)
from daskmetrics.core.errors import DataError
from daskmetrics.core.names import Arm, Cell, Suite
from daskmetrics.experiment.score_tables import KnownScore
from daskmetrics.report.sections import compare_tables
from tests.report.conftest import Story, invoke, make_run

LANGUAGES = "mteb:STS17"


def test_two_candidates_are_compared_by_task_and_by_a_mean_with_the_weights_of_the_search(a_run):
    paired = a_run(outcomes=True)
    answer = paired.answer
    best, default = answer.best.arm, answer.default.arm
    compared, back = compare_arms(paired, best, default), compare_arms(paired, default, best)
    assert compared.difference == answer.difference and compared.difference.value > 0
    assert back.difference.value == pytest.approx(-compared.difference.value)
    assert back.difference.stderr == pytest.approx(compared.difference.stderr)
    (table,) = compare_tables(paired, paired, compared)
    assert [row[0] for row in table.rows] == list(answer.differences)
    assert table.title.endswith(f"{answer.relation}.")  # the words of the verdict
    partly = compare_arms(paired, best, default, left_out=["stdlib:order"])
    assert compare_tables(paired, paired, partly)[0].title.endswith(" (on 2 of 3 tasks).")
    paired.config["search"] |= {"objective": "stdlib:order"}
    compared = compare_arms(paired, best, default)
    assert compared.difference.value == pytest.approx(compared.tasks["stdlib:order"].value)


def test_candidates_without_a_common_task_cannot_be_compared(a_run):
    run = a_run(decisions=20)
    one, other = list(run.recorded)[:2]
    run.recorded[one], run.recorded[other] = {"stdlib:order": {}}, {"stdlib:package": {}}
    with pytest.raises(DataError, match="no scored task in common"):
        compare_named(run, str(one), str(other))
    assert not run.differences(Arm("nothing", "main", 0), one)


def test_two_runs_have_answers_common_scores_and_different_settings(finished, a_run):
    other = a_run(budget=0.8, flat=True)
    compared, shared = compare_runs(finished, other), compare_runs(finished, other).shared
    ours, theirs = known_scores(finished), known_scores(other)
    gaps = {cell: theirs[cell].score - ours[cell].score for cell in ours.keys() & theirs}
    assert shared.cells == len(gaps) and abs(shared.greatest) == max(map(abs, gaps.values()))
    assert shared.greatest == gaps[shared.at]
    assert shared.mean == pytest.approx(sum(gaps.values()) / len(gaps))
    answers, scores, agreement, settings = compare_tables(finished, other, compared)
    assert {"candidates", "cost", "gain"} <= {row[0] for row in answers.rows}
    assert [row[0] for row in scores.rows] == list(finished.tasks)
    assert dict(agreement.rows)["in common"] == str(shared.cells)
    assert settings.rows == [("search.budget", "0.5", "0.8")]


def test_a_run_is_like_itself_and_an_unfinished_one_can_be_compared(finished, a_run):
    alike = compare_runs(finished, finished)
    assert not alike.settings and (alike.shared.mean, alike.shared.greatest) == (0, 0)
    assert alike.shared.rho == pytest.approx(1)
    unfinished = a_run(decisions=5)
    compared = compare_runs(finished, unfinished)
    assert compared.best_arms is None and compared.shared.cells <= 4
    assert compare_tables(finished, unfinished, compared)


def test_models_whose_names_differ_in_case_alone_are_not_mixed_up(tmp_path):
    steps = ("step0", "step8")
    suites = tuple(Suite(name, steps, (0, 1, 2), 2) for name in ("Tiny", "tiny"))
    run = make_run(tmp_path / "run", Story(suites=suites, budget=1.0))
    assert compare_runs(run, run).shared.greatest == 0
    org = {
        Cell(replace(cell.arm, model=f"org/{cell.arm.model}"), cell.task): score
        for cell, score in known_scores(run).items()
    }
    with pytest.raises(DataError, match="share no score"):
        compare_published(run, org, "table.csv")


def test_published_scores_are_matched_whatever_the_case_of_the_model(finished):
    published = {}
    for cell, known in known_scores(finished).items():
        arm = Arm(f"Org/{cell.arm.model.upper()}", cell.arm.revision, cell.arm.layer)
        published[Cell(arm, cell.task)] = KnownScore(known.score + 0.1)
    shared = compare_published(finished, published, "table.csv").shared
    assert shared.mean == pytest.approx(0.1) and shared.cells == len(published)
    foreign = {Cell(Arm("else", "main", 0), "t"): KnownScore(0.5)}
    with pytest.raises(DataError, match="share no score"):
        compare_published(finished, foreign, "table.csv")
    words = ("--arms", "tiny@step8/1", "tiny@step8/2", "--published", "table.csv")
    assert "exclude each other" in invoke("compare", finished.folder.path, *words).output


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Small runs on a task of mteb, over one subset or several."""

    @cache
    def make(*subsets, task=LANGUAGES):
        suites = (Suite("tiny", ("step0", "step8"), (0, 1, 2), 2),)
        story = Story(suites, tasks=(task,), subsets=subsets, budget=1.0, trained=False)
        return make_run(tmp_path_factory.mktemp("subsets") / "run", story)

    return make


def test_a_run_of_more_subsets_is_reduced_to_those_of_the_other(runs):
    one, two = runs("eng"), runs("eng", "deu")
    compared = compare_runs(one, two)
    assert compared.shared.mean == pytest.approx(-0.05, abs=0.01) and not compared.left_out
    assert not compared.best_arms.tasks  # whose scores are means of different subsets
    back = compare_runs(two, one)
    assert back.shared.cells == 0 and len(back.left_out) == len(known_scores(two))
    assert all("has no score of deu" in reason for reason in back.left_out)


@pytest.mark.parametrize(
    ("subset", "n_en", "split", "reason"),
    [
        ("eng", 1, "test", None),
        ("eng", 2, "test", "is a mean of 2 subsets in English, the run's of eng"),
        ("eng", 1, "validation", "is of the split 'validation', the run's of test"),
    ],
)
def test_a_published_score_of_other_subsets_or_another_split_is_refused(
    runs, tmp_path, subset, n_en, split, reason
):
    run = runs(subset)
    table = tmp_path / "published_scores.csv"
    lines = ["family,revision,layer,task,main_score,n_subsets,n_en,split"]
    for cell in sorted(known_scores(run)):
        arm = cell.arm
        lines.append(f"{arm.model},{arm.revision},{arm.layer},STS17,0.5,8,{n_en},{split}")
    table.write_text("\n".join(lines) + "\n")
    done = invoke("compare", run.folder.path, "--published", table)
    assert done.exit_code == (1 if reason else 0)
    assert str(len(known_scores(run))) in done.output
    assert "nan" not in done.output  # equal scores have no rank correlation
    assert (reason or "in common") in " ".join(done.output.split())


def test_a_variant_of_a_task_is_joined_only_if_the_other_says_what_it_is(runs):
    run = runs("deu", task=f"{LANGUAGES}(languages=deu)")
    parts = [{"main_score": 0.1, "hf_subset": "eng"}, {"main_score": 2.0, "hf_subset": "deu"}]
    content = {"task_name": "STS17", "scores": {"test": parts}}
    names = [Cell(cell.arm, "STS17") for cell in known_scores(run)]
    published = dict.fromkeys(names, KnownScore(0.5, content))
    shared = compare_published(run, published, "results").shared
    assert shared.cells == len(names) and 1 < shared.mean < 2
    with pytest.raises(DataError, match="share no score"):
        compare_published(run, dict.fromkeys(names, KnownScore(0.5)), "results")
