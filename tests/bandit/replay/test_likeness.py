from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daskmetrics.bandit.replay import ReplayPlan, Scenario, ScoreRow, Setting, run_trials, score_table, task_likeness
from daskmetrics.bandit.replay._likeness import SHARE
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.names import Arm

from .conftest import KINDS


def earlier(layers=20, models=("other",), tasks=tuple(KINDS), shift=0.0):
    """Models in which the two cheap tasks go together, and the two expensive ones."""
    rng, rows = np.random.default_rng(0), []
    for model in models:
        for layer in range(layers):
            cheap, expensive = rng.normal(size=2)
            for task in tasks:
                score = (cheap if task not in ("expensive", "extreme") else expensive) + 0.1 * rng.normal() + shift
                rows.append(ScoreRow(Arm(model, "main", layer), task, score))
    return score_table(rows)


def test_tasks_that_went_together_elsewhere_are_alike():
    found = task_likeness(earlier(), dict.fromkeys(KINDS, ""))  # no kinds: only the scores relate the tasks
    names = list(KINDS)
    assert found[names.index("cheap"), names.index("fair")] > 0.9 * SHARE
    assert found[names.index("expensive"), names.index("extreme")] > 0.9 * SHARE
    assert found[names.index("cheap"), names.index("expensive")] < 0


def test_it_is_a_correlation_matrix_whatever_was_scored(known):
    for table in (earlier(), earlier(models=("a", "b")), earlier(tasks=("cheap", "expensive", "fair", "else"))):
        problem = Scenario(prior=table).build_problem(known)  # refuses any other matrix
        np.testing.assert_allclose(np.diag(problem.likeness), 1.0)
    constant = earlier()
    constant.scores[:, 1] = 0.5
    assert np.isfinite(task_likeness(constant, KINDS)).all()


def test_how_high_the_earlier_scores_were_does_not_matter():
    np.testing.assert_allclose(task_likeness(earlier(), KINDS), task_likeness(earlier(shift=5.0), KINDS))


def test_a_task_that_is_new_is_related_by_its_kind():
    found = task_likeness(earlier(tasks=("cheap", "expensive", "extreme")), KINDS)
    place = {task: i for i, task in enumerate(KINDS)}
    assert found[place["fair"], place["cheap"]] == 1 - SHARE
    assert found[place["fair"], place["expensive"]] == 0


def test_too_few_tasks_or_arms_in_common_are_an_error():
    with pytest.raises(DataError, match="2 of which are among the 4 tasks"):
        task_likeness(earlier(tasks=("cheap", "expensive", "else")), KINDS)
    with pytest.raises(DataError, match="the most is 7"):
        task_likeness(earlier(layers=7), KINDS)


def test_incomplete_arms_are_left_out():
    table = earlier()
    holed = replace(table, scores=np.where(np.arange(20)[:, None] < 10, table.scores, [[1.0, 1.0, np.nan, 1.0]]))
    np.testing.assert_allclose(task_likeness(holed, KINDS), task_likeness(earlier(layers=10), KINDS))


def test_a_prior_changes_the_search_and_not_what_is_best(known):
    plan = ReplayPlan(known, Scenario("unit"), 0.3)
    with_prior = replace(plan, scenario=replace(plan.scenario, prior=earlier()))
    without, found = (next(iter(run_trials(each, [Setting("race")], [0]))) for each in (plan, with_prior))
    assert without.path != found.path and found.path[-1].loss < 0.05


def test_a_replay_may_not_learn_from_the_scores_that_it_searches(known):
    with pytest.raises(ConfigError, match="scores of m, which this replay is to search"):
        Scenario(prior=known).build_problem(known)
