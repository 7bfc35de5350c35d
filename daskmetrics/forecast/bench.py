"""The same workload at several numbers of workers, one after the other and again, and what that comes to."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from math import fsum

from distributed import Client

from daskmetrics.cluster import connect
from daskmetrics.config import Cluster
from daskmetrics.errors import DaskmetricsError
from daskmetrics.forecast import calibrations
from daskmetrics.planning import Amdahl, Calibration, Row, Sample, Trial
from daskmetrics.planning.scaling import doublings, fit, interleaved, rows, simulated, verdict


@dataclass(frozen=True)
class Done:
    """One run of a workload: seconds of the driver, and of each unit on its worker.

    ``chains`` holds the units' seconds; those that can only follow each other are of one chain.
    """

    seconds: float
    chains: tuple[tuple[float, ...], ...]
    samples: tuple[Sample, ...]


Work = Callable[[Client], Done]
"""Does the whole workload anew on a client's workers."""


@dataclass(frozen=True)
class Bench:
    """Trials and what they say.

    Attributes
    ----------
    name : str
        Of the workload.
    trials : tuple of Trial
    chains : tuple of tuple of float
        Seconds of the units, as the fewest workers took them.
    calibration : Calibration
    price : float or None
        Of one worker for an hour.
    """

    name: str
    trials: tuple[Trial, ...]
    chains: tuple[tuple[float, ...], ...]
    calibration: Calibration
    price: float | None = None

    @property
    def rows(self) -> tuple[Row, ...]:
        return rows(self.trials, self.price)

    @property
    def law(self) -> Amdahl | None:
        return fit(self.trials)

    @property
    def verdict(self) -> str:
        return verdict(self.rows)

    @property
    def dispatch(self) -> float:
        """Seconds of the driver per unit: what the fewest workers took beyond their units, shared out."""
        fewest = [trial for trial in self.trials if trial.workers == min(t.workers for t in self.trials)]
        busy = fsum(map(fsum, self.chains)) / fewest[0].workers
        return max(0.0, (min(t.seconds for t in fewest) - busy) / max(1, fewest[0].units))

    def simulation(self, most: int, units: int | None = None) -> tuple[tuple[Row, ...], Amdahl | None]:
        """Rows of up to ``most`` simulated workers, from the measured seconds of the units, repeated to ``units``."""
        counts = doublings(most)
        chains = list(islice(cycle(self.chains), units)) if units else self.chains
        seconds, law = simulated(chains, counts, self.dispatch)
        units = sum(map(len, chains))
        return rows([Trial(n, seconds[n], units) for n in counts], self.price), law


def bench(
    name: str,
    work: Work,
    profile: Cluster,
    counts: Sequence[int],
    repeats: int,
    *,
    price: float | None = None,
    before: Callable[[], None] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Bench:
    """Run a workload at each number of workers, interleaved, and fit what was seen.

    Parameters
    ----------
    name : str
        Of the workload, for people.
    work : callable
        Does it all anew and tells the seconds.
    profile : Cluster
        Where; its number of workers is replaced.
    counts : sequence of int
        Numbers of workers, increasing.
    repeats : int
    price : float, optional
        Of one worker (GPU) for an hour.
    before : callable, optional
        Called on every worker before the clock starts, for instance `warm`.
    say : callable
        Told of each trial.

    Raises
    ------
    DaskmetricsError
        If workers do not arrive, or a trial did nothing.
    """
    trials: list[Trial] = []
    done: dict[tuple[int, int], Done] = {}
    for repeat, workers in interleaved(counts, repeats):
        trial, result = _trial(work, profile.model_copy(update={"workers": workers}), repeat, before)
        trials.append(trial)
        done[repeat, workers] = result
        say(f"{workers} workers, round {repeat + 1} of {repeats}: {trial.seconds:.1f} s")
    fewest = [result for (_, workers), result in done.items() if workers == counts[0]]
    chains = min(fewest, key=lambda result: result.seconds).chains
    calibration = _calibration(trials, fewest, profile)
    return Bench(name, tuple(trials), chains, calibration, price)


def _trial(work: Work, profile: Cluster, repeat: int, before: Callable[[], None] | None) -> tuple[Trial, Done]:
    began = time.perf_counter()
    with connect(profile) as client:
        try:
            client.wait_for_workers(profile.workers, timeout=profile.patience)
        except TimeoutError:
            raise DaskmetricsError(
                f"Not all of {profile.workers} workers arrived within {profile.patience:.0f} s. Ask for fewer by "
                "--workers, or allow more by --set cluster.arrive_within=SECONDS."
            ) from None
        if before is not None:
            client.run(before)
        start = time.perf_counter() - began
        result = work(client)
    units = sum(map(len, result.chains))
    if not units:
        raise DaskmetricsError("The workload did not finish a single unit: run it once without bench to see why.")
    return Trial(profile.workers, result.seconds, units, repeat, start), result


def warm() -> None:
    """Import what units of an experiment need, so that no unit's time has it."""
    import torch
    import transformers

    torch.zeros(1)
    assert transformers


def probe(profile: Cluster, work: Work) -> Calibration:
    """What a little work on a single worker tells: seconds of units, but not how they scale."""
    trial, done = _trial(work, profile.model_copy(update={"workers": 1}), 0, warm)
    return _calibration([trial], [done], profile, overhead=False)


def _calibration(
    trials: Sequence[Trial], fewest: Sequence[Done], profile: Cluster, overhead: bool = True
) -> Calibration:
    law = fit(trials)
    few = min(trial.workers for trial in trials)
    busy = fsum(fsum(map(fsum, result.chains)) for result in fewest)
    wall = fsum(trial.seconds * few for trial in trials if trial.workers == few)
    starts = sorted(trial.start for trial in trials)
    return Calibration(
        device=profile.device,
        host=socket.gethostname(),
        at=time.time(),
        versions=calibrations.versions(),
        samples=_merged([sample for result in fewest for sample in result.samples]),
        workers=max(trial.workers for trial in trials),
        serial=(law.serial.low, law.serial.value, law.serial.high) if law else (0.0, 0.0, 0.0),
        start=starts[len(starts) // 2],
        overhead=max(0.0, wall / busy - 1.0) if overhead and busy else 0.0,
    )


def _merged(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """Samples of the same kind and group as one."""
    groups: dict[tuple[str, str], list[Sample]] = {}
    for sample in samples:
        groups.setdefault((sample.kind, sample.group), []).append(sample)
    return tuple(
        Sample(kind, group, tuple(s for each in own for s in each.seconds), fsum(e.assumed for e in own) / len(own))
        for (kind, group), own in groups.items()
    )
