"""What can be had: workers of a kind, how soon, for how long and at what price."""

from __future__ import annotations

from dataclasses import dataclass

from daskmetrics.core._estimate import Estimate, Interval

UNKNOWN_WAIT = Estimate(Interval(0.0, 3600.0, 86_400.0), "assumed: the queue was not asked")
NO_WAIT = Estimate(Interval.exactly(0.0), "free now", measured=True)


@dataclass(frozen=True)
class Offer:
    """So many workers of one kind; a worker is a GPU, or a CPU process where there are none.

    Attributes
    ----------
    profile : str
        For people and for the command: a profile's name, or its file.
    device : str
        ``cpu``, ``l40s``, ``a100``, ...
    nodes, workers : int
    wait : Estimate
        Seconds until the workers' jobs start.
    free : int or None
        Workers that could start now; None if it is not known.
    limit : float or None
        Seconds that a job may run.
    vram_gib, host_gib : float or None
        Memory of a worker; None if it is not known or not limited.
    price : float or None
        Of one worker for an hour.
    partition : str or None
    problem : str or None
        Why it cannot be had at all.
    """

    profile: str
    device: str
    nodes: int
    workers: int
    wait: Estimate = UNKNOWN_WAIT
    free: int | None = None
    limit: float | None = None
    vram_gib: float | None = None
    host_gib: float | None = None
    price: float | None = None
    partition: str | None = None
    problem: str | None = None

    @property
    def label(self) -> str:
        """Nodes, GPUs and where.

        Examples
        --------
        >>> Offer("site.yaml", "l40s", nodes=8, workers=32).label
        '8 x 4 l40s'
        >>> Offer("local", "cpu", nodes=1, workers=2).label
        '2 cpu'
        """
        each = self.workers / self.nodes
        per_node = f"{self.nodes} x {each:g}" if self.nodes > 1 else f"{self.workers}"
        return f"{per_node} {self.device}"


def walltime_of(seconds: float) -> str:
    """A time as Slurm takes it, rounded up to a minute.

    Examples
    --------
    >>> walltime_of(59), walltime_of(3600 * 30)
    ('00:01:00', '1-06:00:00')
    """
    minutes = max(1, int(-(-seconds // 60)))
    days, minutes = divmod(minutes, 24 * 60)
    clock = f"{minutes // 60:02d}:{minutes % 60:02d}:00"
    return f"{days}-{clock}" if days else clock
