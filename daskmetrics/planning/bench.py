"""The same work with several numbers of workers, in interleaved rounds, and the calibration that
results.
"""

from __future__ import annotations

import math
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, cycle, islice, product
from math import fsum
from statistics import median_high

from daskmetrics.cluster import connect
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ConfigError, DaskmetricsError
from daskmetrics.core.machine import usage
from daskmetrics.planning import scaling
from daskmetrics.planning.calibration import Calibration, Sample, versions
from daskmetrics.planning.scaling import Amdahl, BenchTrial, ScalingRow, WorkerSize, makespan
from daskmetrics.planning.trials import Runner, TrialResult


@dataclass(frozen=True)
class Bench:
    """Trials and their analysis."""

    name: str  # of the work
    trials: tuple[BenchTrial, ...]
    chains: tuple[tuple[float, ...], ...]  # seconds of the units, measured with the fewest workers
    calibration: Calibration
    price: float | None = None  # of one worker for an hour
    cores: int = 1  # of a worker, which computed one unit at a time
    memory: int = 0  # bytes; the peak of such a worker

    @property
    def is_shared(self) -> bool:
        """Whether all workers share each unit, as in a training by process groups."""
        return any(trial.samples for trial in self.trials)

    @property
    def rows(self) -> tuple[ScalingRow, ...]:
        return scaling.rows(self.trials, self.price)

    @property
    def law(self) -> Amdahl | None:
        return scaling.fit(self.trials)

    @property
    def dispatch(self) -> float:
        """Seconds of the driver per unit: what the fewest workers took beyond their units, divided
        by the units.
        """
        workers = min(trial.workers for trial in self.trials)
        fewest = [trial for trial in self.trials if trial.workers == workers]
        busy = fsum(map(fsum, self.chains)) / workers
        idle = min(trial.seconds for trial in fewest) - busy
        return max(0.0, idle / max(1, fewest[0].units))

    def simulation(
        self, most: int, units: int | None = None
    ) -> tuple[tuple[ScalingRow, ...], Amdahl | None]:
        """Rows of up to ``most`` simulated workers, from the measured seconds of the units,
        repeated to ``units``.

        Workers that share each unit follow Amdahl's law; ConfigError if it could not be fitted.
        """
        counts = scaling.doublings(most)
        if self.is_shared:
            law = self.law
            if law is None:
                raise ConfigError(
                    "More workers are simulated from two measured numbers: --workers 1,2"
                )
            measured = self.trials[0]
            trials = [
                BenchTrial(n, law.seconds(n), measured.units, samples=measured.samples)
                for n in counts
            ]
            return scaling.rows(trials, self.price, simulated=True), law
        chains = self._repeated(units)
        seconds, law = scaling.simulated(chains, counts, self.dispatch)
        units = sum(map(len, chains))
        trials = [BenchTrial(n, seconds[n], units) for n in counts]
        return scaling.rows(trials, self.price, simulated=True), law

    def sizes(
        self,
        cores: Sequence[int],
        memory: Sequence[float | None],
        most: int,
        units: int | None = None,
    ) -> tuple[tuple[WorkerSize, float, float], ...]:
        """Simulated sizes of a worker, with the seconds of one and of ``most`` such workers; inf if
        no unit fits.

        Each unit takes the cores and the peak memory of the measured worker.
        """
        chains = self._repeated(units)

        def seconds(workers: int, size: WorkerSize) -> float:
            if not size.units:
                return math.inf
            return makespan(chains, workers * size.units, self.dispatch)

        combinations = product(cores, memory)
        sizes = [WorkerSize.of(c, m, self.cores, self.memory) for c, m in combinations]
        return tuple((size, seconds(1, size), seconds(most, size)) for size in sizes)

    def _repeated(self, units: int | None) -> Sequence[Sequence[float]]:
        if not units:
            return self.chains
        return list(islice(cycle(self.chains), units))


def bench(
    name: str,
    runner: Runner,
    profile: Cluster,
    counts: Sequence[int],
    repeats: int,
    *,
    price: float | None = None,
    on_start: Callable[[], None] | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Bench:
    """Do the same work with each number of workers, in interleaved rounds.

    ``on_start`` is called on every worker before the clock starts, for instance `warm`;
    ``progress`` is called with a line about each trial. Raises DaskmetricsError if workers do not
    arrive, or a trial did not finish a unit.
    """
    trials: list[BenchTrial] = []
    fewest: list[TrialResult] = []
    for repeat, n in scaling.interleaved(counts, repeats):
        trial, result = _trial(runner, profile.model_copy(update={"workers": n}), repeat, on_start)
        trials.append(trial)
        if n == counts[0]:
            fewest.append(result)
        progress(f"{n} workers, round {repeat + 1} of {repeats}: {trial.seconds:.1f} s")
    chains = min(fewest, key=lambda result: result.seconds).chains
    peak = max(result.memory for result in fewest)
    return Bench(
        name,
        tuple(trials),
        chains,
        _calibration(trials, fewest, profile),
        price,
        profile.threads,
        peak,
    )


def _trial(
    runner: Runner, profile: Cluster, repeat: int, on_start: Callable[[], None] | None
) -> tuple[BenchTrial, TrialResult]:
    began = time.perf_counter()
    with connect(profile) as client:
        try:
            client.wait_for_workers(profile.workers, timeout=profile.patience)
        except TimeoutError:
            raise DaskmetricsError(
                f"Not all {profile.workers} workers arrived within {profile.patience:.0f} s. Use "
                "fewer with --workers, or allow more time with --set cluster.arrive_within=SECONDS."
            ) from None
        if on_start is not None:
            client.run(on_start)
        start = time.perf_counter() - began
        result = runner(client)
        result = replace(
            result,
            memory=max((used["memory"] for used in usage(client).workers.values()), default=0),
        )
    units = sum(map(len, result.chains))
    if not units:
        raise DaskmetricsError(
            "The work did not finish a single unit. Run it once without bench to see why."
        )
    return BenchTrial(
        profile.workers, result.seconds, units, repeat, start + result.start, result.sequences
    ), result


def warm() -> None:
    """Import what the units of an experiment need, so that no unit's time includes it."""
    import torch
    import transformers

    torch.zeros(1)
    assert transformers


def probe(profile: Cluster, runner: Runner) -> Calibration:
    """A calibration from a little work on one worker: seconds of units, but not how they scale."""
    trial, result = _trial(runner, profile.model_copy(update={"workers": 1}), 0, warm)
    return _calibration([trial], [result], profile, overhead=False)


def _calibration(
    trials: Sequence[BenchTrial],
    fewest: Sequence[TrialResult],
    profile: Cluster,
    overhead: bool = True,
) -> Calibration:
    calibration = Calibration(
        device=profile.device,
        host=socket.gethostname(),
        at=time.time(),
        versions=versions(),
        samples=_merged(chain.from_iterable(result.samples for result in fewest)),
        workers=max(trial.workers for trial in trials),
        start=median_high(trial.start for trial in trials),
    )
    if law := scaling.fit(trials):
        calibration = replace(calibration, serial=law.serial.bounds)
    busy = fsum(fsum(map(fsum, result.chains)) for result in fewest)
    if overhead and busy:
        workers = min(trial.workers for trial in trials)
        wall = fsum(trial.seconds * workers for trial in trials if trial.workers == workers)
        calibration = replace(calibration, overhead=max(0.0, wall / busy - 1.0))
    return calibration


def _merged(samples: Iterable[Sample]) -> tuple[Sample, ...]:
    """Samples of the same kind and group as one."""
    groups: dict[tuple[str, str, int], list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[sample.kind, sample.group, sample.ranks].append(sample)
    merged = []
    for (kind, group, ranks), same in groups.items():
        seconds = chain.from_iterable(sample.seconds for sample in same)
        assumed = fsum(sample.assumed for sample in same) / len(same)
        merged.append(Sample(kind, group, tuple(seconds), assumed, ranks))
    return tuple(merged)
