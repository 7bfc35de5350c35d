from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daskmetrics.bandit import policy_named
from daskmetrics.bandit._objectives import champions, task_weights
from daskmetrics.bandit._simulate import simulate
from daskmetrics.core.errors import ConfigError

KINDS = {"task0": "classes", "task1": "classes", "task2": "pairs", "task3": "pairs", "task4": "search"}


def test_a_kind_or_a_task_leaves_the_others_without_weight():
    assert task_weights(KINDS) == [1.0] * 5
    assert task_weights(KINDS, "pairs") == [0.0, 0.0, 1.0, 1.0, 0.0]
    assert task_weights(KINDS, "task4") == [0.0, 0.0, 0.0, 0.0, 1.0]
    assert task_weights(KINDS, "pairs", {"task2": 3, "task0": 9}) == [0.0, 0.0, 3.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("objective", "weights", "message"),
    [
        ("pair", {}, r"Unknown objective 'pair'\. Did you mean 'pairs'"),
        ("all", {"tsk1": 2.0}, r"Unknown task in 'search.weights': 'tsk1'\. Did you mean 'task1'"),
        ("search", {"task4": 0.0}, "No task of the objective 'search' has a positive weight"),
    ],
)
def test_unknown_names_are_refused(objective, weights, message):
    with pytest.raises(ConfigError, match=message):
        task_weights(KINDS, objective, weights)


@pytest.fixture
def everything(after):
    """The state in which every cell is known."""

    def known(world):
        return after(world, [(int(arm), int(task)) for arm, task in np.argwhere(np.isfinite(world.scores))])

    return known


def test_every_kind_has_its_own_best_arm(world, everything):
    small = world()
    scores = small.scores.copy()
    scores[3, :2] += 1.0
    scores[7, 2:4] += 1.0
    scores[11, 4] += 1.0
    found = champions(everything(replace(small, scores=scores)), KINDS)
    assert [(each.kind, small.problem.arm_index[each.arm]) for each in found] == [
        ("classes", 3),
        ("pairs", 7),
        ("search", 11),
    ]
    assert all(each.probability_best > 0.9 for each in found)
    assert [each.scored for each in found] == [2, 2, 1]
    assert found[0].score == pytest.approx(scores[3, :2].mean())


def test_the_best_arm_of_a_kind_was_scored_on_it_if_any_arm_was(world, after):
    """Without a score on the kind's own task, the scores on other tasks decide: the tasks share one posterior."""
    small = world()
    tried = [(arm, task) for arm in range(len(small.scores)) for task in range(4)] + [(0, 4), (20, 4), (40, 4)]
    (*_, search) = champions(after(small, tried), KINDS)
    assert search.kind == "search" and search.scored == 1
    assert small.problem.arm_index[search.arm] == max((0, 20, 40), key=lambda arm: small.scores[arm, 4])
    (*_, search) = champions(after(small, tried[:-3]), KINDS)
    assert search.scored == 0 and search.score is None
    good = np.argsort(-small.scores[:, 4])[:8]
    assert small.problem.arm_index[search.arm] in good


def test_a_single_kind_has_no_champion(world, everything):
    assert champions(everything(world()), dict.fromkeys(KINDS, "same")) == ()


def test_a_kind_without_weight_has_a_champion(world, everything):
    small = world()
    weighed = replace(small, problem=replace(small.problem, weights=tuple(task_weights(KINDS, "pairs"))))
    assert [each.kind for each in champions(everything(weighed), KINDS)] == ["classes", "pairs", "search"]


@pytest.mark.parametrize("policy", ["race", "lucb", "gp-ei"])
def test_a_search_for_one_kind_finds_its_best_arm_and_confirms_no_other_task(world, policy):
    small = world(seed=2)
    scores = small.scores.copy()
    scores[:, 2:4] = scores[::-1, 2:4]  # what is good at pairs is bad at everything else
    problem = replace(small.problem, weights=tuple(task_weights(KINDS, "pairs")))
    changed = replace(small, problem=problem, scores=scores)
    result = simulate(problem, changed.table, policy_named(policy), budget=0.7, seed=0)
    assert result.trace[-1].regret < 0.01
    assert scores.mean(axis=1)[problem.arm_index[result.recommendation.arm]] < scores.mean(axis=1).max()
    assert result.recommendation.confirmed
    assert {"task2", "task3"} <= set(result.recommendation.best.scores)
    assert all(pick.cell.task in ("task2", "task3") for pick in result.picks if pick.stage == "confirm")


def test_weights_decide_which_arm_is_best(world):
    small = world(seed=2)
    scores = small.scores.copy()
    scores[5, 2] += 0.3
    for weight, best in ((0.0, False), (50.0, True)):
        problem = replace(small.problem, weights=tuple(task_weights(KINDS, "all", {"task2": weight})))
        changed = replace(small, problem=problem, scores=scores)
        found = simulate(problem, changed.table, policy_named("sweep"), budget=1.0, seed=0)
        assert (problem.arm_index[found.recommendation.arm] == 5) == best and found.trace[-1].regret == 0.0


@pytest.mark.parametrize("reward", ["zscore", "mean", "running", "rank"])
def test_every_reward_leads_a_search_to_the_best_arm(world, reward):
    small = world(seed=3, reward=reward)
    found = simulate(small.problem, small.table, policy_named("race"), budget=0.4, seed=0)
    means = small.scores.mean(axis=1)
    assert means[small.problem.arm_index[found.recommendation.arm]] >= means.max() - 0.01
