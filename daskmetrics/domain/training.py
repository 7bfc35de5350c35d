"""How far a training program is, and how its ranks end."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import IntEnum
from pathlib import Path

from daskmetrics.core.files import atomic_write
from daskmetrics.core.holder import Holder
from daskmetrics.core.serialization import build, read_json

STATUS = "status.json"  # how far a program is, in its folder

_RATES = {"step": "{:.3g} it/s", "samples": "{:,.0f} samples/s", "tokens": "{:,.0f} tokens/s"}


@dataclass(frozen=True)
class Progress:
    """How far a program is."""

    step: int
    total: int | None = None  # of the whole training, as far as known
    numbers: Mapping[str, float] = field(default_factory=dict)  # such as ``loss``
    rates: Mapping[str, float] = field(default_factory=dict)  # per second: step, samples, tokens

    @property
    def text(self) -> str:
        """The numbers in a few words.

        >>> Progress(8, None, {"loss": 4.2, "epoch": 0.5}, {"step": 1.5, "samples": 100.0}).text
        'epoch 0.50  loss 4.200  1.5 it/s  100 samples/s'
        """
        words = []
        if "epoch" in self.numbers:
            words.append(f"epoch {self.numbers['epoch']:.2f}")
        if "loss" in self.numbers:
            words.append(f"loss {self.numbers['loss']:.3f}")
        for name, rate in _RATES.items():
            if name in self.rates:
                words.append(rate.format(self.rates[name]))
        return "  ".join(words)


class Cause(IntEnum):
    """Why a rank ended; the lowest one of a group was first.

    The error itself appears on other ranks, which lose a partner or time out waiting for it.
    """

    LOST = 1  # with its worker
    KILLED = 2  # or it ended with an exit code, and reported nothing
    STOPPED = 3  # its process was
    ERROR = 4  # of its own
    MISSING = 5  # it did not start, or its worker did not say how it ended
    PARTNER = 6  # an error that follows when another rank has failed
    ENDED = 7  # by its worker, once its task was cancelled
    DONE = 8


@dataclass(frozen=True)
class RankEnding:
    """How a rank ended, as its worker or the driver has judged."""

    rank: int
    cause: int  # one of `Cause`
    reason: str = ""
    since: float = 0.0  # time of the failure, by the clock of its machine
    permanent: bool = False  # the same error would occur again
    lines: Sequence[str] = ()  # that it printed last


def failed_ranks(endings: Iterable[RankEnding]) -> list[RankEnding]:
    """The ranks that made a process group fail, the first one first.

    >>> stopped = RankEnding(1, Cause.STOPPED, since=9.0)
    >>> failed = failed_ranks([RankEnding(0, Cause.PARTNER, "timed out", since=60.0), stopped])
    >>> [ending.rank for ending in failed]
    [1, 0]
    """
    failed = [ending for ending in endings if ending.cause != Cause.DONE]
    return sorted(failed, key=lambda ending: (ending.cause, ending.since))


@dataclass(frozen=True)
class TrainingStatus:
    """How far a program is, as its launcher keeps it in the folder of the program."""

    name: str
    ranks: int  # that it asks for
    at: float  # when this was so, in seconds since 1970
    driver: Holder | None  # its launcher, until it ends
    nodes: Sequence[str] = ()  # of the ranks that train
    attempt: int = 0
    began: tuple[float, int] | None = None  # time and number of its first step that was reported
    progress: Progress | None = None
    left: float | None = None  # seconds that its steps still take, once that can be said
    failed: Sequence[RankEnding] = ()  # in the latest attempt, the first one first
    notice: str = ""  # while the first step is late
    error: str = ""  # why it does not start again
    finished: bool = False

    @classmethod
    def read(cls, folder: Path) -> TrainingStatus | None:
        """What the folder of a program says; None if no launcher has begun there.

        It is a DataError if the file is damaged.
        """
        file = folder / STATUS
        if not file.is_file():
            return None
        status = read_json(file, lambda values: build(cls, values))
        if not status.is_driven:  # its launcher may have been killed
            status = replace(status, left=None, notice="")
        return status

    def write(self, folder: Path) -> None:
        """Replace what the folder says."""
        atomic_write(folder / STATUS, json.dumps(asdict(self)))

    def reached(self, progress: Progress, now: float) -> TrainingStatus:
        """The status at a further step; the time left is that of the steps of this attempt.

        >>> status = TrainingStatus("mine", 2, 0.0, None)
        >>> for now, step in ((100.0, 50), (120.0, 60)):
        ...     status = status.reached(Progress(step, 100), now)
        >>> status.left
        80.0
        """
        began, first = self.began or (now, progress.step)
        left = None
        total = progress.total or 0
        if first < progress.step < total:
            left = (total - progress.step) * (now - began) / (progress.step - first)
        return replace(self, began=(began, first), progress=progress, left=left, notice="")

    @property
    def is_driven(self) -> bool:
        """Whether its launcher may run; one of another machine may have ended."""
        return self.driver is not None and not self.driver.is_dead
