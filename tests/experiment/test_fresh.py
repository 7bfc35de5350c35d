"""The finalists of a search on items that were kept back from it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daskmetrics import experiment
from daskmetrics.answer.worth import fresh_items
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import RunFolder
from daskmetrics.domain.costs import CostModel
from daskmetrics.domain.names import Cell
from daskmetrics.domain.outcomes import pack
from daskmetrics.domain.results import Scored
from daskmetrics.domain.scores import Scores
from daskmetrics.execution import Record
from daskmetrics.experiment import Display, fresh
from daskmetrics.experiment import search as search
from daskmetrics.experiment.problem import build_problem
from daskmetrics.report import Run
from tests.experiment.test_search import Bench

FRESH = {"confirm": "fresh", "budget": 1.0}


def test_fresh_items_have_the_same_tasks_and_other_keys(prepared):
    kept = prepared(search=FRESH)
    assert [task.name for task in kept.fresh] == [task.name for task in kept.tasks]
    assert kept.plan.store_key != prepared().plan.store_key
    plan = kept.plan
    keys = [plan.score_key(plan.arms[0], of[0]) for of in (plan.tasks, plan.fresh)]
    assert keys[0] != keys[1]
    with pytest.raises(ConfigError, match="'mteb:STS12' cannot be divided"):
        prepared(tasks=["stdlib:order", "mteb:STS12"], search=FRESH)


def test_the_cells_that_are_left_include_the_fresh_items(prepared):
    plain, kept = prepared(search={**FRESH, "confirm": "leader"}), prepared(search=FRESH)
    left = search.cells_left(kept, ())
    finalists = fresh.FINALISTS * len(kept.fresh)
    assert left == search.cells_left(plain, ()) + finalists
    arm, task = kept.plan.arms[0], kept.plan.fresh[0]
    cell = str(Cell(arm, task.name))
    record = Record(kept.plan.score_key(arm, task), cell, "fresh", "ok", Scored(0.5, 0.1))
    assert search.cells_left(kept, (record,)) == left - 1


def scored(mean, seed):
    """A score with outcomes that are common to all of them but for a little."""
    shared = np.random.default_rng(1).normal(0, 0.3, 200)
    outcomes = mean + shared - shared.mean() + np.random.default_rng(seed).normal(0, 0.05, 200)
    return Scored(float(outcomes.mean()), 0.02, outcomes=pack(outcomes, outcomes.mean(), "items"))


@pytest.fixture
def decided(prepared):
    """An experiment that keeps items back, its problem, and a recommendation that is sure of its
    first arm.
    """
    bench = Bench(prepared(search={**FRESH, "weights": {"stdlib:order": 9.0}}))
    bench.drive(slots=1)
    best = bench.learner.recommendation()
    return bench.search.experiment, bench.problem, replace(best, credible=(best.arm,))


def test_finalists_are_the_leader_its_rivals_and_the_default_arm(decided):
    kept, problem, best = decided
    none = Scores({}, problem.tasks)

    def chosen(*rivals):
        return fresh.finalists(kept.plan.weights, replace(best, credible=(best.arm, *rivals)), none)

    others = [arm for arm in problem.arms if arm not in (best.arm, best.default.arm)]
    assert chosen(*others[:2]) == (best.arm, others[0], best.default.arm, others[1])
    assert best.default.arm in chosen() and chosen()[0] == best.arm
    assert len(chosen()) >= 2  # a sure search still has a rival
    assert len(chosen(*others)) == fresh.FINALISTS


def test_arms_that_cannot_be_told_apart_are_finalists(decided):
    kept, problem, best = decided
    scores = {
        arm: dict.fromkeys(problem.tasks, scored(0.2, seed))
        for seed, arm in enumerate(problem.arms)
    }
    scores[best.arm] = dict.fromkeys(problem.tasks, scored(0.5, 100))
    tied = problem.arms[3] if problem.arms[3] != best.arm else problem.arms[4]
    # equal in the weighted mean, and far behind in the plain one
    scores[tied] = {"stdlib:order": scored(0.55, 101), "stdlib:package": scored(0.05, 102)}
    chosen = fresh.finalists(kept.plan.weights, best, Scores(scores, problem.tasks))
    assert chosen[:2] == (best.arm, tied) and set(chosen) <= {best.arm, tied, best.default.arm}


@pytest.mark.slow
def test_a_run_reports_its_finalists_on_fresh_items(prepared, tmp_path, client):
    whole = prepared(search=FRESH, metrics=[])
    folder = RunFolder(tmp_path / "run")
    experiment.run(whole, folder, Display(), client)
    run = Run(folder.path)
    found = fresh_items(run.fresh, run.recorded, run.weights)
    assert run.result and found and len(found.finalists) == len(run.result.fresh) >= 2
    assert found.finalists[0].arm == run.best().arm == run.result.fresh[0]
    assert {record.value.n for record in run.records if record.kind == "fresh"} == {150, 144}
    assert {record.value.n for record in run.records if record.kind == "score"} == {350, 336}
    # the finalists come on top of the budget, which pays for every score here
    arms = run.result.fresh
    costs = CostModel(whole.config.search.device)
    of_fresh = build_problem(whole, costs=costs, fresh=True)
    cost = fresh.cost(of_fresh, arms)
    assert len(arms) * of_fresh.score_cost.min() < cost < of_fresh.exhaustive_cost
    recommended = run.result.recommendation
    assert recommended.spent == pytest.approx(recommended.exhaustive)
    assert recommended.spent == pytest.approx(recommended.budget + cost)
    assert all(finalist.lead and finalist.lead.paired for finalist in found.finalists[1:])
    assert experiment.run(whole, folder, Display()) == 0
