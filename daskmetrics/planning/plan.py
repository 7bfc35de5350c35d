"""The options for a configuration, from calibrations and from what its profiles offer: free workers,
waits, how earlier jobs ended. Nothing is submitted.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain, product

import psutil
from dask.utils import parse_bytes

from daskmetrics import config as configuration
from daskmetrics.cluster.slurm import commands
from daskmetrics.cluster.slurm.partitions import Partition, read_partitions, requested
from daskmetrics.cluster.slurm.script import job_name, pools, script
from daskmetrics.config import Cluster, Config
from daskmetrics.core.errors import ConfigError, unknown
from daskmetrics.core.events import is_finished
from daskmetrics.core.files import RUNS, RunFolder
from daskmetrics.core.machine import user_name
from daskmetrics.execution.journal import read
from daskmetrics.experiment import prepare
from daskmetrics.planning.estimate import (
    known,
    measurements,
    programs_workload,
    samples_of,
    workload,
)
from daskmetrics.planning.options import (
    DEVICES,
    NO_WAIT,
    Estimate,
    Interval,
    Offer,
    Option,
    PlanRequest,
    Proposal,
    TrackRecord,
    Workload,
)

# whose speed is assumed where no GPU was measured; datasheets relate other GPUs to it
ASSUMED_GPU = "l40s"
DAYS = 30  # of Slurm's accounts that count
SOON = 30  # seconds: Slurm's clock counts whole seconds, and it schedules periodically


def propose(request: PlanRequest, loaded: Config | None = None) -> Proposal:
    """The options for a configuration, which may train by programs, or for a training program;
    ConfigError if a file or Slurm cannot be used.

    The nodes of Slurm are read once; then Slurm is asked for the start of each job, and how own
    jobs ended. The configuration is loaded from its file, unless it is given.
    """
    config = loaded or configuration.load(request.config, request.settings)
    folder = RunFolder(request.folder or RUNS / config.name)
    finished = False
    programs = [model for model in config.models if model.program]
    if programs:
        if len(programs) < len(config.models):
            raise ConfigError(
                "A run trains by programs alone, or by none: name the other models in a"
                " configuration of their own."
            )
        request = replace(request, times=request.times or 1)
        calibrations = [
            measured for measured in known() if any(samples_of(measured, m) for m in programs)
        ]
        work_on = partial(programs_workload, programs, request, calibrations)
    elif request.times:
        raise ConfigError("--times is that of a training program, such as train.py.")
    else:
        prepared = prepare(config)
        entries = tuple(read(folder.journal))
        calibrations = measurements(prepared, folder, entries)
        work_on = partial(workload, prepared, folder, entries, calibrations)
        finished = is_finished(entries, prepared.key)
    gpus = [measured.device for measured in calibrations if measured.device != "cpu"]

    @cache
    def workload_on(device: str) -> Workload:
        if device not in ("cpu", *gpus):
            device = next(reversed(gpus), ASSUMED_GPU)
        return work_on(device)

    options: list[Option] = []
    jobs_on = cache(own_jobs)
    profiles = {name: configuration.cluster(name) for name in request.profiles}
    site = None
    for name, profile in (profiles or {"": config.cluster}).items():
        counts = request.counts_of(profile)
        offers = local_offers(name, profile, counts)
        if profile.kind == "slurm":
            site = site or read_partitions()
            offers = slurm_offers(name, profile, counts, site)
        for offer in offers:
            price = request.prices.get(offer.device, request.prices.get(""))
            offer = replace(offer, price=price)
            work = workload_on(offer.device)
            option = Option(len(options) + 1, offer, work, request.deadline)
            if offer.partition:
                if not offer.problem:
                    offer = rehearsed(offer, profile, option.walltime)
                option = replace(option, offer=replace(offer, success=jobs_on(offer.partition)))
            options.append(option)
    return Proposal(config.name, request, tuple(options), time.time(), finished)


def local_offers(name: str, profile: Cluster, counts: Sequence[int]) -> Iterator[Offer]:
    """Numbers of workers on this machine, or of a scheduler that runs already."""
    cpus = len(os.sched_getaffinity(0))
    free_gib = psutil.virtual_memory().available / 2**30
    for workers in counts:
        offer = Offer(name, profile.gpu_type or "cpu", 1, workers, NO_WAIT)
        if profile.kind == "local":
            free = cpus // profile.threads
            offer = replace(offer, device="cpu", free=free, host_gib=free_gib / workers)
            if workers * profile.threads > cpus:
                offer = replace(offer, problem=f"this machine offers {cpus} CPUs")
        yield offer


def slurm_offers(
    name: str,
    profile: Cluster,
    counts: Sequence[int],
    partitions: Sequence[Partition],
) -> Iterator[Offer]:
    """One offer for each partition and number of workers; one that the partition cannot give states
    its problem.
    """
    site = requested(profile, partitions) or {"": None}
    for (partition_name, partition), workers in product(site.items(), counts):
        if partition:
            yield _slurm_offer(name, profile, workers, partition)
            continue
        problem = "the profile names no partition, and the site has no default one"
        if partition_name:
            names = [partition.name for partition in partitions]
            problem = str(unknown("partition", partition_name, names))
        device = profile.gpu_type or "cpu"
        yield Offer(name, device, 1, workers, partition=partition_name or None, problem=problem)


def _slurm_offer(name: str, profile: Cluster, workers: int, partition: Partition) -> Offer:
    kinds = Counter(chain.from_iterable(node.gpus for node in partition.nodes))
    device = slurm_type = "cpu"
    if profile.gpus_per_job:
        # the profile's kind of GPU, or else the partition's most frequent one, which is empty where
        # the site names none
        slurm_type = profile.gpu_type or max(kinds, key=kinds.__getitem__, default="")
        device = slurm_type or "gpu"
    able = [node for node in partition.nodes if node.has(slurm_type)]
    # of a worker: one GPU, or the CPUs of its threads, which are those of one node
    units = 1
    if device == "cpu":
        units = profile.threads
    available = sum(node.has(slurm_type) // units for node in able)
    free = sum(node.free(slurm_type) // units for node in able)
    per_node = workers  # they share a node's CPUs freely, while a GPU belongs to one worker
    if device != "cpu":
        per_node = max((node.has(slurm_type) for node in able), default=1)
    problem = None
    if not able:
        others = ", ".join(kind or "GPUs without a type" for kind in sorted(kinds)) or "no GPUs"
        problem = f"partition {partition.name} has no {device}, but {others}"
    elif available < workers:
        problem = f"partition {partition.name} has only {available} {device}"
        if units > 1:
            problem += f" workers of {units} threads"
    elif not partition.up:
        problem = f"partition {partition.name} is not up"
    smallest_node_gib = min((node.memory for node in able), default=0) / 1024
    memory_gib = parse_bytes(profile.memory or "0") / 2**30
    return Offer(
        name,
        device,
        nodes=max(1, -(-workers // per_node)),
        workers=workers,
        free=free,
        limit=partition.longest,
        vram_gib=DEVICES[device].memory_gib if device in DEVICES else None,
        host_gib=memory_gib or smallest_node_gib / per_node or None,
        partition=partition.name,
        problem=problem,
    )


def rehearsed(offer: Offer, profile: Cluster, walltime: str) -> Offer:
    """The offer with the start that Slurm expects for it (``sbatch --test-only``), or with Slurm's
    refusal.
    """
    per_node = -(-offer.workers // offer.nodes)
    directives = [*profile.directives, f"--nodes={offer.nodes}", f"--ntasks={offer.nodes}"]
    if profile.gpus_per_job:
        gpus = ("--gres=gpu", profile.gpu_type, str(per_node))
        directives.append(":".join(filter(None, gpus)))
    if offer.device == "cpu":
        directives.append(f"--cpus-per-task={profile.threads * per_node}")
    changes = {
        "partition": offer.partition,
        "walltime": walltime,
        "directives": tuple(directives),
    }
    try:
        first_pool, *_ = pools(profile.model_copy(update=changes))
        start = commands.rehearse(script(first_pool))
    except commands.SlurmRefusal as refusal:
        return replace(offer, problem=f"Slurm refuses: {refusal}")
    if start is None:
        return offer
    asked_at = time.time()
    seconds = start.timestamp() - asked_at
    source = "sbatch --test-only"
    if seconds < SOON:
        seconds = 0.0
        source = "free now (sbatch --test-only)"
    # running jobs rarely use all of their time, and jobs of others may come before
    wait = Interval(0.0, seconds, 2 * seconds)
    return replace(offer, wait=Estimate(wait, source, True, asked_at))


def own_jobs(partition: str) -> TrackRecord | None:
    """How the user's jobs on a partition ended; None where there are no accounts."""
    query = (
        f"--user={user_name()}",
        f"--partition={partition}",
        f"--starttime=now-{DAYS}days",
        "--format=JobName%120,State%30",
    )
    try:
        text = commands.slurm("sacct", "-X", "-n", "-P", *query)
    except (commands.SlurmError, ConfigError):
        return None
    return jobs_record(text.splitlines(), partition)


def jobs_record(lines: Sequence[str], partition: str) -> TrackRecord | None:
    """The record in lines of ``sacct``, names and states.

    Jobs that are not over do not count, nor those that the user cancelled, except our own workers:
    they are cancelled when their run ends.

    >>> others = ("c|RUNNING", "d|CANCELLED by 7", "")
    >>> jobs = ("a|b|COMPLETED", "b|TIMEOUT", "daskmetrics-x|CANCELLED by 7", *others)
    >>> print(jobs_record(jobs, "gpu"))
    2 of 3 of your jobs on gpu in 30 days ended well (1 timeout): 67 % (24 % to 94 %)
    >>> jobs_record(others, "gpu")
    """
    well = 0
    lost = Counter[str]()
    for line in lines:
        name, _, state_text = line.strip().rpartition("|")
        state = state_text.partition(" ")[0].rstrip("+")
        ended_by_us = state == "CANCELLED" and name.startswith(job_name(""))
        if state == "COMPLETED" or ended_by_us:
            well += 1
        elif state in commands.ENDED and state != "CANCELLED":
            lost[state] += 1
    ended = well + lost.total()
    if not ended:
        return None
    return TrackRecord(well, ended, f"of your jobs on {partition} in {DAYS} days", lost)
