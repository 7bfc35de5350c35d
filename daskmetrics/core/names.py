"""Suites, checkpoints, arms and cells: what is compared, as frozen values with content keys."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import chain, product
from typing import Any

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.readouts import Readout

__all__ = [
    "Arm",
    "Cell",
    "Checkpoint",
    "Key",
    "Suite",
    "content_key",
    "grid",
    "log_steps",
    "seed_of",
    "select_revisions",
    "step_of",
    "training_order",
]

Key = str

# a revision may have slashes; no readout is called by a number
_ARM = re.compile(r"([^@]+)@(.+)/([0-9]+)(?:/([^/]+))?")


def content_key(*parts: object) -> Key:
    """A key of 32 hexadecimal digits for JSON values: equal values give equal keys, on any machine.

    Examples
    --------
    >>> content_key("pythia-14m", {"layer": 3}) == content_key("pythia-14m", {"layer": 3})
    True
    """
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def seed_of(*parts: object) -> int:
    """A 63-bit seed for JSON values, so that each piece of work has its own random generator."""
    return int(content_key("seed", *parts)[:16], 16) >> 1


@dataclass(frozen=True, order=True)
class Checkpoint:
    """Weights of one model at one training step."""

    model: str
    revision: str

    @property
    def step(self) -> int | None:
        """The training step, or None for a revision that does not name one (such as ``main``)."""
        return step_of(self.revision)

    def __str__(self) -> str:
        return f"{self.model}@{self.revision}"

    @classmethod
    def parse(cls, text: str) -> Checkpoint:
        """The checkpoint with a name such as ``tiny@step8``; the inverse of ``str``.

        Raises
        ------
        ValueError
            If the text is not of the form ``MODEL@REVISION``.
        """
        model, at, revision = text.partition("@")
        if not (model and at and revision):
            raise ValueError(
                f"'{text}' is not a checkpoint: write MODEL@REVISION, for instance tiny@step8."
            )
        return cls(model, revision)


@dataclass(frozen=True, order=True)
class Arm:
    """One candidate embedding: a layer of a checkpoint (0 is the embedding output, 1...n the
    blocks), and its readout.

    Attributes
    ----------
    model, revision : str
    layer : int
        The deepest that is read.
    readout : str
        Name of a `daskmetrics.core.readouts.Readout`; empty: as the protocol says.
    """

    model: str
    revision: str
    layer: int
    readout: str = ""

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint of the arm."""
        return Checkpoint(self.model, self.revision)

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values; those of a default readout do not name it."""
        return asdict(self, dict_factory=without_default)

    def __str__(self) -> str:
        name = f"{self.model}@{self.revision}/{self.layer}"
        if self.readout:
            return f"{name}/{self.readout}"
        return name

    @classmethod
    def parse(cls, text: str) -> Arm:
        """The arm with a name such as ``tiny@step8/3`` or ``tiny@step8/3/last,256d``; the inverse
        of ``str``.

        Raises
        ------
        ValueError
            If the text is not of the form ``MODEL@REVISION/LAYER`` or
            ``MODEL@REVISION/LAYER/READOUT``.

        Examples
        --------
        >>> Arm.parse("tiny@step8/3")
        Arm(model='tiny', revision='step8', layer=3, readout='')
        >>> Arm.parse("tiny@step8/3/last,256d").readout
        'last,256d'
        """
        match = _ARM.fullmatch(text)
        if match is None:
            raise ValueError(
                f"'{text}' is not a candidate: write MODEL@REVISION/LAYER, for instance"
                " tiny@step8/3."
            )
        model, revision, layer, readout = match.groups(default="")
        try:
            Readout.parse(readout)
        except ConfigError as error:
            raise ValueError(f"'{text}' is not a candidate: {error}") from None
        return cls(model, revision, int(layer), readout)


def without_default(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """A ``dict_factory`` for `dataclasses.asdict` that leaves out the default readout of arms and
    suites.
    """
    return {
        name: value
        for name, value in items
        if (name, value) not in (("readout", ""), ("readouts", ("",)))
    }


@dataclass(frozen=True, order=True)
class Cell:
    """One (arm, task) pair: the smallest thing a search can pay for."""

    arm: Arm
    task: str

    def __str__(self) -> str:
        return f"{self.arm}:{self.task}"

    @classmethod
    def parse(cls, text: str) -> Cell:
        """The cell with a name such as ``tiny@step8/3:Banking77``; the inverse of ``str``.

        Raises
        ------
        ValueError
            If the text is not of the form ``MODEL@REVISION/LAYER:TASK``.
        """
        arm, colon, task = text.partition(":")
        if not (colon and task):
            raise ValueError(f"'{text}' is not a score's name: write MODEL@REVISION/LAYER:TASK.")
        return cls(Arm.parse(arm), task)


@dataclass(frozen=True)
class Suite:
    """The checkpoints of one model, oldest first, and the layers of each that are compared.

    Attributes
    ----------
    model : str
        Name of the suite in every result.
    revisions : tuple of str
        Checkpoint names in order of training.
    layers : tuple of int
        Compared layers, ascending; 0 is the embedding output.
    depth : int
        Number of transformer blocks of the model.
    readouts : tuple of str
        Names of the compared readouts: of each layer, or of the layers that they read together.
    """

    model: str
    revisions: tuple[str, ...]
    layers: tuple[int, ...]
    depth: int
    readouts: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        missing = [layer for layer in self.layers if not 0 <= layer <= self.depth]
        if missing:
            raise ConfigError(
                f"Model '{self.model}' has layers 0...{self.depth}, but not {missing}. Correct "
                "its 'layers'."
            )
        wrong = [name for name in (self.model, *self.revisions) if not name.isprintable()]
        if wrong:
            raise ConfigError(
                f"{wrong[0]!r} has control characters, which no name of a model or revision may "
                "have."
            )
        for readout in self.reads:
            unread = set(readout.together) - set(self.layers)
            if unread:
                raise ConfigError(
                    f"Readout '{readout}' of model '{self.model}' reads layers {sorted(unread)}, "
                    f"which are not among its layers {list(self.layers)}. Add them to its "
                    "'layers', or read others together."
                )
        if not (self.revisions and self.rows):
            raise ConfigError(
                f"Model '{self.model}' needs at least one revision, one layer and one readout."
            )

    @property
    def has_readouts(self) -> bool:
        """Whether there are others than the default readout."""
        return self.readouts != ("",)

    @cached_property
    def reads(self) -> tuple[Readout, ...]:
        """The readouts, in order."""
        return tuple(map(Readout.parse, self.readouts))

    @property
    def poolings(self) -> tuple[str, ...]:
        """The poolings of the readouts; an empty one is the task's or the protocol's."""
        return tuple(dict.fromkeys(readout.pooling for readout in self.reads))

    @property
    def is_fitted(self) -> bool:
        """Whether a readout is fitted on the corpus."""
        return any(readout.principal for readout in self.reads)

    @cached_property
    def layers_read(self) -> tuple[int, ...]:
        """The layers that arms read, alone or together with others."""
        read = (Readout.parse(name).layers_of(layer) for layer, name in self.rows)
        return tuple(sorted(set(chain.from_iterable(read))))

    @cached_property
    def rows(self) -> tuple[tuple[int, str], ...]:
        """Layer and readout of the arms of each checkpoint; layers read together belong to the
        deepest of them.
        """
        deepest = {name: max(Readout.parse(name).together, default=None) for name in self.readouts}
        rows = product(self.layers, self.readouts)
        return tuple((layer, name) for layer, name in rows if deepest[name] in (None, layer))

    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """All checkpoints, oldest first."""
        return tuple(Checkpoint(self.model, revision) for revision in self.revisions)

    def arms(self) -> tuple[Arm, ...]:
        """All arms: checkpoint by checkpoint, layer by layer, readout by readout."""
        rows = product(self.revisions, self.rows)
        return tuple(Arm(self.model, revision, *row) for revision, row in rows)


def grid(suites: Iterable[Suite]) -> tuple[Arm, ...]:
    """All arms of all suites: model by model, checkpoint by checkpoint, layer by layer, readout by
    readout.

    Examples
    --------
    >>> pythia = [("14m", 6), ("70m", 6), ("410m", 24)]
    >>> steps = select_revisions("every 1000 to 143000", None)
    >>> len(grid(Suite(name, steps, tuple(range(1, depth + 1)), depth) for name, depth in pythia))
    5184
    """
    return tuple(chain.from_iterable(suite.arms() for suite in suites))


def step_of(revision: str) -> int | None:
    """The training step of a revision: 512 for ``step512`` and a trainer's ``checkpoint-512``, None
    for ``main``.
    """
    match = re.fullmatch(r"(?:step|checkpoint-)(\d{1,18})", revision)
    if match:
        return int(match.group(1))
    return None


def log_steps(last: int) -> Iterator[int]:
    """Log-spaced steps as in Pythia: 0, 1, 2, 4, 8, ... up to and including ``last``."""
    yield 0
    step = 1
    while step <= last:
        yield step
        step *= 2


_RANGE = re.compile(r"(?P<kind>all|log|every\s+(?P<stride>\d+))(\s+to\s+(?P<last>\d+))?")


def select_revisions(
    requested: str | Sequence[str], available: Sequence[str] | None
) -> tuple[str, ...]:
    """The revisions in a list or a range.

    Parameters
    ----------
    requested : str or sequence of str
        Revision names, or a range: ``all``, ``log``, ``every 1000``, each with an optional ``to
        STEP``.
    available : sequence of str or None
        The revisions of the suite, if known; a range keeps those that exist. If not known (a hub
        id), a range needs its ``to STEP``.

    Raises
    ------
    ConfigError
        If a revision does not exist, or a range is not valid.

    Examples
    --------
    >>> select_revisions("log", ["step0", "step1", "step2", "step3"])
    ('step0', 'step1', 'step2')
    >>> select_revisions("every 1000", ["checkpoint-500", "checkpoint-1000", "checkpoint-1500"])
    ('checkpoint-1000',)
    >>> select_revisions("every 1000 to 3000", None)
    ('step0', 'step1000', 'step2000', 'step3000')
    """
    match = None
    if isinstance(requested, str):
        match = _RANGE.fullmatch(requested.strip())
        requested = (requested,)
    if match is None:
        names = tuple(map(str, requested))
        missing = [repr(name) for name in names if available is not None and name not in available]
        if missing:
            raise ConfigError(
                f"Revision {', '.join(missing)} does not exist. Available: "
                f"{', '.join(available or ())}; or a range such as 'all', 'log' or 'every 1000'."
            )
        return names
    if available is None and (match["kind"] == "all" or not match["last"]):
        raise ConfigError(
            f"Revisions '{requested[0]}' need a local folder. Of a hub id, list them, or write a "
            "range with an end, for instance 'every 1000 to 143000'."
        )
    last_step = max((step_of(name) or 0 for name in available or ()), default=0)
    end = int(match["last"] or last_step)
    if match["kind"] == "all":
        return tuple(name for name in available or () if (step_of(name) or 0) <= end)
    steps: Iterable[int] = log_steps(end)
    if match["stride"]:
        stride = max(1, int(match["stride"]))
        steps = range(0, end + 1, stride)
    if available is None:
        return tuple(f"step{step}" for step in steps)
    wanted = set(steps)
    chosen = training_order(name for name in available if step_of(name) in wanted)
    if not chosen:
        raise ConfigError(f"Revisions '{requested[0]}' match none of: {', '.join(available)}.")
    return chosen


def training_order(revisions: Iterable[str]) -> tuple[str, ...]:
    """Revisions by training step, those without a step (``main``) last."""
    return tuple(
        sorted(revisions, key=lambda name: (step_of(name) is None, step_of(name) or 0, name))
    )
