from __future__ import annotations

import pytest

from daskmetrics.core.names import Arm
from daskmetrics.report.plots._correlations import correlation_table, metric_against_score

pytest.importorskip("matplotlib")


def titles(figure):
    return [ax.get_title(loc="right") for ax in figure.axes]


def test_a_correlation_of_few_points_is_not_shown():
    arms = [Arm("m", "step0", layer) for layer in range(6)]
    metric = {arm: float(arm.layer) for arm in arms}
    score = {arm: -float(arm.layer) for arm in arms[:4]}
    assert titles(metric_against_score({"x": metric}, {}, score, ["m"])) == ["too few arms (n = 4)"]
    score |= {arms[5]: -9.0}
    assert titles(metric_against_score({"x": metric}, {}, score, ["m"])) == [
        "Spearman's ρ = −1.00 (n = 5)"
    ]


def test_the_table_has_the_strongest_metric_at_the_top():
    table = {
        "weak": {"all tasks": (0.1, 9)},
        "none": {"all tasks": (float("nan"), 2)},
        "strong": {"all tasks": (-0.9, 9)},
    }
    (ax,) = correlation_table(table).axes
    # from below
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "none",
        "weak",
        "strong",
    ]
    assert [text.get_text() for text in ax.texts] == ["too few", "+0.10  (9)", "−0.90  (9)"]
