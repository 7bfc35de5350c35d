"""How busy a Slurm is: each node, and the jobs of all users; read from Slurm, or from its recorded output."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from daskmetrics.cluster.slurm._commands import seconds_left, slurm
from daskmetrics.cluster.slurm._partitions import Partition, parse_gpus, parse_node_state, parse_partitions
from daskmetrics.core.errors import ConfigError

NODES = "Partition:|,NodeList:|,StateLong:|,CPUsState:|,Memory:|,Gres:|,GresUsed:|"
"""Format of ``sinfo -N -O``: one line per node and partition."""

JOBS = "%T|%L|%P|%D|%b"  # format of ``squeue -a -o``: state, time left, partition, nodes, GRES of one node

COMMANDS = {
    "sinfo.txt": ("sinfo", "-h", "-N", "-O", NODES),
    "partitions.txt": ("scontrol", "-o", "show", "partition"),
    "squeue.txt": ("squeue", "-h", "-a", "-o", JOBS),
}
"""The commands, by the file that their output is recorded in."""


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
        return self.cpus if device == "cpu" else max(0, self.gpus[device] - self.used[device])

    def has(self, device: str) -> int:
        return self.cpus if device == "cpu" else self.gpus[device]


@dataclass(frozen=True)
class SlurmState:
    """The state of a Slurm at one moment."""

    nodes: tuple[Node, ...]
    partitions: tuple[Partition, ...]
    # of each running job its partition, seconds until its time limit, and GPUs
    running: tuple[tuple[str, float, int], ...]
    pending: Counter[str]  # waiting jobs, by partition
    at: float  # the moment, in seconds since 1970
    live: bool  # whether it was read from a running Slurm, which can answer further questions


def read_state(record_to: Path | None = None) -> SlurmState:
    """The state of the Slurm of this machine; the output of its commands is recorded in a folder if one is given."""
    printed = {name: slurm(*command) for name, command in COMMANDS.items()}
    if record_to is not None:
        record_to.mkdir(parents=True, exist_ok=True)
        for name, text in printed.items():
            (record_to / name).write_text(text, encoding="utf-8")
    return parse_state(*printed.values(), at=time.time(), live=True)


def recorded_state(folder: Path) -> SlurmState:
    """The state that `read_state` recorded in a folder."""
    for name, command in COMMANDS.items():
        if not (folder / name).is_file():
            raise ConfigError(
                f"The file {name} is missing in '{folder}'. Make it on the login node with: "
                f"{' '.join(command[:-1])} '{command[-1]}'"
            )
    texts = ((folder / name).read_text(encoding="utf-8") for name in COMMANDS)
    return parse_state(*texts, at=(folder / "sinfo.txt").stat().st_mtime, live=False)


def parse_state(nodes: str, partitions: str, jobs: str, *, at: float, live: bool) -> SlurmState:
    """The state from the output of `COMMANDS`."""
    rows = [line.strip().split("|")[:5] for line in jobs.splitlines() if line.count("|") >= 4]
    running = tuple(
        (partition, float(seconds_left(left) or 0), int(count) * sum(parse_gpus(gres.removeprefix("gres:")).values()))
        for state, left, partition, count, gres in rows
        if state == "RUNNING"
    )
    pending = Counter(partition for state, _, partition, *_ in rows if state == "PENDING")
    return SlurmState(tuple(_parse_nodes(nodes)), parse_partitions(partitions), running, pending, at, live)


def _parse_nodes(text: str) -> Iterator[Node]:
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) >= 7:
            partition, name, state, cpus, memory, gres, used = fields[:7]
            idle = int(cpus.split("/")[1])  # allocated/idle/other/total
            gpus, busy = Counter(parse_gpus(gres)), Counter(parse_gpus(used))
            yield Node(partition.rstrip("*"), name, parse_node_state(state), idle, int(memory), gpus, busy)
