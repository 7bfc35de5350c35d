"""Properties of every policy."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
from replay import simulate

from daskmetrics.bandit import Budget, Outcome, Problem, arm_features, installed_policies, policies
from daskmetrics.bandit.policies import BUILT_IN, policy_named, race
from daskmetrics.core.errors import ConfigError
from daskmetrics.domain.names import Suite
from tests.bandit.conftest import drive, make_learner, make_world, random_cells, state_after


def test_an_entry_point_adds_a_policy_and_replaces_none(monkeypatch):
    points = [EntryPoint(name, "builtins:sum", "policies") for name in ("race", "mine")]
    monkeypatch.setattr(policies, "entry_points", lambda group: points)
    assert installed_policies()["mine"] is sum
    assert installed_policies()["race"] is not sum


def test_a_policy_whose_module_fails_is_one_message(tmp_path, monkeypatch):
    (tmp_path / "mine_that_fails.py").write_text("ask = nothing")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        ConfigError, match=r"Policy 'mine_.*' cannot be loaded: NameError: name 'no"
    ):
        policy_named("mine_that_fails:ask")


@pytest.mark.parametrize(
    ("score_cost", "cells", "takes_all"), [(0.1, None, True), (1.0, None, False), (0.1, 60, False)]
)
def test_all_layers_of_an_expensive_encoding_are_scored(score_cost, cells, takes_all):
    """Unless the scores cost as much together, or their number is limited."""
    suite = Suite("m", ("step1", "step10", "step100", "step1000"), (0, 1, 2, 3), 3)
    costs = np.full((16, 4), 10.0), np.full((16, 4), score_cost)
    problem = Problem(suite.arms(), ("a", "b", "c", "d"), arm_features([suite]), *costs)
    learner = make_learner(problem, budget=Budget(0.5, None, cells))
    # deep layers are bad: the search excludes them soon
    scores = np.random.default_rng(0).normal(0.5, 0.01, (16, 4)) - 0.1 * problem.features[:, 1:2]
    encodings: list[list[int]] = []
    while picks := learner.ask(1):
        arm, task = problem.locate(picks[0].cell)
        if picks[0].cost > 10:
            encodings.append([])
        encodings[-1].append(arm)
        learner.tell(picks[0].index, Outcome(scores[arm, task], 0.01))
    complete = [len(set(arms)) == 4 for arms in encodings[:-1]]
    assert len(complete) >= 3 and all(complete) == takes_all


def test_an_arm_that_keeps_failing_is_neither_leader_nor_rival():
    small = make_world()
    cells = random_cells(small, 60, seed=1)
    best = int(small.scores.mean(axis=1).argmax())
    cells = [cell for cell in cells if cell[0] != best] + [(best, 0), (best, 1)]
    state = state_after(small, cells)
    state.finished.score[-2:] = np.nan
    assert not state.usable[best] and state.usable.sum() == len(state.usable) - 1
    assert state.leader != best
    assert race(state).arm != best


def test_race_leaves_a_cheap_task_whose_scores_are_all_alike():
    """Its small differences are noise: before they were known as such, every arm was scored on it."""
    cells, error = [], 0.02
    for seed in range(4):
        made = make_world(seed)
        cost = np.where(np.arange(5) == 0, 0.3, 1.0) * np.ones_like(made.scores)
        problem = replace(made.problem, encode_cost=np.zeros_like(cost), score_cost=cost)
        scores = made.scores + np.random.default_rng(seed).normal(0, error, cost.shape)
        scores[:, 0] += 0.5 - made.scores[:, 0]

        def outcome(cell, problem=problem, scores=scores):
            return Outcome(float(scores[problem.locate(cell)]), error)

        learner = drive(make_learner(problem, budget=0.2), outcome)
        cells.append(sum(pick.cell.task == problem.tasks[0] for pick in learner.picks))
    assert np.median(cells) <= 0.7 * len(problem.arms)


@pytest.mark.parametrize("policy", BUILT_IN.values(), ids=BUILT_IN)
def test_a_choice_is_open_affordable_and_pure(policy):
    small = make_world()
    cells = random_cells(small, 40)
    for known in (25, 40):
        choice = policy(state_after(small, cells, known))
        assert choice == policy(state_after(small, cells, known))
        assert (choice.arm, choice.task) not in cells
    assert policy(state_after(small, [])) is not None  # a search can start
    assert policy(replace(state_after(small, cells), remaining=0.0)) is None
    assert policy(state_after(small, random_cells(small, small.scores.size))) is None


def test_the_documentation_lists_every_policy():
    page = (Path(__file__).parents[2] / "docs" / "searching.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([a-z][a-z-]*)` \| [a-z].* cell", page, re.MULTILINE)
    assert set(listed) == set(BUILT_IN)
    names: dict[str, object] = {}
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL).group(1), names)
    small = make_world(revisions=3)
    result = simulate(small.problem, small.table, names["cheapest"], budget=1.0, seed=0)
    assert len(result.picks) == small.scores.size and result.path[-1].loss == 0.0
