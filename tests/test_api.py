"""What users may import is declared, documented and small; the import graph has no circle."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from collections import Counter
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import daskmetrics

PACKAGE = Path(daskmetrics.__file__).parent
MOST_PUBLIC_NAMES = 180

DOCUMENTED = (
    "daskmetrics",
    "daskmetrics.answer",
    "daskmetrics.bandit",
    "daskmetrics.bandit.policies",
    "daskmetrics.cluster",
    "daskmetrics.config",
    "daskmetrics.core.errors",
    "daskmetrics.domain.names",
    "daskmetrics.execution",
    "daskmetrics.execution.map",
    "daskmetrics.metrics",
    "daskmetrics.report",
    "daskmetrics.store",
    "daskmetrics.tasks",
    "daskmetrics.training",
)


@cache
def sources() -> dict[str, ast.Module]:
    """The syntax tree of every module of the package, by its name."""
    trees = {}
    for path in PACKAGE.rglob("*.py"):
        parts = (PACKAGE.name, *path.relative_to(PACKAGE).with_suffix("").parts)
        name = ".".join(part for part in parts if part != "__init__")
        trees[name] = ast.parse(path.read_text(encoding="utf-8"))
    return trees


def is_package(name: str) -> bool:
    return (PACKAGE.parent / Path(*name.split(".")) / "__init__.py").is_file()


def test_every_package_describes_its_modules():
    for name, tree in sources().items():
        if is_package(name):
            docstring = ast.get_docstring(tree) or ""
            inner = (module.rpartition(".") for module in sources())
            modules = {module for package, _, module in inner if package == name} - {"__main__"}
            assert not {module for module in modules if f"`{module}`" not in docstring}, name


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_exported_name_exists_and_has_a_docstring(name):
    module = importlib.import_module(name)
    assert module.__doc__ and module.__all__
    for each in module.__all__:
        value = getattr(module, each)
        if inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value):
            assert inspect.getdoc(value), f"{name}.{each} has no docstring"


def test_everything_in_the_package_itself_has_an_example():
    shown = {name: getattr(daskmetrics, name) for name in daskmetrics.__all__}
    shown = {name: value for name, value in shown.items() if callable(value)}
    for name, value in list(shown.items()):
        if inspect.isclass(value) and issubclass(value, Exception):
            del shown[name]
        if inspect.isclass(value):
            methods = inspect.getmembers(value, inspect.isfunction)
            shown |= {f"{name}.{each}": method for each, method in methods if each[0] != "_"}
    assert {"run", "Run", "Run.best"} <= shown.keys()
    assert [name for name, value in shown.items() if ">>>" not in inspect.getdoc(value)] == []


def test_dir_shows_the_api_and_nothing_else():
    code = """
import daskmetrics, daskmetrics.report, daskmetrics.execution.map, daskmetrics.config
assert dir(daskmetrics) == sorted(daskmetrics.__all__)
assert callable(daskmetrics.map) and isinstance(daskmetrics.Run, type)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_are_few():
    modules = map(importlib.import_module, DOCUMENTED)
    assert sum(len(module.__all__) for module in modules) <= MOST_PUBLIC_NAMES


def room(module: str) -> str:
    """The package directly below `daskmetrics` that a module belongs to."""
    return module.split(".")[1] if "." in module else ""


def test_no_package_imports_another_ones_internal_modules():
    foreign = [
        (name, imported)
        for name, tree in sources().items()
        for imported in imports(name, tree)
        if room(imported) != room(name) and "._" in imported
    ]
    assert foreign == []


def test_no_class_name_means_two_things():
    places = Counter(
        node.name
        for tree in sources().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )
    assert not [name for name, count in places.items() if count > 1]


def imports(name: str, tree: ast.Module) -> set[str]:
    """The modules of the package that a module imports anywhere, lazily and for type checking
    included.
    """
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                found.add(submodule if submodule in sources() else node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {module for module in found if module in sources() and module != name}


def test_the_import_graph_has_no_circle():
    try:
        TopologicalSorter({name: imports(name, tree) for name, tree in sources().items()}).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
