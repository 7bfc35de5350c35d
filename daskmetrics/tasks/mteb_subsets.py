"""Subsets and splits of a task of mteb, and the choice among them.

A task of many languages has a subset for each. What tasks declare is asked of mteb in a process of
its own, because importing mteb imports torch, which the driver avoids; the cache folder keeps it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

from pydantic import TypeAdapter

from daskmetrics.core.errors import ConfigError, unknown
from daskmetrics.core.files import cache_folder

LANGUAGE = "eng"
SPLIT = "test"
ONLY = "default"  #: mteb's name of the subset of a task that has only one


@dataclass(frozen=True)
class Selection:
    """The splits and subsets of a task that are evaluated, in mteb's order: every subset of every
    split.
    """

    splits: tuple[str, ...] = (SPLIT,)
    subsets: tuple[str, ...] = (ONLY,)


@dataclass(frozen=True)
class Declaration:
    """What mteb declares of a task."""

    languages: Mapping[str, tuple[str, ...]]  # of each subset, such as eng-Latn
    splits: tuple[str, ...]
    samples: int = 8  # training texts per label that each experiment of a classification draws
    experiments: int = 10

    def select(self, task: str, options: Mapping[str, Sequence[str]]) -> Selection:
        """The chosen splits and subsets: by default the split ``test`` and the subsets that are all
        in English.

        A task without the split ``test`` uses all its splits, and one without a subset in English
        all its subsets.
        """
        usual = [SPLIT] if SPLIT in self.splits else self.splits
        splits = options.get("split", usual)
        subsets = options.get("subsets", self.languages)
        _check_names(f"split of '{task}'", splits, self.splits)
        _check_names(f"subset of '{task}'", subsets, self.languages)
        if "languages" in options or "subsets" not in options:
            in_languages = self._subsets_in(task, options.get("languages"))
            subsets = [name for name in in_languages if name in subsets]
        if not subsets:
            raise ConfigError(
                f"'{task}' has no subset that is in 'languages' and in 'subsets'. Give one of the "
                "two."
            )
        return Selection(
            tuple(name for name in self.splits if name in splits),
            tuple(name for name in self.languages if name in subsets),
        )

    def codes(self, subsets: Iterable[str]) -> set[str]:
        """The languages in these subsets, without scripts."""
        codes = chain.from_iterable(self.languages[name] for name in subsets)
        return {code.partition("-")[0] for code in codes}

    def _subsets_in(self, task: str, languages: Sequence[str] | None) -> list[str]:
        """The subsets that contain no language but these; None is English, or any language if no
        subset is in English.
        """
        wanted = languages or [LANGUAGE]
        subsets = []
        for name, codes in self.languages.items():
            if all(code in wanted or code.partition("-")[0] in wanted for code in codes):
                subsets.append(name)
        if languages is None:
            return subsets or list(self.languages)
        valid = self.codes(self.languages)
        for language in languages:
            if language not in valid.union(*self.languages.values()):
                raise unknown(f"language of '{task}'", language, sorted(valid))
        if not subsets:
            listing = ", ".join(
                f"{name} ({'+'.join(codes)})" for name, codes in self.languages.items()
            )
            raise ConfigError(
                f"'{task}' has no subset that is only in {'+'.join(languages)}. Name all languages "
                f"of a subset, or the subset itself. The subsets: {listing[:300]}"
            )
        return subsets


DECLARATIONS = TypeAdapter(dict[str, Declaration])  # by the names of tasks, as they are written


def _check_names(kind: str, names: Iterable[str], valid: Iterable[str]) -> None:
    for name in names:
        if name not in valid:
            raise unknown(kind, name, list(valid))


def declared(name: str) -> Declaration | None:
    """What mteb declares of a task; None if it is not installed or has no such task."""
    return _declarations().get(name) if package() else None


def package() -> Path | None:
    """The folder of the installed mteb; None if it is not installed."""
    try:
        spec = find_spec("mteb")
    except ValueError:  # replaced in sys.modules
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


def release() -> str | None:
    """The version of the installed mteb, which pins the revision of each data set."""
    try:
        return version("mteb")
    except PackageNotFoundError:
        return None


@lru_cache
def _declarations() -> Mapping[str, Declaration]:
    """What mteb declares of all its tasks: from the cache folder, or asked of mteb."""
    path = cache_folder() / "tasks" / f"mteb-{release()}.json"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        code = (
            "import pathlib, sys\nfrom daskmetrics.tasks.mteb_run import write_declarations\n"
            "write_declarations(pathlib.Path(sys.argv[1]))"
        )
        command = [sys.executable, "-W", "ignore", "-c", code, str(path)]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode:
            reason = "".join(answer.stderr.strip().splitlines()[-1:])
            raise ConfigError(
                f"mteb cannot list its tasks: {reason}. See the whole error with: "
                f"{sys.executable} -c 'import mteb'"
            )
    return DECLARATIONS.validate_json(path.read_bytes())
