from __future__ import annotations

import errno
import json

import cloudpickle
import numpy as np
import pytest

from daskmetrics.core.errors import DataError, UndefinedError
from daskmetrics.execution.map._batch import Call, loaded, outcome, run_batch


class OutOfMemoryError(RuntimeError):
    """Named as that of torch."""


def raising(error):
    def step(item):
        raise error

    return step


def call(value, **keywords):
    return Call("k", value, keywords)


def told(function, value=0, **keywords):
    found = outcome(function, call(value, **keywords))
    json.dumps(found, allow_nan=False)  # the journal can hold it
    return found


@pytest.mark.parametrize(
    ("value", "held"),
    [
        (np.float64(0.5), 0.5),
        (np.arange(3), [0, 1, 2]),
        ({"a": (1, np.int64(2))}, {"a": [1, 2]}),
        (None, None),
        ("text", "text"),
        (True, True),
    ],
)
def test_values_become_what_json_holds(value, held):
    found = told(lambda item: value)
    assert (found["status"], found["value"]) == ("ok", held)
    assert type(found["value"]) is type(held) and found["seconds"] >= 0


def test_numbers_that_are_not_finite_are_named_and_not_kept():
    found = told(lambda item: {"loss": float("nan"), "steps": [1, float("inf")], "fine": 2})
    assert (found["status"], found["reason"]) == ("nan", "not finite: loss, steps[1]")
    assert found["value"] == {"loss": None, "steps": [1, None], "fine": 2}


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
def test_an_error_is_told_by_its_kind(error, status, permanent):
    found = told(raising(error))
    assert (found["status"], found.get("permanent", False)) == (status, permanent)
    assert type(error).__name__ in found["reason"] and "raise error" in found["traceback"]


@pytest.mark.parametrize("value", [object(), {1: 2}, {"a": {2}}, "x" * 2**21])
def test_what_the_journal_cannot_hold_is_an_error_that_is_not_tried_again(value):
    found = told(lambda item: value)
    assert found["status"] == "error" and found["permanent"]


def test_a_traceback_is_bounded():
    def deep(item):
        return deep(item + 1)

    assert len(told(raising(ValueError("x" * 100_000)))["traceback"]) <= 8000
    assert told(raising(ValueError("x" * 100_000)))["reason"] == ("ValueError: " + "x" * 1000)[:500]
    assert "RecursionError" in told(deep)["reason"]


def test_a_full_disk_is_nobodys_fault():
    with pytest.raises(OSError, match="No space"):
        outcome(raising(OSError(errno.ENOSPC, "No space left on device")), call(0))


def test_a_bad_item_does_not_cost_its_neighbours():
    calls = cloudpickle.dumps(tuple(call(i) for i in (1, 0, 2)))
    found = run_batch(cloudpickle.dumps(lambda item: 6 / item), calls)["items"]
    assert [(one["status"], one.get("value")) for one in found] == [("ok", 6.0), ("error", None), ("ok", 3.0)]


def test_keywords_arrive():
    assert told(lambda item, seed, batch_size: item + seed + batch_size, 1, seed=10, batch_size=100)["value"] == 111


def test_a_function_is_unpickled_once_per_worker():
    payload = cloudpickle.dumps(lambda item: item)
    assert loaded(payload) is loaded(bytes(payload))
