"""What runs on a worker: a batch of items, each caught by itself, so that a bad one does not cost its neighbours."""

from __future__ import annotations

import functools
import gc
import json
import math
import pickle
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from daskmetrics.core.errors import DataError
from daskmetrics.core.names import Key

LARGEST_VALUE = 2**20  # characters of JSON that one item may return
STATUSES = {"undefined": "nan", "memory": "oom", "permanent": "error", "exception": "error"}
"""How an item that failed is recorded, by the kind of its fault."""


@dataclass(frozen=True)
class Call:
    """One item on its way to a worker."""

    key: Key
    value: Any
    keywords: dict[str, int]


def run_batch(function: bytes, calls: bytes, wait: float = 0.0) -> dict[str, Any]:
    """The outcome of each call, in order: ``status`` ok, nan, oom or error, ``value``, ``reason``, ``seconds``, ...

    Parameters
    ----------
    function, calls : bytes
        Pickled.
    wait : float
        Seconds before the first call: what failed a moment ago may find better conditions then.
    """
    called = loaded(function)
    time.sleep(wait)
    return {"items": [outcome(called, call) for call in pickle.loads(calls)]}


@functools.lru_cache(maxsize=4)
def loaded(payload: bytes) -> Callable[..., Any]:
    """The function, unpickled once per worker, so that what its module keeps (a model) is kept between batches."""
    function: Callable[..., Any] = pickle.loads(payload)
    return function


def outcome(function: Callable[..., Any], call: Call) -> dict[str, Any]:
    """Call it and say what happened, as JSON values."""
    started = time.perf_counter()
    try:
        value = function(call.value, **call.keywords)
        told: dict[str, Any] = {"status": "ok", **_checked(value)}
    except (Exception, SystemExit) as error:  # the worker boundary: whatever the user's function raises
        told = _failure(error)
    return {"key": call.key, **told, "seconds": round(time.perf_counter() - started, 6)}


def _checked(value: Any) -> dict[str, Any]:
    undefined: list[str] = []
    value = plain(value, "", undefined)
    if len(json.dumps(value)) > LARGEST_VALUE:
        raise DataError(
            f"The function returned more than {LARGEST_VALUE:,} characters. Let it write a file and return its name."
        )
    if undefined:
        return {"status": "nan", "value": value, "reason": f"not finite: {', '.join(undefined[:8])}"}
    return {"value": value}


def plain(value: Any, place: str, undefined: list[str]) -> Any:
    """A value as JSON can hold it; numbers that are not finite become None, and their places are noted.

    Raises
    ------
    DataError
        If JSON cannot hold it.

    Examples
    --------
    >>> plain({"loss": float("nan"), "steps": (1, 2)}, "", places := []), places
    ({'loss': None, 'steps': [1, 2]}, ['loss'])
    """
    if hasattr(value, "tolist"):  # arrays and scalars of numpy, tensors of torch
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        undefined.append(place or "the value")
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [plain(part, f"{place}[{i}]", undefined) for i, part in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {name: plain(part, f"{place}.{name}".lstrip("."), undefined) for name, part in value.items()}
    raise DataError(
        f"The function returned {type(value).__name__}{f' in {place}' if place else ''}. The journal holds numbers, "
        "text, None, lists, and dicts with text as keys: return those, or write a file and return its name."
    )


def _failure(error: BaseException) -> dict[str, Any]:
    from daskmetrics.execution._deadline import LONGEST_TRACE
    from daskmetrics.execution._retry import Fault
    from daskmetrics.execution._worker import blame, describe

    fault = blame(error)
    if fault is Fault.DISK:
        raise error  # nobody is to blame: the loop pauses until there is room
    if fault is Fault.MEMORY:
        _free()
    told = {"status": STATUSES[fault.value], "reason": describe(error)}
    trace = "".join(traceback.format_exception(error))[-LONGEST_TRACE:]
    return {**told, "traceback": trace, **({"permanent": True} if fault is Fault.PERMANENT else {})}


def _free() -> None:
    """Give back what the failed call held, so that its neighbours find memory."""
    gc.collect()
    torch = sys.modules.get("torch")  # only if the user's function uses it
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
