"""What a map came to: aggregates of the numbers, and failures grouped by their cause."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from daskmetrics.mapping.ledger import Result


@dataclass(frozen=True)
class Aggregate:
    """One field over all items that have it; `std` is that of a sample (n - 1), None of a single number."""

    field: str
    count: int
    mean: float
    std: float | None
    min: float
    median: float
    p95: float
    max: float


@dataclass(frozen=True)
class Cause:
    """Items that failed for the same reason; numbers within the reasons are not told apart."""

    status: str
    reason: str
    items: tuple[str, ...]


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The fields of a returned value: a dict's names, nested ones joined by dots; anything else is ``value``.

    Examples
    --------
    >>> list(flat({"loss": 0.5, "time": {"gpu": 2}})), list(flat(3))
    ([('loss', 0.5), ('time.gpu', 2)], [('value', 3)])
    """
    if isinstance(value, Mapping):
        for part, inner in value.items():
            yield from flat(inner, f"{name}.{part}" if name else part)
    elif value is not None:
        yield name or "value", value


def numbers(results: Iterable[Result]) -> dict[str, dict[int, float]]:
    """Numeric fields by name, each by the index of its item; a field that holds text anywhere is left out."""
    found: dict[str, dict[int, float]] = {}
    other = set()
    for result in results:
        for name, value in flat(result.value):
            if isinstance(value, bool | int | float):
                found.setdefault(name, {})[result.index] = float(value)
            else:
                other.add(name)
    return {name: column for name, column in found.items() if name not in other}


def aggregates(results: Sequence[Result]) -> list[Aggregate]:
    """Each numeric field and the seconds, over the items that are ok.

    Examples
    --------
    >>> done = [Result("k", i, str(i), i, "ok", value=float(i), seconds=0.1) for i in range(5)]
    >>> aggregates(done)[0]
    Aggregate(field='value', count=5, mean=2.0, std=1.5811388300841898, min=0.0, median=2.0, p95=3.8, max=4.0)
    """
    fine = [result for result in results if result.ok]
    took = {result.index: result.seconds for result in fine if result.seconds is not None}
    columns = {**numbers(fine), **({"seconds per item": took} if took else {})}
    return [_aggregate(name, np.array(list(column.values()))) for name, column in columns.items()]


def _aggregate(name: str, values: np.ndarray) -> Aggregate:
    std = float(values.std(ddof=1)) if len(values) > 1 else None
    median, p95 = (float(np.percentile(values, q)) for q in (50, 95))
    return Aggregate(
        name, len(values), float(values.mean()), std, float(values.min()), median, p95, float(values.max())
    )


def causes(results: Iterable[Result]) -> list[Cause]:
    """Failures, the commonest cause first.

    Examples
    --------
    >>> bad = [Result("k", i, str(i), i, "error", reason=f"ValueError: no {i}") for i in (3, 14)]
    >>> causes(bad)
    [Cause(status='error', reason='ValueError: no 3', items=('3', '14'))]
    """
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        if not result.ok:
            groups.setdefault((result.status, re.sub(r"\d+", "#", result.reason or "")), []).append(result)
    made = (Cause(status, group[0].reason or "", tuple(r.name for r in group)) for (status, _), group in groups.items())
    return sorted(made, key=lambda cause: -len(cause.items))


def summary_text(results: Sequence[Result], total: int) -> str:
    """Aggregates and failures by cause, the same in a terminal and in a log."""
    failed = [result for result in results if not result.ok]
    lines = _table(aggregates(results))
    left = f", {total - len(results)} to do" if total > len(results) else ""
    lines.append(f"{total} items: {len(results) - len(failed)} ok, {len(failed)} failed{left}.")
    for cause in causes(failed):
        names = ", ".join(cause.items[:8]) + (", ..." if len(cause.items) > 8 else "")
        lines += [f"  {len(cause.items)} x {cause.status}: {cause.reason}", f"      items {names}"]
    return "\n".join(lines)


def _table(found: Sequence[Aggregate]) -> list[str]:
    if not found:
        return []
    width = max(len(each.field) for each in found)
    names = ("count", "mean", "std", "min", "median", "p95", "max")
    lines = [" " * width + "".join(f"{name:>11}" for name in names)]
    for each in found:
        _, count, *numbers = astuple(each)
        texts = [str(count), *("" if number is None else f"{number:.4g}" for number in numbers)]
        lines.append(f"{each.field:<{width}}" + "".join(f"{text:>11}" for text in texts))
    return [*lines, ""]
