"""The gradients that ranks exchange: in which buckets, how long they take, and what share of a step that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

SIZES = tuple(4**power for power in range(5, 14))  # bytes of the measured messages: 1 KiB to 64 MiB
FIRST, BUCKET = 2**20, 25 * 2**20  # bytes of DDP's first bucket, and of the others
BACKWARD = 2 / 3  # share of a pass that is its backward pass, during which a GPU can exchange buckets
SLOW = 1.25  # times as long as the other ranks


def buckets(gradient: float) -> list[float]:
    """The sizes in which DDP exchanges gradients of so many bytes.

    >>> [size / 2**20 for size in buckets(60 * 2**20)]
    [1.0, 25.0, 25.0, 9.0]
    """
    rest = max(0.0, gradient - FIRST)
    full, last = divmod(rest, BUCKET)
    return [min(gradient, float(FIRST)), *[float(BUCKET)] * int(full), *([last] if last else [])]


@dataclass(frozen=True)
class Link:
    """Measured seconds of an all-reduce among some ranks, by the bytes of the message."""

    ranks: int
    seconds: Mapping[int, float]

    @property
    def latency(self) -> float:
        """Seconds of the smallest message."""
        return self.seconds[min(self.seconds)]

    def bandwidth(self, size: int) -> float:
        """Bytes per second that each rank's link carries, whatever the number of ranks: NCCL's bus bandwidth.

        >>> Link(2, {1000: 0.5}).bandwidth(1000)
        2000.0
        """
        return size / self.seconds[size] * 2 * (self.ranks - 1) / self.ranks

    def takes(self, size: float) -> float:
        """Seconds of a message of any size, between those of the measured sizes; larger ones at the largest's rate.

        >>> Link(2, {1000: 1.0, 4000: 2.0}).takes(8000)
        4.0
        """
        sizes = sorted(self.seconds)
        if size > sizes[-1]:
            return self.seconds[sizes[-1]] * size / sizes[-1]
        return float(np.interp(size, sizes, [self.seconds[each] for each in sizes]))

    def of_gradients(self, gradient: float) -> float:
        """Seconds in which gradients of so many bytes are exchanged, bucket by bucket."""
        return sum(map(self.takes, buckets(gradient)))


def exposed(link: Link, gradient: float, computing: float, overlaps: bool) -> float:
    """Seconds that the exchange adds to a step.

    On a GPU, buckets travel during the backward pass, and only what is left after it counts, at least the last bucket.
    CPU ranks exchange with the cores on which they compute, so that nothing is gained by exchanging at the same time.
    """
    exchange = link.of_gradients(gradient)
    return max(link.takes(buckets(gradient)[-1]), exchange - BACKWARD * computing) if overlaps else exchange


def scopes(nodes: Sequence[str]) -> dict[str, list[list[int]]]:
    """Groups of ranks whose links are measured, from the node of each rank; the groups of a scope work at once.

    >>> scopes(["a", "a", "b", "b"])
    {'within a node': [[0, 1], [2, 3]], 'across nodes': [[0, 2]], 'all ranks': [[0, 1, 2, 3]]}
    >>> scopes(["a", "b"])
    {'across nodes': [[0, 1]]}
    """
    own = [[rank for rank, node in enumerate(nodes) if node == name] for name in dict.fromkeys(nodes)]
    found = {"within a node": [ranks for ranks in own if len(ranks) > 1], "across nodes": [[r[0] for r in own]]}
    found = {name: groups for name, groups in found.items() if groups and len(groups[0]) > 1}
    everyone = list(range(len(nodes)))
    return found if [everyone] in found.values() else {**found, "all ranks": [everyone]}


def typical(seconds: Sequence[float]) -> float:
    """The lower quartile of repeated times: what other work on a machine adds to some of them does not count.

    >>> typical([1.0, 1.1, 1.2, 5.0, 7.0])
    1.1
    """
    return sorted(seconds)[(len(seconds) - 1) // 4]


def slow(seconds: Sequence[float]) -> dict[int, float]:
    """Ranks whose own work takes much longer than that of the others, and by what factor.

    >>> slow([1.0, 1.1, 1.0, 1.5])
    {3: 1.5}
    """
    others = [median([*seconds[:i], *seconds[i + 1 :]]) if len(seconds) > 1 else own for i, own in enumerate(seconds)]
    ratios = {rank: own / other for rank, (own, other) in enumerate(zip(seconds, others, strict=True))}
    return {rank: ratio for rank, ratio in ratios.items() if ratio > SLOW}
