"""Subsets and splits of a task of the benchmark, and the choice among them, without importing the benchmark.

A task of many languages has a subset for each. The benchmark declares the languages of every subset in its source; the
source is read here and not run, because importing the benchmark imports torch.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from daskmetrics.core.errors import ConfigError, unknown

LANGUAGE = "eng"
SPLIT = "test"
ONLY = "default"  #: the benchmark's name of the subset of a task that has one


@dataclass(frozen=True)
class Selection:
    """The splits and subsets of a task that are evaluated, in the benchmark's order; every subset of every split."""

    splits: tuple[str, ...] = (SPLIT,)
    subsets: tuple[str, ...] = (ONLY,)


@dataclass(frozen=True)
class Declaration:
    """What the benchmark declares of a task."""

    languages: Mapping[str, tuple[str, ...]]  # of each subset, such as eng-Latn
    splits: tuple[str, ...]
    samples: int = 8  # training texts per label that each experiment of a classification draws
    experiments: int = 10

    def select(self, task: str, options: Mapping[str, Sequence[str]]) -> Selection:
        """The chosen splits and subsets: by default the split ``test`` and the subsets that are all in English.

        A task without the split ``test`` uses all its splits, and one without a subset in English all its subsets.
        """
        splits, subsets = options.get("split"), options.get("subsets")
        for kind, asked, valid in (("split", splits, self.splits), ("subset", subsets, self.languages)):
            for name in asked or ():
                if name not in valid:
                    raise unknown(f"{kind} of '{task}'", name, list(valid))
        if splits is None:
            splits = [SPLIT] if SPLIT in self.splits else self.splits
        if subsets is None or "languages" in options:
            subsets = [name for name in self._in(task, options.get("languages")) if not subsets or name in subsets]
        if not subsets:
            raise ConfigError(f"'{task}' has no subset that is in 'languages' and in 'subsets'. Give one of the two.")
        return Selection(tuple(s for s in self.splits if s in splits), tuple(s for s in self.languages if s in subsets))

    def codes(self, subsets: Iterable[str]) -> set[str]:
        """The languages in these subsets, without scripts."""
        return {code.partition("-")[0] for subset in subsets for code in self.languages[subset]}

    def is_in(self, languages: Sequence[str], subsets: Sequence[str]) -> bool:
        """Whether these subsets contain no language but these."""
        codes = (code for subset in subsets for code in self.languages[subset])
        return all(code in languages or code.partition("-")[0] in languages for code in codes)

    def _in(self, task: str, languages: Sequence[str] | None) -> list[str]:
        """The subsets whose languages are all among these; None is English, or everything if nothing is in English."""
        found = [name for name in self.languages if self.is_in(languages or [LANGUAGE], [name])]
        if languages is None:
            return found or list(self.languages)
        codes = self.codes(self.languages)
        for language in languages:
            if language not in codes.union(*self.languages.values()):
                raise unknown(f"language of '{task}'", language, sorted(codes))
        if not found:
            subsets = ", ".join(f"{name} ({'+'.join(each)})" for name, each in self.languages.items())
            raise ConfigError(
                f"'{task}' has no subset that is only in {'+'.join(languages)}. Name all languages of a subset, or the "
                f"subset itself. The subsets: {subsets[:300]}"
            )
        return found


@lru_cache
def declared(name: str) -> Declaration | None:
    """What the installed source declares of a task; None if it is not installed or declares it by code."""
    file = _sources().get(name)
    if file is None:
        return None
    module = ast.parse(file.read_text(encoding="utf-8"))
    constants = _assigned(module.body)
    for task in (node for node in module.body if isinstance(node, ast.ClassDef)):
        fields = _fields(task, constants)
        if fields.get("name") == name and "eval_langs" in fields and "eval_splits" in fields:
            return declaration(fields["eval_langs"], fields["eval_splits"], fields)
    return None


def declaration(languages: Any, splits: Sequence[str], fields: Mapping[str, Any]) -> Declaration:
    """From the benchmark's fields: languages are by subset, or a list for a task without subsets."""
    by_subset = languages if isinstance(languages, Mapping) else {ONLY: languages}
    draws = fields.get("samples_per_label", Declaration.samples), fields.get("n_experiments", Declaration.experiments)
    return Declaration({name: tuple(codes) for name, codes in by_subset.items()}, tuple(splits), *draws)


def package() -> Path | None:
    """The folder of the installed benchmark; None if it is not installed."""
    try:
        spec = find_spec("mteb")
    except ValueError:  # replaced in sys.modules
        return None
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


@lru_cache
def _sources() -> Mapping[str, Path]:
    """The file that declares each task."""
    folder = package()
    if folder is None:
        return {}
    return {
        name: path
        for path in sorted((folder / "tasks").rglob("*.py"))
        for name in re.findall(r'\bname="([^"]+)"', path.read_text(encoding="utf-8"))
    }


def _fields(task: ast.ClassDef, constants: Mapping[str, ast.expr]) -> dict[str, Any]:
    """The fields of a task and of its metadata that are literals, or made of constants of the module."""
    own = _assigned(task.body)
    known = {**constants, **own}
    found: dict[str, Any] = {}
    for name, value in [*own.items(), *_keywords(own.get("metadata"), known)]:
        try:
            found[name] = ast.literal_eval(_Constants(known).visit(value))
        except (ValueError, TypeError, RecursionError):  # made by code
            continue
    return found


def _assigned(body: Sequence[ast.stmt]) -> dict[str, ast.expr]:
    """The values that names are assigned in a module or class."""
    found = {}
    for node in body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found[name] = value
    return found


def _keywords(call: ast.expr | None, constants: Mapping[str, ast.expr]) -> Iterator[tuple[str, ast.expr]]:
    """The keywords of a call such as ``TaskMetadata(name="A", **_COMMON)``."""
    match call:
        case ast.Name(id=name):
            yield from _keywords(constants.get(name), constants)
        case ast.Call(keywords=keywords):
            for each in keywords:
                if each.arg:
                    yield each.arg, each.value
                else:
                    yield from _keywords(each.value, constants)


class _Constants(ast.NodeTransformer):
    """Replaces the names of constants by their values."""

    def __init__(self, constants: Mapping[str, ast.expr]) -> None:
        self._constants = constants

    def visit_Name(self, node: ast.Name) -> ast.AST:
        value = self._constants.get(node.id)
        return node if value is None else self.visit(value)
