from __future__ import annotations

import math
from itertools import pairwise

from daskmetrics.dashboard._state import MAX_POINTS, RECENT, TrainingCurves


def event(step, rank=0, **more):
    loss = {"loss": 5.0 / (step + 1), "tokens_per_second": 100.0}
    return {"rank": rank, "step": step, **loss, **more}


def curves_of(*events, at=1.0):
    curves = TrainingCurves()
    for received in events:
        curves.receive(received, at)
    return curves


def test_every_rank_of_every_model_has_a_line():
    alone = {"model": "tiny-32", "step": 1, "loss": 7.0, "tokens_per_second": None}
    curves = curves_of(event(7), event(7, 1), event(7, 0, model="tiny"), alone)
    assert list(curves.points) == ["rank 0", "rank 1", "tiny rank 0", "tiny-32"]
    assert curves.points["rank 1"] == [(7, 0.625, 100.0, 1.0)]
    assert [point.loss for point in curves.points["tiny-32"]] == [7.0]


def test_the_last_reports_are_of_trainings_that_report_now():
    reports = [event(step, rank, model="tiny") for step in (1, 2) for rank in (0, 1)]
    curves = curves_of(*reports)
    curves.receive(event(1, 0, model="small"), 3.0)  # two trainings at once
    assert [point.step for point in curves.last.values()] == [2, 2, 1]
    curves.receive(event(2, 0, model="small"), 3.0 + RECENT)
    assert list(curves.last) == ["small rank 0"] and len(curves.points) == 3


def test_the_points_of_a_long_training_are_thinned():
    curves = curves_of(*map(event, range(10 * MAX_POINTS)))
    steps = [step for step, *_ in curves.points["rank 0"]]
    assert len(steps) <= MAX_POINTS and steps == sorted(steps) and steps[-1] > 9.9 * MAX_POINTS
    # no part of it is lost
    assert steps[0] == 0 and max(b - a for a, b in pairwise(steps)) < MAX_POINTS / 10


def test_a_restart_from_an_older_state_replaces_later_points():
    curves = curves_of(*map(event, (0, 1, 2, 3, 2)))
    assert [step for step, *_ in curves.points["rank 0"]] == [0, 1, 2]


def test_events_of_other_code_are_ignored():
    curves = curves_of({"text": "hello"}, {"rank": 0, "step": 1, "loss": None})
    assert curves.version == 1 and math.isnan(curves.points["rank 0"][0][1])
    assert list(curves_of(event(1, model={"a": 1})).points) == ["{'a': 1} rank 0"]
