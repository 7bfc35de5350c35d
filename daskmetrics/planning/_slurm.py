"""What a Slurm profile offers: how many workers it can give, and how long they would wait."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from dask.utils import parse_bytes

from daskmetrics.cluster.slurm import _commands as commands
from daskmetrics.cluster.slurm._partitions import Partition
from daskmetrics.cluster.slurm._script import script
from daskmetrics.cluster.slurm._state import Node, SlurmState
from daskmetrics.config import Cluster
from daskmetrics.core._estimate import Estimate, Interval
from daskmetrics.core.errors import unknown
from daskmetrics.planning._options import NO_WAIT, UNKNOWN_WAIT, Offer
from daskmetrics.planning._workload import DEVICES


def offers(name: str, profile: Cluster, counts: Sequence[int], state: SlurmState) -> list[Offer]:
    """One offer for each partition and number of workers; one that the partition cannot give states its problem."""
    if profile.partition and "," in profile.partition:
        each = (profile.model_copy(update={"partition": one}) for one in profile.partition.split(","))
        return [offer for one in each for offer in offers(name, one, counts, state)]
    requested, partitions = profile.partition, {each.name: each for each in state.partitions}
    default = next((each for each in state.partitions if each.default), None)
    partition = partitions.get(requested) if requested else default
    if partition is None:
        device, problem = profile.gpu_type or "cpu", "the profile names no partition, and the site has no default one"
        problem = str(unknown("partition", requested, partitions)) if requested else problem
        return [Offer(name, device, 1, n, partition=requested, problem=problem) for n in counts]
    nodes = [node for node in state.nodes if node.partition == partition.name]
    return [_offer(name, profile, n, partition, nodes, state) for n in counts]


def _offer(
    name: str, profile: Cluster, n: int, partition: Partition, nodes: Sequence[Node], state: SlurmState
) -> Offer:
    device = "cpu"
    if profile.gpus_per_job:
        kinds = Counter(kind for node in nodes for kind in node.gpus if kind)
        device = profile.gpu_type or next((kind for kind, _ in kinds.most_common(1)), "gpu")
    able = [node for node in nodes if node.has(device)]
    per_node = max((node.has(device) for node in able), default=1) if device != "cpu" else max(1, n)
    free = sum(node.free(device) for node in able)
    share = min((node.memory for node in able), default=0) / 1024 / max(1, per_node) or None
    return Offer(
        name,
        device,
        nodes=max(1, -(-n // per_node)),
        workers=n,
        wait=_wait(n, free, partition.name, state),
        free=free,
        limit=partition.longest,
        vram_gib=DEVICES[device].memory_gib if device in DEVICES else None,
        host_gib=float(parse_bytes(profile.memory)) / 2**30 if profile.memory else share,
        partition=partition.name,
        problem=_problem(n, device, partition, nodes),
    )


def _problem(n: int, device: str, partition: Partition, nodes: Sequence[Node]) -> str | None:
    """Why a partition can never give so many workers."""
    most = sum(node.has(device) for node in nodes)
    if not most:
        kinds = sorted({kind for node in nodes for kind in node.gpus}) or ["no GPUs"]
        return f"partition {partition.name} has no {device}, but {', '.join(kinds)}"
    if most < n:
        return f"partition {partition.name} has only {most} {device}"
    return None if partition.up else f"partition {partition.name} is not up"


def _wait(n: int, free: int, partition: str, state: SlurmState) -> Estimate:
    """The wait by the time limits of running jobs: the latest moment at which enough is free, if no job is ahead."""
    waiting = state.pending[partition]
    if free >= n and not waiting:
        return replace(NO_WAIT, at=state.at)
    for _, left, count in sorted((job for job in state.running if job[0] == partition), key=lambda job: job[1]):
        free += count
        if free >= n:
            source = "time limits of running jobs" + (f", {waiting} jobs ahead" if waiting else "")
            return Estimate(Interval(0.0, left, left * (2.0 if waiting else 1.0)), source, at=state.at)
    return replace(UNKNOWN_WAIT, at=state.at)


def rehearsed(offer: Offer, profile: Cluster, walltime: str) -> Offer:
    """The offer with the start that Slurm expects for it (``sbatch --test-only``), or with Slurm's refusal."""
    per_node = -(-offer.workers // offer.nodes)
    kind = f":{profile.gpu_type}" if profile.gpu_type else ""
    whole = [f"--nodes={offer.nodes}", f"--ntasks={offer.nodes}"]
    whole += [f"--gres=gpu{kind}:{per_node}"] if profile.gpus_per_job else []
    whole += [] if offer.device != "cpu" else [f"--cpus-per-task={profile.threads * per_node}"]
    changes = {"partition": offer.partition, "walltime": walltime, "directives": (*profile.directives, *whole)}
    rehearsal = commands.rehearse(script(profile.model_copy(update=changes)))
    if rehearsal.refusal:
        return replace(offer, problem=f"Slurm refuses: {rehearsal.refusal}")
    if rehearsal.start is None:
        return offer
    now = time.time()
    wait = max(0.0, rehearsal.start.timestamp() - now)
    if wait < 30:  # Slurm's clock counts whole seconds, and it schedules periodically
        return replace(offer, wait=Estimate(Interval.exactly(0.0), "free now (sbatch --test-only)", True, now))
    # running jobs rarely use all of their time, and jobs of others may come before
    return replace(offer, wait=Estimate(Interval(0.0, wait, 2 * wait), "sbatch --test-only", True, now))
