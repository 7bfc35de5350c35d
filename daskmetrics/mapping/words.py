"""Times as people write and read them."""

from __future__ import annotations

import re

from daskmetrics.errors import ConfigError

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
