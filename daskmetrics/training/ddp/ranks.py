"""A program, which worker runs which of its ranks, and what a rank is given."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from daskmetrics.core.machine import VISIBLE
from daskmetrics.core.table import Table
from daskmetrics.core.text import plural


@dataclass(frozen=True)
class Program:
    """A training program, to be started as one process for each rank."""

    name: str
    # a Python file, or -m and a module, and its arguments; or any other command
    words: tuple[str, ...]
    folder: Path  # for what the ranks print
    ranks: int
    least: int  # number of ranks with which it may go on
    timeout: float = 60.0  # seconds without a sign of life after which a rank is lost
    patience: float = 60.0  # seconds to wait for the workers of missing ranks
    restarts: int = 3  # failures in a row, without a further step, after which it starts again
    interface: str | None = None  # network interface between ranks
    workers: int | None = None  # largest number; further ranks are not waited for

    def argument(self, part: str) -> tuple[str, str] | None:
        """The argument whose name has a part, and is not of its evaluation, with its value.

        >>> words = ("train.py", "--eval-batch=8", "--batch-size", "32")
        >>> Program("mine", words, Path("mine"), 2, least=2).argument("batch")
        ('--batch-size', '32')
        """
        line = " ".join(self.words)
        found = re.search(rf"(--(?!\S*eval)\S*{part}[^\s=]*)[= ]([^\s-]\S*)", line)
        return (found[1], found[2]) if found else None

    @property
    def batch(self) -> Batch | None:
        """What its arguments say of the batch of a rank; None if they say nothing."""
        _, size = self.argument("batch(?:[-_]?size)?(?=[= ])") or ("", "")
        _, passes = self.argument("accum") or ("", "1")
        if size.isdigit() and passes.isdigit():
            return Batch(int(size), int(passes))
        return None

    @property
    def step_samples(self) -> int | None:
        """Samples of a step of a rank that a bar counts, by its arguments; None if not known.

        With gradient accumulation a bar may count passes or steps.
        """
        batch = self.batch
        return batch.size if batch and batch.passes <= 1 else None


@dataclass(frozen=True)
class Batch:
    """What a rank learns from in a step."""

    size: int  # samples of a pass
    passes: int = 1

    def text(self, ranks: int, samples: str = "samples") -> str:
        """The batch of all ranks, and of what it is the product.

        >>> Batch(8, 2).text(4)
        '64 samples = 8 per pass x 2 passes x 4 ranks'
        """
        total = self.size * self.passes * ranks
        passes = plural(self.passes, "pass", "passes")
        return f"{total:,} {samples} = {self.size} per pass x {passes} x {plural(ranks, 'rank')}"


@dataclass(frozen=True)
class RankHost:
    """A worker that can run a rank."""

    address: str
    name: str
    node: str  # its machine
    cpus: tuple[int, ...]  # that the worker may use
    available: int  # bytes of free memory on its machine
    gpus: tuple[str, ...] = ()  # that it sees, as CUDA_VISIBLE_DEVICES names them
    model: str = ""  # of the GPUs
    offers_gpu: bool = False  # as a resource of Dask; workers that only score do not
    interface: str = ""  # of the network to other ranks
    # once it has a rank
    local_rank: int = 0  # the number of the rank on its machine
    gpu: str = "none"  # that the rank takes

    @property
    def text(self) -> str:
        """Where it is."""
        return f"node {self.node}, GPU {self.gpu}, worker {self.name}"


def place_ranks(hosts: Iterable[RankHost], ranks: int) -> tuple[RankHost, ...]:
    """The workers of at most ``ranks`` ranks, in the order of these.

    Ranks of a machine have neighbouring numbers to keep traffic local, and take different GPUs.

    >>> hosts = [RankHost(f"tcp://{node}:{i}", str(i), node, (0,), 0) for i, node in enumerate("abab")]
    >>> [(host.address, host.local_rank) for host in place_ranks(hosts, 3)]
    [('tcp://a:0', 0), ('tcp://a:2', 1), ('tcp://b:1', 0)]
    """
    placed: list[RankHost] = []
    for host in sorted(hosts, key=lambda host: (host.node, host.name))[:ranks]:
        local_rank = [other.node for other in placed].count(host.node)
        gpu = host.gpu
        if host.gpus:
            gpu = host.gpus[local_rank % len(host.gpus)]
        placed.append(replace(host, local_rank=local_rank, gpu=gpu))
    return tuple(placed)


def rank_table(hosts: Sequence[RankHost]) -> Table:
    """What every rank has, and what they have together.

    The ranks of a machine share its free memory.

    >>> host = RankHost("tcp://10.0.0.1:1", "w0", "node0", (0, 1), 2**34, interface="ib0")
    >>> print(rank_table(place_ranks([host], 1)).as_text())
    rank  node   worker  GPU   CPU cores  free memory  interface
    ────────────────────────────────────────────────────────────
    0     node0  w0      none  2          16.0 GiB     ib0
    <BLANKLINE>
    1 rank on 1 node: 0 GPUs, 2 CPU cores, 16.0 GiB of free memory
    """
    memory = {}  # GiB, by node
    cpus = set()
    gpus = set()
    rows = []
    for rank, host in enumerate(hosts):
        memory[host.node] = host.available / 2**30
        cpus |= {(host.node, cpu) for cpu in host.cpus}
        if host.gpus:
            gpus.add((host.node, host.gpu))
        free = f"{memory[host.node]:.1f} GiB"
        gpu = f"{host.gpu} {host.model}"
        cores = str(len(host.cpus))
        rows.append((str(rank), host.node, host.name, gpu.rstrip(), cores, free, host.interface))
    total = (
        f"{plural(len(hosts), 'rank')} on {plural(len(memory), 'node')}: "
        f"{plural(len(gpus), 'GPU')}, {plural(len(cpus), 'CPU core')}, "
        f"{sum(memory.values()):.1f} GiB of free memory"
    )
    header = ("rank", "node", "worker", "GPU", "CPU cores", "free memory", "interface")
    return Table(header, rows, notes=(total,))


@dataclass(frozen=True)
class RankSpec:
    """Everything that a worker needs to know to start a rank."""

    program: Program
    hosts: tuple[RankHost, ...]  # of all ranks
    rank: int
    topic: str  # Dask topic of the process group
    attempt: int
    directory: str  # in which the rank works

    @property
    def host(self) -> RankHost:
        """Its own worker."""
        return self.hosts[self.rank]

    @property
    def key(self) -> str:
        """Key of the Dask task that runs the rank."""
        return f"{self.topic}-rank{self.rank}"

    @property
    def log(self) -> Path:
        """The file for what the rank's process prints."""
        return self.program.folder / "logs" / f"rank{self.rank}.log"

    def variables(self, store: tuple[str, int]) -> dict[str, str]:
        """The variables that torchrun sets for a rank.

        ``store`` is the host and the port of the TCPStore where the ranks meet.

        A worker that sees fewer GPUs than its machine has ranks is a machine of its own for its
        rank, since the program takes the GPU with the number of its ``LOCAL_RANK``.
        """
        host = self.host
        size = len(self.hosts)
        nodes = Counter(each.node for each in self.hosts)
        local = host.local_rank
        neighbours = nodes[host.node]
        group = list(nodes).index(host.node)
        groups = len(nodes)
        if 0 < len(host.gpus) < neighbours:
            local = 0
            neighbours = 1
            group = self.rank
            groups = size
        variables: dict[str, object] = {
            "RANK": self.rank,
            "WORLD_SIZE": size,
            "LOCAL_RANK": local,
            "LOCAL_WORLD_SIZE": neighbours,
            "GROUP_RANK": group,
            "GROUP_WORLD_SIZE": groups,
            "ROLE_RANK": self.rank,
            "ROLE_WORLD_SIZE": size,
            "ROLE_NAME": "default",
            "MASTER_ADDR": store[0],
            "MASTER_PORT": store[1],
            "TORCHELASTIC_RESTART_COUNT": self.attempt - 1,
            "TORCHELASTIC_MAX_RESTARTS": self.program.restarts,
            "TORCHELASTIC_RUN_ID": self.topic.rpartition("-")[0],  # that of all attempts
            # the store is open on the worker of rank 0, on a port that no other can take meanwhile
            "TORCHELASTIC_USE_AGENT_STORE": True,
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": 1,
        }
        if host.gpus and neighbours == 1:
            variables[VISIBLE] = host.gpu
        return {name: str(value) for name, value in variables.items()}
