from __future__ import annotations

import matplotlib
import numpy as np
import pytest

from daskmetrics.answer import ties
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.domain.names import Arm
from daskmetrics.domain.outcomes import pack
from daskmetrics.domain.results import Scored
from daskmetrics.report import Leaderboard

matplotlib.use("agg")


def score(value: float, stderr: float = 0.01) -> Scored:
    return Scored(value, stderr)


def arms(*layers: int, revision: str = "main") -> list[Arm]:
    return [Arm("m", revision, layer) for layer in layers]


def test_a_layer_that_is_read_in_one_way_alone_is_shown_with_it():
    """Of layers 5 and 6 read together the score is not that of layer 6."""
    board = Leaderboard.of({Arm("m", "main", 6, "mean5+6"): {"a": score(0.6)}}, {"a": 1.0})
    assert "mean5+6" in str(board) and board.to_frame()["readout"].tolist() == ["mean5+6"]


def board_of(*means: float, stderr: float = 0.01, **options) -> Leaderboard:
    """The leaderboard of layers with these scores on one task."""
    layers = arms(*range(len(means)))
    scores = {arm: {"a": score(mean, stderr)} for arm, mean in zip(layers, means, strict=True)}
    return Leaderboard.of(scores, {"a": 1.0}, **options)


def test_arms_are_ordered_by_their_weighted_mean():
    first, second = arms(0, 1)
    scores = {
        first: {"a": score(0.2, 0.03), "mean": score(0.6, 0.04), "free": score(0.1)},
        second: {"a": score(0.9), "mean": score(0.5)},
    }
    frame = Leaderboard.of(scores, {"a": 1.0, "mean": 3.0, "free": 0.0}).to_frame()
    assert frame["layer"].tolist() == [1, 0] and frame["rank"].tolist() == [1, 2]
    np.testing.assert_allclose(frame["mean"], [0.25 * 0.9 + 0.75 * 0.5, 0.25 * 0.2 + 0.75 * 0.6])
    np.testing.assert_allclose(frame["stderr"], np.hypot([0.01, 0.03], [0.03, 0.12]) / 4)
    assert frame["mean (task)"].tolist() == [0.5, 0.6]  # named as a column
    assert np.isnan(frame["free"][0]) and frame["free"][1] == 0.1


def test_arms_that_lack_tasks_come_last_without_a_mean():
    full, two, one = arms(0, 1, 2)
    scores = {
        one: {"a": score(0.9)},
        two: {"a": score(0.8), "b": score(0.9)},
        full: dict.fromkeys("abc", score(0.1)),
    }
    board = Leaderboard.of(scores, dict.fromkeys("abc", 1.0))
    assert [row.arm for row in board.arms] == [full, two, one]
    missing = board.to_frame()[["rank", "mean", "tied"]].isna()
    assert missing.values.tolist() == [[False] * 3, [True] * 3, [True] * 3]
    assert Leaderboard.of({}, {"a": 1.0}).over_floor is None


def test_of_equal_means_the_answer_is_first():
    assert [row.arm.layer for row in board_of(0.5, 0.7, 0.7).arms] == [1, 2, 0]
    board = board_of(0.5, 0.7, 0.7, best=Arm("m", "main", 2))
    assert [row.arm.layer for row in board.arms] == [2, 1, 0]


def test_ties_are_tested_item_by_item():
    rng = np.random.default_rng(0)
    right = rng.random(400) < 0.5
    paired, alone = {}, {}
    for arm, items in zip(arms(0, 1), (right, right | (rng.random(400) < 0.1)), strict=True):
        mean, stderr = float(items.mean()), float(items.std(ddof=1)) / 20
        alone[arm] = {"a": score(mean, stderr)}
        paired[arm] = {"a": Scored(mean, stderr, outcomes=pack(items, mean, "items"))}
    assert [row.tied for row in Leaderboard.of(paired, {"a": 1.0}).arms] == [True, False]
    assert [row.tied for row in Leaderboard.of(alone, {"a": 1.0}).arms] == [True, True]


def test_ties_beyond_those_whose_pairs_are_all_tested():
    board = board_of(0.9, *np.linspace(0.89, 0.88, ties.MOST), 0.879, 0.1, stderr=0.02)
    assert [bool(row.tied) for row in board.arms] == [True] * (ties.MOST + 2) + [False]
    assert all(row.tied for row in board_of(0.9, 0.1, tied=set(arms(0, 1))).arms)


def test_the_table_names_arms_and_counts_what_it_leaves_out():
    assert board_of(0.1, 0.9).table().rows[0] == ("1", "0.900 ± 0.010", "best")
    assert [row[-1] for row in board_of(0.9, 0.1, 0.9).table().rows] == ["tied", "tied", ""]
    many = {}
    for revision in ("s1", "s2"):
        for arm in arms(*range(12), revision=revision):
            many[arm] = dict.fromkeys("abcde", score(arm.layer / 100))
    table = Leaderboard.of(many, dict.fromkeys("abcde", 1.0)).table()
    assert table.rows[0][0] == "m@s1/11" and len(table.rows) == 20
    assert {"4", "1"} == {note[0] for note in table.notes if "not shown" in note}


@pytest.mark.parametrize("revisions", [("main",), ("s1", "s2")])
def test_the_plot_draws_every_mean_once_on_the_given_axes(revisions):
    from matplotlib import pyplot

    scores = {}
    for revision in revisions:
        for arm in arms(0, 1, 2, revision=revision):
            scores[arm] = {"a": score(0.1 + arm.layer / 10)}
    board, given = Leaderboard.of(scores, {"a": 1.0}), pyplot.figure().subplots()
    assert board.plot(given) is given and board.plot() is not given
    drawn = np.concatenate([np.asarray(bar[0].get_ydata(), float) for bar in given.containers])
    np.testing.assert_allclose(np.sort(drawn), np.sort([row.mean for row in board.arms]))
    pyplot.close("all")


def test_without_a_mean_or_matplotlib_nothing_is_drawn(monkeypatch):
    board = Leaderboard.of({arms(0)[0]: {"a": score(0.3)}}, {"a": 1.0, "b": 1.0})
    with pytest.raises(DataError, match="every task of the objective"):
        board.plot()
    monkeypatch.setattr("daskmetrics.report._format.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"daskmetrics\[plot\]"):
        board.plot()
