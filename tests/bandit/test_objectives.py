from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daskmetrics.bandit.objectives import champions, weigh
from daskmetrics.bandit.problem import Observations
from daskmetrics.errors import ConfigError

KINDS = {"task0": "classes", "task1": "classes", "task2": "pairs", "task3": "pairs", "task4": "search"}


def test_a_kind_or_a_task_leaves_the_others_without_weight():
    assert weigh(KINDS) == [1.0] * 5
    assert weigh(KINDS, "pairs") == [0.0, 0.0, 1.0, 1.0, 0.0]
    assert weigh(KINDS, "task4") == [0.0, 0.0, 0.0, 0.0, 1.0]
    assert weigh(KINDS, "pairs", {"task2": 3, "task0": 9}) == [0.0, 0.0, 3.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("objective", "weights", "message"),
    [
        ("pair", {}, r"Unknown objective 'pair'\. Did you mean 'pairs'"),
        ("all", {"tsk1": 2.0}, r"Unknown task in 'search.weights': 'tsk1'\. Did you mean 'task1'"),
        ("search", {"task4": 0.0}, "No task of the objective 'search' has a positive weight"),
    ],
)
def test_names_that_do_not_exist_are_refused(objective, weights, message):
    with pytest.raises(ConfigError, match=message):
        weigh(KINDS, objective, weights)


def everything(world) -> Observations:
    return Observations.of((arm, task, float(score), 0.0) for (arm, task), score in np.ndenumerate(world.scores))


def test_every_kind_has_its_own_best_arm(world):
    small = world()
    scores = small.scores.copy()
    scores[3, :2] += 1.0
    scores[7, 2:4] += 1.0
    scores[11, 4] += 1.0
    known = everything(replace(small, scores=scores))
    found = champions(small.problem, known, KINDS, np.ones(len(scores), dtype=bool), seed=0)
    assert [(each.kind, small.problem.arm_index[each.arm]) for each in found] == [
        ("classes", 3),
        ("pairs", 7),
        ("search", 11),
    ]
    assert all(each.probability_best > 0.9 for each in found)
    assert [each.scored for each in found] == [2, 2, 1]
    assert found[0].score == pytest.approx(scores[3, :2].mean())


def test_one_kind_has_no_champion_beside_the_recommendation(world):
    small = world()
    usable = np.ones(len(small.scores), dtype=bool)
    assert champions(small.problem, everything(small), dict.fromkeys(KINDS, "same"), usable, seed=0) == ()


def test_a_kind_without_weight_in_the_search_has_one_nevertheless(world):
    small = world()
    problem = replace(small.problem, weights=tuple(weigh(KINDS, "pairs")))
    found = champions(problem, everything(small), KINDS, np.ones(len(small.scores), dtype=bool), seed=0)
    assert [each.kind for each in found] == ["classes", "pairs", "search"]
