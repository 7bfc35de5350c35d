"""What this machine and Slurm offer; nothing is submitted."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain, product
from operator import attrgetter

import numpy as np
import psutil
from dask.utils import parse_bytes

from daskmetrics.cluster.slurm import commands
from daskmetrics.cluster.slurm.partitions import Partition, WaitingJob, requested
from daskmetrics.cluster.slurm.script import job_name, pools, script
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ConfigError, unknown
from daskmetrics.core.machine import user_name
from daskmetrics.core.text import duration, parse_walltime
from daskmetrics.planning.options import NO_WAIT, UNKNOWN_WAIT, Offer, TrackRecord
from daskmetrics.planning.work import DEVICES, Estimate, exactly

DAYS = 30  # of Slurm's accounts that count
TEST = "sbatch --test-only"
SOON = 30  # seconds: Slurm's clock counts whole seconds, and it schedules periodically
# the next wait lies between the least and the most of so many with a chance of 80 %
ENOUGH = 9


def local_offers(name: str, profile: Cluster, counts: Sequence[int]) -> Iterator[Offer]:
    """Workers on this machine, or of a scheduler that runs."""
    cpus = len(os.sched_getaffinity(0))
    free_gib = psutil.virtual_memory().available / 2**30
    wait = NO_WAIT
    if profile.kind == "factory":  # perhaps of another scheduler of jobs
        wait = UNKNOWN_WAIT
    for workers in counts:
        offer = Offer(name, profile.gpu_type or "cpu", 1, workers, wait)
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
    """One offer for each partition and number of workers.

    One that the partition cannot give states its problem.
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
    kinds = Counter(chain.from_iterable(node.gpus for node in partition.usable_nodes))
    device = slurm_type = "cpu"
    if profile.gpus_per_job:
        # the profile's kind of GPU, or else the partition's most frequent one, which is empty where
        # the site names none
        slurm_type = profile.gpu_type or max(kinds, key=kinds.__getitem__, default="")
        device = slurm_type or "gpu"
    able = [node for node in partition.usable_nodes if node.has(slurm_type)]
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
        problem = f"partition {partition.name} has no usable {device}, but {others}"
    elif available < workers:
        problem = f"partition {partition.name} has only {available} usable {device}"
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


def rehearsed(offer: Offer, profile: Cluster, walltime: str, now: float) -> Offer:
    """The offer with its wait from now on, as Slurm expects it, or its refusal."""
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
    wait = UNKNOWN_WAIT
    if start and start.timestamp() - time.time() < SOON:
        wait = Estimate(exactly(0.0), f"free now ({TEST})")
    elif start:
        wait = wait_of(start.timestamp() - now, offer.success)
    elif offer.free and offer.free >= offer.workers:
        wait = NO_WAIT
    return replace(offer, wait=wait)


def place_of(
    offer: Offer, profile: Cluster, walltime: str, waiting: Iterable[WaitingJob]
) -> WaitingJob | None:
    """The first of the jobs that wait for at least as much as an offer, and for as long."""
    device = offer.device
    count = -(-offer.workers // offer.nodes)
    if device == "cpu":
        count *= profile.threads
    elif device == "gpu":  # of no type
        device = ""
    seconds = parse_walltime(walltime)
    as_large = [
        job
        for job in waiting
        if job.nodes >= offer.nodes
        and job.devices.get(device, 0) >= count
        and job.seconds >= seconds
    ]
    return min(as_large, key=attrgetter("start"), default=None)


def wait_of(seconds: float, past: TrackRecord | None) -> Estimate:
    """A wait by Slurm's own estimate, with the bounds of past waits.

    Running jobs rarely use all of their time, and jobs of others may come before.

    >>> wait_of(600.0, TrackRecord(9, 9, "of your jobs", waited=(60.0, 300.0))).seconds
    array([ 60., 600., 600.])
    """
    least, most = past.waited if past else (0.0, math.inf)
    error = f"your past jobs waited {duration(least)} to {duration(most)}"
    if math.isinf(most):
        error = f"its error is not known: fewer than {ENOUGH} past waits"
    bounds = np.array([min(least, seconds), seconds, max(most, seconds)])
    return Estimate(bounds, f"{TEST}; {error}")


def own_jobs(partition: str) -> TrackRecord | None:
    """How the user's jobs on a partition waited and ended; None without accounts."""
    query = (
        f"--user={user_name()}",
        f"--partition={partition}",
        f"--starttime=now-{DAYS}days",
        "--format=JobName%120,State%30,Eligible,Start,ElapsedRaw",
    )
    try:
        text = commands.slurm("sacct", "-X", "-n", "-P", *query)
    except (commands.SlurmError, ConfigError):
        return None
    return jobs_record(text.splitlines(), partition)


def jobs_record(lines: Sequence[str], partition: str) -> TrackRecord | None:
    """The record in lines of ``sacct``: names, states and times.

    Jobs that are not over do not count, nor those that the user cancelled, except our own workers:
    they are cancelled when their run is stopped. Jobs of one hour waited in the same queue, and
    count as the last of them.

    >>> begun = "2030-01-01T14:00:00|2030-01-01T14:05:00|60"
    >>> others = (f"c|RUNNING|{begun}", f"d|CANCELLED by 7|{begun}", "a remark")
    >>> names = ("a|b|COMPLETED", "b|TIMEOUT", "daskmetrics-x|CANCELLED by 7")
    >>> print(jobs_record([*(f"{name}|{begun}" for name in names), *others], "gpu"))
    2 of 3 of your jobs on gpu in 30 days ended well (1 timeout): 67 % (24 % to 94 %)
    >>> jobs_record(others, "gpu")
    """
    well = 0
    lost = Counter[str]()
    waits: dict[datetime, float] = {}
    for line in lines:
        if line.count("|") < 4:
            continue
        name, state_text, *times, elapsed = line.strip().rsplit("|", 4)
        eligible, start = map(commands.time_of, times)
        # a job that was cancelled in the queue has a start, too
        if eligible and start and elapsed != "0":
            hour = eligible.replace(minute=0, second=0)
            waits[hour] = (start - eligible).total_seconds()
        state = state_text.partition(" ")[0].rstrip("+")
        ended_by_us = state == "CANCELLED" and name.startswith(job_name(""))
        if state == "COMPLETED" or ended_by_us:
            well += 1
        elif state in commands.ENDED and state != "CANCELLED":
            lost[state] += 1
    ended = well + lost.total()
    if not ended:
        return None
    record = TrackRecord(well, ended, f"of your jobs on {partition} in {DAYS} days", lost)
    long = sorted(wait for wait in waits.values() if wait > SOON)
    if len(long) >= ENOUGH:
        record = replace(record, waited=(long[0], long[-1]))
    return record
