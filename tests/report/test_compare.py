from __future__ import annotations

import csv

import pytest
from click.testing import CliRunner

from daskmetrics.cli import main
from daskmetrics.core.errors import DataError
from daskmetrics.core.names import Arm, Cell
from daskmetrics.report._compare import cells, compare_published_text, compare_text


def invoke(*words: object):
    return CliRunner().invoke(main, [str(word) for word in words])


def test_two_runs_side_by_side(finished, a_run):
    other = a_run(budget=0.2, flat=True)
    text = compare_text(finished, other)
    for word in ("best arm", "cost", "shared cells", "different setting", "search.budget", "stdlib:order"):
        assert word in text
    alike = compare_text(finished, finished)
    assert (
        "greatest difference is +0.000" in alike and "Both runs have the same settings." in alike and "+1.000" in alike
    )


def test_an_unfinished_run_can_be_compared(finished, a_run):
    assert "no answer yet" in compare_text(finished, a_run(decisions=5))


def test_published_scores_are_matched_whatever_the_case_of_the_model(finished):
    known = cells(finished)
    theirs = {
        Cell(Arm(f"Org/{c.arm.model.upper()}", c.arm.revision, c.arm.layer), c.task): s + 0.1 for c, s in known.items()
    }
    text = compare_published_text(finished, theirs, "table.csv")
    assert "+0.100 higher on average" in text and f"{len(known)};" in text
    with pytest.raises(DataError, match="share no cell"):
        compare_published_text(finished, {Cell(Arm("else", "main", 0), "t"): 0.5}, "table.csv")


def test_compare_reads_a_published_table(finished, tmp_path):
    table = tmp_path / "scores.csv"
    rows = [(c.arm.model, c.arm.revision, c.arm.layer, c.task, score) for c, score in cells(finished).items()]
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([("model", "revision", "layer", "task", "score"), *rows])
    done = invoke("compare", finished.folder.path, "--published", table)
    assert done.exit_code == 0 and f"{len(rows)}; published is +0.000 higher" in done.output


def test_compare_needs_a_second_run_or_published_scores(finished, monkeypatch):
    monkeypatch.delenv("DASKMETRICS_PUBLISHED_DATA", raising=False)
    done = invoke("compare", finished.folder.path)
    assert done.exit_code == 2 and "--published FILE" in done.output
