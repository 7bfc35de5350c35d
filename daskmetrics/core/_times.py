"""Slurm's way of writing a time span."""

from __future__ import annotations

import re

from daskmetrics.core.errors import ConfigError

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


_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: float | str | None) -> float | None:
    """Seconds of ``90``, ``"90s"``, ``"5m"``, ``"1h30m"``, ``"01:30:00"``; None of None and ``"none"``.

    Raises
    ------
    ConfigError
        If the text is no time.

    Examples
    --------
    >>> seconds("5m"), seconds("1h30m"), seconds("02:00:00"), seconds(2)
    (300.0, 5400.0, 7200.0, 2.0)
    """
    if text is None or text == "none":
        return None
    try:
        found = float(text) if not isinstance(text, str) else _read(text.strip())
    except ValueError:
        found = -1.0
    if not 0 < found < float("inf"):
        raise ConfigError(f"'{text}' is no time: write 90s, 5m, 2h, 01:30:00, or none.")
    return found


def _read(text: str) -> float:
    if ":" in text:
        return sum(float(part) * 60.0**i for i, part in enumerate(reversed(text.split(":"))))
    parts = re.findall(r"([\d.]+)\s*([a-z]*)", text)
    if not parts or "".join(a + b for a, b in parts) != text.replace(" ", ""):
        raise ValueError
    return sum(float(number) * _unit(unit) for number, unit in parts)


def _unit(unit: str) -> float:
    if unit not in (*_UNITS, ""):
        raise ValueError
    return _UNITS.get(unit, 1.0)
