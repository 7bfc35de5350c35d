"""Scores, durations, counts, lists and training steps as text for readers, and durations read from text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress

from daskmetrics.core.errors import ConfigError

OnMessage = Callable[[str], None]
"""Is called with lines for the user, possibly from another thread."""

_WALLTIME = re.compile(
    r"(?:(?P<days>\d{1,4})-)?(?P<first>\d{1,5})(?::(?P<second>\d{1,2}))?(?::(?P<third>\d{1,2}))?"
)
_UNITS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_CALL = re.compile(r"(?P<name>.*?)\s*\((?P<options>[^()]*)\)")


def parse_call(text: str) -> tuple[str, dict[str, str]]:
    """A name and the options that follow in parentheses.

    It is a ConfigError for another form.

    >>> parse_call("file:reviews.csv(text=body, label=stars)")
    ('file:reviews.csv', {'text': 'body', 'label': 'stars'})
    """
    match = _CALL.fullmatch(text.strip())
    if match is None:
        return text.strip(), {}
    options: dict[str, str] = {}
    for option in filter(None, map(str.strip, match["options"].split(","))):
        name, _, value = map(str.strip, option.partition("="))
        if not name or not value or name in options:
            raise ConfigError(
                f"'{text}': '{option}' is not of the form name=value, or its name stands twice."
            )
        options[name] = value
    return match["name"], options


def parse_walltime(text: str) -> int:
    """Seconds of a Slurm limit; raises ValueError.

    Forms are minutes, ``M:S``, ``H:M:S``, ``D-H``, ``D-H:M`` and ``D-H:M:S``.

    >>> [parse_walltime(text) for text in ("90", "12:30:00", "1-12")]
    [5400, 45000, 129600]
    """
    match = _WALLTIME.fullmatch(text)
    if not match:
        raise ValueError("must be a time such as '12:30:00' or '2-00:00:00'")
    days, *numbers = (int(group or 0) for group in match.groups())
    if match["days"] is None and match["third"] is None:  # it does not start with hours
        numbers = [0, *numbers[:2]]
    hours, minutes, seconds = numbers
    total = 86400 * days + 3600 * hours + 60 * minutes + seconds
    if not total:
        raise ValueError("must be longer than zero")
    return total


def walltime_text(seconds: float) -> str:
    """Seconds as Slurm writes a limit.

    >>> walltime_text(14400), walltime_text(129600)
    ('04:00:00', '1-12:00:00')
    """
    days, seconds_of_day = divmod(int(seconds), 86400)
    minutes, seconds_of_minute = divmod(seconds_of_day, 60)
    text = f"{minutes // 60:02}:{minutes % 60:02}:{seconds_of_minute:02}"
    if days:
        return f"{days}-{text}"
    return text


def parse_duration(text: float | str | None) -> float | None:
    """Seconds of a number or text; None for None and ``none``.

    It is a ConfigError for any other text.

    >>> parse_duration("5m"), parse_duration("1h30m"), parse_duration("02:00:00"), parse_duration(2)
    (300.0, 5400.0, 7200.0, 2.0)
    """
    if text is None or text == "none":
        return None
    seconds = 0.0
    stripped = re.sub(r"(?<=[a-z:])\s+|\s+(?=[a-z:])", "", str(text).strip())
    with suppress(ValueError, KeyError):
        terms = re.findall(r"([\d.]+)([a-z]*)", stripped)
        if ":" in stripped:
            seconds = float(parse_walltime(stripped))
        elif "".join(map("".join, terms)) == stripped:
            seconds = sum(float(number) * _UNITS[unit] for number, unit in terms)
    if not 0 < seconds < float("inf"):
        raise ConfigError(
            f"'{text}' is not a valid duration: write 90s, 5m, 2h, 01:30:00, or none."
        )
    return seconds


def duration(seconds: float) -> str:
    """Seconds as text, in the largest unit that suits.

    >>> duration(4.21), duration(42), duration(300), duration(9000), duration(1e6)
    ('4.2 s', '42 s', '5.0 min', '2.5 h', '11.6 days')
    """
    if math.isinf(seconds):
        return "an unknown time"
    if seconds < 90:
        if seconds < 10:
            return f"{seconds:.1f} s"
        return f"{seconds:.0f} s"
    for unit, size, end in (("min", 60, 5400), ("h", 3600, 172_800)):
        if seconds < end:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 86_400:,.1f} days"


def size_text(size: float) -> str:
    """Bytes as text.

    >>> size_text(13.6e6), size_text(117e9)
    ('13.6 MB', '117.0 GB')
    """
    if size < 1e9:
        return f"{size / 1e6:,.1f} MB"
    return f"{size / 1e9:,.1f} GB"


def score_text(value: float | None, stderr: float | None = None, sign: bool = False) -> str:
    """A score with its error: three decimals, or two digits if smaller.

    >>> score_text(0.5, 0.01), score_text(0.02, 0.01, sign=True), score_text(None)
    ('0.500 ± 0.010', '+0.020 ± 0.010', 'no score')
    >>> score_text(1e-5, 2e-6), score_text(0.0, 0.0001)
    ('0.000010 ± 0.000002', '0.00000 ± 0.00010')
    """
    if value is None:
        return "no score"
    size = max(abs(value), stderr or 0.0)
    decimals = 3
    if 1e-12 < size < 0.0005:  # below, a difference may be of rounding alone
        decimals = 1 - math.floor(math.log10(size))
    text = f"{value:.{decimals}f}"
    if sign:
        text = f"{value:+.{decimals}f}"
    if stderr is not None:
        text += f" ± {stderr:.{decimals}f}"
    return text


def plural(n: int, noun: str = "worker", nouns: str = "") -> str:
    """A count with its noun.

    >>> plural(1), plural(2, "GPU"), plural(2, "pass", "passes")
    ('1 worker', '2 GPUs', '2 passes')
    """
    return f"{n:,} {noun if n == 1 else nouns or f'{noun}s'}"


def listed(names: Sequence[str]) -> str:
    """Names joined by commas and a final "and".

    >>> listed(["1", "2", "4"])
    '1, 2 and 4'
    """
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def shortened(names: Sequence[str], most: int = 5) -> str:
    """The first names, and how many there are beside them.

    >>> shortened(["1", "2", "4"], most=2)
    '1, 2 and 1 more'
    """
    text = ", ".join(names[:most])
    if len(names) > most:
        text += f" and {len(names) - most:,} more"
    return text


def is_encodable(text: str) -> bool:
    """Whether a text has no half of a surrogate pair.

    One that was cut within an emoji has.

    >>> is_encodable("a"), is_encodable(chr(0xD83D))
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
