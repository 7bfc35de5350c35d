"""From a configuration, calibrations and what is free to a proposal; nothing is submitted."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from daskmetrics import config as configuration
from daskmetrics.cluster._pinning import usable_cpus
from daskmetrics.cluster.slurm._state import SlurmState, read_state, recorded_state
from daskmetrics.config import Cluster, Config
from daskmetrics.core._files import RunFolder, atomic_write, private
from daskmetrics.core._text import duration
from daskmetrics.core.errors import ConfigError
from daskmetrics.experiment import prepare
from daskmetrics.planning import (
    NO_WAIT,
    Limits,
    Offer,
    Option,
    Suggestion,
    Workload,
    available_now,
    break_even,
    front,
    options,
    suggestions,
)
from daskmetrics.planning import _calibration as calibrations
from daskmetrics.planning import _scenario as scenario
from daskmetrics.planning import _slurm as slurm
from daskmetrics.planning._experiment import of_run, workload

ASSUMED_GPU = "l40s"
"""GPU whose speed is assumed where none was measured; others are told from it by their datasheets."""

NO_LIMITS = Limits()


@dataclass(frozen=True)
class PlanRequest:
    """What is asked of a plan beside the configuration.

    Attributes
    ----------
    profiles : tuple of str
        Cluster profiles by name or file; by default that of the configuration.
    counts : tuple of int
        Numbers of workers of each; by default those of the profile.
    offers : Path or None
        A file of partitions on paper, instead of profiles.
    recorded : Path or None
        A folder of what Slurm's commands printed, instead of asking them.
    limits : Limits
    prices : mapping
        Of a worker for an hour, by device; the empty name stands for all.
    folder : Path or None
        Of the run.
    settings : tuple of str
    keep : Path or None
        A folder for what Slurm's commands print.
    """

    profiles: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    offers: Path | None = None
    recorded: Path | None = None
    limits: Limits = NO_LIMITS
    prices: Mapping[str, float] = dataclasses.field(default_factory=dict)
    folder: Path | None = None
    settings: tuple[str, ...] = ()
    keep: Path | None = None


def propose(path: Path, request: PlanRequest) -> Proposal:
    """The options for a configuration, or for a workload on paper.

    Raises
    ------
    ConfigError
        If one of the files cannot be used, or Slurm is needed and not there.
    """
    if scenario.is_workload(path):
        if request.offers is None:
            raise ConfigError(f"'{path}' is a workload on paper: say what there is to run it on by --offers FILE.")
        work = scenario.workload(path)
        pairs = tuple((offer, work.workload()) for offer in _priced(scenario.offers(request.offers), request.prices))
        return Proposal(work.name, None, pairs, request.limits, time.time())
    config = configuration.load(path, request.settings)
    of = _workloads(config, request)
    if request.offers is not None:
        pairs = tuple((offer, of(offer.device)) for offer in _priced(scenario.offers(request.offers), request.prices))
        return Proposal(config.name, None, pairs, request.limits, time.time())
    found = _found(config, request, of)
    pairs = tuple((offer, of(offer.device)) for offer in _priced(found, request.prices))
    return Proposal(config.name, str(path), pairs, request.limits, time.time(), request.settings)


def _workloads(config: Config, request: PlanRequest) -> Callable[[str], Workload]:
    """What is to be done, in seconds of a device: of itself if it was measured, or of the nearest that was.

    A run that was begun is a measurement, too, and often the latest.
    """
    place = RunFolder(request.folder or Path("runs") / config.name)
    prepared = prepare(config)
    known = [*calibrations.known(), *filter(None, [of_run(prepared, place)])]
    measured = {calibration.device: calibration.at for calibration in known}

    @cache
    def of(device: str) -> Workload:
        gpus = [name for name in measured if name != "cpu"]
        newest = max(gpus, key=lambda name: measured[name], default=ASSUMED_GPU)
        reference = device if device == "cpu" or device in measured else newest
        return workload(prepared, place, known, reference)

    return of


def _found(config: Config, request: PlanRequest, of: Callable[[str], Workload]) -> list[Offer]:
    """The offers of all profiles, with Slurm asked once, and then for each option's own start."""
    profiles = {name: configuration.cluster(name) for name in request.profiles}
    profiles = profiles or {_name(config.cluster): config.cluster}
    stood: SlurmState | None = None
    found: list[Offer] = []
    for name, profile in profiles.items():
        counts = request.counts or (profile.workers,)
        if profile.kind != "slurm":
            found += [_here(name, profile, n) for n in counts]
            continue
        stood = stood or (recorded_state(request.recorded) if request.recorded else read_state(request.keep))
        own = slurm.offers(name, profile, counts, stood)
        found += [_asked(offer, profile, of) for offer in own] if stood.live else own
    return found


def _name(profile: Cluster) -> str:
    """What a profile without a name is called in a command."""
    return "local" if profile.kind == "local" else profile.partition or profile.kind


def _asked(offer: Offer, profile: Cluster, of: Callable[[str], Workload]) -> Offer:
    if offer.problem:
        return offer
    (option,) = options([(offer, of(offer.device))])
    return slurm.rehearsed(offer, profile, option.walltime)


def _here(name: str, profile: Cluster, workers: int) -> Offer:
    """This machine, or a scheduler that runs already."""
    if profile.kind != "local":
        return Offer(name, profile.gpu_type or "cpu", 1, workers, NO_WAIT)
    cpus = len(usable_cpus())
    problem = f"this machine offers {cpus} CPUs" if workers * profile.threads > cpus else None
    return Offer(name, "cpu", 1, workers, NO_WAIT, cpus, host_gib=_memory() / workers, problem=problem)


def _memory() -> float:
    """GiB of this machine that are free."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30


def _priced(offers: Sequence[Offer], prices: Mapping[str, float]) -> list[Offer]:
    """With the prices of the command line, which count before those of a file."""
    return [dataclasses.replace(offer, price=prices.get(offer.device, prices.get("", offer.price))) for offer in offers]


Pair = tuple[Offer, Workload]


@dataclass(frozen=True)
class Proposal:
    """Options for a workload.

    Attributes
    ----------
    name : str
        Of the experiment, or of the workload on paper.
    config : str or None
        The configuration's file; None if there is nothing that could be run.
    pairs : tuple of (Offer, Workload)
    limits : Limits
    at : float
        When it was made.
    settings : tuple of str
        Further ``key=value`` of the run.
    """

    name: str
    config: str | None
    pairs: tuple[Pair, ...]
    limits: Limits
    at: float
    settings: tuple[str, ...] = ()

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
        """The option of a number.

        Raises
        ------
        ConfigError
            If there is none, or it cannot be had.
        """
        found = next((option for option in self.options if option.number == number), None)
        if found is None:
            raise ConfigError(f"There is no option {number}; the plan has 1 to {len(self.options)}.")
        if not found.possible:
            raise ConfigError(f"Option {number} will not do: {'; '.join(found.problems)}. Choose another one.")
        return found

    def settings_of(self, option: Option) -> tuple[str, ...]:
        """What sets a run up as an option has it."""
        offer = option.offer
        own = [f"cluster={offer.profile}", f"cluster.workers={offer.workers}"]
        if offer.partition is not None:
            own += [f'cluster.walltime="{option.walltime}"']
        return (*own, *self.settings)

    def command(self, option: Option) -> str:
        """The line of a shell that runs an option."""
        assert self.config is not None
        words = [f"--set {shlex.quote(setting)}" for setting in self.settings_of(option)]
        return f"daskmetrics run {shlex.quote(self.config)} {' '.join(words)}"


def waits(options: Sequence[Option]) -> list[tuple[Option, str]]:
    """For each option that has to wait: up to which wait it is done before the one that is free now."""
    now = available_now(options)
    if now is None:
        return []
    return [(option, _worth(now, option)) for option in options if option.possible and _has_to_wait(option)]


def _has_to_wait(option: Option) -> bool:
    return option.offer.wait.interval.high > 0


def _worth(now: Option, later: Option) -> str:
    worth = break_even(now, later)
    if worth.value <= 0:
        return f"is not worth any wait: option {now.number} is free now and done sooner"
    bounds = f"{duration(max(0.0, worth.low))} to {duration(worth.high)}"
    told = later.offer.wait
    said = f"{duration(told.value)} ({told.source})"
    verdict = "wait" if told.interval.high < worth.low else "do not" if told.interval.low > worth.high else "too close"
    return f"is worth a wait of {duration(worth.value)} ({bounds}) against option {now.number}; told {said}: {verdict}"


def keep(proposal: Proposal, option: Option, folder: RunFolder) -> None:
    """Write down beside the run what was predicted of it, for `status` and the report to compare."""
    run, total = option.run.interval, option.total
    told = {
        "at": proposal.at,
        "option": option.offer.label,
        "profile": option.offer.profile,
        "workers": option.offer.workers,
        "source": option.run.source,
        "measured": option.run.measured,
        "wait": option.offer.wait.value,
        "run": [run.low, run.value, run.high],
        "total": [total.low, total.value, total.high],
        "worker_hours": option.worker_hours.value,
        "cost": option.cost.value if option.cost else None,
        "phases": {phase.name: [phase.units, phase.seconds.value] for phase in _workload(proposal, option).phases},
    }
    with private():
        folder.create()
        atomic_write(folder.plan, json.dumps(told, indent=1))


def _workload(proposal: Proposal, option: Option) -> Workload:
    return proposal.pairs[option.number - 1][1]
