"""Slurm's way of writing a time span."""

from __future__ import annotations

import re

_SPAN = re.compile(r"(?:(?P<days>\d{1,4})-)?(?P<first>\d{1,5})(?::(?P<second>\d{1,2}))?(?::(?P<third>\d{1,2}))?")


def seconds_of(walltime: str) -> int:
    """Seconds of a time span: minutes, ``M:S``, ``H:M:S``, or ``D-H``, ``D-H:M``, ``D-H:M:S``.

    Raises
    ------
    ValueError
        If it is none of these, or no time at all.

    Examples
    --------
    >>> [seconds_of(span) for span in ("90", "12:30:00", "1-12")]
    [5400, 45000, 129600]
    """
    found = _SPAN.fullmatch(walltime)
    if not found:
        raise ValueError("must be a time such as '12:30:00' or '2-00:00:00'")
    days, *parts = (None if part is None else int(part) for part in found.groups())
    first, second, third = (part or 0 for part in parts)
    if days is not None or parts[2] is not None:
        hours, minutes, seconds = first, second, third
    else:
        hours, minutes, seconds = 0, first, second
    total = 86400 * (days or 0) + 3600 * hours + 60 * minutes + seconds
    if not total:
        raise ValueError("must be longer than nothing")
    return total
