from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daskmetrics.bandit.objectives import champions, weigh
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


def test_a_kind_is_judged_by_what_other_kinds_tell(world, after):
    """An arm that was never tried on the kind's own task may lead it: the tasks share one posterior."""
    small = world()
    tried = [(arm, task) for arm in range(len(small.scores)) for task in range(4)] + [(0, 4), (20, 4), (40, 4)]
    (*_, search) = champions(after(small, tried), KINDS)
    assert search.kind == "search" and search.scored == 0 and search.score is None
    good = np.argsort(-small.scores[:, 4])[:6]
    assert small.problem.arm_index[search.arm] in good


def test_one_kind_has_no_champion_beside_the_recommendation(world, everything):
    assert champions(everything(world()), dict.fromkeys(KINDS, "same")) == ()


def test_a_kind_without_weight_in_the_search_has_one_nevertheless(world, everything):
    small = world()
    weighed = replace(small, problem=replace(small.problem, weights=tuple(weigh(KINDS, "pairs"))))
    assert [each.kind for each in champions(everything(weighed), KINDS)] == ["classes", "pairs", "search"]
