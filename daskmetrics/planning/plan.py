"""The options for a configuration, from calibrations and what is free, and their tables; nothing is
submitted.
"""

from __future__ import annotations

import shlex
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from daskmetrics import config as configuration
from daskmetrics.cluster.slurm.partitions import read_partitions
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.events import is_finished
from daskmetrics.core.files import RUNS, RunFolder
from daskmetrics.core.table import Table
from daskmetrics.core.text import duration, listed, size_text
from daskmetrics.experiment import prepare
from daskmetrics.planning.estimate import measurements, recorded, workload
from daskmetrics.planning.offers import local_offers, own_jobs, rehearsed, slurm_offers
from daskmetrics.planning.options import (
    NO_LIMITS,
    Limits,
    Option,
    Suggestion,
    Workload,
    amount,
    bounded,
    doublings,
    suggestions,
)

# whose speed is assumed where no GPU was measured; datasheets relate other GPUs to it
ASSUMED_GPU = "l40s"
OFFER_KEYS = ("profile", "device", "nodes", "workers", "partition", "free", "price", "wait")
OPTION_KEYS = (
    *("number", "run", "total", "worker_hours", "cost", "efficiency"),
    *("walltime", "jobs", "possible", "problems"),
)


@dataclass(frozen=True)
class PlanRequest:
    """A configuration's file, and the options of ``plan``."""

    config: Path
    profiles: tuple[str, ...] = ()  # by name or file; by default that of the configuration
    counts: tuple[int, ...] = ()  # of workers for each profile; by default that of the profile
    limits: Limits = NO_LIMITS
    # of a worker-hour by device; the empty name stands for all
    prices: Mapping[str, float] = field(default_factory=dict)
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
    """The options for a request."""

    name: str  # of the experiment
    request: PlanRequest
    options: tuple[Option, ...]  # numbered from 1
    at: float  # when the proposal was made, in seconds since 1970
    is_finished: bool = False  # whether the run has nothing left to do

    @cached_property
    def suggestions(self) -> tuple[Suggestion, ...]:
        """The fastest, the cheapest and the balanced option."""
        return suggestions(self.options)

    @property
    def chosen(self) -> Option | None:
        """The option for the purpose, if there is one."""
        by_label = {suggestion.label: suggestion.option for suggestion in self.suggestions}
        return by_label.get(self.request.purpose or "")

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
        settings = [*self.request.settings, f"cluster.workers={offer.workers}"]
        if offer.profile:
            settings.insert(0, f"cluster={offer.profile}")
        if offer.partition is not None:
            settings.append(f'cluster.walltime="{option.walltime}"')
        return tuple(settings)

    def command(self, option: Option) -> str:
        """The shell command that runs an option."""
        settings = " ".join(f"--set {shlex.quote(setting)}" for setting in self.settings_of(option))
        return f"daskmetrics run {shlex.quote(str(self.request.config))} {settings}"


def propose(request: PlanRequest) -> Proposal:
    """The options for a configuration; ConfigError if a file or Slurm cannot be used.

    The nodes of Slurm are read once; then Slurm is asked for the start of each job, and how own
    jobs ended.
    """
    config = configuration.load(request.config, request.settings)
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

    jobs_on, options = cache(own_jobs), []
    profiles = {name: configuration.cluster(name) for name in request.profiles}
    site = None
    for name, profile in (profiles or {"": config.cluster}).items():
        if profile.kind == "slurm":
            site = site or read_partitions()
            offers = slurm_offers(name, profile, request.counts_of(profile), site)
        else:
            offers = local_offers(name, profile, request.counts_of(profile))
        for offer in offers:
            price = request.prices.get(offer.device, request.prices.get(""))
            offer = replace(offer, price=price)
            option = Option(len(options) + 1, offer, workload_on(offer.device), request.limits)
            if offer.partition:
                if not offer.problem:
                    offer = rehearsed(offer, profile, option.walltime)
                option = replace(option, offer=replace(offer, success=jobs_on(offer.partition)))
            options.append(option)
    finished = is_finished(recorded(folder), prepared.key)
    return Proposal(config.name, request, tuple(options), time.time(), finished)


def proposal_tables(proposal: Proposal, now: float) -> Iterator[Table]:
    """The options of a plan, where their numbers come from, what the run needs, and the
    commands.
    """
    title = f"Plan of {proposal.name} (nothing is submitted)"
    if proposal.is_finished:
        yield Table((), (("state", "finished: nothing is left to do"),), title)
        return
    columns: dict[str, list[str]] = defaultdict(list)
    # where the numbers come from, and when they were measured
    sources: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for option in proposal.options:
        offer = option.offer
        walltime = option.walltime
        if option.jobs > 1:
            walltime += f" x {option.jobs}"
        # what an option is best in, or why it cannot be used
        remarks = [best.label for best in proposal.suggestions if best.option == option]
        if option == proposal.chosen:
            remarks.append("chosen")
        if option.problems:
            remarks = [f"cannot be used: {'; '.join(option.problems)}"]
        cells = {
            "#": str(option.number),
            "workers": offer.label,
            "free": "?" if offer.free is None else str(offer.free),
            "wait": duration(offer.wait.value) if offer.wait.interval.high else "none",
            "run": bounded(option.run.interval),
            "total": bounded(option.total),
            "worker hours": amount(option.worker_hours.value),
            "cost": amount(option.cost.value) if option.cost else "",
            "eff.": f"{option.efficiency:.0%}",
            "walltime": walltime,
            "": ", ".join(remarks),
        }
        for name, cell in cells.items():
            columns[name].append(cell)
        for name, estimate in (("run", option.run), ("wait", offer.wait)):
            age = ""
            if estimate.at is not None:
                age = f"{duration(max(0.0, now - estimate.at))} ago"
            sources[name, estimate.source, age].append(str(option.number))
        if offer.success:
            sources["chance of success", str(offer.success), ""].append(str(option.number))
    filled = {name: cells for name, cells in columns.items() if any(cells)}
    rows = tuple(zip(*filled.values(), strict=True))
    yield Table(tuple(filled), rows, title, tuple(_notes(proposal)))
    origins = [(name, listed(of), source, age) for (name, source, age), of in sources.items()]
    yield Table(("number", "options", "from", "age"), tuple(sorted(origins)))
    work = proposal.options[0].workload
    needs = {
        "units": str(work.units),
        "GPU memory": f"{work.vram_gib:.1f} GiB of a worker (estimated)",
        "host memory": f"{work.host_gib:.1f} GiB of a worker (estimated)",
        "disk": f"{size_text(work.disk_bytes)} of results",
        "texts": work.texts,
        "not on this machine": ", ".join(work.missing),
    }
    yield Table(("needs", ""), tuple((name, text) for name, text in needs.items() if text))
    suggested = dict.fromkeys(suggestion.option for suggestion in proposal.suggestions)
    commands = tuple((str(option.number), proposal.command(option)) for option in suggested)
    note = "Add --submit NUMBER to run an option; its prediction is kept in the run's folder."
    if commands:
        yield Table(("#", "command"), commands, notes=(note,))


def _notes(proposal: Proposal) -> Iterator[str]:
    if not proposal.suggestions:
        yield "No option can be used."
    for suggestion in proposal.suggestions:
        if suggestion.ties:
            ties = listed([str(option.number) for option in suggestion.ties])
            yield f"{suggestion.label}: the difference from {ties} is within the error"
    phases = proposal.options[0].workload.phases
    limit = next((phase.chains for phase in phases if phase.name == "search"), None)
    if limit and any(option.offer.workers > limit for option in proposal.options):
        yield f"search: more than {limit} workers bring no earlier answer"
    for option in proposal.options:
        for phase in option.workload.phases:
            if phase.samples:
                alone = replace(option.workload, phases=(phase,), download=None)
                seconds = alone.on(option.offer.workers, option.offer.device).value
                rate = phase.units * phase.samples / seconds
                note = f"{phase.name} with option {option.number}: {rate:,.0f} samples/s"
                if phase.epoch:
                    note += f", an epoch takes {duration(phase.epoch / rate)}"
                yield note


def proposal_document(proposal: Proposal) -> dict[str, Any]:
    """A plan for other programs; see docs/json.md."""
    suggestions = []
    for suggestion in proposal.suggestions:
        ties = [option.number for option in suggestion.ties]
        number = suggestion.option.number
        suggestions.append({"label": suggestion.label, "option": number, "ties": ties})
    options = []
    for option in proposal.options:
        record = option.offer.success
        document = {name: getattr(option.offer, name) for name in OFFER_KEYS}
        document |= {name: getattr(option, name) for name in OPTION_KEYS}
        document["success"] = record and {**vars(record), "chance": record.chance}
        document["command"] = proposal.command(option) if option.possible else None
        options.append(document)
    return {
        "name": proposal.name,
        "at": proposal.at,
        "options": options,
        "suggestions": suggestions,
        "purpose": proposal.request.purpose,
        "chosen": proposal.chosen and proposal.chosen.number,
    }
