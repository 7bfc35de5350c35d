"""What is trained, which worker runs which rank, and what a rank process is given."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from daskmetrics.config import DDP, Recipe
from daskmetrics.core._table import Table
from daskmetrics.core._text import plural
from daskmetrics.training import _suite as suite


@dataclass(frozen=True)
class DdpTraining:
    """A suite to be trained by a process group."""

    name: str
    recipe: Recipe
    folder: Path
    ddp: DDP
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
    """Where a rank runs: its worker, its number on that machine, and how many ranks the machine has."""

    host: RankHost
    rank: int
    local: int
    neighbours: int

    @property
    def gpu(self) -> int | None:
        """Index among the GPUs that the worker sees; the ranks of a machine take different ones."""
        return self.local % len(self.host.gpus) if self.host.gpus else None

    def __str__(self) -> str:
        gpu = "none" if self.gpu is None else self.host.gpus[self.gpu]
        return f"rank {self.rank}: node {self.host.node}, GPU {gpu}, worker {self.host.name}"


def place_ranks(hosts: Iterable[RankHost], ranks: int) -> tuple[RankPlacement, ...]:
    """At most ``ranks`` ranks, one per worker; ranks of a machine have neighbouring numbers to keep traffic local.

    >>> hosts = [RankHost(f"tcp://{node}:{i}", str(i), node, (0,), 0) for i, node in enumerate("abab")]
    >>> [(place.rank, place.host.node, place.local, place.neighbours) for place in place_ranks(hosts, 3)]
    [(0, 'a', 0, 2), (1, 'a', 1, 2), (2, 'b', 0, 1)]
    """
    chosen = sorted(hosts, key=lambda host: (host.node, host.name))[:ranks]
    nodes = [host.node for host in chosen]
    return tuple(
        RankPlacement(host, rank, nodes[:rank].count(host.node), nodes.count(host.node))
        for rank, host in enumerate(chosen)
    )


def rank_table(placements: Sequence[RankPlacement]) -> Table:
    """What every rank has, and what they have together; the ranks of a machine share its free memory.

    >>> host = RankHost("tcp://10.0.0.1:1", "w0", "node0", (0, 1), 2**34, ("0",), ("L40S",))
    >>> print(rank_table(place_ranks([host], 1)).as_text())
    rank  node   worker  GPU     CPU cores  free memory
    ───────────────────────────────────────────────────
    0     node0  w0      0 L40S  2          16.0 GiB
    <BLANKLINE>
    1 rank on 1 node: 1 GPU, 2 CPU cores, 16.0 GiB of free memory
    """
    hosts = {place.host.node: place.host for place in reversed(placements)}  # the first of each node
    cpus = {(place.host.node, cpu) for place in placements for cpu in place.host.cpus}
    gpus = {(place.host.node, place.host.gpus[place.gpu]) for place in placements if place.gpu is not None}
    rows = tuple(
        (
            str(place.rank),
            place.host.node,
            place.host.name,
            "none"
            if place.gpu is None
            else f"{place.host.gpus[place.gpu]} {next(iter(place.host.models), '')}".strip(),
            str(len(place.host.cpus)),
            f"{place.host.available / 2**30:.1f} GiB",
        )
        for place in placements
    )
    total = (
        f"{plural(len(placements), 'rank')} on {plural(len(hosts), 'node')}: {plural(len(gpus), 'GPU')}, "
        f"{plural(len(cpus), 'CPU core')}, {sum(h.available for h in hosts.values()) / 2**30:.1f} GiB of free memory"
    )
    kinds = {(len(host.cpus), host.models) for host in hosts.values()}
    unlike = ("The nodes are not alike: the slowest rank sets the pace of all.",) if len(kinds) > 1 else ()
    return Table(("rank", "node", "worker", "GPU", "CPU cores", "free memory"), rows, notes=(total, *unlike))


@dataclass(frozen=True)
class RankSpec:
    """Everything that one rank process needs to know; recipe and ddp are sections of the configuration."""

    topic: str  # Dask topic of the training; topic and attempt name the process group
    attempt: int
    rank: int
    local: int
    neighbours: int
    gpu: int | None
    names: tuple[str, ...]  # placements of all ranks, for messages
    store: tuple[str, int] | None  # address of the TCPStore where the ranks meet; None for a single rank
    folder: str
    revisions: tuple[str, ...]
    nodes: tuple[str, ...]  # of all ranks
    probe: str | None  # what to measure instead of training
    recipe: Mapping[str, object] = field(repr=False)
    ddp: Mapping[str, object] = field(repr=False)

    @property
    def model(self) -> str:
        """The suite's name."""
        return self.topic.removeprefix("train-").rpartition("-")[0]

    @property
    def key(self) -> str:
        """Key of the Dask task that runs the rank."""
        return f"{self.topic}-{self.attempt}-rank{self.rank}"

    @property
    def log(self) -> Path:
        """The file for what the rank's process prints."""
        return Path(self.folder) / "logs" / f"rank{self.rank}.log"

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> RankSpec:
        """The inverse of `to_json`.

        >>> store, names = ("127.0.0.1", 29500), ("a",)
        >>> spec = RankSpec("train-a", 1, 0, 0, 1, None, names, store, "suites/a", ("step0",), names, None, {}, {})
        >>> RankSpec.from_json(spec.to_json()) == spec
        True
        """
        plain = json.loads(text)
        tuples = {name: tuple(plain[name]) for name in ("names", "revisions", "nodes")}
        store = plain["store"] and (plain["store"][0], int(plain["store"][1]))
        return cls(**{**plain, **tuples, "store": store})


def rank_specs(
    training: DdpTraining, placements: Sequence[RankPlacement], topic: str, attempt: int, store: tuple[str, int] | None
) -> list[RankSpec]:
    """The specifications of a process group, one per rank."""
    return [
        RankSpec(
            topic=topic,
            attempt=attempt,
            rank=place.rank,
            local=place.local,
            neighbours=place.neighbours,
            gpu=place.gpu,
            names=tuple(map(str, placements)),
            store=store,
            folder=str(training.folder),
            revisions=training.revisions,
            nodes=tuple(each.host.node for each in placements),
            probe=training.probe,
            recipe=training.recipe.model_dump(mode="json"),
            ddp=training.ddp.model_dump(mode="json"),
        )
        for place in placements
    ]
