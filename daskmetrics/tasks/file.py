"""A task on the user's own texts: ``file:reviews.csv``, with columns and kind in parentheses where
needed.

Formats are CSV and TSV with a header, JSON Lines, Parquet, and a folder with one sub-folder of text
files per class. The file is read and checked when the task is resolved, and read again by workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path

from daskmetrics.core.errors import ConfigError, DataError, require_known
from daskmetrics.core.files import expanded
from daskmetrics.core.keys import Key, content_key
from daskmetrics.core.rows import PlacedRow, read_rows, read_text
from daskmetrics.core.text import plural
from daskmetrics.tasks import _probes as probes
from daskmetrics.tasks._measures import ACCURACY
from daskmetrics.tasks.examples import FEWEST, KINDS, Examples, ExampleTask
from daskmetrics.tasks.table import doubts, examples_of, table_of

#: of the scores of a kind, by default 1: raise it when equal texts and embeddings no longer give equal scores
VERSIONS: Mapping[str, int] = {"pair_classification": 2, "retrieval": 2}

MAJORITY = 0.6  #: share of the largest class, beyond which an accuracy says little of the others
MOST_REPEATS = 100


@dataclass(frozen=True)
class FileTask(ExampleTask):
    """A task on a user's file or folder; made by `file_task`."""

    path: str  # absolute; workers must see it, too
    options: tuple[tuple[str, str], ...]
    content: Key  # of the file when the task was resolved
    warnings: tuple[str, ...] = field(default=(), compare=False)
    # of a table in memory, which has no file
    held: Examples | None = field(default=None, repr=False, compare=False)
    items: Key = ""  # of the files whose paths are the texts
    root: str = field(default="", compare=False)  # the folder to which these are relative

    @cached_property
    def key(self) -> Key:
        fitted = None
        if self.kind == "classification":
            fitted = [
                self.probe,
                *probes.library_version(self.probe),
                *filter(None, [self.measure]),
            ]
        version = VERSIONS.get(self.kind, 1)
        parts = [*filter(None, [self.items]), *self._part_key]
        if self.repeats > 1:
            parts.append(["repeats", self.repeats])
        return content_key("task", "own", version, self.kind, fitted, self.content, *parts)

    @property
    def files(self) -> tuple[str]:
        return (self.path,)

    def whole(self) -> Examples:
        """The content of the file.

        It is a `DataError` if it has changed since the task was resolved.
        """
        return self.held or _read_examples(self.path, self.options, self.content)


def file_task(path: str, options: Mapping[str, str]) -> FileTask:
    """The task on a file or folder, read and checked.

    Options are ``name`` (by default the file's, without its ending), ``kind``, ``probe`` and
    ``score`` of a classification, ``repeats`` of the folds of a probe, ``drop`` (``missing``, ``rare`` or both with +: rows without a
    value, and labels of too few texts), and the column of each of `ROLES` that has another name.
    """
    file = expanded(path)
    return replace(table_task(file, read_table(file), options, file.stem), held=None)


def hub_task(name: str, options: Mapping[str, str]) -> FileTask:
    """The task on a data set of Hugging Face, ``NAME`` or ``NAME:SPLIT``.

    The split is by default ``test`` if there is one, else the first. Options are those of
    `file_task`.
    """
    try:
        from datasets import ClassLabel, load_dataset
    except ImportError:
        raise ConfigError(f"'hf:{name}' needs datasets: pip install datasets") from None
    dataset, _, split = name.partition(":")
    try:
        splits = load_dataset(dataset)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"The data set '{dataset}' cannot be loaded: {reason:.300}") from None
    split = split or ("test" if "test" in splits else next(iter(splits)))
    require_known(f"split of '{dataset}'", split, splits)
    frame = splits[split].to_pandas()
    for column, feature in splits[split].features.items():
        if isinstance(feature, ClassLabel):  # numbers of names; -1 is missing
            labels = dict(enumerate(feature.names))
            frame[column] = [labels.get(number) for number in frame[column]]
    rows = enumerate(frame.to_dict("records"), start=1)
    placed_rows = [(f"row {number}", row) for number, row in rows]
    return table_task(Path(name), placed_rows, options, f"hf:{name}")


def table_task(
    path: Path, rows: Iterable[PlacedRow], options: Mapping[str, str], name: str
) -> FileTask:
    """The task on a table in memory, checked.

    Options are those of `file_task`.
    """
    table = table_of(path, rows, options)
    examples = examples_of(table)
    warnings = [*table.warnings, *doubts(table)]
    item = "item"
    count = len(examples.items)
    if examples.groups:
        item, count = "group", len(set(examples.groups))
    if count < FEWEST:
        warnings.append(
            f"Only {plural(count, item)} can be scored (a text, pair or query each): the error of"
            " the score is a guess, and differences say nothing."
        )
    task = FileTask(
        name=options.get("name", name),
        kind=table.kind,
        path=str(path.resolve()),
        options=tuple(options.items()),
        content=examples_key(examples),
        description=KINDS[table.kind].question,
        held=examples,
    )
    if "probe" in options:
        task = task.with_probe(options["probe"])
        if task.probe == "logistic_cv" and examples.groups:
            raise ConfigError(
                f"'{path}': the probe logistic_cv chooses its C by folds that do not keep groups"
                " whole. Choose another probe, or leave out the groups."
            )
    if "repeats" in options:
        task = task.with_repeats(_repeats(path, options["repeats"]))
    if "score" in options:
        task = task.with_measure(options["score"])
    floor = task.floor
    if task.main_score == ACCURACY and floor and floor.value > MAJORITY:
        warnings.append(
            f"The largest class alone gives an accuracy of {floor.value:.2f}:"
            " score=balanced_accuracy or score=macro_f1 say more."
        )
    return replace(task, warnings=tuple(warnings))


def _repeats(path: Path, text: object) -> int:
    repeats = str(text)
    if not (repeats.isascii() and repeats.isdigit() and 1 <= int(repeats) <= MOST_REPEATS):
        raise ConfigError(
            f"'{path}': repeats={repeats}, but must be an integer from 1 to {MOST_REPEATS}."
        )
    return int(repeats)


@cache
def _read_examples(path: str, options: tuple[tuple[str, str], ...], content: Key) -> Examples:
    """Read the examples of a file, once per process."""
    examples = examples_of(table_of(Path(path), read_table(Path(path)), dict(options)))
    if examples_key(examples) != content:
        raise DataError(
            f"'{path}' has changed since the run began. Restore it, or start a new run."
        )
    return examples


def examples_key(examples: Examples) -> Key:
    """The key of the content of examples."""
    groups = [examples.groups] if examples.groups else []
    return content_key(
        examples.texts, examples.labels, examples.judgements, examples.queries, *groups
    )


def read_table(path: Path) -> list[PlacedRow]:
    """The rows of a file, or of a folder with a sub-folder of texts for each label."""
    rows: list[PlacedRow] = []
    if path.is_dir():
        for file in sorted(path.glob("*/*.txt")):
            row = {"text": read_text(file), "label": file.parent.name}
            rows.append((str(file.relative_to(path)), row))
    else:
        rows += read_rows(path)
    if not rows:
        raise ConfigError(
            f"'{path}' has no rows. It needs a header and rows, or one folder of text files per"
            " class."
        )
    return rows
