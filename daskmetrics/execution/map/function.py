"""What is mapped: the function, loaded, identified, sent to the workers and called there; and its
items, whose keys follow from their content.

Each call is caught separately, so that a failing item does not affect its neighbours.
"""

from __future__ import annotations

import functools
import gc
import importlib
import importlib.util
import inspect
import json
import math
import pickle
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from daskmetrics.core.content import NOT_REPRODUCIBLE, content_hash, name_of
from daskmetrics.core.errors import ConfigError, DataError, describe, foreign_errors, unknown
from daskmetrics.core.files import require_regular
from daskmetrics.core.keys import Key, content_key, seed_of
from daskmetrics.core.main_module import MAIN
from daskmetrics.core.rows import format_of, read_json_lines, read_lines, read_rows
from daskmetrics.core.user_code import Code, callee_of, code_of, is_imported_as
from daskmetrics.domain.results import ItemOutcome, Mapped
from daskmetrics.domain.retry import Fault
from daskmetrics.execution._units import pickled
from daskmetrics.execution._worker import blame, has_room, trace_of

LARGEST_PAYLOAD = 32 * 2**20  # bytes; the pickled function travels with every batch
SHOWN = 12  # digits of a version, which a user can type
LARGEST_VALUE = 2**20  # characters of JSON that one call may return
STATUSES = {Fault.UNDEFINED: "nan", Fault.MEMORY: "oom"}  #: of a failed item; others: error

_LONGEST_NAME = 60
_DIGEST = 16  # bytes of the hash of an element
_ITEM = inspect.Parameter("item", inspect.Parameter.POSITIONAL_ONLY)


@dataclass(frozen=True)
class Item:
    """One element of the iterable."""

    # hash of function, version, element, seed of the run, and number of equal elements before this
    # one
    key: Key
    index: int
    value: Any
    name: str  # short text for tables
    content: Key = ""  # hash of the element as it was read

    @property
    def seed(self) -> int:
        """32 bits that follow from the key, so that numpy.random.seed accepts them."""
        return seed_of(self.key) >> 31


@dataclass(frozen=True)
class Items(Sequence[Item]):
    """Items, each made when it is asked for.

    Of a million, the keys are held, the elements, and 16 bytes of each element's hash.
    """

    positions: Mapping[Key, int]  # 0, 1, ... by the keys
    values: Sequence[Any]
    contents: bytes = b""
    names: Sequence[str] | None = None  # by default short texts of the elements
    indices: Sequence[int] | None = None  # by default 0, 1, ...

    @cached_property
    def keys(self) -> Sequence[Key]:
        """The keys, in the order of the items."""
        return list(self.positions)

    def index_at(self, position: int) -> int:
        """The index of the item at a position."""
        return position if self.indices is None else self.indices[position]

    def content(self, position: int) -> Key:
        """The hash of the element at a position."""
        return self.contents[_DIGEST * position : _DIGEST * (position + 1)].hex()

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, position: Any) -> Any:
        value = self.values[position]
        return Item(
            self.keys[position],
            self.index_at(position),
            value,
            self.names[position] if self.names else _short_text(value),
            self.content(position),
        )


def make_items(values: Iterable[object], function: str, version: str, seed: int = 0) -> Items:
    """The elements of an iterable as items.

    Raises ConfigError if one has no reproducible content.

    Equal elements are numbered, so ``[7, 7]`` gives two items with different keys and seeds.

    >>> one, two = make_items([7, 7], "bench:step", "v1")
    >>> one.name, one.key != two.key, one.seed != two.seed
    ('7', True, True)
    >>> make_items([7], "bench:step", "v1")[0] == one
    True
    """
    return with_keys(without_keys(values), function, version, seed)


def without_keys(values: Iterable[object]) -> Items:
    """The elements of an iterable, which is read once; errors as for `make_items`."""
    elements = []
    contents = bytearray()
    for value in values:
        contents += bytes.fromhex(_content_of(value))
        elements.append(value)
    return Items({}, elements, bytes(contents))


def with_keys(items: Items, function: str, version: str, seed: int = 0) -> Items:
    """Items with the keys of another version of the function."""

    def key(content: Key, equal: int) -> Key:
        return content_key("item", function, version, content, equal, seed)

    repeated: Counter[Key] = Counter()
    positions: dict[Key, int] = {}
    for position in range(len(items.values)):
        content = items.content(position)
        new = key(content, 0)
        if new in positions:
            repeated[content] += 1
            new = key(content, repeated[content])
        positions[new] = position
    return replace(items, positions=positions)


def _content_of(value: object) -> Key:
    try:
        return content_hash(value)
    except NOT_REPRODUCIBLE as error:
        raise ConfigError(
            f"{_short_text(value)} ({type(value).__name__}) has no reproducible content, so a"
            f" resumed run could not recognize it: {describe(error)}. Map over numbers, text, lists,"
            " dicts, arrays or dataclasses."
        ) from None


def unchanged(item: Item) -> object:
    """The element; raises ConfigError if it has another content than when it was read."""
    if _content_of(item.value) != item.content:
        raise ConfigError(
            f"Item {item.index} ({item.name}) was changed after it was read, so its result would be"
            " that of another item. Give each item a copy of its own."
        )
    return item.value


def _short_text(value: object) -> str:
    if not isinstance(value, str):
        value = repr(value)
    text = " ".join(value.split())
    if len(text) <= _LONGEST_NAME:
        return text
    return text[: _LONGEST_NAME - 3] + "..."


def read_items(path: Path) -> Sequence[object]:
    """The items of a file: JSON values, rows as dicts, or lines.

    JSON values of ``.jsonl``, rows of a table, lines of ``.txt``; empty lines are skipped.

    Raises
    ------
    ConfigError
        If the file does not exist, its suffix is not supported, or a line cannot be read.
    """
    suffix = format_of(path)
    if suffix == ".txt":
        values: Sequence[object] = read_lines(path)
    elif suffix in (".jsonl", ".ndjson"):
        values = [value for _, value in read_json_lines(path)]
    else:
        values = [dict(row) for _, row in read_rows(path)]
    if not values:
        raise ConfigError(f"'{path}' contains no items.")
    return values


@dataclass(frozen=True)
class PreparedFunction:
    """A function that is ready to be sent to workers.

    Its name and version are part of every item's key.
    """

    name: str
    version: str  # a hash of the code, or the version given by the user
    accepted: frozenset[str]  # keywords beside the item; `seed` and `batch_size` have a meaning
    # pickled with its bytecode, by value where workers could not import the function
    payload: bytes = field(repr=False)
    stated: bool = False  # the user gave the version
    code: str = ""  # the hash of the code, also where another version is given

    def keywords(self, seed: int, batch_size: int) -> dict[str, int]:
        """The keyword arguments of one call, as far as the function accepts them."""
        keywords = {"seed": seed, "batch_size": batch_size}
        return {name: keywords[name] for name in keywords if name in self.accepted}


def prepare(
    function: Callable[..., object], version: str | None = None, items: Iterable[object] = ()
) -> PreparedFunction:
    """Pickle a function and find out its name, version and keywords.

    Raises ConfigError if that is not possible. The code of classes among the items is part of the
    version.

    Examples
    --------
    >>> def step(item, *, seed): ...
    >>> prepared = prepare(step)
    >>> prepared.name.split(":")[1], prepared.keywords(seed=7, batch_size=10)
    ('step', {'seed': 7})
    """
    if not callable(function):
        raise ConfigError(f"map needs a function to call with each item, but got {function!r}.")
    name = name_of(callee_of(function))
    code, payload = sent(function, version, items)
    signature = inspect.Signature([_ITEM])
    with suppress(TypeError, ValueError):  # some built-in functions have no signature
        signature = inspect.signature(function)
    # the first positional one receives the item
    parameters = list(signature.parameters.values())
    accepted = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    accepted += [p.name for p in parameters[1:] if p.kind is p.POSITIONAL_OR_KEYWORD]
    prepared = PreparedFunction(
        name,
        version or code[:SHOWN],
        frozenset(accepted),
        payload,
        stated=bool(version),
        code=code[:SHOWN],
    )
    try:
        signature.bind(None, **prepared.keywords(seed=0, batch_size=1))
    except TypeError as error:
        raise ConfigError(
            f"{name}{signature} cannot be called with an item: {error}. Take the item as the first"
            " argument, and give the others a default or bind them with functools.partial; only"
            " `seed` and `batch_size` are passed by name."
        ) from None
    return prepared


def sent(
    function: Callable[..., object], version: str | None = None, items: Iterable[object] = ()
) -> tuple[str, bytes]:
    """The version of a function's code, and what workers `load_function` from.

    Raises ConfigError if it cannot be pickled. A given version is not looked for in the code.
    """
    name = name_of(callee_of(function))
    code = Code({}, None)
    if not version:
        code = code_of(function, items)
    by_value = {MAIN, *cloudpickle.list_registry_pickle_by_value()}
    imported = {name: code.modules[name] for name in code.modules.keys() - by_value}
    try:
        payload = pickled((function, imported))
    except pickle.PicklingError as error:
        raise ConfigError(
            f"{name} cannot be sent to workers: {error}. Create open files, locks and connections "
            "inside the function."
        ) from None
    if len(payload) > LARGEST_PAYLOAD:
        raise ConfigError(
            f"{name} carries {len(payload) / 2**20:.0f} MiB to every batch: read a file instead."
        )
    return code.version, payload


def load(reference: str) -> Callable[..., object]:
    """The function that ``module.py:function`` or ``package.module:function`` refers to.

    Raises ConfigError if the file, the module or the function does not exist.

    A module given as a file is sent to the workers by value, together with the modules that it
    imports from its folder: workers do not need the file.
    """
    source, _, name = reference.rpartition(":")
    if not source or not name:
        raise ConfigError(
            f"'{reference}' is not a reference to a function: write module.py:function or "
            "package.module:function."
        )
    module = _import(source)
    function = getattr(module, name, None)
    if not callable(function):
        functions = inspect.getmembers(module, inspect.isfunction)
        names = [name for name, other in functions if other.__module__ == module.__name__]
        raise unknown(f"function of '{source}'", name, names)
    return function  # type: ignore[no-any-return]


def _import(source: str) -> ModuleType:
    if source.endswith(".py"):
        return _import_file(Path(source).resolve(), source)
    _search_first(Path.cwd())
    remedy = f" For a file, add its suffix: {source}.py:..."
    with foreign_errors(f"Cannot import '{source}'", remedy=remedy):
        return importlib.import_module(source)


def _import_file(path: Path, source: str) -> ModuleType:
    if not path.is_file():
        require_regular(path)
        raise ConfigError(f"File '{path}' does not exist.")
    _search_first(path.parent)
    before = set(sys.modules)
    module = sys.modules.get(path.stem)
    if module is None:
        with foreign_errors(f"Cannot import '{source}'"):
            module = _execute(path)
    elif _file_of(module) != path:
        raise ConfigError(f"A module '{path.stem}' is already loaded: rename '{path.name}'.")
    for other in set(sys.modules) - before:
        if _file_of(sys.modules[other]).parent == path.parent:
            cloudpickle.register_pickle_by_value(sys.modules[other])
    return module


def _execute(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # it ends in .py
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    with ExitStack() as stack:
        stack.callback(sys.modules.pop, path.stem)
        spec.loader.exec_module(module)
        stack.pop_all()
    return module


def _search_first(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))  # as Python does for a script


def _file_of(module: ModuleType) -> Path:
    return Path(getattr(module, "__file__", None) or "/").resolve()


def run_batch(
    function: bytes, calls: Sequence[bytes], wait: float = 0.0, folder: Path | None = None
) -> Mapped:
    """The outcome of each call, in order.

    Function and calls are pickled, each by itself: an item that a call changes is not changed for
    the others. A call is the key of an item, its value and the keywords. After
    ``wait`` seconds, an item that failed before may succeed. An item that finds no room although
    the folder has some failed; without a folder, its worker decides that (`perform`).
    """
    loaded = load_function(function)
    time.sleep(wait)
    return Mapped(
        tuple(
            run_call(loaded, key, value, keywords, folder)
            for key, value, keywords in map(pickle.loads, calls)
        )
    )


@functools.lru_cache(maxsize=4)
def load_function(payload: bytes) -> Callable[..., object]:
    """The function, unpickled once per worker.

    What its module caches (a model) is kept between batches.

    ConfigError if this process has imported other code of it.
    """
    function: Callable[..., object]
    function, modules = pickle.loads(payload)
    if not is_imported_as(modules):
        raise ConfigError(
            f"A worker has imported other code of {name_of(callee_of(function))} than this process:"
            " restart the workers, or give a version."
        )
    return function


def run_call(
    function: Callable[..., object],
    key: Key,
    value: object,
    keywords: Mapping[str, int],
    folder: Path | None = None,
) -> ItemOutcome:
    """Call the function with an item and return the outcome as JSON stores it."""
    started = time.perf_counter()
    status, reason, trace, permanent = "ok", None, None, False
    not_finite: list[str] = []
    try:
        result = to_json(function(value, **keywords), "", not_finite)
        if len(json.dumps(result)) > LARGEST_VALUE:
            raise DataError(
                f"The function returned more than {LARGEST_VALUE:,} characters: write a file."
            )
        if not_finite:
            status, reason = "nan", f"not finite: {', '.join(not_finite[:8])}"
    except BaseException as error:  # a user's function can raise anything
        if (
            isinstance(error, KeyboardInterrupt)
            and threading.current_thread() is threading.main_thread()
        ):
            raise  # Ctrl-C; on a worker, no signal raises one here
        fault = blame(error)
        if fault is Fault.DISK and not (folder and has_room(folder)):
            raise  # not the item's fault: the loop pauses until there is space
        result, permanent = None, fault is Fault.PERMANENT
        status, reason, trace = STATUSES.get(fault, "error"), describe(error), trace_of(error)
    if status == "oom":
        gc.collect()  # what the failed call held; torch frees what it keeps of a device by itself
    seconds = round(time.perf_counter() - started, 6)
    return ItemOutcome(key, status, result, reason, trace, permanent, seconds)


def to_json(value: object, place: str, not_finite: list[str]) -> object:
    """A value that JSON can store.

    Numbers that are not finite become None, and their places are appended to a list.

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
        f"The function returned {type(value).__name__} in {place or 'the value'}. Return numbers, "
        "text, None, lists, dicts with text as keys, or the name of a file."
    )
