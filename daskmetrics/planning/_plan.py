"""The options for a configuration, from calibrations and what is free; nothing is submitted."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from daskmetrics import config as configuration
from daskmetrics.cluster._pinning import usable_cpus
from daskmetrics.cluster.slurm._state import SlurmState, read_state, recorded_state
from daskmetrics.config import Cluster, Config
from daskmetrics.core._files import RUNS, RunFolder, atomic_write, private
from daskmetrics.core.errors import ConfigError
from daskmetrics.experiment import prepare
from daskmetrics.planning import _calibration, _scenario, _slurm
from daskmetrics.planning._experiment import calibration_of_run, workload
from daskmetrics.planning._options import NO_WAIT, Limits, Offer, Option, Suggestion, front, options, suggestions
from daskmetrics.planning._scaling import doublings
from daskmetrics.planning._success import TrackRecord, of_partition
from daskmetrics.planning._workload import Workload

ASSUMED_GPU = "l40s"  # whose speed is assumed where no GPU was measured; datasheets relate other GPUs to it


@dataclass(frozen=True)
class Purpose:
    """A preset of ``plan``: which suggestion is chosen, with which settings, and among which numbers of workers."""

    choose: str
    settings: tuple[str, ...] = ()
    alone: bool = False  # one worker; by default 1, 2, 4, ... up to those of the profile


PURPOSES = {
    "develop": Purpose("fastest", ("search.budget=0.05",), alone=True),
    "production": Purpose("balanced"),
    "fastest": Purpose("fastest"),
    "cheapest": Purpose("cheapest"),
}


@dataclass(frozen=True)
class PlanRequest:
    """The options of ``plan`` beside the configuration."""

    profiles: tuple[str, ...] = ()  # by name or file; by default that of the configuration
    counts: tuple[int, ...] = ()  # numbers of workers for each profile; by default that of the profile
    offers: Path | None = None  # a scenario file of partitions, used instead of profiles
    recorded: Path | None = None  # a folder with the output of Slurm's commands, used instead of running them
    limits: Limits = dataclasses.field(default_factory=Limits)
    prices: Mapping[str, float] = dataclasses.field(default_factory=dict)  # by device; the empty name stands for all
    folder: Path | None = None  # of the run
    settings: tuple[str, ...] = ()
    keep: Path | None = None  # a folder in which to keep the output of Slurm's commands
    purpose: str | None = None  # a key of `PURPOSES`

    def counts_of(self, profile: Cluster) -> tuple[int, ...]:
        """The numbers of workers to compare."""
        if self.counts or self.purpose is None:
            return self.counts or (profile.workers,)
        return (1,) if PURPOSES[self.purpose].alone else doublings(profile.workers)


@dataclass(frozen=True)
class Proposal:
    """Options for a workload."""

    name: str  # of the experiment or the scenario
    config: str | None  # the configuration's file; None for a scenario, which cannot be run
    pairs: tuple[tuple[Offer, Workload], ...]
    limits: Limits
    at: float  # when the proposal was made, in seconds since 1970
    settings: tuple[str, ...] = ()  # of the run
    purpose: str | None = None

    @property
    def chosen(self) -> Suggestion | None:
        """The suggestion for the purpose, if there is one."""
        wanted = PURPOSES[self.purpose].choose if self.purpose else None
        return next((each for each in self.suggestions if each.label == wanted), None)

    @property
    def options(self) -> tuple[Option, ...]:
        return options(self.pairs, self.limits)

    @property
    def suggestions(self) -> tuple[Suggestion, ...]:
        return suggestions(self.options)

    @property
    def front(self) -> tuple[Option, ...]:
        return front(self.options)

    def option(self, number: int) -> Option:
        """The option with a number; ConfigError if it does not exist or cannot be used."""
        if not 1 <= number <= len(self.options):
            raise ConfigError(f"There is no option {number}. Choose one of 1 to {len(self.options)}.")
        option = self.options[number - 1]
        if not option.possible:
            raise ConfigError(f"Option {number} cannot be used: {'; '.join(option.problems)}. Choose another option.")
        return option

    def settings_of(self, option: Option) -> tuple[str, ...]:
        """The settings with which a run uses an option."""
        offer = option.offer
        walltime = [] if offer.partition is None else [f'cluster.walltime="{option.walltime}"']
        return (f"cluster={offer.profile}", f"cluster.workers={offer.workers}", *walltime, *self.settings)

    def command(self, option: Option) -> str:
        """The shell command that runs an option."""
        assert self.config is not None
        settings = " ".join(f"--set {shlex.quote(setting)}" for setting in self.settings_of(option))
        return f"daskmetrics run {shlex.quote(self.config)} {settings}"


def propose(path: Path, request: PlanRequest) -> Proposal:
    """The options for a configuration or a scenario; ConfigError if a file or Slurm cannot be used."""
    if request.purpose:  # what the user sets goes before the preset
        settings = (*PURPOSES[request.purpose].settings, *request.settings)
        request = dataclasses.replace(request, settings=settings)
    given = _scenario.workload(path) if _scenario.is_workload(path) else configuration.load(path, request.settings)
    workload_on = _workloads(given, request) if isinstance(given, Config) else lambda device: given.workload()
    if request.offers is not None:
        offers = _scenario.offers(request.offers)
    elif isinstance(given, Config):
        offers = _offers(given, request, workload_on)
    else:
        raise ConfigError(f"'{path}' is a scenario: give the partitions to compare with --offers FILE.")
    prices = request.prices
    priced = [dataclasses.replace(each, price=prices.get(each.device, prices.get("", each.price))) for each in offers]
    pairs = tuple((offer, workload_on(offer.device)) for offer in priced)
    config = None if request.offers else str(path)
    return Proposal(given.name, config, pairs, request.limits, time.time(), request.settings, request.purpose)


def _workloads(config: Config, request: PlanRequest) -> Callable[[str], Workload]:
    """The workload in seconds of a device, or of the GPU measured last where the device was not measured."""
    folder = RunFolder(request.folder or Path("runs") / config.name)
    prepared = prepare(config)
    # what a run has recorded is a measurement, too, and often the latest
    known = [*_calibration.known(), *filter(None, [calibration_of_run(prepared, folder)])]
    measured = {each.device: each.at for each in known}
    latest = max((name for name in measured if name != "cpu"), key=lambda name: measured[name], default=ASSUMED_GPU)

    @cache
    def workload_on(device: str) -> Workload:
        return workload(prepared, folder, known, device if device == "cpu" or device in measured else latest)

    return workload_on


def _offers(config: Config, request: PlanRequest, workload_on: Callable[[str], Workload]) -> list[Offer]:
    """The offers of all profiles; Slurm's state is read once, and the start of each job is then asked for."""
    default = config.cluster.partition or config.cluster.kind
    profiles = {name: configuration.cluster(name) for name in request.profiles}
    profiles = profiles or {"local" if config.cluster.kind == "local" else default: config.cluster}
    state: SlurmState | None = None
    offers: list[Offer] = []
    for name, profile in profiles.items():
        counts = request.counts_of(profile)
        if profile.kind != "slurm":
            offers += [_local_offer(name, profile, n) for n in counts]
            continue
        state = state or (recorded_state(request.recorded) if request.recorded else read_state(request.keep))
        for offer in _slurm.offers(name, profile, counts, state):
            if state.live and not offer.problem:
                (option,) = options([(offer, workload_on(offer.device))])
                offer = _slurm.rehearsed(offer, profile, option.walltime)
            offers.append(offer)
    runs = (request.folder or RUNS / config.name).parent

    @cache
    def success(name: str, partition: str | None) -> TrackRecord | None:
        return of_partition(partition, profiles[name], runs, ask=request.recorded is None)

    return [dataclasses.replace(each, success=success(each.profile, each.partition)) for each in offers]


def _local_offer(name: str, profile: Cluster, workers: int) -> Offer:
    """Workers on this machine, or of a scheduler that runs already."""
    if profile.kind != "local":
        return Offer(name, profile.gpu_type or "cpu", 1, workers, NO_WAIT)
    cpus = len(usable_cpus())
    problem = f"this machine offers {cpus} CPUs" if workers * profile.threads > cpus else None
    free_gib = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return Offer(name, "cpu", 1, workers, NO_WAIT, cpus, host_gib=free_gib / workers, problem=problem)


def keep(proposal: Proposal, option: Option, folder: RunFolder) -> None:
    """Write an option's prediction into the run's folder; `status` and the report compare the run with it."""
    phases = proposal.pairs[option.number - 1][1].phases
    prediction = {
        "at": proposal.at,
        "option": option.offer.label,
        "profile": option.offer.profile,
        "workers": option.offer.workers,
        "source": option.run.source,
        "measured": option.run.measured,
        "wait": option.offer.wait.value,
        "run": option.run.interval.bounds,
        "total": option.total.bounds,
        "worker_hours": option.worker_hours.value,
        "cost": option.cost.value if option.cost else None,
        "phases": {phase.name: [phase.units, phase.seconds.value] for phase in phases},
    }
    with private():
        folder.create()
        atomic_write(folder.plan, json.dumps(prediction, indent=1))
