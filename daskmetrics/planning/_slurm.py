"""What a Slurm has free at this moment, and how long a request would wait: from its own words, live or recorded."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from daskmetrics.cluster.slurm import _commands as commands
from daskmetrics.cluster.slurm._partitions import Partition, gpus, limit, partitions
from daskmetrics.cluster.slurm._script import script
from daskmetrics.config import Cluster
from daskmetrics.core._estimate import Estimate, Interval
from daskmetrics.core.errors import ConfigError, unknown
from daskmetrics.planning import NO_WAIT, UNKNOWN_WAIT, Offer
from daskmetrics.planning._devices import DEVICES

NODES = "Partition:|,NodeList:|,StateLong:|,CPUsState:|,Memory:|,Gres:|,GresUsed:|"
"""Fields asked of ``sinfo -N -O``: one line per node and partition."""

JOBS = "%T|%L|%P|%D|%b"
"""Fields asked of ``squeue -a -o``: state, time left, partition, nodes, GRES of one node."""

QUESTIONS = {
    "sinfo.txt": ("sinfo", "-h", "-N", "-O", NODES),
    "partitions.txt": ("scontrol", "-o", "show", "partition"),
    "squeue.txt": ("squeue", "-h", "-a", "-o", JOBS),
}
TAKING = ("idle", "mixed")


@dataclass(frozen=True)
class Node:
    """A node of a partition; GPUs by type, memory in MiB, CPUs that are idle."""

    partition: str
    name: str
    state: str
    cpus: int
    memory: int
    gpus: Counter[str]
    used: Counter[str]

    def free(self, device: str) -> int:
        """How many GPUs of a type, or CPUs, could take work now."""
        if self.state not in TAKING:
            return 0
        return self.cpus if device == "cpu" else max(0, self.gpus[device] - self.used[device])

    def has(self, device: str) -> int:
        return self.cpus if device == "cpu" else self.gpus[device]


@dataclass(frozen=True)
class SlurmState:
    """How a Slurm stands.

    Attributes
    ----------
    nodes : tuple of Node
    partitions : tuple of Partition
    running : tuple of (str, float, int)
        Of each running job its partition, seconds until its time limit, and GPUs.
    pending : Counter of str
        Jobs that wait, by partition.
    at : float
        When it stood so.
    live : bool
        Whether Slurm can be asked further.
    """

    nodes: tuple[Node, ...]
    partitions: tuple[Partition, ...]
    running: tuple[tuple[str, float, int], ...]
    pending: Counter[str]
    at: float
    live: bool


def look(keep: Path | None = None) -> SlurmState:
    """Ask the Slurm of this machine; its words are kept in a folder if one is given.

    Raises
    ------
    ConfigError
        If there is none, or it does not answer.
    """
    words = {name: commands.slurm(*question) for name, question in QUESTIONS.items()}
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        for name, text in words.items():
            (keep / name).write_text(text, encoding="utf-8")
    return standing(words["sinfo.txt"], words["partitions.txt"], words["squeue.txt"], time.time(), live=True)


def recall(folder: Path) -> SlurmState:
    """How a Slurm stood, from words that `look` kept.

    Raises
    ------
    ConfigError
        If a file is not there.
    """
    for name, question in QUESTIONS.items():
        if not (folder / name).is_file():
            raise ConfigError(f"'{folder}' lacks {name}. On the login node: {' '.join(question[:-1])} '{question[-1]}'")
    nodes, shown, jobs = ((folder / name).read_text(encoding="utf-8") for name in QUESTIONS)
    return standing(nodes, shown, jobs, at=(folder / "sinfo.txt").stat().st_mtime, live=False)


def standing(nodes: str, shown: str, jobs: str, at: float, live: bool) -> SlurmState:
    """What `sinfo`, `scontrol` and `squeue` printed, as values."""
    rows = [line.strip().split("|") for line in jobs.splitlines() if line.count("|") >= 4]
    running = tuple(
        (partition, _left(left), int(count) * _total(gres))
        for state, left, partition, count, gres in (row[:5] for row in rows)
        if state == "RUNNING"
    )
    pending = Counter(row[2] for row in rows if row[0] == "PENDING")
    return SlurmState(tuple(_nodes(nodes)), partitions(shown, ""), running, pending, at, live)


def _left(text: str) -> float:
    """Seconds of a job's time; none if it is over, or not known."""
    return (limit(text) or 0.0) if text.strip("0:-") else 0.0


def _total(gres: str) -> int:
    """GPUs of a request such as ``gres:gpu:l40s:2`` or ``gres/gpu:2``."""
    return sum(gpus(gres.removeprefix("gres:").removeprefix("gres/")).values())


def _nodes(text: str) -> Iterator[Node]:
    for line in text.splitlines():
        parts = [part.strip() for part in line.split("|")]
        if len(parts) >= 7:
            partition, name, state, cpus, memory, gres, used = parts[:7]
            idle = int(cpus.split("/")[1])  # allocated/idle/other/total
            state = re.sub(r"[^a-z_].*", "", state.lower())
            yield Node(partition.rstrip("*"), name, state, idle, int(memory), Counter(gpus(gres)), Counter(gpus(used)))


def offers(name: str, profile: Cluster, counts: Sequence[int], stood: SlurmState) -> list[Offer]:
    """What a Slurm profile comes to for each number of workers; what cannot be had says why."""
    partition = _partition(profile, stood)
    if isinstance(partition, str):
        return [
            Offer(name, profile.gpu_type or "cpu", 1, n, partition=profile.partition, problem=partition) for n in counts
        ]
    nodes = [node for node in stood.nodes if node.partition == partition.name]
    device = _device(profile, nodes)
    return [_offer(name, profile, n, partition, nodes, device, stood) for n in counts]


def _partition(profile: Cluster, stood: SlurmState) -> Partition | str:
    named = {each.name: each for each in stood.partitions}
    if profile.partition:
        return named.get(profile.partition) or str(unknown("partition", profile.partition, named))
    return next((each for each in stood.partitions if each.default), "no partition is named, and none is the default")


def _device(profile: Cluster, nodes: Sequence[Node]) -> str:
    if not profile.gpus_per_job:
        return "cpu"
    kinds = Counter(kind for node in nodes for kind in node.gpus if kind)
    return profile.gpu_type or (kinds.most_common(1)[0][0] if kinds else "gpu")


def _offer(
    name: str, profile: Cluster, n: int, partition: Partition, nodes: Sequence[Node], device: str, stood: SlurmState
) -> Offer:
    able = [node for node in nodes if node.has(device)]
    each = max((node.has(device) for node in able), default=1) if device != "cpu" else max(1, n)
    free = sum(node.free(device) for node in able)
    memory = _memory(profile, able, each)
    wait = _wait(n, free, partition.name, stood)
    return Offer(
        name,
        device,
        nodes=max(1, -(-n // each)),
        workers=n,
        wait=wait,
        free=free,
        limit=partition.longest,
        vram_gib=DEVICES[device].memory_gib if device in DEVICES else None,
        host_gib=memory,
        partition=partition.name,
        problem=_lacking(n, device, partition, nodes),
    )


def _lacking(n: int, device: str, partition: Partition, nodes: Sequence[Node]) -> str | None:
    """Why a partition cannot give so many, ever."""
    most = sum(node.has(device) for node in nodes)
    if not most:
        kinds = sorted({kind for node in nodes for kind in node.gpus}) or ["no GPUs"]
        return f"partition {partition.name} has no {device}, but {', '.join(kinds)}"
    if most < n:
        return f"partition {partition.name} has {most} {device} in all"
    return None if partition.up else f"partition {partition.name} is not up"


def _memory(profile: Cluster, able: Sequence[Node], each: int) -> float | None:
    from dask.utils import parse_bytes

    if profile.memory:
        return float(parse_bytes(profile.memory)) / 2**30
    return min((node.memory for node in able), default=0) / 1024 / max(1, each) or None


def _wait(n: int, free: int, partition: str, stood: SlurmState) -> Estimate:
    """From time limits of what runs: the latest that enough is free, if nothing that waits is served first."""
    waiting = stood.pending[partition]
    if free >= n and not waiting:
        return replace(NO_WAIT, at=stood.at)
    for _, left, count in sorted((job for job in stood.running if job[0] == partition), key=lambda job: job[1]):
        free += count
        if free >= n:
            source = "time limits of running jobs" + (f", {waiting} jobs ahead" if waiting else "")
            return Estimate(Interval(0.0, left, left * (2.0 if waiting else 1.0)), source, at=stood.at)
    return replace(UNKNOWN_WAIT, at=stood.at)


def rehearsed(offer: Offer, profile: Cluster, walltime: str, now: Callable[[], float] = time.time) -> Offer:
    """The offer with the start that Slurm itself expects for it (``sbatch --test-only``), or with its refusal."""
    per_node = -(-offer.workers // offer.nodes)
    kind = f":{profile.gpu_type}" if profile.gpu_type else ""
    whole = [f"--nodes={offer.nodes}", f"--ntasks={offer.nodes}"]
    whole += [f"--gres=gpu{kind}:{per_node}"] if profile.gpus_per_job else []
    whole += [] if offer.device != "cpu" else [f"--cpus-per-task={profile.threads * per_node}"]
    asked = profile.model_copy(update={"walltime": walltime, "directives": (*profile.directives, *whole)})
    told = commands.rehearse(script(asked))
    if told.refusal:
        return replace(offer, problem=f"Slurm refuses: {told.refusal}")
    if told.start is None:
        return offer
    wait = max(0.0, told.start.timestamp() - now())
    if wait < 30:  # its clock has full seconds, and it looks at the queue now and then
        return replace(offer, wait=Estimate(Interval.exactly(0.0), "free now (sbatch --test-only)", True, now()))
    # running jobs rarely use all of their time, and jobs of others may come before
    return replace(offer, wait=Estimate(Interval(0.0, wait, 2 * wait), "sbatch --test-only", True, now()))
