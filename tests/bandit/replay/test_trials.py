from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daskmetrics.bandit.replay import Plan, Setting, Terms, conduct
from daskmetrics.core.errors import ConfigError


def test_trials_do_not_depend_on_the_number_of_processes(known):
    plan = Plan(known, Terms(subset=3), 0.3)
    settings = [Setting("race"), Setting("random")]
    one, two = (list(conduct(plan, settings, range(3), jobs)) for jobs in (1, 2))
    # probabilities are NaN where nothing was said, and NaN is not itself
    assert [repr(trial) for trial in one] == [repr(trial) for trial in two]
    assert [(trial.setting.policy, trial.seed) for trial in one] == [
        (p, s) for p in ("race", "random") for s in range(3)
    ]


def test_a_path_ends_at_the_answer_and_only_costs_more(known):
    (trial,) = conduct(Plan(known, Terms(), 0.5), [Setting("race")], [0])
    shares = [step.share for step in trial.path]
    assert shares == sorted(shares) and 0 < shares[-1] < 0.8
    assert trial.path[-1].loss == 0.0 and trial.cells > 5


def test_an_exhaustive_sweep_finds_the_best_arm(known):
    (trial,) = conduct(Plan(known, Terms(), 1.0), [Setting("sweep")], [0])
    assert trial.path[-1].loss == 0.0 and trial.path[-1].share == pytest.approx(1.0) and trial.cells == 120


def test_metrics_that_are_the_score_help_and_are_not_seen_if_left_out(known):
    telling = replace(known, metrics=known.scores.mean(axis=1, keepdims=True), metric_names=("oracle",))
    plan = Plan(telling, Terms(), 0.2)
    with_, without, plain = (
        list(conduct(each, [setting], range(2)))
        for each, setting in (
            (plan, Setting("race")),
            (plan, Setting("race", metrics=False)),
            (Plan(replace(known, metrics=None, metric_names=()), Terms(), 0.2), Setting("race")),
        )
    )
    assert [trial.path for trial in with_] != [trial.path for trial in without]
    assert [[step.share for step in trial.path] for trial in without] == [
        [step.share for step in trial.path] for trial in plain
    ]


def test_an_unknown_policy_ends_before_any_search(known):
    with pytest.raises(ConfigError, match="Did you mean 'race'"):
        next(conduct(Plan(known, Terms(), 0.2), [Setting("rase")], [0], jobs=2))


def test_a_policy_of_ones_own_is_named_by_its_place(known):
    (mine, ours) = (
        next(iter(conduct(Plan(known, Terms(), 0.2), [Setting(name)], [0])))
        for name in ("daskmetrics.bandit.policies.race:ask", "race")
    )
    assert np.array_equal([s.loss for s in mine.path], [s.loss for s in ours.path])
