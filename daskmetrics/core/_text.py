"""Durations, counts and lists as text for readers."""

from __future__ import annotations

from collections.abc import Sequence


def duration(seconds: float) -> str:
    """Seconds as text, in the largest unit that suits.

    Examples
    --------
    >>> duration(4.21), duration(42), duration(300), duration(9000), duration(1e6)
    ('4.2 s', '42 s', '5.0 min', '2.5 h', '11.6 days')
    """
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    for unit, size, end in (("min", 60, 5400), ("h", 3600, 172_800)):
        if seconds < end:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 86_400:,.1f} days"


def plural(n: int, noun: str = "worker") -> str:
    """A count with its noun.

    Examples
    --------
    >>> plural(1), plural(2, "GPU")
    ('1 worker', '2 GPUs')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """Names joined by commas and a final "and".

    Examples
    --------
    >>> listed(["1", "2", "4"])
    '1, 2 and 4'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
