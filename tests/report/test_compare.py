from __future__ import annotations

import csv
from functools import cache

import pytest

from daskmetrics.answer.comparison import compare_published, compare_runs
from daskmetrics.answer.comparison import known_scores as cells
from daskmetrics.core.errors import DataError
from daskmetrics.core.names import Arm, Cell
from daskmetrics.experiment.score_tables import KnownScore
from daskmetrics.report import compare_tables
from tests.report.conftest import Story, invoke, make_run


def compare_text(run, other):
    tables = compare_tables(run, other, compare_runs(run, other))
    return " ".join("\n".join(table.as_text(100) for table in tables).split())


def test_two_runs_side_by_side(finished, a_run):
    other = a_run(budget=0.2, flat=True)
    text = compare_text(finished, other)
    for word in (
        "candidates",
        "cost",
        "in common",
        "different setting",
        "search.budget",
        "stdlib:order",
    ):
        assert word in text
    alike = compare_text(finished, finished)
    assert (
        "greatest +0.000" in alike
        and "Both runs have the same settings." in alike
        and "+1.000" in alike
    )


def test_an_unfinished_run_can_be_compared(finished, a_run):
    assert "no answer yet" in compare_text(finished, a_run(decisions=5))


def test_published_scores_are_matched_whatever_the_case_of_the_model(finished):
    known = cells(finished)
    theirs = {
        Cell(Arm(f"Org/{c.arm.model.upper()}", c.arm.revision, c.arm.layer), c.task): KnownScore(
            score.score + 0.1
        )
        for c, score in known.items()
    }
    shared = compare_published(finished, theirs, "table.csv").shared
    assert shared.mean == pytest.approx(0.1) and shared.cells == len(known)
    with pytest.raises(DataError, match="share no score"):
        compare_published(
            finished, {Cell(Arm("else", "main", 0), "t"): KnownScore(0.5)}, "table.csv"
        )


def test_compare_reads_a_published_table(finished, tmp_path):
    table = tmp_path / "scores.csv"
    rows = [
        (c.arm.model, c.arm.revision, c.arm.layer, c.task, score.score)
        for c, score in cells(finished).items()
    ]
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([("model", "revision", "layer", "task", "score"), *rows])
    done = invoke("compare", finished.folder.path, "--published", table)
    assert (
        done.exit_code == 0
        and f"in common        {len(rows)}\nmean difference  +0.000" in done.output
    )


def test_compare_needs_a_second_run_or_published_scores(finished, monkeypatch):
    monkeypatch.delenv("DASKMETRICS_PUBLISHED_DATA", raising=False)
    done = invoke("compare", finished.folder.path)
    assert done.exit_code == 2 and "--published FILE" in done.output


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs on a task of mteb, over one subset or several."""

    @cache
    def make(*subsets, task="mteb:STS17"):
        story = Story(tasks=(task,), subsets=subsets, budget=1.0)
        return make_run(tmp_path_factory.mktemp("subsets") / "run", story)

    return make


class TestSubsets:
    """Scores of a task of mteb, over one subset or several."""

    def test_a_run_of_more_subsets_is_reduced_to_those_of_the_other(self, runs):
        text = compare_text(runs("eng"), runs("eng", "deu"))
        assert "mean difference -0.050" in text and "left out" not in text
        # in the table of best arms, whose scores are means of different subsets
        assert "other subsets" in text

    def test_a_run_that_lacks_a_subset_is_left_out_with_an_example(self, runs):
        text = compare_text(runs("eng", "deu"), runs("eng"))
        assert "in common 0" in text
        count = len(cells(runs("eng", "deu")))
        assert f"{count} of other splits or subsets" in text and "has no score of deu" in text

    def table(self, folder, run, score="0.5", n_en="1", split="test"):
        path = folder / "published_scores.csv"
        lines = [
            f"{c.arm.model},{c.arm.revision},{c.arm.layer},STS17,{score},8,{n_en},{split}"
            for c in sorted(cells(run))
        ]
        path.write_text(
            "\n".join(["family,revision,layer,task,main_score,n_subsets,n_en,split", *lines]) + "\n"
        )
        return path

    def test_the_published_table_joins_where_split_and_subsets_agree(self, runs, tmp_path):
        run = runs("eng")
        done = invoke("compare", run.folder.path, "--published", self.table(tmp_path, run))
        assert done.exit_code == 0 and f"in common        {len(cells(run))}" in done.output

    @pytest.mark.parametrize(
        ("subsets", "published", "reason"),
        [
            (("eng",), {"n_en": "2"}, "is a mean of 2 subsets in English, the run's of eng"),
            (("deu",), {}, "is a mean of 1 subsets in English, the run's of deu"),
            (("eng",), {"split": "validation"}, "is of the split 'validation', the run's of test"),
        ],
    )
    def test_a_published_score_of_something_else_is_refused(
        self, runs, tmp_path, subsets, published, reason
    ):
        run = runs(*subsets)
        done = invoke(
            "compare", run.folder.path, "--published", self.table(tmp_path, run, **published)
        )
        output = " ".join(done.output.split())
        assert (
            done.exit_code == 1
            and f"{len(cells(run))} are of other splits or subsets" in output
            and reason in output
        )

    def test_a_variant_of_a_task_is_joined_only_if_the_other_says_what_it_is(self, runs):
        run = runs("deu", task="mteb:STS17(languages=deu)")
        parts = [
            {"main_score": value, "hf_subset": name} for name, value in (("eng", 0.1), ("deu", 2.0))
        ]
        content = {"task_name": "STS17", "scores": {"test": parts}}
        known = {Cell(cell.arm, "STS17"): KnownScore(0.5, content) for cell in cells(run)}
        shared = compare_published(run, known, "results").shared
        assert shared.cells == len(cells(run)) and 1 < shared.mean < 2
        plain = {cell: KnownScore(0.5) for cell in known}
        with pytest.raises(DataError, match="share no score"):
            compare_published(run, plain, "results")
