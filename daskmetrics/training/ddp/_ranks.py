"""What is trained, which worker runs which rank, and what a rank process is given."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from daskmetrics.config import DDP, Recipe
from daskmetrics.training import _suite as suite


@dataclass(frozen=True)
class DdpTraining:
    """A suite to be trained by a process group."""

    name: str
    recipe: Recipe
    folder: Path
    ddp: DDP
    workers: int | None = None  # largest number; further ranks are not waited for

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
    cores: int  # that the worker may use
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

    >>> hosts = [RankHost(f"tcp://{node}:{i}", str(i), node, 1, 0) for i, node in enumerate("abab")]
    >>> [(place.rank, place.host.node, place.local, place.neighbours) for place in place_ranks(hosts, 3)]
    [(0, 'a', 0, 2), (1, 'a', 1, 2), (2, 'b', 0, 1)]
    """
    chosen = sorted(hosts, key=lambda host: (host.node, host.name))[:ranks]
    nodes = [host.node for host in chosen]
    return tuple(
        RankPlacement(host, rank, nodes[:rank].count(host.node), nodes.count(host.node))
        for rank, host in enumerate(chosen)
    )


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

        >>> spec = RankSpec("train-a", 1, 0, 0, 1, None, ("a",), ("127.0.0.1", 29500), "suites/a", ("step0",), {}, {})
        >>> RankSpec.from_json(spec.to_json()) == spec
        True
        """
        plain = json.loads(text)
        tuples = {name: tuple(plain[name]) for name in ("names", "revisions")}
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
            recipe=training.recipe.model_dump(mode="json"),
            ddp=training.ddp.model_dump(mode="json"),
        )
        for place in placements
    ]
