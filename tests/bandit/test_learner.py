from __future__ import annotations

import json
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskmetrics.bandit import Budget, Choice, Learner, Outcome, Pick, least_budget, policy_named
from daskmetrics.bandit import model as model_module
from daskmetrics.bandit._state import MissingLooks, covering_costs
from daskmetrics.bandit.policies import BUILT_IN
from daskmetrics.core.errors import ConfigError, DaskmetricsError, DataError
from daskmetrics.core.names import Arm


def make_learner(problem, policy="race", budget=0.25, window=4, seed=0, decided=()):
    return Learner(
        problem, policy_named(policy), budget=budget, window=window, seed=seed, decided=decided
    )


def drive(search, outcome, rng=None, slots=4):
    """Run to the end on a number of workers; with a generator, they finish in random order."""
    running = list(search.open)
    while not search.done:
        running += search.ask(max(slots - len(running), 0))
        pick = running.pop(int(rng.integers(len(running))) if rng else 0)
        search.tell(pick.index, outcome(pick.cell))
    return search


def failing(world, fails):
    return lambda cell: Outcome(None) if fails(cell) else world.outcome(cell)


@pytest.fixture(scope="session")
def finished(world):
    """Searches that have ended, which several tests look at: none of them changes one."""

    @cache
    def search(seed, revisions=6, **options):
        small = world(seed=seed, revisions=revisions)
        return drive(make_learner(small.problem, **options), small.outcome)

    return search


@pytest.mark.parametrize("policy", ["race", "random", "sweep"])
@pytest.mark.parametrize("seed", range(2))
def test_no_cell_is_paid_twice_and_costs_add_up_within_the_budget(finished, policy, seed):
    search = finished(seed, policy=policy)
    assert {pick.stage for pick in search.picks} <= {"cover", "search", "confirm"}
    assert len({pick.cell for pick in search.picks}) == len(search.picks)
    assert search.spent == pytest.approx(sum(pick.cost for pick in search.picks))
    assert search.spent <= search.budget * (1 + 1e-9)


@settings(max_examples=settings.default.max_examples // 3)
@given(order=st.integers(0, 2**32), slots=st.integers(1, 6))
def test_the_order_of_arrival_changes_no_decision(world, finished, order, slots):
    small, ordered = world(seed=1, revisions=4), finished(1, revisions=4)
    shuffled = drive(
        make_learner(small.problem), small.outcome, np.random.default_rng(order), slots
    )
    assert shuffled.picks == ordered.picks
    assert shuffled.recommendation() == ordered.recommendation()


def test_decisions_wait_only_for_cells_that_should_have_finished(world):
    small = world()
    search = make_learner(small.problem, window=4)
    first = search.ask(99)
    assert [pick.index for pick in first] == [0, 1, 2, 3]
    due = [pick for pick in first if pick.cost == min(other.cost for other in first)]
    late = max(first, key=lambda pick: pick.cost)
    search.tell(late.index, small.outcome(late.cell))
    assert len(due) < 4 and search.ask(99) == []  # the cheapest cells should have ended by now
    for pick in due:
        search.tell(pick.index, small.outcome(pick.cell))
    assert [pick.known for pick in search.ask(1)] == [len(due)]  # the early outcome is not used yet
    assert len(search.ask(99)) < 4


def test_an_expensive_cell_does_not_block_the_others(world):
    small = world()
    cost = small.problem.score_cost.copy()
    cost[:, 0] = 1000 * cost.sum()
    problem = replace(small.problem, score_cost=cost)

    def expensive_first(state):
        order = [1, 2, 3, 4] if state.paid[:, 0].any() else [0]
        return next((Choice(a, t) for a in range(48) for t in order if not state.paid[a, t]), None)

    search = Learner(problem, expensive_first, budget=1.0, window=3, seed=0)
    *first_looks, expensive = search.ask(3)
    for pick in first_looks:
        search.tell(pick.index, small.outcome(pick.cell))
    assert expensive.cell.task == "task0"
    for _ in range(40):
        (pick,) = search.ask(1)
        search.tell(pick.index, small.outcome(pick.cell))
    assert search.open == (expensive,)


@pytest.mark.parametrize("policy", ["race", "random"])
def test_an_interrupted_search_resumes_with_the_same_decisions(world, policy):
    small = world(seed=3, revisions=3)
    begin = partial(
        make_learner, budget=1.2 * least_budget(small.problem) / small.problem.exhaustive_cost
    )
    whole = drive(begin(small.problem, policy), small.outcome)
    for split in (*range(0, len(whole.picks), 7), len(whole.picks)):
        known = [
            Pick.from_dict(json.loads(json.dumps(pick.as_dict()))) for pick in whole.picks[:split]
        ]
        search = begin(small.problem, policy, decided=known)
        assert search.spent == pytest.approx(sum(pick.cost for pick in known))
        for pick in known[::-2]:  # every other outcome was recorded, in no special order
            search.tell(pick.index, small.outcome(pick.cell))
        assert drive(search, small.outcome).picks == whole.picks
        assert search.recommendation() == whole.recommendation()


def test_decisions_depend_on_seed_and_window(world, finished):
    small = world()
    other = drive(make_learner(small.problem, "random", seed=1), small.outcome)
    assert finished(0, policy="random").picks != other.picks
    assert finished(0, window=1).picks != finished(0, policy="race").picks


def test_the_leader_is_confirmed_if_that_takes_a_small_part_of_the_budget(world):
    small = world(revisions=12, seed=3)
    search = drive(make_learner(small.problem, budget=0.5), small.outcome)
    assert search.recommendation().confirmed
    least = least_budget(small.problem) / small.problem.exhaustive_cost
    poor = drive(make_learner(small.problem, budget=1.01 * least), small.outcome)
    assert "confirm" not in {pick.stage for pick in poor.picks}


@pytest.mark.parametrize(
    ("budget", "cost", "cells"),
    [
        (Budget(share=0.2), 0.2, 999),
        (Budget(cells=17), 1.0, 17),
        (Budget(share=0.5, cost=99.0), None, 999),
    ],
)
def test_a_budget_may_be_counted_in_several_ways(world, budget, cost, cells):
    small = world()
    search = drive(make_learner(small.problem, "random", budget=budget), small.outcome)
    assert search.spent <= (99.0 if cost is None else cost * small.problem.exhaustive_cost) * (
        1 + 1e-9
    )
    assert len(search.picks) <= cells


def test_failed_cells_are_not_asked_again_and_leave_no_number(world, finished):
    small = world()
    lost = {pick.cell for pick in finished(0, policy="race").picks[5::4]}
    search = drive(make_learner(small.problem), failing(small, lost.__contains__))
    assert len({pick.cell for pick in search.picks}) == len(search.picks)
    answer = search.recommendation()
    assert answer.failed == sum(pick.cell in lost for pick in search.picks) > 0
    assert answer.cells + answer.failed == len(search.picks)
    assert all(
        (answer.arm, name) not in {(cell.arm, cell.task) for cell in lost}
        for name in answer.best.scores
    )


def test_a_search_whose_default_fails_goes_on_without_it(world):
    small = world(revisions=4)
    default = small.problem.arms[-1].checkpoint
    problem = replace(small.problem, default=default)
    search = drive(
        make_learner(problem, budget=0.5), failing(small, lambda c: c.arm.checkpoint == default)
    )
    answer = search.recommendation()
    assert answer.arm.checkpoint != default
    assert answer.default.scores == {} and answer.default.mean is None


def test_when_every_cell_fails_there_is_no_recommendation(world):
    search = drive(make_learner(world().problem), lambda cell: Outcome(None))
    with pytest.raises(DaskmetricsError, match=r"no score is known and .* failed"):
        search.recommendation()


def test_a_recommendation_says_what_a_report_needs(world):
    small = world(seed=5)
    search = drive(make_learner(small.problem, budget=0.4), small.outcome)
    answer = search.recommendation()
    assert answer.arm == answer.top[0].arm and len(answer.top) == 10
    assert set(answer.best.scores) == set(small.problem.tasks)
    best = small.problem.arm_index[answer.arm]
    assert answer.best.mean.score == pytest.approx(small.scores[best].mean())
    assert answer.best.mean.stderr == pytest.approx(0.005 / np.sqrt(5))
    assert answer.best.interval[0] < answer.best.value < answer.best.interval[1]
    assert answer.default.arm == small.problem.arms[small.problem.default_arms[best]]
    assert 0.5 < answer.probability_best <= answer.probability_within <= 1
    assert answer.arm in answer.credible
    assert answer.spent < answer.exhaustive == small.problem.exhaustive_cost
    plain = json.loads(json.dumps(answer.as_dict(), allow_nan=False))
    assert Arm(**plain["best"]["arm"]) == answer.arm
    assert plain["best"]["interval"] == list(answer.best.interval)


def test_reading_the_state_changes_no_bit_of_the_recommendation(world, monkeypatch):
    small, often = world(revisions=5), np.random.default_rng(0)
    for name, count in (("FEW", 16), ("REFIT", 32), ("BATCH", 16)):  # as in a longer search
        monkeypatch.setattr(model_module, name, count)
    quiet, watched = (make_learner(small.problem, budget=0.6) for _ in range(2))
    for search in (quiet, watched):
        while picks := search.ask(4):
            for pick in picks:
                search.tell(pick.index, small.outcome(pick.cell))
                if search is watched and often.random() < 0.5:
                    assert search.state.posterior.mean.any()
    assert quiet.picks == watched.picks
    for search in (quiet, watched):
        search.rebuild_posterior()
    assert quiet.state.posterior.mean.tobytes() == watched.state.posterior.mean.tobytes()
    assert quiet.recommendation() == watched.recommendation()


def test_a_running_search_has_a_recommendation(world):
    small = world()
    search = make_learner(small.problem)
    first = max(search.ask(4), key=lambda pick: pick.cost)
    search.tell(first.index, small.outcome(first.cell))
    assert not search.done
    assert not search.recommendation().confirmed
    assert search.ask(1) == []  # reading it makes no decision


def test_the_interval_contains_the_truth_about_as_often_as_stated(world):
    inside = []
    for seed in range(12):
        small = world(seed=seed, revisions=4)
        rng = np.random.default_rng(seed)
        noisy = replace(
            small, scores=small.scores + rng.normal(scale=0.005, size=small.scores.shape)
        )
        best = drive(make_learner(small.problem, seed=seed), noisy.outcome).recommendation().best
        low, high = best.interval
        inside.append(low <= small.scores[small.problem.arm_index[best.arm]].mean() <= high)
    assert np.mean(inside) >= 0.75  # 0.95 less the winner's curse and what twelve draws allow


@pytest.mark.parametrize("change", [{"budget": 0.0}, {"budget": 1.5}, {"window": 0}])
def test_a_budget_or_window_out_of_range_is_refused(world, change):
    with pytest.raises(ConfigError, match="A search needs a"):
        make_learner(world().problem, **change)


@pytest.mark.parametrize("given", [{}, {"cells": 0}, {"cost": -1.0}, {"share": 0.5, "cells": -2}])
def test_an_empty_budget_is_refused(given):
    with pytest.raises(ConfigError, match="needs a budget"):
        Budget(**given)


def test_a_confidence_out_of_range_is_refused(world):
    with pytest.raises(ConfigError, match="between 0 and 1"):
        Learner(world().problem, policy_named("race"), budget=0.3, window=1, seed=0, confidence=95)


def test_an_outcome_is_reported_once_and_only_for_a_decision(world):
    small = world()
    search = make_learner(small.problem)
    (pick,) = search.ask(1)
    search.tell(pick.index, small.outcome(pick.cell))
    for index in (pick.index, 7):
        with pytest.raises(
            DataError, match=f"Decision {index} already has an outcome or does not exist"
        ):
            search.tell(index, small.outcome(pick.cell))


def test_recorded_decisions_that_do_not_fit_are_refused(world, finished):
    small, picks = world(), finished(0, policy="race").picks
    with pytest.raises(DataError, match="Decision 0 is missing"):
        make_learner(small.problem, decided=picks[1:])
    with pytest.raises(DataError, match="not part of this search"):
        make_learner(world(revisions=2, layers=2).problem, decided=picks)


@pytest.mark.parametrize(("window", "seed"), [(1, 0), (4, 1)])
def test_a_larger_budget_repeats_a_smaller_one_until_that_cannot_pay(world, seed, window):
    small = world(seed=seed)
    searches = [
        drive(make_learner(small.problem, budget=b, window=window), small.outcome)
        for b in (0.15, 0.2, 0.3)
    ]
    for less, more in pairwise(searches):
        pairs = zip(less.picks, more.picks, strict=False)
        same = next((i for i, (one, other) in enumerate(pairs) if one != other), len(less.picks))
        if same == len(less.picks):
            continue
        assert same > len(less.picks) / 3
        # what the larger budget bought next, or the confirmation that it began, is too expensive
        # for the smaller one, beside what this keeps for the first looks that are missing
        begun = make_learner(
            small.problem, budget=less.budget / small.problem.exhaustive_cost, window=window
        )
        while len(begun.picks) < same:
            for pick in begun.ask(min(window, same - len(begun.picks))):
                begun.tell(pick.index, small.outcome(pick.cell))
        state, following = begun.state, more.picks[same]
        arm, task = small.problem.locate(following.cell)
        missing = state.cost[arm, ~state.paid[arm]].sum()
        kept = covering_costs(small.problem)[MissingLooks.of(state).all].sum()
        is_open = replace(state, remaining=state.remaining - kept).open[arm, task]
        is_look = "cover" in (following.stage, less.picks[same].stage)
        assert (
            is_look or not is_open or (following.stage == "confirm" and missing > state.remaining)
        )


def finish(world, policy="race", budget=0.3, window=1, **options):
    learner = Learner(
        world.problem, policy_named(policy), budget=budget, window=window, seed=0, **options
    )
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
    ],
)
def test_a_search_says_why_it_ended(world, ending, options):
    assert finish(world(seed=1), **options).ending == ending


def test_a_search_that_could_go_on_was_stopped_from_outside(world):
    small = world(seed=1)
    learner = Learner(small.problem, policy_named("race"), budget=0.3, window=1, seed=0)
    for _ in range(9):
        (pick,) = learner.ask(1)
        learner.tell(pick.index, small.outcome(pick.cell))
    assert learner.ending == "stopped"


@pytest.mark.parametrize("policy", BUILT_IN)
def test_a_budget_of_one_scores_every_cell(world, policy):
    small = world(revisions=2, layers=3, tasks=3)
    # loads may be paid for twice
    loading = replace(small.problem, load_cost=50.0 + 0 * small.problem.features[:, 0])
    learner = finish(replace(small, problem=loading), policy, budget=1.0, window=2)
    assert len(learner.picks) == small.scores.size and learner.ending == "complete"
