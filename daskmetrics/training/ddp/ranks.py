"""What is started, which worker runs which rank, what a rank process is given, how ranks end, and
which one failed first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

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
    memory: float = 0.0  # bytes that a rank without a GPU is known to need
    telemetry: Path | None = None  # file for what the workers use meanwhile


@dataclass(frozen=True)
class Progress:
    """How far a program is: its step, and what it reports with it."""

    step: int
    total: int | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)  # such as ``loss``
    rates: Mapping[str, float] = field(default_factory=dict)  # per second: step, samples, tokens
    is_of_epoch: bool = False  # whether steps and total count those of an epoch

    @property
    def text(self) -> str:
        """The numbers in a few words.

        >>> Progress(8, numbers={"loss": 4.2}, rates={"step": 1.5, "samples": 100.0}).text
        'loss 4.200  1.5 it/s  100 samples/s'
        """
        words = []
        if "loss" in self.numbers:
            words.append(f"loss {self.numbers['loss']:.3f}")
        if "step" in self.rates:
            words.append(f"{self.rates['step']:.3g} it/s")
        shown = [name for name in ("samples", "tokens") if name in self.rates]
        words += [f"{self.rates[name]:,.0f} {name}/s" for name in shown]
        return "  ".join(words)


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
    offers_gpu: bool = False  # as a resource of Dask; workers that only score do not


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
    def gpu(self) -> str | None:
        """That of those which the worker sees; the ranks of a machine take different ones."""
        if self.host.gpus:
            return self.host.gpus[self.local % len(self.host.gpus)]
        return None

    def __str__(self) -> str:
        host = self.host
        return f"rank {self.rank}: node {host.node}, GPU {self.gpu or 'none'}, worker {host.name}"


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
    hosts = {placement.host.node: placement.host for placement in placements}
    cpus = set()
    gpus = set()
    rows = []
    for placement in placements:
        host = placement.host
        cpus |= {(host.node, cpu) for cpu in host.cpus}
        gpu = "none"
        if placement.gpu is not None:
            gpus.add((host.node, placement.gpu))
            gpu = " ".join([placement.gpu, *host.models[:1]])
        free = f"{host.available / 2**30:.1f} GiB"
        rows.append((str(placement.rank), host.node, host.name, gpu, str(len(host.cpus)), free))
    memory = sum(host.available for host in hosts.values()) / 2**30
    notes = [
        f"{plural(len(placements), 'rank')} on {plural(len(hosts), 'node')}: "
        f"{plural(len(gpus), 'GPU')}, {plural(len(cpus), 'CPU core')}, "
        f"{memory:.1f} GiB of free memory"
    ]
    kinds = {(len(host.cpus), host.models) for host in hosts.values()}
    if len(kinds) > 1:
        notes.append("The nodes are not alike: the slowest rank sets the pace of all.")
    header = ("rank", "node", "worker", "GPU", "CPU cores", "free memory")
    return Table(header, tuple(rows), notes=tuple(notes))


@dataclass(frozen=True)
class RankSpec:
    """Everything that a worker needs to know to start a rank."""

    program: Program
    placements: tuple[RankPlacement, ...]  # of all ranks
    rank: int
    topic: str  # Dask topic of the program; topic and attempt name the process group
    attempt: int
    directory: str  # in which the rank works

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
        return self.program.folder / "logs" / f"rank{self.rank}.log"

    def variables(self, store: tuple[str, int]) -> dict[str, str]:
        """The variables that torchrun sets for a rank, with the host and port of the TCPStore where
        the ranks meet.

        A worker that sees fewer GPUs than its machine has ranks is a machine of its own for its
        rank, since the program takes the GPU with the number of its ``LOCAL_RANK``.
        """
        size = len(self.placements)
        local = self.placement.local
        neighbours = self.placement.neighbours
        nodes = list(dict.fromkeys(rank.host.node for rank in self.placements))
        group = nodes.index(self.placement.host.node)
        groups = len(nodes)
        if self.placement.gpu is not None and len(self.placement.host.gpus) < neighbours:
            local = 0
            neighbours = 1
            group = self.rank
            groups = size
        numbers = {
            "RANK": self.rank,
            "WORLD_SIZE": size,
            "LOCAL_RANK": local,
            "LOCAL_WORLD_SIZE": neighbours,
            "GROUP_RANK": group,
            "GROUP_WORLD_SIZE": groups,
            "ROLE_RANK": self.rank,
            "ROLE_WORLD_SIZE": size,
            "MASTER_PORT": store[1],
            "TORCHELASTIC_RESTART_COUNT": self.attempt - 1,
            "TORCHELASTIC_MAX_RESTARTS": self.program.restarts,
        }
        return {
            **{name: str(number) for name, number in numbers.items()},
            "ROLE_NAME": "default",
            "MASTER_ADDR": store[0],
            "TORCHELASTIC_RUN_ID": self.topic,
            # the store is open on the worker of rank 0, on a port that no other can take meanwhile
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        }


class Cause(IntEnum):
    """Why a rank ended, in the order in which the ranks of a group are taken for the first one to
    fail: the error itself appears on other ranks, which lose a partner or time out waiting for it.
    """

    LOST = 1  # with its worker
    KILLED = 2  # or it ended with an exit code, and reported nothing
    STOPPED = 3  # its process was
    ERROR = 4  # of its own
    MISSING = 5  # it did not start, or its worker did not say how it ended
    PARTNER = 6  # an error that follows when another rank has failed
    ENDED = 7  # by its worker, once its task was cancelled
    DONE = 8


@dataclass(frozen=True)
class RankEnding:
    """How a rank ended: what its worker judged, or the driver in place of a lost worker."""

    rank: int
    cause: int  # one of `Cause`
    reason: str = ""
    since: float = 0.0  # time of the failure, by the clock of its machine
    permanent: bool = False  # the same error would occur again
    lines: Sequence[str] = ()  # that it printed last
    measured: Mapping[str, Any] = field(default_factory=dict)


def first_failure(endings: Iterable[RankEnding]) -> RankEnding | None:
    """The rank that made a process group fail; None if no rank has failed.

    >>> stopped = RankEnding(1, Cause.STOPPED, since=9.0)
    >>> first_failure([RankEnding(0, Cause.PARTNER, "timed out", since=60.0), stopped]).rank
    1
    """
    failed = [ending for ending in endings if ending.cause != Cause.DONE]
    return min(failed, key=lambda ending: (ending.cause, ending.since), default=None)
