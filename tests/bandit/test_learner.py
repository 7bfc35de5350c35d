from __future__ import annotations

import json
from dataclasses import asdict, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskmetrics.bandit import Budget, Outcome, Pick, least_budget
from daskmetrics.bandit import model as model_module
from daskmetrics.bandit.policies import BUILT_IN
from daskmetrics.core.errors import ConfigError, DaskmetricsError, DataError
from daskmetrics.core.serialization import build
from daskmetrics.domain.names import Arm
from tests.bandit.conftest import drive, make_learner, make_world

SMALL = make_world(seed=1, revisions=3, layers=3, tasks=3)
HALF = Budget(0.8, cost=0.5 * SMALL.problem.exhaustive_cost)


def search(world, policy="race", **options):
    """A search to its end, of four decisions at a time."""
    return drive(make_learner(world.problem, policy, **{"window": 4, **options}), world.outcome)


def small_search(policy="race", **options):
    """One of about 36 cells of 54."""
    return search(SMALL, policy, **{"budget": 0.7, **options})


def failing(world, fails):
    return lambda cell: Outcome(None) if fails(cell) else world.outcome(cell)


@pytest.fixture
def few_rows(monkeypatch):
    """A short search has what a longer one has: models that are not estimated again."""
    for name, count in (("FEW", 8), ("REFIT", 16), ("BATCH", 8)):
        monkeypatch.setattr(model_module, name, count)


@pytest.mark.parametrize("policy", BUILT_IN)
@pytest.mark.parametrize("budget", [Budget(share=0.7), Budget(cells=17), HALF])
def test_no_cell_is_paid_twice_and_costs_keep_to_the_budget(policy, budget):
    learner = small_search(policy, budget=budget)
    assert len(learner.picks) <= (budget.cells or np.inf)
    limit = (budget.share or 1.0) * SMALL.problem.exhaustive_cost
    assert learner.budget == min(budget.cost or np.inf, limit)
    assert {pick.stage for pick in learner.picks} <= {"cover", "search", "confirm"}
    assert len({pick.cell for pick in learner.picks}) == len(learner.picks)
    assert learner.spent == pytest.approx(sum(pick.cost for pick in learner.picks))
    assert learner.spent <= learner.budget * (1.01 + 1e-9)  # for the last scores of the leader


def test_the_order_of_arrival_changes_no_decision(few_rows):
    ordered = small_search()
    assert len(ordered.picks) > 24

    @settings(max_examples=settings.default.max_examples // 3)
    @given(order=st.integers(0, 2**32), workers=st.integers(1, 6))
    def check(order, workers):
        learner = make_learner(SMALL.problem, budget=0.7, window=4)
        drive(learner, SMALL.outcome, workers, np.random.default_rng(order))
        assert learner.picks == ordered.picks
        assert learner.recommendation() == ordered.recommendation()

    check()


def test_decisions_wait_only_for_cells_that_should_have_finished():
    small = make_world()
    learner = make_learner(small.problem, window=4)
    picks = learner.ask(99)
    assert [pick.index for pick in picks] == [0, 1, 2, 3]
    due = [pick for pick in picks if pick.cost == min(other.cost for other in picks)]
    late = max(picks, key=lambda pick: pick.cost)
    learner.tell(late.index, small.outcome(late.cell))
    assert len(due) < 4 and learner.ask(99) == []  # the cheapest cells should have ended by now
    for pick in due:
        learner.tell(pick.index, small.outcome(pick.cell))
    (following,) = learner.ask(1)
    assert following.known == len(due)  # the early outcome is not used yet
    assert len(learner.ask(99)) < 4


@pytest.mark.parametrize("policy", ["race", "random"])
def test_an_interrupted_search_resumes_with_the_same_decisions(policy):
    whole = small_search(policy)
    for split in (7, len(whole.picks) // 2, len(whole.picks)):
        plain = json.loads(json.dumps([pick.as_dict() for pick in whole.picks[:split]]))
        decided = [build(Pick, pick) for pick in plain]
        resumed = make_learner(SMALL.problem, policy, 0.7, window=4, decided=decided)
        assert resumed.spent == pytest.approx(sum(pick.cost for pick in decided))
        for pick in decided[::-2]:  # every other outcome was recorded, in no special order
            resumed.tell(pick.index, SMALL.outcome(pick.cell))
        assert drive(resumed, SMALL.outcome).picks == whole.picks
        assert resumed.recommendation() == whole.recommendation()


def test_the_leader_is_confirmed_if_that_costs_little():
    small = make_world(revisions=12, seed=3)
    assert search(small, budget=0.5).recommendation().confirmed
    least = least_budget(small.problem) / small.problem.exhaustive_cost
    poor = search(small, budget=1.01 * least)
    assert "confirm" not in {pick.stage for pick in poor.picks}


def test_failed_cells_are_not_asked_again_and_leave_no_number():
    small = make_world()
    lost = {pick.cell for pick in search(small).picks[5::4]}
    learner = drive(make_learner(small.problem, window=4), failing(small, lost.__contains__))
    assert len({pick.cell for pick in learner.picks}) == len(learner.picks)
    answer = learner.recommendation()
    assert answer.failed == sum(pick.cell in lost for pick in learner.picks) > 0
    assert answer.cells + answer.failed == len(learner.picks)
    assert answer.best.scores.keys().isdisjoint(c.task for c in lost if c.arm == answer.arm)
    assert 0 <= answer.expected_loss < (answer.most_lost or np.inf)
    plain = json.loads(json.dumps(asdict(answer), allow_nan=False))
    assert Arm(**plain["best"]["arm"]) == answer.arm == answer.top[0]


def test_when_every_cell_fails_there_is_no_recommendation():
    learner = drive(make_learner(SMALL.problem, budget=0.7), lambda cell: Outcome(None))
    with pytest.raises(DaskmetricsError, match=r"no score is known and .* failed"):
        learner.recommendation()


def test_reading_the_state_changes_no_bit_of_the_search(few_rows):
    often = np.random.default_rng(0)
    quiet, watched = (make_learner(SMALL.problem, budget=0.7, window=4) for _ in range(2))
    for learner in (quiet, watched):
        while picks := learner.ask(4):
            for pick in picks:
                learner.tell(pick.index, SMALL.outcome(pick.cell))
                if learner is watched and often.random() < 0.5:
                    assert learner.recommendation().arm in SMALL.problem.arm_index
    assert quiet.picks == watched.picks
    for learner in (quiet, watched):
        learner.rebuild_posterior()
    assert quiet.state.posterior.mean.tobytes() == watched.state.posterior.mean.tobytes()
    assert quiet.recommendation() == watched.recommendation()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budget": 0.0}, "needs a budget"),
        ({"budget": 1.5}, "needs a budget"),
        ({"window": 0}, "needs a window"),
    ],
)
def test_an_option_out_of_range_is_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        make_learner(SMALL.problem, **change)
    for empty in ({}, {"cells": 0}, {"cost": -1.0}, {"share": 0.5, "cells": -2}):
        with pytest.raises(ConfigError, match="needs a budget"):
            Budget(**empty)


def test_outcomes_and_decisions_of_other_searches_are_refused():
    learner = small_search(window=1)
    for index in (0, 99):
        with pytest.raises(DataError, match=f"Decision {index} already has an outcome or does not"):
            learner.tell(index, Outcome(0.5))
    with pytest.raises(DataError, match="Decision 0 is missing"):
        make_learner(SMALL.problem, decided=learner.picks[1:])
    other = make_world().problem
    with pytest.raises(DataError, match="not part of this search"):
        make_learner(SMALL.problem, decided=make_learner(other).ask(1))


@pytest.mark.parametrize(("window", "seed"), [(1, 0), (4, 1)])
def test_a_larger_budget_begins_as_a_smaller_one(seed, window):
    small = make_world(seed=seed)
    searches = [search(small, budget=budget, window=window) for budget in (0.15, 0.2, 0.3)]
    for less, more in pairwise(searches):
        same = len(less.picks) // 3
        assert less.picks[:same] == more.picks[:same] and same > 3


@pytest.mark.parametrize(
    ("ending", "options"),
    [
        ("sure", {"budget": 0.5, "within": 0.0}),
        ("budget", {"budget": 0.15}),
        ("cells", {"budget": Budget(cells=20)}),
        ("within", {"budget": 0.5, "within": 0.2}),
    ],
)
def test_a_search_says_why_it_ended(ending, options):
    small = make_world(seed=1)
    learner = make_learner(small.problem, **options)
    (first,) = learner.ask(1)
    learner.tell(first.index, small.outcome(first.cell))
    assert learner.ending == "stopped"
    assert drive(learner, small.outcome).ending == ending


@pytest.mark.parametrize("policy", BUILT_IN)
def test_a_budget_of_one_scores_every_cell(policy):
    small = make_world(revisions=2, layers=3, tasks=3)
    # loads may be paid for twice
    loading = replace(small.problem, load_cost=50.0 + 0 * small.problem.features[:, 0])
    learner = search(replace(small, problem=loading), policy, budget=1.0, window=2)
    assert len(learner.picks) == small.scores.size and learner.ending == "complete"
