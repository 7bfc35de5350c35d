"""Properties of every policy."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from daskmetrics.bandit import Learner, installed_policies, policy_named
from daskmetrics.bandit._simulate import simulate
from daskmetrics.bandit.policies._registry import BUILT_IN

NAMES = sorted(BUILT_IN)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("known", [25, 40])
def test_a_choice_is_open_and_a_pure_function_of_the_state(world, after, draw, name, known):
    small = world(reward="zscore")
    cells = draw(small, 40)
    one, other = (policy_named(name)(after(small, cells, known)) for _ in range(2))
    assert one == other
    assert (one.arm, one.task) not in cells


@pytest.mark.parametrize("name", NAMES)
def test_a_search_can_start_without_scores(world, after, name):
    assert policy_named(name)(after(world(), [])) is not None


@pytest.mark.parametrize("name", NAMES)
def test_no_unaffordable_or_paid_cell_is_chosen(world, after, draw, name):
    small = world()
    assert policy_named(name)(replace(after(small, draw(small, 40)), remaining=0.0)) is None
    assert policy_named(name)(after(small, draw(small, small.scores.size))) is None


@pytest.mark.parametrize("name", NAMES)
def test_it_ends_and_chooses_no_cell_twice(world, name):
    small = world(seed=1, revisions=3, layers=3, tasks=3)
    result = simulate(small.problem, small.table, installed_policies()[name], budget=1.0, seed=0)
    cells = [pick.cell for pick in result.picks]
    assert len(set(cells)) == len(cells) <= small.scores.size
    assert result.recommendation.confirmed


@pytest.mark.parametrize("name", [name for name in NAMES if name != "sweep"])
def test_it_finds_an_arm_far_better_than_one_at_random(world, name):
    found, chance = [], []
    for seed in range(6):
        small = world(seed=seed, revisions=8)
        found.append(simulate(small.problem, small.table, policy_named(name), budget=0.3, seed=seed).trace[-1].regret)
        means = small.scores.mean(axis=1)
        chance.append(means.max() - means.mean())
    assert np.mean(found) < 0.25 * np.mean(chance)


def test_a_plain_callable_is_a_policy(world):
    small = world(reward="zscore")
    asked = []

    def mine(state):
        asked.append(len(state.cells))
        return policy_named("random")(state)

    search = Learner(small.problem, mine, budget=0.5, window=4, seed=0)
    assert len(search.ask(99)) == 4 and not asked  # the baseline needs no policy
    result = simulate(small.problem, small.table, mine, budget=0.5, seed=0)
    assert asked and result.recommendation.cells == len(result.picks)


def test_the_example_policy_of_the_documentation_works(world):
    text = (Path(__file__).parents[3] / "docs" / "search.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    exec(re.search(r"```python\n(.*?)```", text, re.DOTALL).group(1), names)
    small = world(revisions=3)
    result = simulate(small.problem, small.table, names["cheapest"], budget=1.0, seed=0)
    costs = [pick.cost for pick in result.picks]
    assert len(costs) == small.scores.size and result.trace[-1].regret == 0.0


def test_the_documentation_lists_every_policy():
    text = (Path(__file__).parents[3] / "docs" / "search.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([a-z-]+)` \| (?:cells|whole arms)", text, re.MULTILINE)) == set(BUILT_IN)
