"""Objects of a user's own modules, and the code of a function: what it does follows from the source
of the function and of what it uses in its module.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import inspect
import pkgutil
import textwrap
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from daskmetrics.core.errors import foreign_errors
from daskmetrics.core.main_module import MAIN
from daskmetrics.core.names import Key, content_key


def load_object(subject: str, path: str) -> Any:
    """The object at an import path such as ``package.module:NAME``; a ConfigError that names the
    subject if it cannot be imported.

    >>> load_object("Policy 'math:floor'", "math:floor")
    <built-in function floor>
    """
    remedy = " Write 'package.module:NAME' of a package that every worker has, or repair it."
    with foreign_errors(f"{subject} cannot be loaded", remedy=remedy):
        return pkgutil.resolve_name(path)


def code_key(reference: str) -> Key:
    """A key of the code at ``module:name``, which need not be imported: of the file of the module, or
    of the source of a function in the main module, with its helpers.
    """
    module, _, _ = reference.partition(":")
    if module == MAIN:
        return content_key(*sources_of(pkgutil.resolve_name(reference)))
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):  # reported where it is imported
        spec = None
    if spec is None or not spec.has_location:
        return ""
    return hashlib.sha256(Path(str(spec.origin)).read_bytes()).hexdigest()


def with_helpers(function: Any) -> list[Any]:
    """A function or a class, and the functions and classes of its module that it uses by name, and
    those that these use.
    """
    users = [function]
    if inspect.ismethod(function):
        users.append(type(function.__self__))
    for user in users:
        if isinstance(user, type):
            uses = [*user.__bases__, *filter(inspect.isfunction, vars(user).values())]
        else:
            uses = list(_globals(user).values())
        for used in uses:
            if callable(used) and getattr(used, "__module__", None) == function.__module__:
                used = inspect.unwrap(used)  # of a cache
                if isinstance(used, FunctionType | type) and used not in users:
                    users.append(used)
    return [function, *sorted(users[1:], key=lambda user: user.__qualname__)]


def constants(function: Any) -> dict[str, str]:
    """Of the numbers and texts that a function and its helpers read as global variables, 16 bits of a
    hash: they show a change, and not a password.
    """
    values: dict[str, object] = {}
    for user in with_helpers(_definition(function)):
        values |= _globals(user)
    return {
        name: content_key(value)[:4]
        for name, value in sorted(values.items())
        if isinstance(value, int | float | str)
    }


def _globals(user: Any) -> dict[str, object]:
    """The global variables that a function reads, by name."""
    values = getattr(user, "__globals__", {})
    names = _names(getattr(user, "__code__", None))
    return {name: values[name] for name in names if name in values}


def _names(code: object) -> Iterator[str]:
    """The global names that a code object and those within it read."""
    if isinstance(code, CodeType):
        for instruction in dis.get_instructions(code):
            if instruction.opname == "LOAD_GLOBAL":
                yield instruction.argval
        for constant in code.co_consts:
            yield from _names(constant)


def sources_of(function: Any) -> list[str]:
    """The source of a function or a class and of its helpers."""
    return list(map(_source, with_helpers(function)))


def _source(function: Any) -> str:
    """The source of a function or class; where there is none, its bytecode."""
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        source = ""
    code = getattr(function, "__code__", None)
    if code and (not source or function.__name__ == "<lambda>"):
        return source + _bytecode(code)  # a line can hold several lambdas
    if isinstance(function, type) and not source:  # that of a notebook's class cannot be found
        methods = filter(inspect.isfunction, vars(function).values())
        source = "".join(map(_source, methods))
    return source or repr(getattr(function, "__qualname__", type(function)))


def _bytecode(code: object) -> str:
    """Replaces the source of a function that was typed into an interpreter; ``code`` may be a
    constant, also a set, which has no order.
    """
    if isinstance(code, frozenset):
        return repr(sorted(map(repr, code)))
    if not isinstance(code, CodeType):
        return repr(code)
    constants = list(map(_bytecode, code.co_consts))
    return hashlib.sha256(code.co_code).hexdigest() + repr([code.co_names, constants])


def code_of(function: Any) -> str:
    """The bytecode of a function and its helpers: two processes may have imported it before and after
    an edit.
    """
    users = with_helpers(_definition(function))
    return "".join(_bytecode(getattr(user, "__code__", None)) for user in users)


def _definition(function: Any) -> Any:
    """The function or the class that a partial, a decorated function or an object calls."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if isinstance(function, type) or hasattr(function, "__code__"):
        return function
    return type(function)
