"""The gradients that ranks exchange: in which buckets, how long they take, and what share of a step
that is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

SIZES = tuple(4**power for power in range(5, 14))  # bytes of the measured messages: 1 KiB to 64 MiB
FIRST, BUCKET = 2**20, 25 * 2**20  # bytes of DDP's first bucket, and of the others
# share of a pass that is its backward pass, during which a GPU can exchange buckets
BACKWARD = 2 / 3
SLOW = 1.25  # times as long as the other ranks


def buckets(gradient: float) -> list[float]:
    """The sizes in which DDP exchanges gradients of so many bytes.

    >>> [size / 2**20 for size in buckets(60 * 2**20)]
    [1.0, 25.0, 25.0, 9.0]
    """
    sizes = [min(gradient, float(FIRST))]
    remaining = gradient - FIRST
    while remaining > 0:
        sizes.append(min(remaining, float(BUCKET)))
        remaining -= BUCKET
    return sizes


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
        """Bytes per second that each rank's link carries, whatever the number of ranks: NCCL's bus
        bandwidth.

        >>> Link(2, {1000: 0.5}).bandwidth(1000)
        2000.0
        """
        return size / self.seconds[size] * 2 * (self.ranks - 1) / self.ranks

    def takes(self, size: float) -> float:
        """Seconds of a message of any size, between those of the measured sizes; larger ones at the
        largest's rate.

        >>> Link(2, {1000: 1.0, 4000: 2.0}).takes(8000)
        4.0
        """
        sizes = sorted(self.seconds)
        if size > sizes[-1]:
            return self.seconds[sizes[-1]] * size / sizes[-1]
        return float(np.interp(size, sizes, [self.seconds[measured] for measured in sizes]))

    def of_gradients(self, gradient: float) -> float:
        """Seconds in which gradients of so many bytes are exchanged, bucket by bucket."""
        return sum(map(self.takes, buckets(gradient)))


def exposed(link: Link, gradient: float, computing: float, overlaps: bool) -> float:
    """Seconds that the exchange adds to a step.

    On a GPU, buckets travel during the backward pass, and only what is left after it counts, at
    least the last bucket. CPU ranks exchange with the cores on which they compute, so that nothing
    is gained by exchanging at the same time.
    """
    exchange = link.of_gradients(gradient)
    if not overlaps:
        return exchange
    return max(link.takes(buckets(gradient)[-1]), exchange - BACKWARD * computing)


def scopes(nodes: Sequence[str]) -> dict[str, list[list[int]]]:
    """Groups of ranks whose links are measured, from the node of each rank; the groups of a scope
    work at once.

    >>> scopes(["a", "a", "b", "b"])
    {'within a node': [[0, 1], [2, 3]], 'across nodes': [[0, 2]], 'all ranks': [[0, 1, 2, 3]]}
    >>> scopes(["a", "b"])
    {'across nodes': [[0, 1]]}
    """
    ranks_by_node: dict[str, list[int]] = defaultdict(list)
    for rank, node in enumerate(nodes):
        ranks_by_node[node].append(rank)
    groups = {
        "within a node": [ranks for ranks in ranks_by_node.values() if len(ranks) > 1],
        "across nodes": [[ranks[0] for ranks in ranks_by_node.values()]],
        "all ranks": [list(range(len(nodes)))],
    }
    if groups["all ranks"] in (groups["within a node"], groups["across nodes"]):
        del groups["all ranks"]
    return {
        scope: lists
        for scope, lists in groups.items()
        if scope == "all ranks" or (lists and len(lists[0]) > 1)
    }


def typical(seconds: Sequence[float]) -> float:
    """The lower quartile of repeated times: what other work on a machine adds to some of them does
    not count.

    >>> typical([1.0, 1.1, 1.2, 5.0, 7.0])
    1.1
    """
    return sorted(seconds)[(len(seconds) - 1) // 4]


def slow(seconds: Sequence[float]) -> dict[int, float]:
    """Ranks whose own work takes much longer than that of the others, and by what factor.

    >>> slow([1.0, 1.1, 1.0, 1.5])
    {3: 1.5}
    """
    ratios = {}
    for rank, of_rank in enumerate(seconds):
        others = [*seconds[:rank], *seconds[rank + 1 :]]
        ratios[rank] = of_rank / median(others) if others else 1.0
    return {rank: ratio for rank, ratio in ratios.items() if ratio > SLOW}
