"""Suites, checkpoints, arms and cells: what is compared, as frozen values with content keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import chain, pairwise, product, starmap
from typing import TypeAlias

from daskmetrics.core.errors import ConfigError
from daskmetrics.domain.readouts import Readout

__all__ = [
    "Arm",
    "Cell",
    "Checkpoint",
    "LayerNames",
    "Suite",
    "arm_name",
    "grid",
    "layer_name",
    "log_steps",
    "natural_order",
    "select_revisions",
    "spread",
    "step_label",
    "step_of",
    "training_order",
]


# a revision may have slashes; no readout is called by a number
_ARM = re.compile(r"([^@]+)@(.+)/([0-9]+)(?:/([^/]+))?")


# a number with its unit, as in 2.5B
_NUMERAL = re.compile(
    r"([0-9]+(?:\.[0-9]+(?=[kmbt](?![a-z0-9])))?)([kmbt](?![a-z0-9]))?", re.IGNORECASE
)
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_NUMBER = re.compile(rf"(?<![0-9.]){_NUMERAL.pattern}(?![0-9]|\.[0-9])", re.IGNORECASE)
_STEP = r"(?:step|iter|iteration|update|checkpoint|ckpt)s?[-_=. ]*"
_AFTER_STEP = re.compile(_STEP + _NUMBER.pattern, re.IGNORECASE)
# such as 5e4, after a word or alone; after other letters e may be an epoch
_EXPONENT = re.compile(
    rf"({_STEP}|tokens?|(?<![a-z0-9.]))([0-9]+(?:\.[0-9]+)?e[0-9]{{1,2}})(?![a-z0-9])",
    re.IGNORECASE,
)
# files that are being written, modules of sentence-transformers, commits and pull requests of a hub
_NO_STEP = re.compile(
    r"[.~]|te?mp[._-]|.*[._-](?:te?mp|part|partial|incomplete)$|[0-9]+_[A-Z][a-z]"
    r"|[0-9a-f]{40}$|refs/pr/"
)
# a date, a version, and a small number such as a learning rate
_OTHER_NUMBER = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}|(?<![a-z])v[0-9]+(?:\.[0-9]+)*"
    r"|(?<![0-9])[0-9](?:\.[0-9]+)?e-[0-9]{1,2}(?![0-9])",
    re.IGNORECASE,
)
_LAST_STEP = 10**18  # steps are stored as integers of 64 bits


@dataclass(frozen=True, order=True)
class Checkpoint:
    """Weights of one model at one training step."""

    model: str
    revision: str

    @property
    def step(self) -> int | None:
        """The training step, or None if the revision names none.

        For instance, ``main`` names none.
        """
        return step_of(self.revision)

    def __str__(self) -> str:
        return f"{self.model}@{self.revision}"

    @classmethod
    def parse(cls, text: str) -> Checkpoint:
        """The checkpoint named ``tiny@step8``; the inverse of ``str``.

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
    """One candidate embedding: a layer of a checkpoint, and its readout.

    Layer 0 is the embedding output, 1...n are the blocks.

    Attributes
    ----------
    model, revision : str
    layer : int
    readout : str
        Name of a `daskmetrics.domain.readouts.Readout`; empty: as the protocol says.
    """

    model: str
    revision: str
    layer: int
    readout: str = ""

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint of the arm."""
        return Checkpoint(self.model, self.revision)

    def __str__(self) -> str:
        name = f"{self.model}@{self.revision}/{self.layer}"
        if self.readout:
            return f"{name}/{self.readout}"
        return name

    @classmethod
    def parse(cls, text: str) -> Arm:
        """The arm named ``tiny@step8/3`` or ``tiny@step8/3/last,256d``.

        It is the inverse of ``str``.

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


@dataclass(frozen=True, order=True)
class Cell:
    """One (arm, task) pair, the smallest thing to pay for."""

    arm: Arm
    task: str

    def __str__(self) -> str:
        return f"{self.arm}:{self.task}"

    @classmethod
    def parse(cls, text: str) -> Cell:
        """The cell named ``tiny@step8/3:Banking77``; the inverse of ``str``.

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
    """The checkpoints of one model, oldest first, and their compared layers.

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
        Names of the compared readouts of each layer.
    layer_names : tuple of str
        Names of the layers 0 to `depth`, if they have others than their numbers.
    """

    model: str
    revisions: tuple[str, ...]
    layers: tuple[int, ...]
    depth: int
    readouts: tuple[str, ...] = ("",)
    layer_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        missing = [layer for layer in self.layers if not 0 <= layer <= self.depth]
        if missing:
            raise ConfigError(
                f"Model '{self.model}' has layers 0...{self.depth}, but not {missing}. Correct "
                "its 'layers'."
            )
        names = (self.model, *self.revisions, *self.layer_names)
        wrong = [name for name in names if not name.isprintable()]
        if wrong:
            raise ConfigError(
                f"{wrong[0]!r} has control characters, which no name of a model, revision or layer"
                " may have."
            )
        if not (self.revisions and self.layers and self.reads):  # an unknown readout is an error
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
        """The poolings of the readouts; empty is the default.

        That is the task's or the protocol's.
        """
        return tuple(dict.fromkeys(readout.pooling for readout in self.reads))

    @cached_property
    def rows(self) -> tuple[tuple[int, str], ...]:
        """Layer and readout of the arms of each checkpoint."""
        return tuple(product(self.layers, self.readouts))

    def layer_name(self, layer: int) -> int | str:
        """What a layer is called: its name, or its number."""
        return _called(layer, self.layer_names)

    @property
    def layer_labels(self) -> tuple[int | str, ...]:
        """What the compared layers are called."""
        return tuple(map(self.layer_name, self.layers))

    def arm_name(self, arm: Arm) -> str:
        """What an arm of the suite is called, by `arm_name`."""
        return arm_name(arm, {self.model: self.layer_names})

    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """All checkpoints, oldest first."""
        return tuple(Checkpoint(self.model, revision) for revision in self.revisions)

    def arms(self) -> tuple[Arm, ...]:
        """All arms: checkpoint by checkpoint, layer by layer, readout by readout."""
        rows = product(self.revisions, self.rows)
        return tuple(Arm(self.model, revision, *row) for revision, row in rows)


LayerNames: TypeAlias = Mapping[str, Sequence[str]]
"""Names of the layers from 0 on, by model; models that number their layers are left out."""


def layer_name(arm: Arm, names: LayerNames) -> int | str:
    """What the layer of an arm is called: its name, or its number."""
    return _called(arm.layer, names.get(arm.model, ()))


def arm_name(arm: Arm, names: LayerNames) -> str:
    """What an arm is called wherever people read it.

    Its ``str``, by which records name it, has the number of the layer.

    >>> arm_name(Arm("own", "step8", 1, "64d"), {"own": ("first", "pooled")})
    'own@step8/pooled/64d'
    """
    parts = (str(arm.checkpoint), str(layer_name(arm, names)), arm.readout)
    return "/".join(filter(None, parts))


def _called(layer: int, names: Sequence[str]) -> int | str:
    return names[layer] if names else layer


def grid(suites: Iterable[Suite]) -> tuple[Arm, ...]:
    """All arms of all suites, ordered by model, checkpoint, layer and readout.

    Examples
    --------
    >>> pythia = [("14m", 6), ("70m", 6), ("410m", 24)]
    >>> steps = select_revisions("every 1000 to 143000", None)
    >>> len(grid(Suite(name, steps, tuple(range(1, depth + 1)), depth) for name, depth in pythia))
    5184
    """
    return tuple(chain.from_iterable(suite.arms() for suite in suites))


def step_of(revision: str) -> int | None:
    """The training step that a revision names.

    It is the last number after a word such as ``step``, otherwise the last number. None for a
    revision without one, such as ``main``; dates, versions and fractions do not count. A number may
    have a unit, as in ``tokens5B``.

    Examples
    --------
    >>> [step_of(name) for name in ("checkpoint-512-merged", "stage1-step1000-tokens5B", "epoch_10")]
    [512, 1000, 10]
    >>> [step_of(name) for name in ("0900000", "step10k", "step5e4", "v1.5", "main")]
    [900000, 10000, 50000, None, None]
    """
    if _NO_STEP.match(revision):
        return None
    name = _OTHER_NUMBER.sub("", _written_out(revision))
    numbers = _AFTER_STEP.findall(name) or _NUMBER.findall(name)
    steps = [step for step in starmap(_number, numbers) if step <= _LAST_STEP]
    return steps[-1] if steps else None


def order_problem(revisions: Iterable[str]) -> str:
    """Why the training order is not certain; empty if it is.

    Examples
    --------
    >>> order_problem(["step8", "step64", "main"])
    ''
    >>> order_problem(["step100", "epoch1"])
    "'epoch1' and 'step100' do not name their steps in one way, ..."
    """
    order = training_order(revisions)
    named = [name for name in order if step_of(name) is not None]
    others = [name for name in order if step_of(name) is None]
    for a, b in pairwise(named):
        both = _written_out(a), _written_out(b)
        before, after = map(natural_order, both)
        is_alike = len({_NUMERAL.sub("#", name) for name in both}) == 1
        if not (is_alike and step_of(a) != step_of(b) and before < after):
            return (
                f"'{a}' and '{b}' do not name their steps in one way, so that the order of training"
                f" may be another: {step_of(a)} and {step_of(b)} are taken as steps. Rename them,"
                " such as step1000, or give them as models of their own"
            )
    if len(others) > 1:
        return (
            f"'{others[0]}' and '{others[1]}' name no training step (a whole number, no date or"
            " version), so that both are taken as the end of training. Rename them, such as"
            " step1000, or give them as models of their own"
        )
    return ""


def log_steps(last: int) -> Iterator[int]:
    """Log-spaced steps as in Pythia: 0, 1, 2, 4, ..., ``last``."""
    yield 0
    step = 1
    while step <= last:
        yield step
        step *= 2


_RANGE = re.compile(r"(?P<kind>all|log|every\s+(?P<stride>\d+))(\s+to\s+(?P<last>\d+))?")


def select_revisions(
    requested: str | Sequence[str], available: Sequence[str] | None
) -> tuple[str, ...]:
    """The revisions in a list or a range, in training order.

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
    >>> select_revisions(["main", "step1", "step0"], None)
    ('step0', 'step1', 'main')
    >>> select_revisions("log", ["step0", "step1", "step2", "step3"])
    ('step0', 'step1', 'step2')
    >>> select_revisions("every 1000", ["checkpoint-500", "checkpoint-1000", "checkpoint-1500"])
    ('checkpoint-1000',)
    >>> select_revisions("all to 2", ["step0", "step2", "step4", "main"])
    ('step0', 'step2')
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
        return training_order(names)
    if available is None and (match["kind"] == "all" or not match["last"]):
        raise ConfigError(
            f"Revisions '{requested[0]}' need a local folder. Of a hub id, list them, or write a "
            "range with an end, for instance 'every 1000 to 143000'."
        )
    if match["kind"] == "all" and not match["last"]:
        return tuple(available or ())
    known = [step for step in map(step_of, available or ()) if step is not None]
    end = int(match["last"] or max(known, default=0))
    steps: Iterable[int] = log_steps(end)
    if match["kind"] == "all":
        steps = [step for step in known if step <= end]
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
        sorted(
            revisions,
            key=lambda name: (
                step_of(name) is None,
                step_of(name) or 0,
                natural_order(name),
                name,
            ),
        )
    )


def natural_order(name: str) -> list[int | str]:
    """The key by which names are sorted as people do, with their numbers as numbers.

    >>> sorted(["layer10", "layer9"], key=natural_order)
    ['layer9', 'layer10']
    """
    texts = _NUMERAL.split(name)[::3]
    numbers = starmap(_number, _NUMERAL.findall(name))
    return [texts[0], *chain.from_iterable(zip(numbers, texts[1:], strict=True))]


def _number(digits: str, unit: str) -> int:
    return int(Decimal(digits) * _UNITS[unit.lower()])


def _written_out(name: str) -> str:
    """A name with its numbers such as 5e4 in digits alone, as far as they can be steps.

    >>> _written_out("step5e4-seed1"), _written_out("seed1e4")
    ('step50000-seed1', 'seed1e4')
    """

    def in_digits(found: re.Match[str]) -> str:
        number = int(Decimal(found[2]))
        return f"{found[1]}{number}" if number <= _LAST_STEP else found[0]

    return _EXPONENT.sub(in_digits, name)


def step_label(revision: str) -> str:
    """A short label for a revision.

    >>> [step_label(name) for name in ("step512", "step143000", "step1500", "tokens5B", "main")]
    ['512', '143k', '1500', '5B', 'main']
    """
    step = step_of(revision)
    if step is None:
        return revision[:8]
    units = iter("kMBT")
    unit = ""
    while step >= 1000 and step % 1000 == 0 and (larger := next(units, "")):
        step //= 1000
        unit = larger
    return f"{step}{unit}"


def spread(revisions: Sequence[str], most: int) -> tuple[str, ...]:
    """At most so many revisions, evenly chosen, first and last among them.

    >>> spread([f"step{i}" for i in range(15)], 8)
    ('step0', 'step2', 'step4', 'step6', 'step8', 'step10', 'step12', 'step14')
    """
    last_index = len(revisions) - 1
    if last_index < most:
        return tuple(revisions)
    return tuple(revisions[round(i * last_index / (most - 1))] for i in range(most))
