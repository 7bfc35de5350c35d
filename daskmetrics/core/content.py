"""What values and functions hold, in a form that is the same in every process.

A value is taken apart as pickle does, by its class and its state, down to numbers and texts. Unlike
a pickle, sets have an order, a class is its name, and neither addresses nor what Python shares
within a value count.
"""

from __future__ import annotations

import copyreg
import dis
import functools
import hashlib
import inspect
import json
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from daskmetrics.core.keys import Key, content_key

#: What a value without such a form raises when it is taken apart.
NOT_REPRODUCIBLE = (
    RuntimeError,
    TypeError,
    ValueError,
    AttributeError,
    LookupError,
    OSError,
    pickle.PickleError,
)

_CACHE = type(functools.cache(print))  # what it remembers does not count
_DESCRIPTORS = ("__func__", "fget", "fset", "fdel", "func", "__wrapped__")
_FIELDS = ("__annotations__", "__dataclass_fields__", "__pydantic_fields__")
_BYTECODE = (
    *("co_code", "co_exceptiontable", "co_flags"),
    *("co_argcount", "co_posonlyargcount", "co_kwonlyargcount"),
    *("co_names", "co_varnames", "co_freevars"),
)
_IN_ORDER_OF_HASHES: tuple[object, ...] = (set.__reduce__, frozenset.__reduce__)
_HEAP_TYPE = 1 << 9  # CPython's flag of a class that a statement or a call has made


def content_hash(value: object) -> Key:
    """A hash that is the same for equal values in every process.

    Raises one of `NOT_REPRODUCIBLE` if there is none.

    >>> content_hash({"b", "a"}) == content_hash({"a", "b"}) != content_hash(["a", "b"])
    True
    """
    if is_json(value):
        return content_key(value)
    return content_key(Content().of(value))


def is_json(value: object) -> bool:
    """Whether JSON represents a value completely and unambiguously."""
    if type(value) is dict:
        return all(type(key) is str for key in value) and all(map(is_json, value.values()))
    if type(value) is list:
        return all(map(is_json, value))
    return value is None or type(value) in (bool, int, float, str)


class Content:
    """Takes values apart, and notes the functions and classes that it meets.

    Parameters
    ----------
    lenient : bool
        Whether a part without a reproducible content counts by the name of its type, and raises no
        error.

    Attributes
    ----------
    definitions : dict
        Functions, classes and modules that were met, by id; their code is `code_of`'s to know.
    imports : set of str
        Modules that the code of such functions imports.
    """

    def __init__(self, lenient: bool = False) -> None:
        self.definitions: dict[int, Any] = {}
        self.imports: set[str] = set()
        self._lenient = lenient
        self._around: list[int] = []  # ids of the values that hold the present one

    def of(self, value: object) -> object:
        """A text, or a list of a value's kind and parts."""
        if value is None or type(value) in (bool, int, float, str):
            return repr(value)
        if id(value) in self._around:
            return ["around", self._around.index(id(value))]
        self._around.append(id(value))
        try:
            return self._parts(value)
        except NOT_REPRODUCIBLE:
            if not self._lenient:
                raise
            return [name_of(type(value)), *self._wrapped(value)]
        finally:
            self._around.pop()

    def _parts(self, value: Any) -> object:
        match value:
            case FunctionType():
                return self._function(value)
            case MethodType():  # its function may carry values
                return ["method", self.of(value.__func__), self.of(value.__self__)]
            case type() | ModuleType():
                self.definitions[id(value)] = value
                return ["named", name_of(value)]
            case (
                property() | staticmethod() | classmethod() | functools.cached_property() | _CACHE()
            ):
                return [name_of(type(value)), *self._wrapped(value)]
            case CellType():
                return self.of(value.cell_contents)
            case CodeType():
                return self.bytecode(value)
            case Iterator():
                raise TypeError("it can be read only once")
        kind = type(value)
        if kind is bytes:
            return ["bytes", hashlib.sha256(value).hexdigest()]
        if kind in (list, tuple):
            return [kind.__name__, *map(self.of, value)]
        if kind in (set, frozenset):
            return [kind.__name__, *_sorted(map(self.of, value))]
        if kind is dict or kind.__name__ == "mappingproxy":
            return ["dict", *_sorted([self.of(key), self.of(value[key])] for key in value)]
        if name_of(kind) in _PARTS:
            return [name_of(kind), *map(self.of, _PARTS[name_of(kind)](value))]
        return self._reduced(value)

    def _wrapped(self, value: object) -> Iterator[object]:
        return (self.of(getattr(value, name)) for name in _DESCRIPTORS if hasattr(value, name))

    def _reduced(self, value: Any) -> object:
        kind = type(value)
        if kind is object:
            raise TypeError("it has no content")
        self.definitions[id(kind)] = kind
        if reduce := copyreg.dispatch_table.get(kind):
            parts = reduce(value)
        else:
            parts = value.__reduce_ex__(4)
        if isinstance(parts, str):
            return ["global", getattr(value, "__module__", None) or kind.__module__, parts]
        make, arguments, *state = parts
        if kind.__reduce__ in _IN_ORDER_OF_HASHES:
            arguments = (set(value),)
        contents = [list(part) if isinstance(part, Iterator) else part for part in state]
        return [name_of(kind), self.of(make), self.of(arguments), *map(self.of, contents)]

    def _function(self, function: FunctionType) -> object:
        """A function's name and what it carries; of a local one the bytecode, too."""
        self.definitions[id(function)] = function
        code = function.__code__
        carried: list[object] = [function.__defaults__, function.__kwdefaults__, vars(function)]
        if code.co_filename != functools.__file__:  # whose wrappers carry a cache
            carried += function.__closure__ or ()
        contents = list(map(self.of, carried))
        if "<" in function.__qualname__:  # others may have the same name
            contents.append(self.bytecode(code))
        return ["function", name_of(function), *contents]

    def bytecode(self, code: CodeType) -> object:
        """What code does, without its lines and its docstring."""
        constants = list(code.co_consts)
        if _has_docstring(code):
            constants[0] = None  # as without one
        return [self.of(getattr(code, name)) for name in _BYTECODE] + [self.of(constants)]

    def body(self, definition: Any) -> object:
        """A function or class without a source file, with the globals it reads."""
        if isinstance(definition, type):
            values = {
                name: value
                for name, value in vars(definition).items()
                if not name.startswith("__") or name in _FIELDS or _holds_function(value)
            }
            return [self.of(definition.__bases__), self.of(type(definition)), self.of(values)]
        code, space = definition.__code__, definition.__globals__
        names = set(_read_names(code))
        attributes = {attribute for part in nested(code) for attribute in part.co_names}
        imports = {name for opname, name in names if opname == "IMPORT_NAME"}
        self.imports |= imports | {".".join(both) for both in product(imports, attributes)}
        read = {name: space[name] for _, name in sorted(names) if name in space}
        modules = [value.__name__ for value in read.values() if isinstance(value, ModuleType)]
        for name in modules:  # of `package.module.function`, the module too
            below = (other for other in sys.modules if other.startswith(f"{name}."))
            self.imports |= {
                other for other in below if attributes.issuperset(other[len(name) + 1 :].split("."))
            }
        return [name_of(definition), self.bytecode(code), self.of(read)]


def name_of(value: Any) -> str:
    """``module:name`` of a function, a class or a module.

    >>> name_of(Path), name_of(content_hash)
    ('pathlib:Path', 'daskmetrics.core.content:content_hash')
    """
    return f"{home_of(value)}:{getattr(value, '__qualname__', '')}"


def home_of(value: Any) -> str:
    """The module that defines a function, class or module."""
    if isinstance(value, ModuleType):
        return value.__name__
    module = getattr(value, "__module__", None)
    if isinstance(value, FunctionType):
        module = value.__globals__.get("__name__")
    return str(module or "builtins")


def file_of(module: ModuleType | None) -> str:
    """The file of a module; empty for notebooks and standard input."""
    file = str(getattr(module, "__file__", None) or "")
    return "" if file.startswith("<") else file


def has_source(definition: Any) -> bool:
    """Whether a definition stands in its module's file, or is compiled."""
    if isinstance(definition, ModuleType):
        return True
    module = sys.modules.get(home_of(definition))
    file = file_of(module)
    if isinstance(definition, FunctionType):
        return bool(file) and Path(definition.__code__.co_filename).stem == Path(file).stem
    if not definition.__flags__ & _HEAP_TYPE:
        return True
    try:
        named = functools.reduce(getattr, definition.__qualname__.split("."), module)
    except AttributeError:
        return False
    return named is definition and bool(file)


def _sorted(contents: Iterable[object]) -> list[object]:
    return sorted(contents, key=json.dumps)


def _holds_function(value: object) -> bool:
    parts = (getattr(value, name, None) for name in _DESCRIPTORS)
    return any(isinstance(part, FunctionType) for part in (value, *parts))


def _has_docstring(code: CodeType) -> bool:
    if sys.version_info >= (3, 14):
        return bool(code.co_flags & inspect.CO_HAS_DOCSTRING)
    is_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
    return bool(is_function and code.co_consts and isinstance(code.co_consts[0], str))


def nested(code: CodeType) -> Iterator[CodeType]:
    """A code object and those within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from nested(constant)


def _read_names(code: CodeType) -> Iterator[tuple[str, str]]:
    for part in nested(code):
        for instruction in dis.get_instructions(part):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "IMPORT_NAME"):
                yield instruction.opname, instruction.argval


def _of_array(array: Any) -> tuple[Any, ...]:
    return tuple(array.copy(order="C").__reduce__())


def _of_tensor(tensor: Any) -> tuple[Any, ...]:
    if tensor.is_quantized:
        raise TypeError("its numbers are quantized")
    if str(tensor.layout) != "torch.strided" or tensor.is_meta:
        return tuple(tensor.__reduce_ex__(4))
    numbers = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    content = numbers.view(sys.modules["torch"].uint8).numpy().tobytes()
    return str(tensor.dtype), tuple(tensor.shape), content


def _of_frame(frame: Any) -> tuple[Any, ...]:
    columns = [frame.iloc[:, i].array for i in range(frame.shape[1])]
    return frame.columns, frame.index, frame.attrs, columns


#: The parts of a value that pickle would take apart in a way that depends on its place in memory.
_PARTS: Mapping[str, Callable[[Any], tuple[Any, ...]]] = {
    "numpy:ndarray": _of_array,
    "torch:Tensor": _of_tensor,
    "pandas:DataFrame": _of_frame,
    "pandas.core.frame:DataFrame": _of_frame,
}
