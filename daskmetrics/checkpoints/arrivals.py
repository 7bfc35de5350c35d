"""Checkpoints of a suite that grows: which of them can be read, and whether more will come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from daskmetrics.checkpoints.checks import STATE, require_complete, require_whole
from daskmetrics.checkpoints.digests import Stamp, files_of, stamps_of
from daskmetrics.checkpoints.folders import FINISHED, matching_checkpoints, pattern_folder
from daskmetrics.checkpoints.layout import Incomplete, tokenizer_folder, transformer_folder
from daskmetrics.checkpoints.locations import is_hub_id
from daskmetrics.config import Model
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.files import expanded
from daskmetrics.core.serialization import parse
from daskmetrics.domain.names import select_revisions, step_of, training_order

AT_REST = "its files changed a moment ago"


@dataclass(frozen=True)
class Arrivals:
    """What a look at the suites has found, by model."""

    revisions: Mapping[str, tuple[str, ...]]  # that can be read, in order of training
    waiting: Mapping[str, Mapping[str, str]]  # why each of the others cannot be read yet
    finished: bool  # whether every training has said that no checkpoint follows
    changed: float  # the latest time at which a file was seen to change


class Follower:
    """Looks at suites again and again, and knows what has changed.

    A checkpoint can be read once it is complete (`require_complete`, or `require_whole` if an
    encoder reads it), a text model has a tokenizer, and its files have not changed for ``settle``
    seconds of this process's own clock. Names without a step are not looked at: a trainer's
    temporary folders, and the final model that it writes beside its checkpoints.
    """

    def __init__(self, models: Sequence[Model], settle: float) -> None:
        for model in models:
            wanted = "checkpoints" if model.encoder else "source"
            if getattr(model, wanted) is None:
                raise ConfigError(
                    f"Model '{model.name}' has no '{wanted}', and a watch follows checkpoints"
                    " that others write. Give their folder ('source'), or of an encoder their"
                    " pattern ('checkpoints'); daskmetrics run measures what it trains."
                )
        self._models = models
        self._settle = settle
        # the files of a checkpoint, and since when they are so
        self._seen: dict[Path, tuple[Sequence[Stamp], float]] = {}

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
            paths: Mapping[str, Path] = {}
            with suppress(OSError):
                paths = followed(model)
            for name, path in paths.items():
                is_at_rest = self._is_at_rest(path, now)
                try:
                    _require_complete(model, path)
                    if not is_at_rest:
                        raise Incomplete(AT_REST)
                    names.append(name)
                except Incomplete as problem:
                    reasons[name] = str(problem)
            revisions[model.name] = _selected(model, names)
        changed = max((since for _, since in self._seen.values()), default=0.0)
        is_finished = all(map(_is_finished, self._models))
        return Arrivals(revisions, waiting, is_finished, changed)

    def _is_at_rest(self, checkpoint: Path, now: float) -> bool:
        stamps: Sequence[Stamp] = ()
        with suppress(OSError, DataError):  # a trainer removes old checkpoints at any time
            stamps = stamps_of(sorted(files_of(checkpoint).values()))
        before, since = self._seen.get(checkpoint, (None, now))
        if stamps != before:
            since = now
        self._seen[checkpoint] = stamps, since
        return now - since >= self._settle


def _require_complete(model: Model, checkpoint: Path) -> None:
    if model.encoder:
        require_whole(checkpoint)
        return
    require_complete(checkpoint)
    if tokenizer_folder(transformer_folder(checkpoint)) is None:
        raise Incomplete(
            "no tokenizer: save it beside the weights, or give it to the trainer as"
            " processing_class"
        )


def followed_folder(model: Model) -> Path:
    """The folder to which a training adds checkpoints, and where it says that none follows."""
    if model.checkpoints:
        return pattern_folder(model.checkpoints)
    return expanded(model.source or "")


def followed(model: Model) -> dict[str, Path]:
    """The checkpoints of a suite with a step in their name, by revision.

    The program of a model may restrict the names. There are none while the trainer has not created
    the suite. It is an OSError if the folder cannot be read.
    """
    if model.checkpoints:
        paths = matching_checkpoints(model.checkpoints)
    else:
        pattern = "*"
        if model.program and model.program.checkpoints:
            pattern = Path(model.program.checkpoints).name
        found = sorted(followed_folder(model).glob(f"{pattern}/"))
        paths = {path.name: path for path in found}
    return {name: path for name, path in paths.items() if step_of(name) is not None}


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
    if (followed_folder(model) / FINISHED).exists():
        return True
    with suppress(OSError, ValueError, KeyError, TypeError):
        paths = followed(model)
        last = max(paths, key=lambda name: step_of(name) or 0)
        state = parse((paths[last] / STATE).read_bytes())
        return bool(0 < state["max_steps"] <= state["global_step"])
    return False
