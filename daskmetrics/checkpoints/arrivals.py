"""Checkpoints of a suite that grows: which of them can be read, and whether more will come."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from daskmetrics.checkpoints.checks import STATE, require_complete
from daskmetrics.checkpoints.layout import Incomplete, tokenizer_folder, transformer_folder
from daskmetrics.checkpoints.locations import is_hub_id
from daskmetrics.config import Model
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import expanded
from daskmetrics.core.serialization import parse
from daskmetrics.domain.names import select_revisions, step_of, training_order

FINISHED = "training.finished"
"""Name of a file that says that no checkpoint follows; a training loop writes it into the folder that is followed."""

AT_REST = "its files changed a moment ago"

Stamps = tuple[tuple[str, int, int], ...]  # name, size and time of the last change of every file


@dataclass(frozen=True)
class Arrivals:
    """What a look at the suites has found, by model."""

    revisions: Mapping[str, tuple[str, ...]]  # that can be read, in order of training
    waiting: Mapping[str, Mapping[str, str]]  # why each of the others cannot be read yet
    finished: bool  # whether every training has said that no checkpoint follows
    changed: float  # the latest time at which a file was seen to change


class Follower:
    """Looks at suites again and again, and knows what has changed.

    A checkpoint in a folder can be read once it is complete (`require_complete`), has a tokenizer, and its
    files have not changed for ``settle`` seconds of this process's own clock. Folders without a
    step in their name are not looked at: a trainer's temporary folders, and the final model that it
    writes beside its checkpoints.
    """

    def __init__(self, models: Sequence[Model], settle: float) -> None:
        for model in models:
            if model.source is None:
                raise ConfigError(
                    f"Model '{model.name}' has no 'source', and a watch follows folders of models"
                    " that others train. Give the folder, or use daskmetrics run, which measures"
                    " what it trains and reads encoders."
                )
        self._models = models
        self._settle = settle
        # the files of a folder, and since when they are so
        self._seen: dict[Path, tuple[Stamps, float]] = {}

    def look(self, now: float) -> Arrivals:
        """What can be read at this time.

        In seconds of any clock that only moves on.
        """
        revisions: dict[str, tuple[str, ...]] = {}
        waiting: dict[str, dict[str, str]] = {}
        for model in self._models:
            names = []
            reasons = waiting[model.name] = {}
            source = model.source or ""
            # without a slash it is a folder that the training has not made yet
            if "/" in source and is_hub_id(source):
                raise ConfigError(
                    f"Model '{model.name}': a watch follows a folder, and '{source}' is none here."
                    f" Write './{source}' if the training will make it."
                )
            for path in _checkpoints(model):
                try:
                    self._require_at_rest(path, now)
                    names.append(path.name)
                except Incomplete as problem:
                    reasons[path.name] = str(problem)
            revisions[model.name] = _selected(model, names)
        changed = max((since for _, since in self._seen.values()), default=0.0)
        is_finished = all(map(_is_finished, self._models))
        return Arrivals(revisions, waiting, is_finished, changed)

    def _require_at_rest(self, folder: Path, now: float) -> None:
        stamps: Stamps = ()
        with suppress(OSError):  # a trainer removes old checkpoints at any time
            files = [(file, file.stat()) for file in os.scandir(transformer_folder(folder))]
            stamps = tuple(sorted((f.name, s.st_size, s.st_mtime_ns) for f, s in files))
        before, since = self._seen.get(folder, (None, now))
        if stamps != before:
            since = now
        self._seen[folder] = stamps, since
        require_complete(folder)
        if tokenizer_folder(transformer_folder(folder)) is None:
            raise Incomplete(
                "no tokenizer: save it beside the weights, or give it to the trainer as"
                " processing_class"
            )
        if now - since < self._settle:
            raise Incomplete(AT_REST)


def _checkpoints(model: Model) -> Iterator[Path]:
    """The folders of a suite with a step in their name.

    The program of a model may restrict the names. There are none while the trainer has not created
    the suite.
    """
    pattern = "*"
    if model.program and model.program.checkpoints:
        pattern = Path(model.program.checkpoints).name
    with suppress(OSError):
        source = expanded(model.source or "")
        for path in sorted(source.glob(f"{pattern}/")):
            if step_of(path.name) is not None:
                yield path


def _selected(model: Model, names: Sequence[str]) -> tuple[str, ...]:
    available = training_order(names)
    if not isinstance(model.revisions, str):
        return tuple(name for name in available if name in model.revisions)
    try:
        return select_revisions(model.revisions, available)
    except ConfigError:
        is_open = model.revisions.split()[0] in ("all", "log", "every")
        is_name = " " not in model.revisions and step_of(model.revisions) is not None
        if is_open or is_name:
            return ()  # not yet
        raise


def _is_finished(model: Model) -> bool:
    """Whether a training has ended.

    It says so by a file, or its last checkpoint is that of its last step.
    """
    source = expanded(model.source or "")
    if (source / FINISHED).exists():
        return True
    folders = sorted(_checkpoints(model), key=lambda folder: step_of(folder.name) or 0)
    with suppress(OSError, ValueError, KeyError, TypeError, IndexError):
        state = parse((folders[-1] / STATE).read_bytes())
        return bool(0 < state["max_steps"] <= state["global_step"])
    return False
