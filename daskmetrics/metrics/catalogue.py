"""What metrics exist: names, inputs and units, readable without torch."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any, Literal, get_args

from daskmetrics.errors import ConfigError, unknown

GROUP = "daskmetrics.metrics"
"""Entry-point group by which other packages add metrics; each entry point names a `Metric`."""

Takes = Literal["tokens", "pooled", "views"]


@dataclass(frozen=True)
class Metric:
    """A label-free property of a layer, and where the function that computes it lies.

    Parameters
    ----------
    name : str
        As in the configuration and the store.
    takes : {"tokens", "pooled", "views"}
        What the function gets; the shapes stand in `daskmetrics.metrics`.
    units : str
    description : str
        One line.
    function : str
        ``package.module:function``, imported only by `load`.

    Raises
    ------
    ConfigError
        If ``takes`` is none of the three.

    Examples
    --------
    >>> catalogue()["curvature"].units
    'radians'
    """

    name: str
    takes: Takes
    units: str
    description: str
    function: str

    def __post_init__(self) -> None:
        if self.takes not in get_args(Takes):
            raise unknown(f"input of metric '{self.name}'", self.takes, get_args(Takes))

    def load(self) -> Callable[..., Any]:
        """The function; this imports torch."""
        function: Callable[..., Any] = pkgutil.resolve_name(self.function)
        return function


def _built_in(name: str, takes: Takes, units: str, description: str) -> Metric:
    return Metric(name, takes, units, description, f"{GROUP}.{name}:{name}")


CATALOGUE: Mapping[str, Metric] = MappingProxyType(
    {
        metric.name: metric
        for metric in (
            _built_in("prompt_entropy", "tokens", "nats", "how many directions the tokens of a prompt spread over"),
            _built_in("dataset_entropy", "pooled", "nats", "how many directions the prompts spread over"),
            _built_in("effective_rank", "pooled", "dimensions", "number of dimensions the prompts effectively use"),
            _built_in("curvature", "tokens", "radians", "mean turn of the path from token to token"),
            _built_in("anisotropy", "pooled", "cosine", "mean cosine between two different prompts"),
            _built_in("infonce", "views", "nats", "how hard it is to find a prompt's other view among all prompts"),
        )
    }
)
"""The metrics of this package by name."""


def catalogue() -> Mapping[str, Metric]:
    """Every metric by name: those of this package, then those of installed plug-ins.

    Returns
    -------
    mapping of str to Metric

    Raises
    ------
    ConfigError
        If a plug-in cannot be loaded, is no `Metric`, or takes a name that is taken.

    Examples
    --------
    >>> list(catalogue())[:3]
    ['prompt_entropy', 'dataset_entropy', 'effective_rank']
    """
    found = dict(CATALOGUE)
    for point in entry_points(group=GROUP):
        metric = _plugged_in(point)
        if metric.name in found:
            raise ConfigError(f"Metric '{metric.name}' of '{point.value}' exists already. Rename it, or uninstall one.")
        found[metric.name] = metric
    return MappingProxyType(found)


def _plugged_in(point: EntryPoint) -> Metric:
    try:
        metric = point.load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"Metric plug-in '{point.value}' cannot be loaded: {error}. Repair or uninstall it."
        ) from error
    if not isinstance(metric, Metric):
        raise ConfigError(f"Metric plug-in '{point.value}' must name a Metric, but is a {type(metric).__name__}.")
    return metric


def resolve(names: Sequence[str]) -> tuple[Metric, ...]:
    """The metrics that a configuration names, in its order, each once.

    Parameters
    ----------
    names : sequence of str
        Names in the catalogue, or ``all`` for everything in it.

    Raises
    ------
    ConfigError
        For an unknown name, with the nearest valid one.

    Examples
    --------
    >>> [metric.name for metric in resolve(["curvature", "infonce", "curvature"])]
    ['curvature', 'infonce']
    """
    known = catalogue()
    # a dict keeps the order and drops what was named twice
    chosen = {metric: None for name in names for metric in _named(name, known)}
    return tuple(chosen)


def _named(name: str, known: Mapping[str, Metric]) -> Sequence[Metric]:
    if name == "all":
        return tuple(known.values())
    if name not in known:
        raise unknown("metric", name, ("all", *known))
    return (known[name],)
