from __future__ import annotations

from dataclasses import replace

import matplotlib
import numpy as np
import pandas
import pytest

from daskmetrics.answer import ties
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.names import Arm
from daskmetrics.core.outcomes import pack
from daskmetrics.core.results import Scored
from daskmetrics.report import Leaderboard

matplotlib.use("agg")


def score(value: float, stderr: float = 0.01) -> Scored:
    return Scored(value, stderr)


def outcomes(right: np.ndarray) -> Scored:
    mean = float(right.mean())
    stderr = float(right.std(ddof=1)) / len(right) ** 0.5
    return Scored(mean, stderr, outcomes=pack(right, mean, "items"))


def arms(*layers: int, revision: str = "main") -> list[Arm]:
    return [Arm("m", revision, layer) for layer in layers]


def test_arms_are_ordered_by_their_weighted_mean_and_a_task_of_weight_zero_has_a_column():
    first, second = arms(0, 1)
    scores = {
        first: {"a": score(0.2, 0.03), "b": score(0.6, 0.04), "free": score(0.1)},
        second: {"a": score(0.9), "b": score(0.5)},
    }
    frame = Leaderboard.of(scores, {"a": 1.0, "b": 3.0, "free": 0.0}).to_frame()
    assert list(frame) == [
        "rank",
        "model",
        "checkpoint",
        "layer",
        "mean",
        "stderr",
        "tied",
        "a",
        "b",
        "free",
    ]
    assert frame["layer"].tolist() == [1, 0] and frame["rank"].tolist() == [1, 2]
    np.testing.assert_allclose(frame["mean"], [0.25 * 0.9 + 0.75 * 0.5, 0.25 * 0.2 + 0.75 * 0.6])
    np.testing.assert_allclose(frame["stderr"], np.hypot([0.01, 0.03], [0.03, 0.12]) / 4)
    assert np.isnan(frame["free"][0]) and frame["free"][1] == 0.1


def test_a_best_candidate_without_others_within_its_error_is_not_tied():
    first, second, third = arms(0, 1, 2)
    alone = {first: {"a": score(0.9)}, second: {"a": score(0.1)}}
    assert [row[-1] for row in Leaderboard.of(alone, {"a": 1.0}).table().rows] == ["best", ""]
    several = {**alone, third: {"a": score(0.9)}}
    marks = [row[-1] for row in Leaderboard.of(several, {"a": 1.0}).table().rows]
    assert marks == ["tied", "tied", ""]


def test_arms_that_lack_tasks_come_last_without_a_mean():
    full, two, one = arms(0, 1, 2)
    scores = {
        one: {"a": score(0.9)},
        two: {"a": score(0.8), "b": score(0.9)},
        full: dict.fromkeys("abc", score(0.1)),
    }
    board = Leaderboard.of(scores, dict.fromkeys("abc", 1.0))
    assert [each.arm for each in board.arms] == [full, two, one]
    frame = board.to_frame()
    assert (
        frame["rank"].isna().tolist()
        == frame["mean"].isna().tolist()
        == frame["tied"].isna().tolist()
    )
    assert frame["rank"].isna().tolist() == [False, True, True]
    assert "2 candidates not scored on every task" in str(board)


def test_ties_are_tested_item_by_item():
    rng = np.random.default_rng(0)
    right = rng.random(400) < 0.5
    better = right | (rng.random(400) < 0.1)
    paired = {
        arm: {"a": outcomes(each)} for arm, each in zip(arms(0, 1), (right, better), strict=True)
    }
    alone = {arm: {"a": replace(scores["a"], outcomes=None)} for arm, scores in paired.items()}
    assert Leaderboard.of(paired, {"a": 1.0}).to_frame()["tied"].tolist() == [True, False]
    assert Leaderboard.of(alone, {"a": 1.0}).to_frame()["tied"].tolist() == [True, True]


def test_arms_beyond_those_of_which_all_pairs_are_tested_are_tested_against_the_best():
    layers = list(range(ties.MOST + 3))
    means = [0.9, *np.linspace(0.89, 0.88, ties.MOST), 0.879, 0.1]
    board = Leaderboard.of(
        {arm: {"a": score(m, 0.02)} for arm, m in zip(arms(*layers), means, strict=True)},
        {"a": 1.0},
    )
    assert [bool(each.tied) for each in board.arms] == [True] * (ties.MOST + 2) + [False]


def test_given_ties_are_taken_over_with_the_reward_they_were_tested_in():
    first, second = arms(0, 1)
    board = Leaderboard.of(
        {first: {"a": score(0.9)}, second: {"a": score(0.1)}}, {"a": 1.0}, {first, second}, "rank"
    )
    assert board.to_frame()["tied"].all() and "by rank" in str(board)


def test_the_table_names_layers_of_one_checkpoint_and_arms_of_several_and_counts_what_it_leaves_out():
    one = Leaderboard.of({arm: {"a": score(arm.layer / 10)} for arm in arms(0, 1)}, {"a": 1.0})
    assert str(one).splitlines()[0] == "Layers of m@main" and "1      0.100 ± 0.010  best" in str(
        one
    )
    many = {
        arm: {t: score(arm.layer / 100) for t in "abcde"}
        for r in ("s1", "s2")
        for arm in arms(*range(12), revision=r)
    }
    text = str(Leaderboard.of(many, dict.fromkeys("abcde", 1.0)))
    assert "m@s1/11" in text and "4 candidates not shown" in text and "1 task not shown" in text


def test_a_task_named_as_a_column_keeps_both():
    frame = Leaderboard.of({arms(0)[0]: {"mean": score(0.3)}}, {"mean": 1.0}).to_frame()
    assert frame["mean"].tolist() == frame["mean (task)"].tolist() == [0.3]


def test_a_notebook_shows_a_table():
    board = Leaderboard.of(
        {arms(0)[0]: {"<b>": score(0.3)}, arms(1)[0]: {"<b>": score(0.2)}}, {"<b>": 1.0, "c": 0.0}
    )
    assert "<table>" in board._repr_html_() and "&lt;b&gt;" in board._repr_html_()


@pytest.mark.parametrize("revisions", [("main",), ("s1", "s2")])
def test_the_plot_draws_every_mean_once_on_the_given_axes(revisions):
    from matplotlib import pyplot

    scores = {
        arm: {"a": score(0.1 + arm.layer / 10)}
        for r in revisions
        for arm in arms(0, 1, 2, revision=r)
    }
    board, given = Leaderboard.of(scores, {"a": 1.0}), pyplot.figure().subplots()
    ax = board.plot(given)
    assert ax is given
    drawn = np.concatenate([np.asarray(bar[0].get_ydata(), float) for bar in ax.containers])
    np.testing.assert_allclose(np.sort(drawn), np.sort([each.mean for each in board.arms]))
    assert board.plot() is not given
    pyplot.close("all")


def test_without_a_mean_there_is_nothing_to_draw():
    board = Leaderboard.of({arms(0)[0]: {"a": score(0.3)}}, {"a": 1.0, "b": 1.0})
    with pytest.raises(DataError, match="every task of the objective"):
        board.plot()


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr("daskmetrics.report._format.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"daskmetrics\[plot\]"):
        Leaderboard.of({arms(0)[0]: {"a": score(0.3)}}, {"a": 1.0}).plot()


def test_no_scores_give_an_empty_frame():
    frame = Leaderboard.of({}, {"a": 1.0}).to_frame()
    assert isinstance(frame, pandas.DataFrame) and not len(frame) and "a" in frame
    assert "Leaderboard" in str(Leaderboard.of({}, {"a": 1.0}))
