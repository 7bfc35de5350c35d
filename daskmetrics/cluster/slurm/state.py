"""How busy a Slurm is: each node, and the jobs of all users."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from daskmetrics.cluster.slurm.commands import seconds_left, slurm
from daskmetrics.cluster.slurm.partitions import (
    Partition,
    parse_gpus,
    parse_node_state,
    parse_partitions,
)

NODES = "Partition:|,NodeList:|,StateLong:|,CPUsState:|,Memory:|,Gres:|,GresUsed:|"
"""Format of ``sinfo -N -O``: one line per node and partition."""

# format of ``squeue -a -o``: state, time left, partition, nodes, GRES of one node
JOBS = "%T|%L|%P|%D|%b"


@dataclass(frozen=True)
class Node:
    """A node of a partition; idle CPUs, memory in MiB, GPUs by type: all and those in use."""

    partition: str
    name: str
    state: str
    cpus: int
    memory: int
    gpus: Counter[str]
    used: Counter[str]

    def free(self, device: str) -> int:
        """How many GPUs of a type, or CPUs, can take work now."""
        if self.state not in ("idle", "mixed"):
            return 0
        if device == "cpu":
            return self.cpus
        return max(0, self.gpus[device] - self.used[device])

    def has(self, device: str) -> int:
        if device == "cpu":
            return self.cpus
        return self.gpus[device]


@dataclass(frozen=True)
class SlurmState:
    """The state of a Slurm at one moment."""

    nodes: tuple[Node, ...]
    partitions: tuple[Partition, ...]
    # of each running job its partition, seconds until its time limit, and GPUs
    running: tuple[tuple[str, float, int], ...]
    pending: Counter[str]  # waiting jobs, by partition
    at: float  # the moment, in seconds since 1970


def read_state() -> SlurmState:
    """The state of the Slurm of this machine."""
    nodes = slurm("sinfo", "-h", "-N", "-O", NODES)
    partitions = slurm("scontrol", "-o", "show", "partition")
    jobs = slurm("squeue", "-h", "-a", "-o", JOBS)
    return parse_state(nodes, partitions, jobs, at=time.time())


def parse_state(nodes: str, partitions: str, jobs: str, *, at: float) -> SlurmState:
    """The state from the output of sinfo, scontrol and squeue."""
    running: list[tuple[str, float, int]] = []
    pending: Counter[str] = Counter()
    for line in jobs.splitlines():
        if line.count("|") < 4:  # a remark of the site
            continue
        state, time_left, partition, count, gres = line.strip().split("|")[:5]
        gpus = int(count) * sum(parse_gpus(gres.removeprefix("gres:")).values())
        if state == "RUNNING":
            running.append((partition, float(seconds_left(time_left) or 0), gpus))
        if state == "PENDING":
            pending[partition] += 1
    return SlurmState(
        tuple(_parse_nodes(nodes)), parse_partitions(partitions), tuple(running), pending, at
    )


def _parse_nodes(text: str) -> Iterator[Node]:
    for line in text.splitlines():
        if line.count("|") < 6:
            continue
        fields = [field.strip() for field in line.split("|")]
        partition, name, state, cpus, memory, gres, used = fields[:7]
        yield Node(
            partition.rstrip("*"),
            name,
            parse_node_state(state),
            int(cpus.split("/")[1]),  # allocated/idle/other/total
            int(memory),
            Counter(parse_gpus(gres)),
            Counter(parse_gpus(used)),
        )
