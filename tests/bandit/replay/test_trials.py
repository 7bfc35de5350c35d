from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daskmetrics.bandit.replay import ReplayPlan, Scenario, Setting, run_trials
from daskmetrics.core.errors import ConfigError


def test_trials_do_not_depend_on_the_number_of_processes(known):
    plan = ReplayPlan(known, Scenario(subset=3), 0.3)
    settings = [Setting("race"), Setting("random")]
    one, two = (list(run_trials(plan, settings, range(3), jobs)) for jobs in (1, 2))
    # the confidence is NaN where it was not computed, and NaN != NaN
    assert [repr(trial) for trial in one] == [repr(trial) for trial in two]
    assert [(trial.setting.policy, trial.seed) for trial in one] == [
        (p, s) for p in ("race", "random") for s in range(3)
    ]


def test_a_path_ends_at_the_recommendation_and_its_cost_only_grows(known):
    (trial,) = run_trials(ReplayPlan(known, Scenario(), 0.5), [Setting("race")], [0])
    shares = [step.share for step in trial.path]
    assert shares == sorted(shares) and 0 < shares[-1] < 0.8
    assert trial.path[-1].loss == 0.0 and trial.cells > 5


def test_an_exhaustive_sweep_finds_the_best_arm(known):
    (trial,) = run_trials(ReplayPlan(known, Scenario(), 1.0), [Setting("sweep")], [0])
    assert trial.path[-1].loss == 0.0 and trial.path[-1].share == pytest.approx(1.0) and trial.cells == 120


def test_informative_metrics_change_the_search_unless_left_out(known):
    informative = replace(known, metrics=known.scores.mean(axis=1, keepdims=True), metric_names=("oracle",))
    plan = ReplayPlan(informative, Scenario(), 0.2)
    with_, without, plain = (
        list(run_trials(each, [setting], range(2)))
        for each, setting in (
            (plan, Setting("race")),
            (plan, Setting("race", metrics=False)),
            (ReplayPlan(replace(known, metrics=None, metric_names=()), Scenario(), 0.2), Setting("race")),
        )
    )
    assert [trial.path for trial in with_] != [trial.path for trial in without]
    assert [[step.share for step in trial.path] for trial in without] == [
        [step.share for step in trial.path] for trial in plain
    ]


def test_an_unknown_policy_fails_before_any_search(known):
    with pytest.raises(ConfigError, match="Did you mean 'race'"):
        next(run_trials(ReplayPlan(known, Scenario(), 0.2), [Setting("rase")], [0], jobs=2))


def test_a_user_policy_is_named_by_its_import_path(known):
    (mine, ours) = (
        next(iter(run_trials(ReplayPlan(known, Scenario(), 0.2), [Setting(name)], [0])))
        for name in ("daskmetrics.bandit.policies.race:ask", "race")
    )
    assert np.array_equal([s.loss for s in mine.path], [s.loss for s in ours.path])
