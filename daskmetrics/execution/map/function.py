"""The mapped function: how it is loaded, identified, sent to the workers, and called there.

Each call is caught separately, so that a failing item does not affect its neighbours.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import importlib
import importlib.util
import inspect
import json
import math
import pickle
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CellType, CodeType, ModuleType
from typing import Any

import cloudpickle

from daskmetrics.core.errors import ConfigError, DataError, unknown
from daskmetrics.core.names import Key, content_key
from daskmetrics.core.results import ItemOutcome, Mapped
from daskmetrics.execution.map.items import content_hash

LARGEST_PAYLOAD = 32 * 2**20  # bytes; the pickled function travels with every batch
LARGEST_VALUE = 2**20  # characters of JSON that one call may return
STATUSES = {"undefined": "nan", "memory": "oom", "permanent": "error", "exception": "error"}
"""The status of a failed item, by the kind of its fault."""


@dataclass(frozen=True)
class PreparedFunction:
    """A function that is ready to be sent to workers; its name and version are part of every item's
    key.
    """

    name: str
    version: str  # a hash of the source, or the version given by the user
    seeded: bool  # accepts the keyword `seed`
    sized: bool  # accepts the keyword `batch_size`
    # pickled, by value where workers could not import the function
    payload: bytes = field(repr=False)
    stated: bool = False  # the user gave the version

    def keywords(self, seed: int, batch_size: int) -> dict[str, int]:
        """The keyword arguments of one call, as far as the function accepts them."""
        accepted = {"seed": self.seeded, "batch_size": self.sized}
        given = {"seed": seed, "batch_size": batch_size}
        return {name: value for name, value in given.items() if accepted[name]}


def prepare(function: Callable[..., Any], version: str | None = None) -> PreparedFunction:
    """Pickle a function and find out its name, version and keywords; raises ConfigError if that is
    not possible.

    Examples
    --------
    >>> def step(item, *, seed): ...
    >>> prepared = prepare(step)
    >>> prepared.name.split(":")[1], prepared.seeded, prepared.sized
    ('step', True, False)
    """
    if not callable(function):
        raise ConfigError(f"map needs a function to call with each item, but got {function!r}.")
    keywords = _keywords(function)
    return PreparedFunction(
        name_of(function),
        version or version_of(function),
        seeded="seed" in keywords,
        sized="batch_size" in keywords,
        payload=_pickle(function),
        stated=version is not None,
    )


def _keywords(function: Callable[..., Any]) -> set[str]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some built-in functions have no signature
        return set()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    item = next((p.name for p in parameters if p.kind in positional), None)
    named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return {p.name for p in parameters if p.kind in named and p.name != item}


def _pickle(function: Callable[..., Any]) -> bytes:
    try:
        payload = bytes(cloudpickle.dumps(function))
    except Exception as error:  # the __reduce__ of a captured object can raise anything
        raise ConfigError(
            f"{name_of(function)} cannot be sent to workers: {type(error).__name__}: {error}. Create the objects that "
            "it captures (open files, locks, connections) inside the function."
        ) from None
    if len(payload) > LARGEST_PAYLOAD:
        raise ConfigError(
            f"{name_of(function)} carries {len(payload) / 2**20:.0f} MiB; the limit is {LARGEST_PAYLOAD // 2**20} MiB, "
            "since it is sent with every batch. Read the data from a file, once per worker (functools.cache)."
        )
    return payload


def name_of(function: Any) -> str:
    """``module:function``; for a partial, the name of the wrapped function."""
    while isinstance(function, functools.partial):
        function = function.func
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}:{named.__qualname__}"


def version_of(function: Callable[..., Any]) -> str:
    """A hash of a function's source, its defaults, what it captures and what a partial binds.

    The functions that it calls are not included; give an explicit version if they change a result.
    """
    if isinstance(function, functools.partial):
        return content_key(
            version_of(function.func), _captured(function.args), _captured(function.keywords)
        )
    if isinstance(function, type):
        return content_key(_source(function))
    if not hasattr(function, "__code__"):  # a callable object
        return content_key(_source(type(function)), _captured(getattr(function, "__dict__", None)))
    names = ("__defaults__", "__kwdefaults__", "__self__", "__closure__")
    return content_key(
        _source(function), [_captured(getattr(function, name, None)) for name in names]
    )


def _captured(value: Any) -> str:
    """A hash of a value that a function carries, or the name of its type if its content is not
    reproducible.
    """
    if isinstance(value, list | tuple):
        return content_key(list(map(_captured, value)))
    if isinstance(value, Mapping):
        return content_key({str(name): _captured(content) for name, content in value.items()})
    if isinstance(value, CellType):
        return _captured(value.cell_contents)
    if inspect.isfunction(value):
        return content_key(_source(value))  # not what it captures: that may be the function itself
    try:
        return content_hash(value)
    except ConfigError:
        return type(value).__qualname__


def _source(function: Any) -> str:
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        if code:
            return _bytecode(code)
        return repr(getattr(function, "__qualname__", type(function)))


def _bytecode(code: Any) -> str:
    """Replaces the source of a function that was typed into an interpreter; ``code`` may be a
    constant, also a set, which has no order.
    """
    if isinstance(code, frozenset):
        return repr(sorted(map(repr, code)))
    if not isinstance(code, CodeType):
        return repr(code)
    constants = list(map(_bytecode, code.co_consts))
    return hashlib.sha256(code.co_code).hexdigest() + repr([code.co_names, constants])


def load(reference: str) -> Callable[..., Any]:
    """The function that ``module.py:function`` or ``package.module:function`` refers to.

    A module given as a file is sent to the workers by value, together with the modules that it
    imports from its folder: workers do not need the file. Raises ConfigError if the file, the
    module or the function does not exist.
    """
    source, _, name = reference.rpartition(":")
    if not source or not name:
        raise ConfigError(
            f"'{reference}' is not a reference to a function: write module.py:function or "
            "package.module:function."
        )
    module = _import_file(Path(source)) if source.endswith(".py") else _import_module(source)
    function = getattr(module, name, None)
    if not callable(function):
        functions = inspect.getmembers(module, inspect.isfunction)
        names = [name for name, other in functions if other.__module__ == module.__name__]
        raise unknown(f"function of '{source}'", name, names)
    return function  # type: ignore[no-any-return]


def _import_module(name: str) -> ModuleType:
    _add_to_path(Path.cwd())
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"Cannot import '{name}': {error}. For a file, add its suffix: {name}.py:..."
        ) from None


def _import_file(path: Path) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise ConfigError(f"File '{path}' does not exist.")
    name = path.stem
    loaded = sys.modules.get(name)
    if loaded is not None:
        if Path(getattr(loaded, "__file__", None) or "").resolve() != path:
            raise ConfigError(
                f"'{path.name}' has the name of a module that is already loaded ('{name}'): rename it."
            )
        return loaded
    _add_to_path(path.parent)
    before = set(sys.modules)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"'{path}' is not a Python module.")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # this runs the user's code
        del sys.modules[name]
        raise ConfigError(f"Importing '{path}' failed: {type(error).__name__}: {error}") from error
    for other in set(sys.modules) - before:
        if Path(getattr(sys.modules[other], "__file__", None) or "/").parent == path.parent:
            cloudpickle.register_pickle_by_value(sys.modules[other])
    return module


def _add_to_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))  # as Python does for a script


@dataclass(frozen=True)
class Call:
    """The arguments of one item's call."""

    key: Key
    value: Any
    keywords: dict[str, int]


def run_batch(function: bytes, calls: bytes, wait: float = 0.0) -> Mapped:
    """The outcome of each call, in order.

    Function and calls are pickled. After ``wait`` seconds, an item that failed before may succeed.
    """
    loaded = load_function(function)
    time.sleep(wait)
    return Mapped(tuple(run_call(loaded, call) for call in pickle.loads(calls)))


@functools.lru_cache(maxsize=4)
def load_function(payload: bytes) -> Callable[..., Any]:
    """The function, unpickled once per worker: what its module caches (a model) is kept between
    batches.
    """
    function: Callable[..., Any] = pickle.loads(payload)
    return function


def run_call(function: Callable[..., Any], call: Call) -> ItemOutcome:
    """Call the function and return the outcome, with a value that JSON can store."""
    started = time.perf_counter()
    try:
        outcome = _checked(call.key, function(call.value, **call.keywords))
    except (Exception, SystemExit) as error:  # a user's function can raise anything
        outcome = _failure(call.key, error)
    return replace(outcome, seconds=round(time.perf_counter() - started, 6))


def _checked(key: Key, value: Any) -> ItemOutcome:
    not_finite: list[str] = []
    value = to_json(value, "", not_finite)
    if len(json.dumps(value)) > LARGEST_VALUE:
        raise DataError(
            f"The function returned more than {LARGEST_VALUE:,} characters. Write them to a file "
            "and return its name."
        )
    if not_finite:
        return ItemOutcome(key, "nan", value, f"not finite: {', '.join(not_finite[:8])}")
    return ItemOutcome(key, "ok", value)


def to_json(value: Any, place: str, not_finite: list[str]) -> Any:
    """A value that JSON can store; numbers that are not finite become None, and their places are
    appended to a list.

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
        return [to_json(content, f"{place}[{i}]", not_finite) for i, content in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {
            name: to_json(content, f"{place}.{name}".lstrip("."), not_finite)
            for name, content in value.items()
        }
    raise DataError(
        f"The function returned {type(value).__name__} in {place or 'the value'}. The journal "
        "stores numbers, text, None, lists, and dicts with text as keys: return those, or write a "
        "file and return its name."
    )


def _failure(key: Key, error: BaseException) -> ItemOutcome:
    # these import Dask, which readers of results do not need
    from daskmetrics.core.retry import Fault
    from daskmetrics.execution._worker import blame, describe, trace_of

    fault = blame(error)
    if fault is Fault.DISK:
        raise error  # not the item's fault: the loop pauses until there is space
    if fault is Fault.MEMORY:
        gc.collect()  # what the failed call held
        torch = sys.modules.get("torch")  # only if the user's function uses it
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()
    return ItemOutcome(
        key,
        STATUSES[fault.value],
        reason=describe(error),
        traceback=trace_of(error),
        permanent=fault is Fault.PERMANENT,
    )
