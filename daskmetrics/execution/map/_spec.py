"""What a map runs: a function, its items and its options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from daskmetrics.core._environment import environment
from daskmetrics.core._events import MapStarted
from daskmetrics.core._times import parse_duration
from daskmetrics.core.errors import ConfigError
from daskmetrics.execution.map._function import PreparedFunction, prepare
from daskmetrics.execution.map._items import Item, make_items


@dataclass(frozen=True)
class MapOptions:
    """How a map runs; no option changes a result. The attributes are parameters of `map`, which describes them."""

    batch_size: int = 1
    retries: int = 3
    timeout: float | str | None = "5m"
    resources: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ConfigError(f"batch_size is {self.batch_size}, but a batch has at least 1 item.")
        if self.retries < 0:
            raise ConfigError(f"retries is {self.retries}, but must be at least 0 (each item runs once).")
        parse_duration(self.timeout)

    @property
    def timeout_seconds(self) -> float | None:
        """Seconds that one item may take; None for no limit."""
        return parse_duration(self.timeout)


@dataclass(frozen=True)
class MapSpec:
    """A function, its items, and how they are run."""

    function: PreparedFunction
    items: tuple[Item, ...]
    options: MapOptions
    seed: int = 0  # of the run; each item's seed follows from it
    reference: str | None = None  # where the function was loaded from, as module.py:function

    def event(self) -> MapStarted:
        """Its entry in the journal."""
        return MapStarted(
            function=self.function.name,
            version=self.function.version,
            stated=self.function.stated,
            reference=self.reference,
            items=len(self.items),
            seed=self.seed,
            batch_size=self.options.batch_size,
            retries=self.options.retries,
            timeout=self.options.timeout_seconds,
            environment=environment("daskmetrics", "distributed", "numpy"),
        )


def make_spec(
    function: Callable[..., Any],
    values: Iterable[Any],
    options: MapOptions | None = None,
    *,
    seed: int = 0,
    version: str | None = None,
    reference: str | None = None,
) -> MapSpec:
    """The specification of a map; raises ConfigError if the function or an item cannot be used."""
    prepared = prepare(function, version)
    items = make_items(values, prepared.name, prepared.version, seed)
    return MapSpec(prepared, items, options or MapOptions(), seed, reference)
