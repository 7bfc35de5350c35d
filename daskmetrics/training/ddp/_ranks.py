"""What a rank is told to do, and which worker gets which rank."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from daskmetrics.config import DDP, Recipe


@dataclass(frozen=True)
class Host:
    """A worker as it told of itself.

    Attributes
    ----------
    address, name : str
        Of the worker.
    node : str
        Its machine.
    cores : int
        That it may use.
    available : int
        Bytes of memory that are free on its machine.
    gpus : tuple of str
        As ``CUDA_VISIBLE_DEVICES`` names those that it sees.
    models : tuple of str
        Of all GPUs of its machine.
    """

    address: str
    name: str
    node: str
    cores: int
    available: int
    gpus: tuple[str, ...] = ()
    models: tuple[str, ...] = ()


@dataclass(frozen=True)
class Place:
    """A rank's place: its worker, its GPU, and how many ranks its machine has."""

    host: Host
    rank: int
    local: int
    neighbours: int

    @property
    def gpu(self) -> int | None:
        """Index among the GPUs that the worker sees; of several, every rank of a machine takes another."""
        return self.local % len(self.host.gpus) if self.host.gpus else None

    def __str__(self) -> str:
        gpu = "none" if self.gpu is None else self.host.gpus[self.gpu]
        return f"rank {self.rank}: node {self.host.node}, GPU {gpu}, worker {self.host.name}"


def places(hosts: Iterable[Host], ranks: int) -> tuple[Place, ...]:
    """At most so many ranks, one per worker; those of a machine are neighbours, so that most traffic stays on it.

    Examples
    --------
    >>> hosts = [Host(f"tcp://{node}:{i}", str(i), node, 1, 0) for i, node in enumerate("abab")]
    >>> [(place.rank, place.host.node, place.local, place.neighbours) for place in places(hosts, 3)]
    [(0, 'a', 0, 2), (1, 'a', 1, 2), (2, 'b', 0, 1)]
    """
    chosen = sorted(hosts, key=lambda host: (host.node, host.name))[:ranks]
    nodes = [host.node for host in chosen]
    return tuple(
        Place(host, rank, nodes[:rank].count(host.node), nodes.count(host.node)) for rank, host in enumerate(chosen)
    )


@dataclass(frozen=True)
class Order:
    """Everything that one rank process needs to know.

    Attributes
    ----------
    topic : str
        Names the training to Dask; with the attempt, the gang.
    attempt : int
    rank, local, neighbours : int
        As in `Place`.
    gpu : int or None
    names : tuple of str
        Of all ranks, for messages.
    store : tuple of str and int, or None
        Where the ranks find each other; a rank alone needs nobody.
    folder : str
        The suite's.
    revisions : tuple of str
        Wanted.
    recipe, gang : mapping
        The sections of the configuration, as plain values.
    interface : str or None
    """

    topic: str
    attempt: int
    rank: int
    local: int
    neighbours: int
    gpu: int | None
    names: tuple[str, ...]
    store: tuple[str, int] | None
    folder: str
    revisions: tuple[str, ...]
    recipe: Mapping[str, object] = field(repr=False)
    gang: Mapping[str, object] = field(repr=False)
    interface: str | None = None

    @property
    def model(self) -> str:
        """The suite's name."""
        return self.topic.removeprefix("train-").rpartition("-")[0]

    @property
    def key(self) -> str:
        """Of the Dask task that hosts the rank."""
        return f"{self.topic}-{self.attempt}-rank{self.rank}"

    @property
    def log(self) -> Path:
        """What the rank's process prints."""
        return Path(self.folder) / "logs" / f"rank{self.rank}.log"

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Order:
        """The inverse of `to_json`.

        Examples
        --------
        >>> order = Order("train-a", 1, 0, 0, 1, None, ("a",), ("127.0.0.1", 29500), "suites/a", ("step0",), {}, {})
        >>> Order.from_json(order.to_json()) == order
        True
        """
        plain = json.loads(text)
        tuples = {name: tuple(plain[name]) for name in ("names", "revisions")}
        store = plain["store"] and (plain["store"][0], int(plain["store"][1]))
        return cls(**{**plain, **tuples, "store": store})


def orders(
    where: Sequence[Place],
    topic: str,
    attempt: int,
    store: tuple[str, int] | None,
    folder: Path,
    revisions: Sequence[str],
    recipe: Recipe,
    gang: DDP,
) -> list[Order]:
    """The orders of a gang, one per rank."""
    return [
        Order(
            topic=topic,
            attempt=attempt,
            rank=place.rank,
            local=place.local,
            neighbours=place.neighbours,
            gpu=place.gpu,
            names=tuple(map(str, where)),
            store=store,
            folder=str(folder),
            revisions=tuple(revisions),
            recipe=recipe.model_dump(mode="json"),
            gang=gang.model_dump(mode="json"),
            interface=gang.interface,
        )
        for place in where
    ]
