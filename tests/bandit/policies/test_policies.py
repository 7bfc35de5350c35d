from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daskmetrics.bandit import Learner, Outcome, State, installed_policies, policy_named
from daskmetrics.bandit._costs import PaidCosts
from daskmetrics.bandit._simulate import simulate
from daskmetrics.bandit.policies import _registry as registry
from daskmetrics.core.errors import ConfigError


def state_of(world, cells, known=None, remaining=np.inf, seed=0):
    costs = PaidCosts(world.problem)
    for arm, task in cells:
        costs.charge(arm, task)
    outcomes = [world.outcome(world.problem.cell(*cell)) for cell in cells[:known]]
    return State(world.problem, cells, outcomes, costs.paid, costs.cost(), remaining, seed)


def draw(world, n, seed=0):
    cells = np.argwhere(np.isfinite(world.scores))
    return [(int(a), int(t)) for a, t in np.random.default_rng(seed).permutation(cells)[:n]]


def test_an_unknown_policy_is_refused_with_a_suggestion():
    with pytest.raises(ConfigError, match=r"Unknown policy 'rase'\. Did you mean 'race'"):
        policy_named("rase")


def test_an_entry_point_adds_a_policy_and_replaces_none(monkeypatch):
    class Point:
        def __init__(self, name):
            self.name = name

        def load(self):
            return "theirs"

    monkeypatch.setattr(registry, "entry_points", lambda group: [Point("race"), Point("mine")])
    assert installed_policies()["mine"] == "theirs"
    assert installed_policies()["race"] != "theirs"


@pytest.mark.parametrize("name", ["race", "random", "sweep"])
def test_a_choice_is_open_and_repeatable(world, name):
    cells = draw(world(), 40)
    one, other = (policy_named(name)(state_of(world(), cells, known=35)) for _ in range(2))
    assert one == other
    assert (one.arm, one.task) not in cells


@pytest.mark.parametrize("name", ["race", "random", "sweep"])
def test_no_unaffordable_cell_is_chosen(world, name):
    small = world()
    assert policy_named(name)(state_of(small, draw(small, 40), remaining=0.0)) is None


@pytest.mark.parametrize("name", ["random", "sweep"])
def test_nothing_is_chosen_when_all_cells_are_paid(world, name):
    small = world()
    assert policy_named(name)(state_of(small, draw(small, small.scores.size))) is None


def test_race_stops_without_rivals(world):
    small = world()
    every = draw(small, small.scores.size)
    runner_up = [cell for cell in every if cell != (int(small.scores.mean(axis=1).argmin()), 0)]
    assert policy_named("race")(state_of(small, runner_up)) is None  # the worst arm's last cell is not worth buying


def test_race_prefers_the_cheaper_of_two_similar_tasks(world):
    small = world()
    chosen = policy_named("race")(state_of(small, draw(small, 10)))
    price = small.problem.score_cost[0]
    assert price[chosen.task] <= np.median(price)
    assert set(chosen.why) == {"leader", "rivals", "loss"}


@pytest.mark.parametrize("window", [1, 4])
def test_race_first_scores_each_swept_task_once_for_another_checkpoint(world, window):
    small = world(reward="zscore")
    picks = simulate(small.problem, small.table, policy_named("race"), budget=0.5, seed=0, window=window).picks
    swept = {pick.cell.task for pick in picks if pick.stage == "baseline"}
    searched = [pick for pick in picks if pick.stage == "search"]
    looked_at = {pick.cell.task for pick in picks[: len(swept) * 4 + 2] if pick.stage == "cover"}
    first = [pick for pick in searched if "unsaid" in pick.why]
    later = searched[len(first) :]
    assert len(swept) > 1 and swept - looked_at <= {pick.cell.task for pick in first} <= swept
    assert all(pick.cell.arm.checkpoint != small.problem.baseline for pick in first)
    assert later and first == searched[: len(first)]


def test_race_does_not_pay_twice_for_pending_information(world):
    small = world()
    cells = draw(small, 40)
    race = policy_named("race")
    first = race(state_of(small, cells))
    second = race(state_of(small, [*cells, (first.arm, first.task)], known=40))
    assert (second.arm, second.task) != (first.arm, first.task)


def test_random_depends_on_its_seed_and_its_decision(world):
    small = world()
    cells = draw(small, 40)
    random = policy_named("random")
    chosen = {(c.arm, c.task) for c in (random(state_of(small, cells[:n], seed=s)) for n in (30, 40) for s in range(4))}
    assert len(chosen) > 5


def test_an_arm_that_keeps_failing_is_neither_leader_nor_rival(world):
    small = world()
    cells = draw(small, 60, seed=1)
    best = int(small.scores.mean(axis=1).argmax())
    cells = [cell for cell in cells if cell[0] != best] + [(best, 0), (best, 1)]
    state = state_of(small, cells)
    failing = replace(state, outcomes=[*state.outcomes[:-2], Outcome(None), Outcome(None)])
    assert not failing.usable[best] and failing.usable.sum() == len(failing.usable) - 1
    assert failing.leader != best
    assert policy_named("race")(failing).arm != best


@pytest.mark.parametrize("reward", ["mean", "zscore"])
def test_race_beats_random_on_average(world, reward):
    regret = {name: [] for name in ("race", "random")}
    for seed in range(10):
        small = world(seed=seed, reward=reward)
        for name, found in regret.items():
            result = simulate(small.problem, small.table, policy_named(name), budget=0.4, seed=seed)
            found.append(result.trace[-1].regret)
    assert np.mean(regret["race"]) < 0.2 * np.mean(regret["random"])
    assert np.median(regret["race"]) == 0.0


def test_race_leaves_a_cheap_task_whose_scores_are_all_alike(world):
    """Its small differences are noise: before they were known as such, every arm was scored on it."""
    cells, error = [], 0.02
    for seed in range(4):
        made = world(seed)
        cost = np.where(np.arange(5) == 0, 0.3, 1.0) * np.ones_like(made.scores)
        problem = replace(made.problem, encode_cost=np.zeros_like(cost), score_cost=cost)
        scores = made.scores + np.random.default_rng(seed).normal(0, error, cost.shape)
        scores[:, 0] += 0.5 - made.scores[:, 0]
        learner = Learner(problem, policy_named("race"), budget=0.2, window=1, seed=0)
        while not learner.done:
            for pick in learner.ask(1):
                learner.tell(pick.index, Outcome(float(scores[problem.locate(pick.cell)]), error))
        cells.append(sum(pick.cell.task == problem.tasks[0] for pick in learner.picks))
    assert np.median(cells) <= len(problem.arms) / 2
