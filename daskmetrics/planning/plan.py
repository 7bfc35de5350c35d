"""The options for a configuration, from calibrations and what is free; nothing is submitted."""

from __future__ import annotations

import dataclasses
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from daskmetrics import config as configuration
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.events import is_finished
from daskmetrics.core.files import RUNS, RunFolder
from daskmetrics.experiment import prepare
from daskmetrics.planning.estimate import measurements, recorded, workload
from daskmetrics.planning.offers import offers
from daskmetrics.planning.options import (
    Limits,
    Offer,
    Option,
    Suggestion,
    Workload,
    options,
    suggestions,
)
from daskmetrics.planning.scaling import doublings

# whose speed is assumed where no GPU was measured; datasheets relate other GPUs to it
ASSUMED_GPU = "l40s"


@dataclass(frozen=True)
class PlanRequest:
    """The options of ``plan`` beside the configuration."""

    profiles: tuple[str, ...] = ()  # by name or file; by default that of the configuration
    counts: tuple[int, ...] = ()  # of workers for each profile; by default that of the profile
    limits: Limits = dataclasses.field(default_factory=Limits)
    # of a worker-hour by device; the empty name stands for all
    prices: Mapping[str, float] = dataclasses.field(default_factory=dict)
    folder: Path | None = None  # of the run
    settings: tuple[str, ...] = ()
    purpose: str | None = None  # the label of the suggestion to choose

    def counts_of(self, profile: Cluster) -> tuple[int, ...]:
        """The numbers of workers to compare: for a purpose 1, 2, 4, ... up to the profile's."""
        if self.counts:
            return self.counts
        if self.purpose is None:
            return (profile.workers,)
        return doublings(profile.workers)


@dataclass(frozen=True)
class Proposal:
    """Options for a configuration."""

    name: str  # of the experiment
    config: str  # the configuration's file
    pairs: tuple[tuple[Offer, Workload], ...]
    limits: Limits
    at: float  # when the proposal was made, in seconds since 1970
    settings: tuple[str, ...] = ()  # of the run
    purpose: str | None = None
    is_finished: bool = False  # whether the run has nothing left to do

    @cached_property
    def options(self) -> tuple[Option, ...]:
        """The offers with their times and costs, numbered from 1."""
        return options(self.pairs, self.limits)

    @cached_property
    def suggestions(self) -> tuple[Suggestion, ...]:
        """The fastest, the cheapest and the balanced option."""
        return suggestions(self.options)

    @property
    def chosen(self) -> Option | None:
        """The option for the purpose, if there is one."""
        by_label = {suggestion.label: suggestion.option for suggestion in self.suggestions}
        return by_label.get(self.purpose or "")

    def option(self, number: int) -> Option:
        """The option with a number; ConfigError if it does not exist or cannot be used."""
        if not 1 <= number <= len(self.options):
            raise ConfigError(
                f"There is no option {number}. Choose one of 1 to {len(self.options)}."
            )
        option = self.options[number - 1]
        if not option.possible:
            problems = "; ".join(option.problems)
            raise ConfigError(f"Option {number} cannot be used: {problems}. Choose another option.")
        return option

    def settings_of(self, option: Option) -> tuple[str, ...]:
        """The settings with which a run uses an option."""
        offer = option.offer
        settings = [*self.settings, f"cluster.workers={offer.workers}"]
        if offer.profile:
            settings.insert(0, f"cluster={offer.profile}")
        if offer.partition is not None:
            settings.append(f'cluster.walltime="{option.walltime}"')
        return tuple(settings)

    def command(self, option: Option) -> str:
        """The shell command that runs an option."""
        settings = " ".join(f"--set {shlex.quote(setting)}" for setting in self.settings_of(option))
        return f"daskmetrics run {shlex.quote(self.config)} {settings}"


def propose(path: Path, request: PlanRequest) -> Proposal:
    """The options for a configuration; ConfigError if a file or Slurm cannot be used."""
    config = configuration.load(path, request.settings)
    for model in config.models:
        if model.program:
            raise ConfigError(
                f"Model '{model.name}' is trained by a program, whose time is not known: measure it"
                f" with daskmetrics bench {model.program.script} --ranks 1,2."
            )
    folder = RunFolder(request.folder or RUNS / config.name)
    prepared = prepare(config)
    calibrations = measurements(prepared, folder)
    measured_at = {measured.device: measured.at for measured in calibrations}
    gpus = [device for device in measured_at if device != "cpu"]
    latest_gpu = max(gpus, key=measured_at.__getitem__, default=ASSUMED_GPU)

    @cache
    def workload_on(device: str) -> Workload:
        if device != "cpu" and device not in measured_at:
            device = latest_gpu
        return workload(prepared, folder, calibrations, device)

    profiles = {name: configuration.cluster(name) for name in request.profiles}
    pairs = []
    for offer in offers(profiles or {"": config.cluster}, request.counts_of, workload_on):
        price = request.prices.get(offer.device, request.prices.get(""))
        pairs.append((dataclasses.replace(offer, price=price), workload_on(offer.device)))
    return Proposal(
        config.name,
        str(path),
        tuple(pairs),
        request.limits,
        time.time(),
        request.settings,
        request.purpose,
        is_finished(recorded(folder), prepared.key),
    )
