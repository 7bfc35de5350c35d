"""How busy a Slurm is: each node, and the waiting jobs of all users."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from daskmetrics.cluster.slurm.commands import slurm
from daskmetrics.cluster.slurm.partitions import (
    Partition,
    parse_gpus,
    parse_node_state,
    parse_partitions,
)

NODES = "Partition:|,NodeList:|,StateLong:|,CPUsState:|,Memory:|,Gres:|,GresUsed:|"
"""Format of ``sinfo -N -O``: one line per node and partition."""

JOBS = "%P"  # format of ``squeue -a -o``: partition


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
    pending: Counter[str]  # waiting jobs, by partition


def read_state() -> SlurmState:
    """The state of the Slurm of this machine."""
    nodes = slurm("sinfo", "-h", "-N", "-O", NODES)
    partitions = slurm("scontrol", "-o", "show", "partition")
    waiting = slurm("squeue", "-h", "-a", "--states=PENDING", "-o", JOBS)
    return parse_state(nodes, partitions, waiting)


def parse_state(nodes: str, partitions: str, waiting: str) -> SlurmState:
    """The state from the output of sinfo, scontrol, and squeue for waiting jobs."""
    pending = Counter(line.strip() for line in waiting.splitlines())
    return SlurmState(tuple(_parse_nodes(nodes)), parse_partitions(partitions), pending)


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
