"""Whether a score still rises, from made-up curves of training."""

from __future__ import annotations

import numpy as np
import pytest

from daskmetrics.bandit import Outcome
from daskmetrics.bandit._forecast import rise_forecast
from daskmetrics.core.names import Arm, Cell, Suite, step_of

TASKS = {"s": 1.0, "t": 1.0}


def forecast(curve, count, seed=0, gap=100, **options):
    """Scores of four layers at every ``gap`` steps, of which half are known, with errors of 0.01."""
    rng = np.random.default_rng(seed)
    suite = Suite("m", tuple(f"step{gap * i}" for i in range(count)), (0, 1, 2, 3), 3)
    scores = {}
    for arm in suite.arms():
        for number, task in enumerate(TASKS):
            if arm.layer == 2 or rng.random() < 0.5:
                score = curve(step_of(arm.revision)) - 0.03 * abs(arm.layer - 2) + 0.05 * number
                scores[Cell(arm, task)] = Outcome(float(score + 0.01 * rng.standard_normal()), 0.01)
    layer = [arm for arm in suite.arms() if arm.layer == 2]
    best = max(layer, key=lambda arm: sum(scores[Cell(arm, task)].score for task in TASKS))
    kinds = {task: task for task in TASKS}
    return rise_forecast([suite], scores, best, tasks=TASKS, kinds=kinds, **options)


def rising(step):
    return 0.3 + 4e-4 * step


def saturated(step):
    return 0.7 - 0.4 * np.exp(-step / 100)


def test_a_score_that_rises_is_told_from_one_that_does_not():
    up, flat, down = (
        forecast(curve, 10).probability for curve in (rising, lambda step: 0.6, lambda step: 0.7 - 3e-4 * step)
    )
    assert up > 0.7 and flat < 0.1 and down < 0.01


def test_a_curve_that_saturates_has_stopped_rising_only_later():
    early, late = forecast(saturated, 4), forecast(saturated, 16)
    assert early.probability > 0.4 and late.probability < 0.2
    assert early.expected > late.expected


def test_a_larger_rise_is_less_probable():
    chances = [forecast(rising, 6, share=share).probability for share in (0.001, 0.01, 0.1)]
    assert chances == sorted(chances, reverse=True) and chances[0] > chances[2]


def test_steps_go_on_at_the_distance_of_the_checkpoints():
    found = forecast(rising, 5, gap=250, ahead=4)
    assert found.steps == (1250, 1500, 1750, 2000) and found.more_than == 0.01 and found.arm.layer == 2


def test_too_few_checkpoints_give_no_forecast():
    assert forecast(rising, 2) is None
    suite = Suite("m", ("step0", "step1", "step2", "main"), (0,), 1)
    scores = {Cell(arm, "s"): Outcome(0.5, 0.01) for arm in suite.arms()}
    given = {"tasks": {"s": 1.0}, "kinds": {"s": "s"}}
    assert rise_forecast([suite], scores, Arm("m", "main", 0), **given) is None  # it has no step
    assert rise_forecast([suite], scores, Arm("m", "step1", 0), **given) is not None


@pytest.mark.parametrize("curve", [rising, saturated, lambda step: 0.7 - 3e-4 * step])
def test_one_future_checkpoint_has_a_normal_rise_whose_median_is_its_mean(curve):
    found = forecast(curve, 8, ahead=1, share=1e-9)
    assert (found.probability > 0.5) == (found.expected > 0)


@pytest.mark.parametrize("reward", ["mean", "running", "rank", "harmonic", "robust"])
def test_every_reward_gives_a_probability(reward):
    assert 0.3 < forecast(rising, 8, reward=reward).probability <= 1
