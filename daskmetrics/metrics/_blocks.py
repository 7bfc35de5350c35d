"""Pairs of prompts, a block at a time: P² numbers of a large corpus do not fit into memory.

What is kept of a block goes into memory that was there before it: small results between large temporaries would leave
holes in the heap that nothing fits into, gigabytes of them.
"""

from __future__ import annotations

from collections.abc import Iterator

NUMBERS = 2**20  # of a block: 8 MiB in float64, of which a few are held at a time


def blocks(rows: int, columns: int) -> Iterator[slice]:
    """Slices of the rows that together are all rows, each with at most `NUMBERS` entries, but at least one row.

    Examples
    --------
    >>> list(blocks(3, 2**19))
    [slice(0, 2, None), slice(2, 3, None)]
    """
    size = max(1, NUMBERS // max(1, columns))
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))
