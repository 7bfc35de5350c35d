"""The version of a function follows from all code that its result depends on, and from nothing else."""

from __future__ import annotations

import json
import os
import py_compile
import re
import subprocess
import sys
from importlib import import_module, reload
from pathlib import Path
from textwrap import dedent

import pytest

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.user_code import code_key, code_of, syntax_of

# Of each shape the text of its module, in which 2 becomes 7; a value of 3 gives another result.
SHAPES = {
    "plain": "def step(i): return i * 2",
    "cache": "import functools\n@functools.cache\ndef step(i): return i * 2",
    "lru_cache": "import functools\n@functools.lru_cache(maxsize=9)\ndef step(i): return i * 2",
    "below_cache": "import functools\n@functools.cache\ndef rate(): return 2\ndef step(i): return i * rate()",
    "wraps": """
        import functools
        def scaled(f):
            @functools.wraps(f)
            def inner(i): return f(i) * 2
            return inner
        @scaled
        def step(i): return i
    """,
    "wrapped": """
        import functools
        def plain(f):
            @functools.wraps(f)
            def inner(i): return f(i)
            return inner
        @plain
        def step(i): return i * 2
    """,
    "decorator_without_wraps": """
        def scaled(f):
            return lambda i: f(i) * 2
        @scaled
        def step(i): return i
    """,
    "decorator_with_argument": """
        def scaled(by):
            def around(f):
                def inner(i): return f(i) * by
                return inner
            return around
        @scaled(by=2)
        def step(i): return i
    """,
    "decorator_class": """
        import functools, threading
        class Scaled:
            def __init__(self, f):
                functools.update_wrapper(self, f)
                self.lock = threading.Lock()
            def __call__(self, i): return self.__wrapped__(i) * 2
        @Scaled
        def step(i): return i
    """,
    "decorated_by_class": """
        class Plain:
            def __init__(self, f, by): self.f, self.by = f, by
            def __call__(self, i): return self.f(i) * self.by
        step = Plain(lambda i: i, by=2)
    """,
    "wrapped_by_class": """
        import functools
        class Plain:
            def __init__(self, f): functools.update_wrapper(self, f)
            def __call__(self, i): return self.__wrapped__(i)
            def __reduce__(self): raise TypeError("not to be sent")
        @Plain
        def step(i): return i * 2
    """,
    "static_method": "class A:\n  @staticmethod\n  def f(i): return i * 2\ndef step(i): return A.f(i)",
    "class_method": "class A:\n  @classmethod\n  def f(cls, i): return i * 2\nstep = A.f",
    "property": "class A:\n  @property\n  def f(self): return 2\ndef step(i): return i * A().f",
    "cached_property": """
        import functools
        class A:
            @functools.cached_property
            def f(self): return 2
        def step(i): return i * A().f
    """,
    "singledispatch": """
        import functools
        @functools.singledispatch
        def step(i): return None
        @step.register
        def _(i: int): return i * 2
    """,
    "partial": "import functools\ndef f(a, i): return a * i\nstep = functools.partial(f, 2)",
    "partial_in_module": """
        import functools
        def f(a, i): return a * i
        double = functools.partial(f, 2)
        def step(i): return double(i)
    """,
    "partial_of_keyword": "import functools\ndef f(i, *, a): return a * i\nstep = functools.partial(f, a=2)",
    "instance": "class A:\n  def __call__(self, i): return i * 2\nstep = A()",
    "instance_in_module": "class A:\n  def f(self, i): return i * 2\na = A()\ndef step(i): return a.f(i)",
    "instance_state": "class A:\n  def __init__(self, n): self.n = n\n  def __call__(self, i): return i * self.n\nstep = A(2)",
    "bound_method": "class A:\n  def f(self, i): return i * 2\nstep = A().f",
    "slots": "class A:\n  __slots__ = ('n',)\n  def __call__(self, i): return i * self.n\nstep = A()\nstep.n = 2",
    "table": "def f(i): return i * 2\nTABLE = {'f': f}\ndef step(i): return TABLE['f'](i)",
    "table_of_lambdas": "TABLE = [lambda i: i, lambda i: i * 2]\ndef step(i): return TABLE[1](i)",
    "constant": "RATE = 2\ndef step(i): return i * RATE",
    "table_of_numbers": "RATES = {'a': [1, 2]}\ndef step(i): return i * RATES['a'][1]",
    "class_attribute": "class A:\n  rate = 2\ndef step(i): return i * A.rate",
    "base_class": "class B:\n  def f(self): return 2\nclass A(B): pass\ndef step(i): return i * A().f()",
    "metaclass": "class M(type):\n  def f(cls): return 2\nclass A(metaclass=M): pass\ndef step(i): return i * A.f()",
    "default": "def step(i, a=2): return i * a",
    "keyword_default": "def step(i, *, a=2): return i * a",
    "nested": "def step(i):\n  def f(): return 2\n  return i * f()",
    "lambda": "step = lambda i: i * 2",
    "generator": "def f(i):\n  yield i * 2\ndef step(i): return list(f(i))",
    "comprehension": "def step(i): return [j * 2 for j in range(i)]",
    "dataclass_field": "from dataclasses import dataclass\n@dataclass\nclass A:\n  rate: int = 2\ndef step(i): return i * A().rate",
    "enum": "import enum\nclass A(enum.Enum):\n  RATE = 2\ndef step(i): return i * A.RATE.value",
    "named_tuple": "from typing import NamedTuple\nclass A(NamedTuple):\n  rate: int = 2\ndef step(i): return i * A().rate",
    "conditional": "try:\n  import no_such_module\nexcept ImportError:\n  def f(i): return i * 2\ndef step(i): return f(i)",
    "exec": "space = {}\nexec('def f(i): return i * 2', space)\nstep = space['f']",
    "type": "A = type('A', (), {'f': lambda self, i: i * 2})\ndef step(i): return A().f(i)",
    "type_local": "def make(): return type('B', (), {'__call__': lambda self, i: i * 2})\nstep = make()()",
    "operator": "import operator\nstep = operator.methodcaller('__mul__', 2)",
    "patched": "class A:\n  def f(self, i): return i\nA.f = lambda self, i: i * 2\ndef step(i): return A().f(i)",
    "closure": "def make(n):\n  def step(i): return i * n\n  return step\nstep = make(2)",
    "closure_of_function": "def f(i): return i * 2\ndef make(g):\n  return lambda i: g(i)\nstep = make(f)",
    "recursive": "def step(i): return i * step(i - 1) if i > 1 else 2",
    "try_range": "def f(): raise KeyError\ndef step(i):\n  try: return f()\n  except KeyError: return 2",
    "coroutine": "import asyncio\nasync def f(i): return i * 2\ndef step(i): return asyncio.run(f(i))",
}
SHAPES = {f"of_{name}": dedent(text) + "\n" for name, text in SHAPES.items()}

# Of these another module changes: the helper, with the text of the function's module.
HELPED = {
    "beside": ("beside_helper.py", "import beside_helper\ndef step(i): return beside_helper.f(i)"),
    "star": ("star_helper.py", "from star_helper import *\ndef step(i): return f(i)"),
    "lazy": ("lazy_helper.py", "def step(i):\n  from lazy_helper import f\n  return f(i)"),
    "lazy_part": ("lent/inner.py", "def step(i):\n  from lent import inner\n  return inner.f(i)"),
    "aliased": ("alias_helper.py", "import alias_helper as h\ndef step(i): return h.f(i)"),
    "package": ("parcel/inner.py", "import parcel.inner\ndef step(i): return parcel.inner.f(i)"),
    "package_init": ("boxed/__init__.py", "import boxed.empty\ndef step(i): return boxed.f(i)"),
    "namespace": (
        "spacious/deep/inner.py",
        "from spacious.deep import inner\ndef step(i): return inner.f(i)",
    ),
    "by_name": (
        "named_helper.py",
        "from importlib import import_module\nf = import_module('named_helper').f\ndef step(i): return f(i)",
    ),
    "named_part": ("listed/inner.py", "from listed import *\ndef step(i): return inner.f(i)"),
    "late_part": ("later/inner.py", "import later\ndef step(i): return later.inner.f(i)"),
    "resolved": (
        "found_helper.py",
        "import pkgutil\nf = pkgutil.resolve_name('found_helper:f')\ndef step(i): return f(i)",
    ),
    "indirect": ("last_helper.py", "from first_helper import f\ndef step(i): return f(i)"),
}
OTHERS = {
    "lent/__init__.py": "",
    "parcel/__init__.py": "from . import inner",
    "boxed/empty.py": "",
    "listed/__init__.py": "__all__ = ['inner']",
    "later/__init__.py": (
        "import importlib\ndef __getattr__(name): return importlib.import_module('.inner', __name__)"
    ),
    "first_helper.py": "from last_helper import f",
    "related/__init__.py": "",
    "related/main.py": "from .inner import f\ndef step(i): return f(i)",
    "related/inner.py": "def f(i): return i * 2\n",
}

REPORT = """
import importlib, json, sys, types
from pathlib import Path
from daskmetrics.core.user_code import code_of
answers = {}
def tell(name, step):
    answers[name] = code_of(step).version, repr(step(3))
for name in sys.argv[1].split():
    module = name.replace(":", ".")
    tell(name, importlib.import_module(module).step)
main = sys.modules["__main__"]
for name in sys.argv[2].split():
    cell = types.ModuleType("__main__")
    sys.modules["__main__"] = cell
    exec(compile(Path(f"{name}.py").read_text(), "<cell>", "exec"), vars(cell))
    tell(f"cell:{name}", cell.step)
sys.modules["__main__"] = main
print(json.dumps(answers))
"""


def report(folder: Path, seed: int) -> dict[str, list[str]]:
    """The version of each function in a new process, and what it returns."""
    modules = " ".join([*SHAPES, *HELPED, "related.main"])
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONDONTWRITEBYTECODE": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", REPORT, modules, " ".join([*SHAPES, *HELPED])]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> dict[str, dict[str, list[str]]]:
    """What new processes say: at first, with other comments, and after each shape was edited."""
    folder = tmp_path_factory.mktemp("shapes")
    files = {f"{name}.py": text for name, text in SHAPES.items()}
    files |= {f"{name}.py": text for name, (_, text) in HELPED.items()}
    files |= {helper: "def f(i): return i * 2\n" for helper, _ in HELPED.values()}
    files |= OTHERS

    def write(change) -> None:
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(change(text))

    write(lambda text: text)
    answers = {"before": report(folder, 1), "again": report(folder, 2)}
    write(
        lambda text: '"""Another docstring."""\n\n# a comment\n' + text.replace("\n", "  # more\n")
    )
    answers["commented"] = report(folder, 3)
    write(lambda text: re.sub(r"\b2\b", "7", text))
    answers["after"] = report(folder, 4)
    return answers


NAMES = [*SHAPES, *HELPED, "related.main", *(f"cell:{name}" for name in (*SHAPES, *HELPED))]


@pytest.mark.parametrize("name", NAMES)
def test_an_edit_gives_another_version_and_a_comment_none(reports, name):
    version, value = reports["before"][name]
    assert reports["again"][name] == reports["commented"][name] == [version, value]
    edited, result = reports["after"][name]
    assert result != value, "the edit changes nothing"
    assert edited != version


def test_code_that_was_edited_after_its_import_is_refused(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    path = tmp_path / "edited_meanwhile.py"
    path.write_text("def step(i): return i\n")
    module = import_module("edited_meanwhile")
    path.write_text("def step(i): return i + 1\n")
    with pytest.raises(ConfigError, match="was edited after this process had imported it"):
        code_of(module.step)
    before = code_of(reload(module).step)
    path.write_text("def step(i): return i + 2\n")
    assert code_of(module.step) == before != code_of(reload(module).step)


class Patched:
    """Its method is made elsewhere, as by a decorator."""


def scaled_by(rate):
    return lambda self, item: item * rate


def test_what_the_function_of_a_method_carries_counts(monkeypatch):
    versions = []
    for rate in (2, 2, 7):
        monkeypatch.setattr(Patched, "scaled", scaled_by(rate), raising=False)
        versions.append(code_of(Patched().scaled).version)
    assert versions[0] == versions[1] != versions[2]


def test_installed_packages_do_not_count(tmp_path, monkeypatch):
    installed = tmp_path / "site-packages" / "bought"
    installed.mkdir(parents=True)
    monkeypatch.syspath_prepend(installed.parent)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "uses_bought.py").write_text("import bought.deep, json\n")
    (installed / "deep.py").write_text("def step(i): return i\n")
    (installed / "__init__.py").write_text("")
    assert list(syntax_of([], "uses_bought")) == ["uses_bought"]
    assert list(syntax_of([], "bought.deep")) == ["bought", "bought.deep"]
    assert code_key("no_such_module:step") == ""


def test_a_module_without_text_counts_by_its_bytes(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    source = tmp_path / "compiled_only.py"
    keys = []
    for factor in (2, 7):
        source.write_text(f"def step(i): return i * {factor}\n")
        py_compile.compile(str(source), str(source.with_suffix(".pyc")))
        source.unlink()
        keys.append(code_key("compiled_only:step"))
    assert "" != keys[0] != keys[1]
