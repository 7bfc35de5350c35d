"""Looks: scores of a sixteenth of a task's items, for the search alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import daskmetrics as dm
from daskmetrics import config
from daskmetrics.answer.posterior import posterior_of
from daskmetrics.answer.status import status_of
from daskmetrics.domain.costs import CostModel
from daskmetrics.domain.record import Record
from daskmetrics.domain.results import Scored
from daskmetrics.experiment import fresh, search
from daskmetrics.experiment import maintenance as maintenance
from daskmetrics.experiment.problem import build_problem
from daskmetrics.tasks import examples as examples
from tests.experiment.conftest import SMALL
from tests.experiment.test_search import Bench

LOOKS = {"items": "adaptive", "budget": 0.5}


@pytest.fixture(autouse=True)
def slow_models(monkeypatch):
    """Encoding costs nearly all, and tasks of a few hundred items are large."""
    monkeypatch.setattr(examples, "LOOKED_AT", 300)
    monkeypatch.setattr(CostModel, "encode_seconds", lambda *given: given[-1].tokens / 10)


def columns(experiment):
    return build_problem(experiment).tasks


WHOLE = ("stdlib:order", "stdlib:package")


def test_a_search_looks_at_large_tasks_that_cost_their_encoding(prepared, monkeypatch):
    plain, looking = prepared(search={"budget": 0.5}), prepared(search=LOOKS)
    assert columns(plain) == WHOLE
    assert columns(looking) == (*WHOLE, "stdlib:order@1/16", "stdlib:package@1/16")
    assert looking.plan.key != plain.plan.key
    assert looking.plan.store_key == plain.plan.store_key
    costs = [build_problem(e).exhaustive_cost for e in (plain, looking)]
    assert costs[0] == pytest.approx(costs[1])
    monkeypatch.setattr(examples, "LOOKED_AT", 10_000)
    assert columns(prepared(search=LOOKS)) == WHOLE
    monkeypatch.undo()  # scores cost as much as encodings
    assert columns(looking) == WHOLE


@pytest.mark.parametrize("changes", [{"budget": 1.0}, {"cells": 9}, {"policy": "random"}], ids=str)
def test_where_looks_do_not_pay_a_search_scores_whole_tasks(prepared, changes):
    assert columns(prepared(search={**LOOKS, **changes})) == WHOLE


def test_a_resumed_search_recommends_by_whole_scores(prepared):
    quiet, broken = (Bench(prepared(search=LOOKS)) for _ in range(2))
    units = quiet.drive()
    assert {unit.kind for unit in units} == {"score", "look"}
    assert all(("@1/16" in unit.name) == (unit.kind == "look") for unit in units)
    broken.drive(stop_after=7)
    resumed = Bench(prepared(search=LOOKS), decided=search.decided(broken.entries, broken.key))
    resumed.drive()
    assert resumed.learner.picks == quiet.learner.picks
    best = resumed.learner.recommendation()
    assert best.looks == sum(unit.kind == "look" for unit in units)
    assert best.cells == len(units) - best.looks
    assert best.best.scores and best.best.scores.keys() <= set(WHOLE)


def test_a_growing_search_keeps_subset_scores_where_it_has_them(prepared):
    looking = prepared(search=LOOKS)
    problem = build_problem(looking)
    half = Scored(0.5, 0.1)
    records = [
        Record(looking.plan.score_key(arm, look), f"{arm}:{look.name}", "look", "ok", half)
        for arm, look in zip(problem.arms, looking.plan.looks, strict=False)
    ]
    assert len(search.carried_on(looking.plan, problem, [], records)) == 2
    whole = build_problem(replace(looking, looks=()))
    assert not search.carried_on(looking.plan, whole, [], records)
    assert problem.arm_cost.tolist() == whole.arm_cost.tolist()


def test_the_finalists_are_scored_on_fresh_items_of_whole_tasks(prepared):
    kept = prepared(search={**LOOKS, "confirm": "fresh"})
    assert len(columns(kept)) == 4
    units = fresh.units(kept, kept.plan.arms[:1], Path())
    assert [unit.name.partition(":")[2] for unit in units] == list(WHOLE)


def test_a_run_counts_looks_as_looks_and_shows_no_score_of_them(tmp_path):
    model = {"name": "a", "train": {"width": 16, "depth": 2, "steps": 2}}
    small = {**SMALL, "models": [model], "metrics": [], "cluster": {"workers": 1}}
    run = dm.run(config.parse({**small, "search": LOOKS}), folder=tmp_path / "run")
    status, answer = status_of(run), run.answer
    assert status.cells["looks"] == answer.looks == run.counts["look", "ok"] > 0
    assert status.cells["scored"] == answer.scored == run.counts["score", "ok"] > 0
    assert status.cells["planned"] == len(run.plan.tasks) * len(run.plan.arms)

    shown = [str(part) for part in (answer, run.to_frame(), run.scores, run.leaderboard())]
    assert not any("@1/16" in text for text in shown)
    assert all(scores.keys() <= set(WHOLE) for scores in run.recorded.values())
    assert not maintenance.verify(run.folder).damages

    posterior = posterior_of(run)
    index = posterior.problem.arm_index[run.result.recommendation.arm]
    assert posterior.posterior.mean[index] == run.result.recommendation.best.value
    without = replace(posterior.problem, looks=None)
    assert np.isclose(without.exhaustive_cost, 2 * posterior.problem.exhaustive_cost)
