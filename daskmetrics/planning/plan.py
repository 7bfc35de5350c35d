"""The plan of a configuration or of a training program: its options."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path

from daskmetrics import config as configuration
from daskmetrics.cluster.slurm.partitions import own_queue, read_partitions
from daskmetrics.config import Config
from daskmetrics.core.errors import ConfigError, DaskmetricsError
from daskmetrics.core.files import RUNS, RunFolder
from daskmetrics.domain.events import is_finished
from daskmetrics.execution.journal import read
from daskmetrics.experiment import prepare
from daskmetrics.planning.calibration import kept
from daskmetrics.planning.estimate import measurements, programs_workload, samples_of, workload
from daskmetrics.planning.offers import (
    local_offers,
    own_jobs,
    place_of,
    rehearsed,
    slurm_offers,
)
from daskmetrics.planning.options import (
    BALANCED,
    PURPOSES,
    BestOption,
    Offer,
    Option,
    choose,
    doublings,
    option_of,
)
from daskmetrics.planning.work import Work

# whose speed is assumed where no GPU was measured; datasheets relate other GPUs to it
ASSUMED_GPU = "l40s"


@dataclass(frozen=True)
class PlanRequest:
    """What is to be planned, and the options of ``plan``."""

    config: Path
    args: tuple[str, ...] = ()  # of a program
    times: int = 0  # how many times programs do what was measured; 0 without programs
    profiles: tuple[str, ...] = ()  # by name or file; by default that of the configuration
    # of workers for each profile; by default that of the profile, for a purpose 1, 2, 4, ... up to it
    counts: tuple[int, ...] = ()
    deadline: float | None = None  # seconds from now
    is_program: bool = False  # whether the file is the training program itself
    # of a worker-hour by device; the empty name stands for all
    prices: Mapping[str, float] = field(default_factory=dict)
    folder: Path | None = None  # of the run
    settings: tuple[str, ...] = ()
    purpose: str | None = None  # one of `PURPOSES`


@dataclass(frozen=True, eq=False)
class Proposal:
    """The options for a request."""

    name: str  # of the experiment
    request: PlanRequest
    work: Work  # on the device of the first option
    options: tuple[Option, ...]  # numbered from 1
    at: float  # when the proposal was made, in seconds since 1970
    is_finished: bool = False  # whether the run has nothing left to do

    @cached_property
    def recommended(self) -> BestOption | None:
        """The choice for the purpose of the request."""
        return choose(self.options, self.request.purpose or BALANCED)

    @cached_property
    def best(self) -> list[BestOption]:
        """The fastest and the cheapest option."""
        choices = [choose(self.options, purpose) for purpose in PURPOSES]
        return [choice for choice in choices if choice]

    def option(self, number: int) -> Option:
        """The option with a number.

        Raises ConfigError if it does not exist or cannot be used.
        """
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
        settings = [*self.request.settings, f"cluster.workers={offer.workers}"]
        if offer.profile:
            settings.insert(0, f"cluster={offer.profile}")
        if offer.partition:
            settings.append(f'cluster.walltime="{option.walltime}"')
        return tuple(settings)

    def command(self, option: Option) -> str:
        """The shell command that runs an option."""
        words = ["daskmetrics", "run", str(self.request.config)]
        if self.request.is_program:
            ranks = str(option.offer.workers)
            words = ["daskmetrics", "train", str(self.request.config), "--ranks", ranks]
        for setting in self.settings_of(option):
            words += ["--set", setting]
        if self.request.args:
            words += ["--", *self.request.args]
        return shlex.join(words)


def propose(request: PlanRequest, loaded: Config | None = None) -> Proposal:
    """The options for a configuration or a training program.

    The nodes of Slurm are read once; then Slurm is asked for the start of each job, and how own
    jobs waited and ended. The configuration is loaded from its file, unless it is given. Raises
    ConfigError if it cannot be used; a profile that cannot be used is an option with this problem.
    """
    now = time.time()
    config = loaded or configuration.load(request.config, request.settings)
    finished = False
    models = config.models
    if any(model.program for model in models):
        if not all(model.program for model in models):
            raise ConfigError(
                "A run trains by programs alone, or by none: name the other models in a"
                " configuration of their own."
            )
        request = replace(request, times=request.times or 1)
        calibrations = [
            measured for measured in kept() if any(samples_of(measured, model) for model in models)
        ]
        work_on = partial(
            programs_workload, models, request.times, request.is_program, calibrations
        )
    elif request.times:
        raise ConfigError("--times is that of a training program, such as train.py.")
    else:
        prepared = prepare(config)
        folder = RunFolder(request.folder or RUNS / config.name)
        entries = tuple(read(folder.journal))
        finished = is_finished(entries, prepared.plan.key)
        calibrations = measurements(prepared, folder, entries)
        work_on = partial(workload, prepared, entries, calibrations)

    gpus = [measured.device for measured in calibrations if measured.device != "cpu"]

    @cache
    def work_for(device: str) -> Work:
        if device not in ("cpu", *gpus):
            device = next(reversed(gpus), ASSUMED_GPU)
        return work_on(device)

    options = tuple(_options(request, config, work_for, now))
    work = work_for(options[0].offer.device)
    return Proposal(config.name, request, work, options, now, finished)


def _options(
    request: PlanRequest, config: Config, work_for: Callable[[str], Work], now: float
) -> Iterator[Option]:
    jobs_on, waiting_on = cache(own_jobs), cache(own_queue)
    partitions = cache(read_partitions)
    number = 0
    for name in request.profiles or ("",):
        profile = config.cluster
        try:
            if name:
                profile = configuration.cluster(name)
            counts: Sequence[int] = (profile.workers,)
            if request.counts:
                counts = request.counts
            elif request.purpose:
                counts = doublings(profile.workers)
            offers = tuple(local_offers(name, profile, counts))
            if profile.kind == "slurm":
                offers = tuple(slurm_offers(name, profile, counts, partitions()))
        except DaskmetricsError as error:
            offers = (Offer(name, "cpu", 1, 1, problem=str(error)),)
        for offer in offers:
            number += 1
            price = request.prices.get(offer.device, request.prices.get(""))
            offer = replace(offer, price=price)
            work = work_for(offer.device)
            if offer.partition and not offer.problem:
                offer = replace(offer, success=jobs_on(offer.partition))
                # what Slurm answers depends on the time that is requested
                walltime = option_of(number, offer, work).walltime
                place = place_of(offer, profile, walltime, waiting_on(offer.partition))
                offer = replace(rehearsed(offer, profile, walltime, now), place=place)
            yield option_of(number, offer, work, request.deadline)
