from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daskmetrics.bandit import Learner, Outcome, metrics_worth, outlook, policy_named
from daskmetrics.bandit._learner import Budget
from daskmetrics.bandit._outlook import AHEAD, ending_of, leave_one_out_error, unlimited
from daskmetrics.bandit._posterior import ObservationRows, fit_posterior
from daskmetrics.bandit.policies._registry import BUILT_IN


def finish(world, policy="race", budget=0.3, window=1, **options):
    learner = Learner(world.problem, policy_named(policy), budget=budget, window=window, seed=0, **options)
    while not learner.done:
        for pick in learner.ask(window):
            learner.tell(pick.index, world.outcome(pick.cell))
    return learner


@pytest.mark.parametrize(
    ("ending", "options"),
    [
        ("sure", {"budget": 0.5}),
        ("budget", {"budget": 0.15}),
        ("cells", {"budget": Budget(cells=20)}),
        ("confidence", {"budget": 0.5, "confidence": 0.5, "within": 0.1}),
        ("complete", {"budget": 1.0}),
    ],
)
def test_a_search_says_why_it_ended(world, ending, options):
    assert outlook(finish(world(seed=1), **options)).ending == ending


def test_a_search_that_could_go_on_was_stopped_from_outside(world):
    small = world(seed=1)
    learner = Learner(small.problem, policy_named("race"), budget=0.3, window=1, seed=0)
    for _ in range(9):
        (pick,) = learner.ask(1)
        learner.tell(pick.index, small.outcome(pick.cell))
    assert outlook(learner).ending == "stopped"


@pytest.mark.parametrize("policy", BUILT_IN)
def test_a_budget_of_one_scores_every_cell(world, policy):
    small = world(revisions=2, layers=3, tasks=3)
    loading = replace(small.problem, load_cost=50.0 + 0 * small.problem.features[:, 0])  # loads may be paid for twice
    learner = finish(replace(small, problem=loading), policy, budget=1.0, window=2)
    assert len(learner.picks) == small.scores.size and ending_of(learner) == "complete"


def test_a_search_that_is_sure_goes_on_if_it_is_to_spend_more(world):
    small = world(seed=1)
    sure, spends = finish(small, budget=0.6), finish(small, budget=0.6, spend=0.5)
    whole = small.problem.exhaustive_cost
    assert outlook(sure).ending == "sure" and sure.spent < 0.4 * whole
    assert spends.picks[: len(sure.picks)] == sure.picks
    assert 0.5 <= spends.spent / whole <= 0.6
    assert {"spend"} <= set(spends.picks[len(sure.picks)].why)


def test_a_required_confidence_waits_for_what_is_to_be_spent(world):
    small, options = world(seed=1), {"budget": 0.5, "confidence": 0.5, "within": 0.1}
    assert finish(small, **options).spent < 0.3 * small.problem.exhaustive_cost
    assert finish(small, **options, spend=0.4).spent >= 0.4 * small.problem.exhaustive_cost


@pytest.mark.parametrize("seed", range(3))
def test_the_expected_gains_add_up_to_no_more_than_the_expected_loss(world, seed):
    learner = finish(world(seed=seed), budget=0.15)
    gains, result = outlook(learner).gains, learner.recommendation()
    assert sum(gain.value for gain in gains) > 0 and sum(gain.cells for gain in gains) <= AHEAD
    assert sum(gain.value for gain in gains) < 1.05 * result.expected_loss
    left = 1 - learner.spent / learner.problem.exhaustive_cost
    assert sum(gain.share for gain in gains) == pytest.approx(left)
    assert all(gain.share == 0.1 for gain in gains[:-1])


def test_the_outlook_changes_neither_the_decisions_nor_the_recommendation(world):
    learner = finish(world(), budget=0.15)
    before = learner.picks, learner.recommendation()
    assert outlook(learner) == outlook(learner)
    assert (learner.picks, learner.recommendation()) == before and learner.done


def test_the_loss_and_the_gain_are_those_of_draws_from_the_covariances(world, after, draw):
    small = world(seed=2, revisions=3)
    learner = finish(small, "random", budget=Budget(cells=40))
    result, state = learner.recommendation(), learner.state
    arms, rng = np.arange(len(small.problem.arms)), np.random.default_rng(1)
    ahead = unlimited(learner, AHEAD)
    ahead.ask(AHEAD)  # every cell that is left
    now, then = learner.state.posterior, ahead.state.posterior
    covariance = now.covariance(arms, arms)
    explained = covariance - then.covariance(arms, arms)
    for matrix, value, arm in (
        (covariance, result.expected_loss, state.recommended),
        (explained, sum(gain.value for gain in outlook(learner).gains), state.leader),
    ):
        draws = rng.multivariate_normal(now.mean, matrix, 200_000, check_valid="ignore")
        assert value == pytest.approx((draws.max(axis=1) - draws[:, arm]).mean(), rel=0.1)


def test_an_outlook_without_a_score_states_no_gain(world):
    small = world(revisions=2)
    learner = Learner(small.problem, policy_named("race"), budget=Budget(cells=10), window=1, seed=0)
    while picks := learner.ask(1):
        learner.tell(picks[0].index, Outcome(None))
    assert outlook(learner).as_dict() == {"ending": "cells", "gains": []}


def with_metrics(world, metrics):
    return replace(world, problem=replace(world.problem, features=np.hstack([world.problem.features, metrics])))


def test_the_same_scores_are_decided_on_again_without_metrics(world):
    small = world(seed=4)
    quality = small.scores.mean(axis=1)
    good = with_metrics(small, ((quality - quality.mean()) / quality.std())[:, None])
    learner = finish(good, budget=0.3)
    worth = metrics_worth(learner.state, 0.01)
    bare = fit_posterior(small.problem, learner.state.observations)
    assert worth.arm == small.problem.arms[int(np.argmax(bare.mean))]
    assert worth.error_with < worth.error
    assert metrics_worth(finish(small, budget=0.15).state, 0.01) is None  # it has no metrics


def test_the_error_of_left_out_scores_is_that_of_a_loop(world, after, draw):
    state = after(small := world(seed=3), draw(small, 40))
    model, seen = state.posterior.model, state.observations
    rows, values = ObservationRows.of(model, seen.arm, seen.task), model.values(seen)
    errors = []
    for i in range(len(seen)):
        others = np.arange(len(seen)) != i
        kept, left = rows.take(others), rows.take(~others)
        covariance = model.cells(kept.arm, kept.mix, kept.arm, kept.mix) + np.diag(kept.noise)
        predicted = model.cells(left.arm, left.mix, kept.arm, kept.mix) @ np.linalg.solve(covariance, values[others])
        errors.append((values[i] - predicted[0]) * model.spread[seen.task[i]])
    assert leave_one_out_error(model, seen) == pytest.approx(np.sqrt(np.mean(np.square(errors))))
