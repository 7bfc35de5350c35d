"""The function that is mapped: where it comes from, what names it, and how it reaches the workers."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import inspect
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CellType, CodeType, ModuleType
from typing import Any

import cloudpickle

from daskmetrics.core.errors import ConfigError, unknown
from daskmetrics.core.names import content_key
from daskmetrics.execution.map._items import content_of

LARGEST = 32 * 2**20  # bytes of a function with all that it carries; it travels with every batch


@dataclass(frozen=True)
class Function:
    """A function that is ready to travel.

    Attributes
    ----------
    name, version : str
        Its qualified name and a hash of its source, or the version that the user gave: both are part of every key.
    seeded : bool
        Whether it takes the keyword ``seed``.
    sized : bool
        Whether it takes the keyword ``batch_size``.
    payload : bytes
        The function pickled, by value where workers could not import it.
    stated : bool
        Whether the user gave the version.
    """

    name: str
    version: str
    seeded: bool
    sized: bool
    payload: bytes = field(repr=False)
    stated: bool = False


def prepare(function: Callable[..., Any], version: str | None = None) -> Function:
    """A function made ready to travel.

    Raises
    ------
    ConfigError
        If it is no function, or cannot be pickled.

    Examples
    --------
    >>> def step(item, *, seed): ...
    >>> ready = prepare(step)
    >>> ready.name.split(":")[1], ready.seeded, ready.sized
    ('step', True, False)
    """
    if not callable(function):
        raise ConfigError(f"map needs a function to call with each item, but got {function!r}.")
    taken = _keywords(function)
    return Function(
        name_of(function),
        version or version_of(function),
        seeded="seed" in taken,
        sized="batch_size" in taken,
        payload=_payload(function),
        stated=version is not None,
    )


def _keywords(function: Callable[..., Any]) -> set[str]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # built-in functions may not say
        return set()
    first = next((p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)), None)
    named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return {p.name for p in parameters if p.kind in named and p.name != first}  # the first one is the item


def _payload(function: Callable[..., Any]) -> bytes:
    try:
        payload = bytes(cloudpickle.dumps(function))
    except Exception as error:  # whatever a captured object's __reduce__ raises
        raise ConfigError(
            f"{name_of(function)} cannot be sent to workers: {type(error).__name__}: {error}. Make inside of it what "
            "it captures now (open files, locks, connections)."
        ) from None
    if len(payload) > LARGEST:
        raise ConfigError(
            f"{name_of(function)} carries {len(payload) / 2**20:.0f} MiB, at most {LARGEST // 2**20} can travel with "
            "every batch. Let it read its data from a file, once per worker (functools.cache)."
        )
    return payload


def name_of(function: Callable[..., Any]) -> str:
    """``module:function``, of a partial that of the function inside."""
    inner = _unwrapped(function)
    named = inner if hasattr(inner, "__qualname__") else type(inner)
    return f"{named.__module__}:{named.__qualname__}"


def version_of(function: Callable[..., Any]) -> str:
    """A hash of what the function says: its source, its defaults, what it captures and what it was bound to.

    The functions that it calls are not in it; give an explicit version where they change a result.
    """
    if isinstance(function, functools.partial):
        return content_key(version_of(function.func), _held(function.args), _held(function.keywords))
    if isinstance(function, type):
        return content_key(_source(function))
    if not hasattr(function, "__code__"):  # an object that can be called
        return content_key(_source(type(function)), _held(getattr(function, "__dict__", None)))
    names = ("__defaults__", "__kwdefaults__", "__self__", "__closure__")
    return content_key(_source(function), [_held(getattr(function, name, None)) for name in names])


def _held(value: Any) -> str:
    """The content of what a function carries; of what has none that can be named, its type."""
    if isinstance(value, list | tuple):
        return content_key([_held(part) for part in value])
    if isinstance(value, Mapping):
        return content_key({str(name): _held(part) for name, part in value.items()})
    if isinstance(value, CellType):
        return _held(value.cell_contents)
    if inspect.isfunction(value):
        return content_key(_source(value))  # and not what it captures: that may be itself
    try:
        return content_of(value)
    except ConfigError:
        return type(value).__qualname__


def _source(function: Any) -> str:
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        return _code(code) if code else repr(getattr(function, "__qualname__", type(function)))


def _code(code: CodeType) -> str:
    """What was typed into an interpreter leaves no source, but its code says the same."""
    parts = [_code(part) if isinstance(part, CodeType) else _constant(part) for part in code.co_consts]
    return hashlib.sha256(code.co_code).hexdigest() + repr([code.co_names, parts])


def _constant(value: Any) -> str:
    return repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value)  # sets have no order of their own


def _unwrapped(function: Any) -> Any:
    return _unwrapped(function.func) if isinstance(function, functools.partial) else function


def load(reference: str) -> Callable[..., Any]:
    """The function that ``module.py:function`` or ``package.module:function`` names.

    A module given as a file, and modules that it imports from its own folder, travel to the workers by value: they
    need not have the file.

    Raises
    ------
    ConfigError
        If there is no such file, module or function.
    """
    place, colon, name = reference.rpartition(":")
    if not colon or not place or not name:
        raise ConfigError(f"'{reference}' names no function: write module.py:function or package.module:function.")
    module = _from_file(Path(place)) if place.endswith(".py") else _by_name(place)
    found = getattr(module, name, None)
    if not callable(found):
        own = [n for n, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == module.__name__]
        raise unknown(f"function of '{place}'", name, own)
    return found  # type: ignore[no-any-return]


def _by_name(name: str) -> ModuleType:
    _search(Path.cwd())
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(f"Cannot import '{name}': {error}. A file is named with its suffix: {name}.py:...") from None


def _from_file(path: Path) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise ConfigError(f"There is no file '{path}'.")
    name = path.stem
    loaded = sys.modules.get(name)
    if loaded is not None:
        if Path(getattr(loaded, "__file__", None) or "").resolve() != path:
            raise ConfigError(f"'{path.name}' has the name of a module that is loaded already ('{name}'): rename it.")
        return loaded
    _search(path.parent)
    before = set(sys.modules)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"'{path}' is not a module of Python.")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # it is the user's code that runs here
        del sys.modules[name]
        raise ConfigError(f"'{path}' fails when it is imported: {type(error).__name__}: {error}") from error
    for other in set(sys.modules) - before:
        if Path(getattr(sys.modules[other], "__file__", None) or "/").parent == path.parent:
            cloudpickle.register_pickle_by_value(sys.modules[other])
    return module


def _search(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))  # as Python does for a script
