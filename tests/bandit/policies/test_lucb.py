from __future__ import annotations

import numpy as np

from daskmetrics.bandit.policies import lucb
from daskmetrics.bandit.policies._averages import averages, tasks_by_cost


def test_every_arm_is_first_pulled_once_on_the_cheapest_task(world, after):
    small, cells = world(), []
    for _ in small.problem.arms:
        choice = lucb.ask(after(small, cells))
        cells.append((choice.arm, choice.task))
    assert {arm for arm, _ in cells} == set(range(len(small.problem.arms)))
    assert {task for _, task in cells} == {int(tasks_by_cost(small.problem)[0])}


def test_it_pulls_the_leader_or_an_arm_that_may_beat_it(world, after, draw):
    small = world()
    cells = [(arm, task) for arm in range(len(small.problem.arms)) for task in tasks_by_cost(small.problem)[:2]]
    state = after(small, [(arm, int(task)) for arm, task in cells])
    known, choice = averages(state), lucb.ask(state)
    leader = int(known.value.argmax())
    assert choice.arm == leader or known.value[choice.arm] + lucb.WIDTH * known.sd[choice.arm] > known.value[leader]


def test_it_stops_when_no_arm_can_reach_the_leader(world, after):
    small = world()
    best = int(small.scores.mean(axis=1).argmax())
    scores = small.scores.copy()
    scores[best] += 5.0
    clear = type(small)(small.problem, scores)
    everything = [(arm, task) for arm in range(len(scores)) for task in range(5) if arm == best or task < 4]
    assert lucb.ask(after(clear, everything)) is None
    assert np.argmax(averages(after(clear, everything)).value) == best
