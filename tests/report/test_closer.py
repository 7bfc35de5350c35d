"""Looking closer: explain, compare, good enough, export."""

from __future__ import annotations

import csv

import numpy as np
import pytest
import xarray
from click.testing import CliRunner

from daskmetrics.cli import main
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.names import Arm, Cell
from daskmetrics.report import _analysis as analysis
from daskmetrics.report._compare import cells, compare_published_text, compare_text
from daskmetrics.report._explain import enough_text, explain_text, good_enough
from daskmetrics.report._export import export, frame
from daskmetrics.report._posterior import believe

WIDTHS = {"tiny": 32, "small": 64}


@pytest.fixture
def sized(finished, monkeypatch):
    monkeypatch.setitem(finished.start, "widths", WIDTHS)
    return finished


def invoke(*words: object):
    return CliRunner().invoke(main, [str(word) for word in words])


def test_the_belief_is_the_one_that_the_search_ended_with(finished):
    belief = believe(finished)
    for standing in analysis.top(finished):
        place = belief.problem.arm_index[Arm(**standing["arm"])]
        assert belief.posterior.mean[place] == pytest.approx(standing["value"], abs=1e-6)
        assert belief.posterior.sd[place] == pytest.approx(standing["sd"], abs=1e-6)
    assert belief.problem.arms[belief.leader] == finished.best().arm


def test_an_explanation_names_belief_rank_decisions_and_features(finished):
    best = str(finished.best().arm)
    text = explain_text(finished, best)
    assert "The recommended arm." in text and f"rank        1 of {len(believe(finished).problem.arms)}" in text
    for word in ("decisions:", "curvature", "stdlib:order", "nats", "% of the arms"):
        assert word in text
    assert max(map(len, text.splitlines())) <= 100


def test_an_arm_that_was_never_chosen_is_explained(finished):
    paid = {cell.arm for cell in finished.cells.values()}
    never = next(arm for arm in believe(finished).problem.arms if arm not in paid)
    text = explain_text(finished, str(never))
    assert "Never" in text and "that this arm is better" in text and "not measured" in text


def test_an_unknown_arm_gets_the_nearest_known_ones(finished):
    with pytest.raises(ConfigError, match=r"Did you mean 'small@step8/\d'"):
        explain_text(finished, "small@step8/9")


def test_a_search_that_has_scored_nothing_has_no_belief(a_run):
    with pytest.raises(DataError, match="scored nothing"):
        believe(a_run(decisions=1))
    with pytest.raises(DataError, match="no tasks"):
        believe(a_run(tasks=()))


def test_arms_that_are_good_enough(sized):
    belief = believe(sized)
    best = belief.problem.arms[belief.leader]
    strict, lax = (good_enough(belief, within, 0.5) for within in (0.001, 0.3))
    assert best in [one.arm for one in strict] and len(strict) < len(lax) <= len(belief.problem.arms)
    assert [one.flops for one in lax] == sorted(one.flops for one in lax)
    for one in lax:
        assert one.parameters == 12 * WIDTHS[one.arm.model] ** 2 * one.arm.layer


def test_good_enough_says_what_is_saved(sized):
    text = enough_text(sized, 0.3, 0.5)
    assert (
        "shallowest" in text
        and "earliest" in text
        and "% fewer than the best arm" in text
        and "to be good enough" in text
    )


def test_a_run_of_an_earlier_version_does_not_know_its_widths(finished):
    with pytest.raises(DataError, match="how wide"):
        enough_text(finished, 0.01, 0.8)


@pytest.mark.parametrize("share", ["1", "-1%", "much", "100%"])
def test_a_share_that_is_none_is_refused(finished, share):
    done = invoke("best", finished.folder.path, f"--within={share}")
    assert done.exit_code == 2 and "write 1% or 0.01" in done.output


def test_two_runs_side_by_side(finished, a_run):
    other = a_run(budget=0.2, flat=True)
    text = compare_text(finished, other)
    for word in ("best arm", "cost", "shared cells", "set otherwise", "search.budget", "stdlib:order"):
        assert word in text
    alike = compare_text(finished, finished)
    assert "differs most, by +0.000" in alike and "Both are set up alike." in alike and "+1.000" in alike


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


def test_compare_without_anything_to_compare_with(finished, monkeypatch):
    monkeypatch.delenv("DASKMETRICS_PUBLISHED_DATA", raising=False)
    done = invoke("compare", finished.folder.path)
    assert done.exit_code == 2 and "--published FILE" in done.output


def test_exported_numbers_are_those_of_the_journal(finished, tmp_path):
    rows = frame(finished)
    scores = (
        rows[(rows.what == "score") & (rows.status == "ok")].set_index(["model", "revision", "layer", "name"]).value
    )
    assert len(scores) == len(cells(finished))
    for cell, score in cells(finished).items():
        assert scores[cell.arm.model, cell.arm.revision, cell.arm.layer, cell.task] == pytest.approx(score)
    assert set(rows.status) >= {"ok", "nan"} and set(rows[rows.name == "curvature"].units) == {"radians"}
    for kind, suffix in (("csv", ".csv"), ("parquet", ".parquet"), ("netcdf", ".nc")):
        assert export(finished, kind, tmp_path / "deep" / f"x{suffix}").stat().st_size > 1000
    with xarray.open_dataset(tmp_path / "deep" / "x.nc") as read:
        np.testing.assert_array_equal(read["metric_curvature"], finished.metrics["curvature"].sel(model=read.model))
        assert read["metric_curvature"].attrs["units"] == "radians" and "protocol" not in read.data_vars


def test_a_run_without_numbers_exports_none(a_run):
    with pytest.raises(DataError, match="no numbers"):
        frame(
            a_run(
                tasks=(),
                failing=tuple(f"{m}@step{s}" for m in ("tiny", "small") for s in (0, 1, 2, 4, 8)),
                trained=False,
            )
        )
