"""Rivals of the policies that are no policies themselves."""

from __future__ import annotations

import pytest
import rivals
from replay import ReplayPlan, ReplayTrial, Scenario, ScoreRow, score_table

from daskmetrics.domain.names import Arm


def rows(model: str, layers: range) -> list[ScoreRow]:
    """Each arm's score says its layer, so that the loss of a rule says which layer it took."""
    arms = [Arm(model, revision, layer) for revision in ("step1", "step8") for layer in layers]
    return [
        ScoreRow(arm, task, 1 - arm.layer / 100 - 0.001 * (arm.revision == "step1"))
        for arm in arms
        for task in "st"
    ]


def ruled(known: list[ScoreRow]) -> ReplayTrial:
    plan = ReplayPlan(score_table(known), Scenario("unit"), 0.1)
    return rivals.sixty_percent_depth(plan, seed=0)


@pytest.mark.parametrize(
    ("models", "layer"),
    [
        ({"a-14m": range(11)}, 6),  # 6 of 10
        ({"a-1.4b": range(11), "a-410m": range(25)}, 6),  # the largest by name, not the deepest
        ({"tiny": range(11), "small": range(6)}, 6),  # names without sizes: the deepest
        ({"x-8B": range(9)}, 5),  # 4.8 of 8
    ],
)
def test_the_rule_takes_a_layer_of_the_largest_model_at_its_end(models, layer):
    trial = ruled([row for model, layers in models.items() for row in rows(model, layers)])
    assert trial.path[0].loss == pytest.approx(layer / 100)
    assert trial.path[0].share == 0


def test_the_rule_takes_a_complete_arm():
    known = [row for row in rows("a-14m", range(11)) if (row.arm.layer, row.task) != (6, "s")]
    assert ruled(known).path[0].loss == pytest.approx(0.05)  # layer 5 and not 6
