"""When a search ends by itself, what it then loses, and what the audit before it prevents."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daskmetrics.bandit import Learner, Outcome, Problem, _learner, arm_features
from daskmetrics.bandit._errors import OwnErrors
from daskmetrics.bandit.problem import Floats
from daskmetrics.bandit.recommend import is_near
from daskmetrics.domain.names import Suite, grid
from daskmetrics.domain.outcomes import difference
from daskmetrics.domain.results import Scored
from tests.bandit.conftest import World, drive, make_learner, with_items

TASKS = 12
KINDS = tuple(f"kind{task % 4}" for task in range(TASKS))
SEEDS = range(6)


def better_where_it_is_expensive(seed: int) -> tuple[Problem, Floats]:
    """Two models of 32 arms; the one that costs four times as much is better, but worse on the three
    cheapest tasks.
    """
    rng = np.random.default_rng(seed)
    steps = tuple(f"step{4**i}" for i in range(4))
    suites = [Suite(name, steps, tuple(range(8)), 7) for name in ("cheap", "good")]
    features = arm_features(suites)
    is_good = features[:, 3] > features[:, 3].min()
    price = np.sort(rng.lognormal(sigma=0.5, size=TASKS))
    cost = price * np.where(is_good, 4.0, 1.0)[:, None]
    sign = np.where(np.arange(TASKS) < 3, -1.0, 1.0)
    quality = 0.08 * features[:, 0] - 0.15 * (features[:, 1] - rng.uniform(0.3, 0.7)) ** 2
    scores = rng.uniform(0.3, 0.7, TASKS) + quality[:, None]
    scores += rng.uniform(0.015, 0.04) * sign * is_good[:, None]
    scores += rng.normal(scale=0.004, size=scores.shape)
    names = tuple(f"task{task}" for task in range(TASKS))
    return Problem(grid(suites), names, features, 0 * cost, cost, kinds=KINDS), scores


def ended(seed: int) -> tuple[Learner, float]:
    """A search with the default end, and the share of the score that it lost."""
    problem, scores = better_where_it_is_expensive(seed)
    learner = make_learner(problem, budget=0.3, seed=seed)
    drive(learner, lambda cell: Outcome(float(scores[problem.locate(cell)])))
    mean = scores.mean(axis=1)
    return learner, float(1 - mean[learner.state.recommended] / mean.max())


def wrong(seeds: range) -> int:
    return sum(lost > 0.01 for _, lost in map(ended, seeds))


def test_a_search_ends_before_its_budget_and_loses_little():
    endings = list(map(ended, SEEDS))
    assert {learner.ending for learner, _ in endings} == {"within"}
    assert max(learner.spent / learner.problem.exhaustive_cost for learner, _ in endings) < 0.2
    for learner, _ in endings:
        found = learner.recommendation()
        assert found.confirmed and found.expected_loss <= 0.001 * found.best.value
        assert found.most_lost is not None  # after the audit


def test_the_audit_finds_what_cheap_tasks_hide(monkeypatch):
    with_audit = wrong(SEEDS)
    monkeypatch.setattr(_learner, "audit", lambda state: None)
    monkeypatch.setattr(_learner, "is_audited", lambda state: True)
    assert with_audit < wrong(SEEDS) - 1


def test_pending_cells_end_no_search():
    """They count as observed where the next cell is chosen, so that none is paid for twice."""
    problem, scores = better_where_it_is_expensive(0)
    learner = make_learner(problem, budget=0.3, seed=0)
    for _ in range(25):
        (pick,) = learner.ask(1)
        learner.tell(pick.index, Outcome(float(scores[problem.locate(pick.cell)])))
    state = learner.state
    others = np.argwhere(~state.paid)
    paid = np.ones_like(state.paid)
    waiting = replace(state, pending=others, paid=paid, cache=None)
    within = 0.01
    assert not is_near(state, within) and not is_near(waiting, within)
    assert waiting.posterior.sd.max() < 0.5 * state.posterior.sd.max()


@pytest.mark.parametrize("own", [0.0, 1.0])
def test_decisions_count_the_errors_that_arms_do_not_share(own):
    """They were scored on the same items: what few items leave open differs less between arms."""
    stderr = 0.05  # as much as the arms differ
    endings = set()
    for seed in SEEDS[:3]:
        problem, scores = better_where_it_is_expensive(seed)
        learner = make_learner(problem, budget=0.3, seed=seed)
        drive(learner, World(problem, scores, stderr, own).outcome)
        endings.add(learner.ending)
        if not own:  # the error that all share is said
            assert learner.recommendation().expected_loss > 0.001
    assert endings == {"budget"} if own else endings <= {"within", "sure"}


def test_an_own_error_is_that_of_the_paired_differences():
    """Of independent scores it is their error; of equal ones next to nothing."""
    errors = OwnErrors()
    scores = [with_items(0.5, 0.05, 0, own=0.4, arm=arm) for arm in range(9)]
    own = [errors.add(0, score.stderr, score.of_items) for score in scores]
    assert own[0] == 0.05  # nothing to compare it with
    recorded = [Scored(0.5, 0.05, outcomes=score.of_items) for score in scores]
    for i, last in enumerate(recorded[1:], 1):
        paired = [difference(last, earlier).stderr for earlier in recorded[:i]]
        assert own[i] == pytest.approx(np.linalg.norm(paired) / np.sqrt(2 * i), rel=1e-3)
    other = with_items(0.5, 0.05, 1, own=0.4)
    assert errors.add(0, 0.05, other.of_items) == 0.05  # of other items
    assert errors.add(0, 0.05, None) == 0.05
    assert errors.add(1, 0.05, other.of_items) == 0.05
    assert errors.add(1, 0.05, other.of_items) == pytest.approx(0.05 / np.sqrt(52), rel=1e-3)
