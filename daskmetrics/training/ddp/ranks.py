"""What is trained, which worker runs which rank, and what a rank process is given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from daskmetrics.config import DDP, Recipe
from daskmetrics.core.table import Table
from daskmetrics.core.text import plural
from daskmetrics.training import suite as suite


@dataclass(frozen=True)
class DdpTraining:
    """A suite to be trained by a process group."""

    name: str
    recipe: Recipe
    folder: Path
    ddp: DDP
    interface: str | None = None  # network interface between ranks
    workers: int | None = None  # largest number; further ranks are not waited for
    probe: str | None = None  # measure this instead of training; see `_probes`
    telemetry: Path | None = None  # file for what the workers use meanwhile

    @property
    def revisions(self) -> tuple[str, ...]:
        return suite.revisions(self.recipe)

    @property
    def is_done(self) -> bool:
        return all(suite.is_complete(self.folder, revision) for revision in self.revisions)


@dataclass(frozen=True)
class RankHost:
    """A worker that can run a rank."""

    address: str
    name: str
    node: str  # its machine
    cpus: tuple[int, ...]  # that the worker may use
    available: int  # bytes of free memory on its machine
    gpus: tuple[str, ...] = ()  # that it sees, as CUDA_VISIBLE_DEVICES names them
    models: tuple[str, ...] = ()  # of all GPUs of its machine


@dataclass(frozen=True)
class RankPlacement:
    """Where a rank runs: its worker, its number on that machine, and how many ranks the machine
    has.
    """

    host: RankHost
    rank: int
    local: int
    neighbours: int

    @property
    def gpu(self) -> int | None:
        """Index among the GPUs that the worker sees; the ranks of a machine take different ones."""
        if self.host.gpus:
            return self.local % len(self.host.gpus)
        return None

    def __str__(self) -> str:
        gpu = "none"
        if self.gpu is not None:
            gpu = self.host.gpus[self.gpu]
        return f"rank {self.rank}: node {self.host.node}, GPU {gpu}, worker {self.host.name}"


def place_ranks(hosts: Iterable[RankHost], ranks: int) -> tuple[RankPlacement, ...]:
    """At most ``ranks`` ranks, one per worker; ranks of a machine have neighbouring numbers to keep
    traffic local.

    >>> hosts = [RankHost(f"tcp://{node}:{i}", str(i), node, (0,), 0) for i, node in enumerate("abab")]
    >>> [(rank.rank, rank.host.node, rank.local, rank.neighbours) for rank in place_ranks(hosts, 3)]
    [(0, 'a', 0, 2), (1, 'a', 1, 2), (2, 'b', 0, 1)]
    """
    chosen = sorted(hosts, key=lambda host: (host.node, host.name))[:ranks]
    nodes = [host.node for host in chosen]
    return tuple(
        RankPlacement(host, rank, nodes[:rank].count(host.node), nodes.count(host.node))
        for rank, host in enumerate(chosen)
    )


def rank_table(placements: Sequence[RankPlacement]) -> Table:
    """What every rank has, and what they have together; the ranks of a machine share its free
    memory.

    >>> host = RankHost("tcp://10.0.0.1:1", "w0", "node0", (0, 1), 2**34, ("0",), ("L40S",))
    >>> print(rank_table(place_ranks([host], 1)).as_text())
    rank  node   worker  GPU     CPU cores  free memory
    ───────────────────────────────────────────────────
    0     node0  w0      0 L40S  2          16.0 GiB
    <BLANKLINE>
    1 rank on 1 node: 1 GPU, 2 CPU cores, 16.0 GiB of free memory
    """
    hosts: dict[str, RankHost] = {}
    cpus, gpus, rows = set(), set(), []
    for placement in placements:
        host = placement.host
        hosts.setdefault(host.node, host)
        cpus |= {(host.node, cpu) for cpu in host.cpus}
        gpu = "none"
        if placement.gpu is not None:
            gpus.add((host.node, host.gpus[placement.gpu]))
            gpu = " ".join([host.gpus[placement.gpu], *host.models[:1]])
        row = (
            placement.rank,
            host.node,
            host.name,
            gpu,
            len(host.cpus),
            _gibibytes(host.available),
        )
        rows.append(tuple(map(str, row)))
    memory = sum(host.available for host in hosts.values())
    notes = [
        f"{plural(len(placements), 'rank')} on {plural(len(hosts), 'node')}: "
        f"{plural(len(gpus), 'GPU')}, {plural(len(cpus), 'CPU core')}, "
        f"{_gibibytes(memory)} of free memory"
    ]
    if len({(len(host.cpus), host.models) for host in hosts.values()}) > 1:
        notes.append("The nodes are not alike: the slowest rank sets the pace of all.")
    header = ("rank", "node", "worker", "GPU", "CPU cores", "free memory")
    return Table(header, tuple(rows), notes=tuple(notes))


def _gibibytes(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


@dataclass(frozen=True)
class RankSpec:
    """Everything that one rank process needs to know."""

    training: DdpTraining
    placements: tuple[RankPlacement, ...]  # of all ranks
    rank: int
    topic: str  # Dask topic of the training; topic and attempt name the process group
    attempt: int
    # address of the TCPStore where the ranks meet; None for a single rank
    store: tuple[str, int] | None

    @property
    def placement(self) -> RankPlacement:
        return self.placements[self.rank]

    @property
    def key(self) -> str:
        """Key of the Dask task that runs the rank."""
        return f"{self.topic}-{self.attempt}-rank{self.rank}"

    @property
    def log(self) -> Path:
        """The file for what the rank's process prints."""
        return self.training.folder / "logs" / f"rank{self.rank}.log"
