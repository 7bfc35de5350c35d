from __future__ import annotations

import math
from itertools import pairwise

import pytest

from daskmetrics.dashboard._state import MAX_POINTS, RECENT, TrainingCurves


def event(step, rank=0, **more):
    return {
        "rank": rank,
        "step": step,
        "loss": 5.0 / (step + 1),
        "tokens_per_second": 100.0,
        **more,
    }


def test_every_rank_has_a_line():
    curves = TrainingCurves()
    for rank in range(3):
        curves.receive(event(7, rank), 1.0)
    curves.receive(event(7, 0, model="tiny"), 1.0)
    assert list(curves.points) == ["rank 0", "rank 1", "rank 2", "tiny rank 0"]
    assert curves.points["rank 1"] == [(7, 0.625, 100.0, 1.0)]


def test_the_last_reports_are_those_of_the_trainings_that_report_now():
    curves = TrainingCurves()
    for step in (1, 2):
        for rank in range(2):
            curves.receive(event(step, rank, model="tiny"), 1.0)
    curves.receive(event(1, 0, model="small"), 3.0)  # two trainings at once
    assert [point.step for point in curves.last.values()] == [2, 2, 1]
    curves.receive(event(2, 0, model="small"), 3.0 + RECENT)
    assert list(curves.last) == ["small rank 0"] and len(curves.points) == 3


@pytest.mark.parametrize("model", [3, 1.5, {"a": 1}, ["x"], b"x"])
def test_a_model_that_is_no_text_is_named_by_its_text(model):
    curves = TrainingCurves()
    for step in (1, 2):
        curves.receive(event(step, model=model), 1.0)
    assert list(curves.points) == [f"{model} rank 0"]


def test_a_training_of_one_process_is_named_after_its_model():
    curves = TrainingCurves()
    for step in (1, 2):
        for model in ("tiny-32", "tiny-64"):
            curves.receive(
                {"model": model, "step": step, "loss": 7.0 / step, "tokens_per_second": None}, 1.0
            )
    assert list(curves.points) == list(curves.last) == ["tiny-32", "tiny-64"]
    assert [point.loss for point in curves.points["tiny-64"]] == [7.0, 3.5]


def test_the_points_of_a_long_training_are_thinned():
    curves = TrainingCurves()
    for step in range(10 * MAX_POINTS):
        curves.receive(event(step), 0.0)
    steps = [step for step, *_ in curves.points["rank 0"]]
    assert len(steps) <= MAX_POINTS and steps == sorted(steps) and steps[-1] > 9.9 * MAX_POINTS
    # no part of it is lost
    assert steps[0] == 0 and max(b - a for a, b in pairwise(steps)) < MAX_POINTS / 10


def test_a_restart_from_an_older_state_replaces_later_points():
    curves = TrainingCurves()
    for step in (0, 1, 2, 3, 2):
        curves.receive(event(step), 0.0)
    assert [step for step, *_ in curves.points["rank 0"]] == [0, 1, 2]


def test_events_of_other_code_are_ignored():
    curves = TrainingCurves()
    curves.receive({"text": "hello"}, 0.0)
    curves.receive({"rank": 0, "step": 1, "loss": None}, 0.0)
    assert curves.version == 1 and math.isnan(curves.points["rank 0"][0][1])
