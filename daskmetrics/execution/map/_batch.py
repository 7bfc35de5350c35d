"""A batch of items on a worker: each call is caught separately, so a failing item does not affect its neighbours."""

from __future__ import annotations

import functools
import gc
import json
import math
import pickle
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from daskmetrics.core.errors import DataError
from daskmetrics.core.names import Key

LARGEST_VALUE = 2**20  # characters of JSON that one call may return
STATUSES = {"undefined": "nan", "memory": "oom", "permanent": "error", "exception": "error"}
"""The status of a failed item, by the kind of its fault."""


@dataclass(frozen=True)
class Call:
    """The arguments of one item's call."""

    key: Key
    value: Any
    keywords: dict[str, int]


def run_batch(function: bytes, calls: bytes, wait: float = 0.0) -> dict[str, Any]:
    """The outcome of each call, in order: ``key``, ``status`` (ok, nan, oom, error), ``value``, ``reason``, ...

    Function and calls are pickled. After ``wait`` seconds, an item that failed before may succeed.
    """
    loaded = load_function(function)
    time.sleep(wait)
    return {"items": [run_call(loaded, call) for call in pickle.loads(calls)]}


@functools.lru_cache(maxsize=4)
def load_function(payload: bytes) -> Callable[..., Any]:
    """The function, unpickled once per worker: what its module caches (a model) is kept between batches."""
    function: Callable[..., Any] = pickle.loads(payload)
    return function


def run_call(function: Callable[..., Any], call: Call) -> dict[str, Any]:
    """Call the function and return the outcome as JSON values."""
    started = time.perf_counter()
    try:
        outcome = {"status": "ok", **_checked(function(call.value, **call.keywords))}
    except (Exception, SystemExit) as error:  # the worker boundary: the user's function can raise anything
        outcome = _failure(error)
    return {"key": call.key, **outcome, "seconds": round(time.perf_counter() - started, 6)}


def _checked(value: Any) -> dict[str, Any]:
    not_finite: list[str] = []
    value = to_json(value, "", not_finite)
    if len(json.dumps(value)) > LARGEST_VALUE:
        raise DataError(
            f"The function returned more than {LARGEST_VALUE:,} characters. Write them to a file and return its name."
        )
    if not_finite:
        return {"status": "nan", "value": value, "reason": f"not finite: {', '.join(not_finite[:8])}"}
    return {"value": value}


def to_json(value: Any, place: str, not_finite: list[str]) -> Any:
    """A value that JSON can store; numbers that are not finite become None, and their places are appended to a list.

    Raises DataError for a value that JSON cannot store.

    >>> to_json({"loss": float("nan"), "steps": (1, 2)}, "", places := []), places
    ({'loss': None, 'steps': [1, 2]}, ['loss'])
    """
    if hasattr(value, "tolist"):  # arrays and scalars of numpy, tensors of torch
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        not_finite.append(place or "the value")
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [to_json(part, f"{place}[{i}]", not_finite) for i, part in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {name: to_json(part, f"{place}.{name}".lstrip("."), not_finite) for name, part in value.items()}
    raise DataError(
        f"The function returned {type(value).__name__}{f' in {place}' if place else ''}. The journal stores numbers, "
        "text, None, lists, and dicts with text as keys: return those, or write a file and return its name."
    )


def _failure(error: BaseException) -> dict[str, Any]:
    # these import Dask, which readers of results do not need
    from daskmetrics.execution._retry import Fault
    from daskmetrics.execution._worker import blame, describe, trace_of

    fault = blame(error)
    if fault is Fault.DISK:
        raise error  # not the item's fault: the loop pauses until there is space
    if fault is Fault.MEMORY:
        gc.collect()  # what the failed call held
        torch = sys.modules.get("torch")  # only if the user's function uses it
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()
    outcome = {"status": STATUSES[fault.value], "reason": describe(error), "traceback": trace_of(error)}
    return {**outcome, "permanent": True} if fault is Fault.PERMANENT else outcome
