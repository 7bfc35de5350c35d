from __future__ import annotations

import json

import cloudpickle
import numpy as np
import pytest

from daskmetrics.core.errors import DataError, UndefinedError
from daskmetrics.core.results import result_as_json
from daskmetrics.execution.map.function import load_function, run_batch, run_call


class OutOfMemoryError(RuntimeError):
    """Named as that of torch."""


def raising(error):
    def step(item):
        raise error

    return step


def outcome_of(function, value=0, **keywords):
    outcome = run_call(function, "k", value, keywords)
    json.dumps(result_as_json(outcome), allow_nan=False)  # the journal can store it
    return outcome


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (np.float64(0.5), 0.5),
        (np.arange(3), [0, 1, 2]),
        ({"a": (1, np.int64(2))}, {"a": [1, 2]}),
        (None, None),
        ("text", "text"),
        (True, True),
    ],
)
def test_values_are_converted_to_json(value, stored):
    outcome = outcome_of(lambda item: value)
    assert (outcome.status, outcome.value) == ("ok", stored)
    assert type(outcome.value) is type(stored) and outcome.seconds >= 0


def test_numbers_that_are_not_finite_are_named_and_become_none():
    outcome = outcome_of(lambda item: {"loss": float("nan"), "steps": [1, float("inf")], "fine": 2})
    assert (outcome.status, outcome.reason) == ("nan", "not finite: loss, steps[1]")
    assert outcome.value == {"loss": None, "steps": [1, None], "fine": 2}


@pytest.mark.parametrize(
    ("error", "status", "permanent"),
    [
        (ValueError("no"), "error", False),
        (SystemExit(3), "error", False),
        (DataError("no"), "error", True),
        (UndefinedError("no"), "nan", False),
        (MemoryError(), "oom", False),
        (OutOfMemoryError("CUDA"), "oom", False),
    ],
)
def test_the_status_follows_from_the_kind_of_error(error, status, permanent):
    outcome = outcome_of(raising(error))
    assert (outcome.status, outcome.permanent) == (status, permanent)
    assert type(error).__name__ in outcome.reason and "raise error" in outcome.traceback


@pytest.mark.parametrize("value", [object(), {1: 2}, {"a": {2}}, "x" * 2**21])
def test_a_value_that_the_journal_cannot_store_is_a_permanent_error(value):
    outcome = outcome_of(lambda item: value)
    assert outcome.status == "error" and outcome.permanent


def test_a_traceback_is_bounded():
    def deep(item):
        return deep(item + 1)

    outcome = outcome_of(raising(ValueError("x" * 100_000)))
    assert len(outcome.traceback) <= 8000
    assert outcome.reason == ("ValueError: " + "x" * 1000)[:500]
    assert "RecursionError" in outcome_of(deep).reason


def test_a_failing_item_does_not_affect_its_neighbours_and_keywords_are_passed():
    payload = cloudpickle.dumps(lambda item, seed, batch_size: seed + batch_size / item)
    keywords = {"seed": 10, "batch_size": 3}
    calls = cloudpickle.dumps(tuple(("k", i, keywords) for i in (1, 0, 2)))
    outcomes = [(outcome.status, outcome.value) for outcome in run_batch(payload, calls).items]
    assert outcomes == [("ok", 13.0), ("error", None), ("ok", 11.5)]
    # once per worker
    assert load_function(payload) is load_function(bytes(payload))
