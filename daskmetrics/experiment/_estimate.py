"""What a whole run comes to, before anything is submitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """Counts and assumed figures of a run.

    Attributes
    ----------
    checkpoints, arms, metrics, tasks : int
        What is compared, and by what.
    cells : int
        Arms times tasks: the scores of an exhaustive sweep.
    units : int
        Work units of the measuring phase, training included.
    exhaustive_seconds : float
        Seconds of work to score every cell, encodings shared.
    search_seconds : float
        Seconds of work that the budget allows.
    measure_seconds : float
        Seconds of work to measure (and train) everything.
    workers : int
    disk_bytes : int
        Of the store and the journal; models are not counted.
    """

    checkpoints: int
    arms: int
    metrics: int
    tasks: int
    cells: int
    units: int
    exhaustive_seconds: float
    search_seconds: float
    measure_seconds: float
    workers: int
    disk_bytes: int

    @property
    def wall_seconds(self) -> float:
        """Assumed time from start to report, with all workers busy."""
        return (self.measure_seconds + self.search_seconds) / self.workers


def estimate(
    arms: int,
    checkpoints: int,
    metrics: int,
    tasks: int,
    unit_seconds: Sequence[float],
    exhaustive_seconds: float,
    budget: float,
    workers: int,
) -> Estimate:
    """Add up what a run takes.

    Examples
    --------
    >>> plan = estimate(10, 2, 6, 4, unit_seconds=[1.0, 2.0], exhaustive_seconds=40.0, budget=0.25, workers=2)
    >>> plan.cells, plan.wall_seconds
    (40, 6.5)
    """
    cells = arms * tasks
    return Estimate(
        checkpoints=checkpoints,
        arms=arms,
        metrics=metrics,
        tasks=tasks,
        cells=cells,
        units=len(unit_seconds),
        exhaustive_seconds=exhaustive_seconds,
        search_seconds=budget * exhaustive_seconds,
        measure_seconds=sum(unit_seconds),
        workers=workers,
        # two doubles and a byte in the store, about 80 bytes of text in the journal; small files fill a disk block
        disk_bytes=(arms * metrics + cells) * 97 + checkpoints * 6 * 4096,
    )
