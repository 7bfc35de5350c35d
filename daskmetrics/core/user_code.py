"""Objects of a user's own modules, and the version of their code.

The version of code is the syntax of its module and of the modules that this imports, one after the
other, without comments and docstrings. Python's own modules, installed packages and this one do not
count; a package that is installed for editing does, as do the other modules of the package that
holds the function. A function or class that stands in no file counts by its bytecode, with all that
it refers to.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import pkgutil
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec, resolve_name, spec_from_file_location
from itertools import chain
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from daskmetrics.core.content import Content, file_of, has_source, home_of, is_json, nested
from daskmetrics.core.errors import ConfigError, foreign_errors
from daskmetrics.core.keys import Key, content_key
from daskmetrics.core.main_module import MAIN

_OURS = __name__.partition(".")[0]
_INSTALLED = ("site-packages", "dist-packages")  # parts of a path
_PYTHON = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib"))
_REMOVED = ""  # in place of a hash
_IMPORTING = ("import_module", "__import__", "resolve_name")  # called with the name of a module
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def load_object(subject: str, path: str) -> Any:
    """The object at an import path such as ``package.module:NAME``.

    It is a ConfigError that names the subject if it cannot be imported.

    >>> load_object("Policy 'math:floor'", "math:floor")
    <built-in function floor>
    """
    remedy = " Write 'package.module:NAME' of a package that every worker has, or repair it."
    with foreign_errors(f"{subject} cannot be loaded", remedy=remedy):
        return pkgutil.resolve_name(path)


def code_key(reference: str) -> Key:
    """The version of the code at ``module:name``, which need not be imported.

    Empty if there is no such module.
    """
    module, _, _ = reference.partition(":")
    if module == MAIN:
        return code_of(pkgutil.resolve_name(reference)).version
    syntax = syntax_of([module], module)
    return content_key(syntax) if syntax else ""


@functools.cache
def own_code(definition: Any) -> tuple[Key, ...]:
    """The version of a user's definition; nothing for those of this package."""
    if home_of(definition).partition(".")[0] == _OURS:
        return ()
    return (code_of(definition).version,)


@dataclass(frozen=True)
class Code:
    """What identifies the code of a function."""

    modules: Mapping[str, Key]
    carried: object

    @property
    def version(self) -> Key:
        return content_key(self.modules, self.carried)


def code_of(function: Any, items: Iterable[object] = ()) -> Code:
    """The code of a function, of what it carries, and of its items' classes.

    Raises ConfigError if a file was edited after this process had imported it.
    """
    content = Content(lenient=True)
    carried = [content.of(function)]
    for item in items:
        if not is_json(item):
            content.of(item)
    bodies = []
    modules = set()
    seen: set[int] = set()
    while new := content.definitions.keys() - seen:
        seen |= new
        for definition in (content.definitions[key] for key in new):
            if has_source(definition):
                modules.add(home_of(definition))
            else:
                bodies.append(content.body(definition))
    modules |= content.imports
    return Code(
        syntax_of(modules, home_of(callee_of(function))), [carried, sorted(map(repr, bodies))]
    )


def callee_of(function: Any) -> Any:
    """The function or class behind a partial or an object."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if hasattr(function, "__qualname__") else type(function)


def syntax_of(modules: Iterable[str], own: str) -> dict[str, Key]:
    """Hashes of a user's modules and of those that they import.

    ``own`` is the module of the function: it and the modules of its package count also where they are
    installed.
    """
    hashes: dict[str, Key] = {}
    package = own.rpartition(".")[0] or own
    pending = [own, *modules]
    while pending:
        name = pending.pop()
        is_own = name == package or name.startswith(f"{package}.")
        if name in hashes or not (is_own or _is_users(name.partition(".")[0])):
            continue
        spec = _spec_of(name)
        if spec and spec.has_location and (is_own or not _is_installed(spec.origin)):
            hashes[name], imported = _snapshot(name, spec)
            pending += imported
            pending += filter(None, [name.rpartition(".")[0]])
    if hashes.get(own) == _REMOVED:
        raise ConfigError(
            f"The file of the module '{own}' was removed: restore it, or give a version."
        )
    return dict(sorted(hashes.items()))


def _is_users(package: str) -> bool:
    """Whether part of a package stands outside of what is installed."""
    spec = _spec_of(package)
    if package == _OURS or spec is None:
        return False
    paths: Sequence[str | None] = spec.submodule_search_locations or [spec.origin]
    return any(not _is_installed(path) for path in paths)


def _is_installed(file: str | None) -> bool:
    """Whether a file belongs to Python or an installed package."""
    path = Path(file or "")
    is_packaged = any(part in path.parts for part in _INSTALLED)
    return is_packaged or not path.is_absolute() or str(path).startswith(_PYTHON)


def _spec_of(name: str) -> ModuleSpec | None:
    """Where an import finds a module; unlike `importlib`, this imports no package."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        file = file_of(loaded)
        spec: ModuleSpec | None = getattr(loaded, "__spec__", None)
        if spec is None and file:  # a script
            return spec_from_file_location(name, file)
        return spec
    path = None
    if package := name.rpartition(".")[0]:
        parent = _spec_of(package)
        if parent is None or parent.submodule_search_locations is None:
            return None
        path = parent.submodule_search_locations
    finders = (finder.find_spec for finder in sys.meta_path if hasattr(finder, "find_spec"))
    try:
        return next(filter(None, (find(name, path) for find in finders)), None)
    except KeyError:  # in a package that is a folder without files, which is imported first
        return find_spec(name)


_snapshots: dict[str, tuple[object, tuple[Key, tuple[str, ...]]]] = {}


def _snapshot(name: str, spec: ModuleSpec) -> tuple[Key, tuple[str, ...]]:
    """The syntax and imports of a module as this process has imported it."""
    loaded = sys.modules.get(name)
    imported = getattr(loaded, "__spec__", None) or loaded  # another one after a reload
    if name in _snapshots and _snapshots[name][0] is imported is not None:
        return _snapshots[name][1]
    file = str(spec.origin)
    try:
        text = _read(spec.loader, file)
    except FileNotFoundError:
        return _REMOVED, ()
    is_plain = type(spec.loader) is SourceFileLoader and not _is_installed(file)
    if loaded and is_plain and not _is_current(loaded, text):
        raise ConfigError(
            f"'{file}' was edited after this process had imported it. Start the process"
            " again, or reload the module with importlib.reload; or give a version."
        )
    syntax = _syntax(text, spec.parent or "")
    _snapshots[name] = imported, syntax
    return syntax


def _read(loader: Any, file: str) -> bytes:
    if hasattr(loader, "get_data"):  # also of an archive
        return bytes(loader.get_data(file))
    return Path(file).read_bytes()


@functools.lru_cache(maxsize=256)
def _syntax(text: bytes, package: str) -> tuple[Key, tuple[str, ...]]:
    try:
        tree = ast.parse(text)
        nodes = list(ast.walk(tree))
        for node in nodes:
            if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
                del node.body[0]
        syntax = ast.dump(tree).encode()
    except (SyntaxError, ValueError, RecursionError):  # it is compiled, or nested too deeply
        return hashlib.sha256(text).hexdigest(), ()
    imports = dict.fromkeys(chain.from_iterable(_imported(node, package) for node in nodes))
    return hashlib.sha256(syntax).hexdigest(), tuple(imports)


def _imported(node: ast.AST, package: str) -> Iterator[str]:
    names: list[str] = []
    match node:
        case ast.Import():
            names = [alias.name for alias in node.names]
        case ast.ImportFrom():
            source = "." * node.level + (node.module or "")
            below = source if source.endswith(".") else f"{source}."
            names = [source, *(f"{below}{alias.name}" for alias in node.names)]
        case ast.Call(
            func=ast.Attribute(attr=called) | ast.Name(id=called),
            args=[ast.Constant(value=str(name)), *_],
        ) if called in _IMPORTING:
            names = [name.partition(":")[0]]
        case ast.Assign(
            targets=[ast.Name(id="__all__")], value=ast.List(elts=parts) | ast.Tuple(elts=parts)
        ):
            named = [part.value for part in parts if isinstance(part, ast.Constant)]
            names = [f".{name}" for name in named if isinstance(name, str)]
    for name in names:
        with suppress(ImportError):  # reported where it is imported
            yield resolve_name(name, package)


def _is_current(module: ModuleType, text: bytes) -> bool:
    """Whether the functions of a module are those of its file now."""
    file = file_of(module)
    try:
        compiled = compile(text, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    bytecode = Content(lenient=True).bytecode
    in_file = {repr(bytecode(code)) for code in nested(compiled)}
    return all(
        repr(bytecode(function.__code__)) in in_file
        for function in _functions(module)
        if function.__code__.co_filename == file
    )


def _functions(holder: Any) -> Iterator[FunctionType]:
    for value in list(vars(holder).values()):
        if isinstance(value, FunctionType):
            yield value
        elif isinstance(value, type) and isinstance(holder, ModuleType):
            yield from _functions(value)


def is_imported_as(modules: Mapping[str, Key]) -> bool:
    """Whether this process imports these modules with these hashes, where it finds them."""
    specs = {name: spec for name in modules if (spec := _spec_of(name))}
    try:
        return all(_snapshot(name, spec)[0] == modules[name] for name, spec in specs.items())
    except ConfigError:
        return False
