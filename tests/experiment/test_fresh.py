"""The finalists of a search on items that were kept back from it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daskmetrics import experiment
from daskmetrics.answer.worth import fresh_items
from daskmetrics.bandit import Budget
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import RunFolder
from daskmetrics.core.names import Arm, Cell
from daskmetrics.core.outcomes import pack
from daskmetrics.core.results import Scored
from daskmetrics.execution import Record
from daskmetrics.experiment import Display
from daskmetrics.experiment import search as search
from daskmetrics.report import Run
from tests.experiment.test_search import Bench

FRESH = {"confirm": "fresh", "budget": 1.0, "reward": "mean"}


def test_the_search_and_the_fresh_items_have_the_same_tasks_and_other_keys(prepared):
    kept = prepared(search=FRESH)
    assert [task.name for task in kept.fresh] == [task.name for task in kept.tasks]
    assert kept.numbers_key != prepared().numbers_key
    arm = kept.arms[0]
    assert kept.score_key(arm, kept.tasks[0]) != kept.score_key(arm, kept.fresh[0])
    with pytest.raises(ConfigError, match="'mteb:STS12' cannot be divided"):
        prepared(tasks=["stdlib:order", "mteb:STS12"], search=FRESH)


@pytest.mark.parametrize("share", [0.19, 0.3, 1.0])
@pytest.mark.parametrize("most", [10.0, 50.0])
def test_search_and_fresh_items_together_keep_within_the_budget(share, most):
    divided = search.allotment(Budget(share=share), exhaustive=100.0, few=most / 5, most=most)
    assert divided.search + divided.reserved == pytest.approx((100 + most) * share) == divided.total
    assert most / 5 <= divided.reserved <= most
    assert (divided.search >= 100.0) == (share == 1.0)  # it still scores every cell


def test_a_budget_for_less_than_two_finalists_is_refused_with_the_one_that_is_needed():
    def reserved(share):
        return search.allotment(Budget(share=share), 100.0, few=10.0, most=10.0).reserved

    with pytest.raises(ConfigError, match=r"may spend only 11 s.*search\.budget=0\.19"):
        reserved(0.1)
    assert reserved(0.19) == 10.0


def test_the_cells_that_are_left_include_the_fresh_items(prepared):
    plain, kept = prepared(search={**FRESH, "confirm": "leader"}), prepared(search=FRESH)
    problems = [search.build_problem(each, each.suites) for each in (plain, kept)]
    left = search.cells_left(kept, (), problems[1])
    assert left > search.cells_left(plain, (), problems[0])
    arm, task = kept.arms[0], kept.fresh[0]
    cell = str(Cell(arm, task.name))
    record = Record(kept.score_key(arm, task), cell, "fresh", "ok", Scored(0.5, 0.1))
    assert search.cells_left(kept, (record,), problems[1]) == left - 1


def recorded(problem, means, noise):
    """Scores of every arm with outcomes that are common to all arms but for a little."""
    shared, rng = np.random.default_rng(1).normal(0, 0.3, 200), np.random.default_rng(2)
    scores = {}
    for arm, mean in zip(problem.arms, means, strict=True):
        outcomes = mean + shared - shared.mean() + rng.normal(0, noise, 200)
        packed = pack(outcomes, outcomes.mean(), "items")
        value = Scored(float(outcomes.mean()), 0.02, outcomes=packed)
        scores[arm] = dict.fromkeys(problem.tasks, value)
    return scores


@pytest.fixture
def decided(prepared):
    """The fresh problem of the small experiment, and a recommendation that is sure of its first
    arm.
    """
    bench = Bench(prepared(search=FRESH))
    bench.drive(slots=1)
    best = bench.learner.recommendation()
    return search.fresh_problem(bench.search.experiment), replace(best, credible=(best.arm,))


def test_finalists_are_the_leader_its_rivals_and_the_default_arm(decided):
    problem, best = decided

    def chosen(*rivals, remaining=np.inf):
        unsure = replace(best, credible=(best.arm, *rivals))
        arms, cost = search.finalists(unsure, {}, problem, remaining)
        assert arms[0] == best.arm and len(arms) >= 2
        assert 0 < cost <= search._highest_cost(problem, len(arms)) * (1 + 1e-9)
        return arms

    others = [arm for arm in problem.arms if arm not in (best.arm, best.default.arm)]
    assert chosen(*others[:2])[1] == others[0]
    assert set(chosen(*others[:2])) == {best.arm, best.default.arm, *others[:2]}
    assert best.default.arm in chosen()  # a sure search still has a rival
    assert len(chosen(*others)) == search.FINALISTS
    assert chosen(*others, remaining=0.0) == (best.arm, others[0])  # a small rest of the budget


def test_arms_that_paired_differences_cannot_tell_apart_are_finalists(decided):
    problem, best = decided
    means = [0.5 if arm == best.arm else 0.2 for arm in problem.arms]
    tied = problem.arms[3] if problem.arms[3] != best.arm else problem.arms[4]
    means[problem.arm_index[tied]] = 0.499
    chosen, _ = search.finalists(best, recorded(problem, means, 0.05), problem, np.inf)
    assert chosen[:2] == (best.arm, tied) and set(chosen) <= {best.arm, tied, best.default.arm}


@pytest.mark.slow
def test_a_run_reports_its_finalists_on_fresh_items_and_resumes_with_nothing_to_do(
    prepared, tmp_path, client
):
    whole = prepared(search=FRESH, metrics=[])
    folder = RunFolder(tmp_path / "run")
    experiment.run(whole, folder, Display(), client)
    run = Run(folder.path)
    found = fresh_items(run)
    assert run.result and found and len(found.finalists) == len(run.result.fresh) >= 2
    assert found.finalists[0].arm == run.best().arm == Arm.parse(run.result.fresh[0])
    assert {record.value.n for record in run.records if record.kind == "fresh"} == {150, 144}
    assert {record.value.n for record in run.records if record.kind == "score"} == {350, 336}
    assert run.result.spent <= run.result.budget <= run.result.exhaustive
    assert all(finalist.lead and finalist.lead.paired for finalist in found.finalists[1:])
    assert experiment.run(whole, folder, Display()) == 0
