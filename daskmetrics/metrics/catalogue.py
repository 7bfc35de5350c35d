"""What metrics exist and which of them a configuration names, readable without torch."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType

from daskmetrics.errors import ConfigError, unknown
from daskmetrics.metrics.builtin import CATALOGUE
from daskmetrics.metrics.calls import parse
from daskmetrics.metrics.metric import Metric

__all__ = ["CATALOGUE", "GROUP", "Metric", "catalogue", "families", "resolve"]

GROUP = "daskmetrics.metrics"
"""Entry-point group by which other packages add metrics; each entry point names a `Metric`."""


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


def families(known: Iterable[Metric]) -> Mapping[str, tuple[Metric, ...]]:
    """Metrics by what they can be asked for together: their family, or ``all``.

    Examples
    --------
    >>> [metric.name for metric in families(catalogue().values())["tokens"]]
    ['prompt_entropy', 'curvature']
    """
    found: dict[str, tuple[Metric, ...]] = {"all": tuple(known)}
    for metric in found["all"]:
        found[metric.family] = (*found.get(metric.family, ()), metric)
    return found


def resolve(names: Sequence[str | Metric]) -> tuple[Metric, ...]:
    """The metrics that a configuration names, in its order, each once.

    Parameters
    ----------
    names : sequence of str or Metric
        Names in the catalogue, calls such as ``curvature(k=2)``, families, ``all`` for everything by its defaults,
        places such as ``mypackage.metrics:NORM`` where a `Metric` lies, or a `Metric` itself.

    Raises
    ------
    ConfigError
        For an unknown name or parameter, with the nearest valid one, or two metrics of one name.

    Examples
    --------
    >>> [metric.name for metric in resolve(["curvature(k=2)", "infonce(temperature=0.1)", "curvature(k=2)"])]
    ['curvature(k=2)', 'infonce']
    """
    known = catalogue()
    chosen: dict[str, Metric] = {}
    for metric in (metric for name in names for metric in _named(name, known)):
        if chosen.setdefault(metric.name, metric) != metric:
            raise ConfigError(f"Two different metrics have the name '{metric.name}'. Rename one.")
    return tuple(chosen.values())


def _named(name: str | Metric, known: Mapping[str, Metric]) -> Sequence[Metric]:
    if isinstance(name, Metric):
        return (name,)
    if "(" not in name and ":" in name:
        return (_at(name),)
    word, settings = parse(name)
    groups = families(known.values())
    if word in known:
        return (known[word].with_settings(settings),)
    if word in groups and not settings:
        return groups[word]
    raise unknown("metric", word, (*groups, *known))


def _at(place: str) -> Metric:
    """A user's own metric, where it lies."""
    try:
        found = pkgutil.resolve_name(place)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"Metric '{place}' cannot be loaded: {error}. Write it as 'package.module:NAME'.") from error
    if not isinstance(found, Metric):
        raise ConfigError(f"'{place}' must be a daskmetrics.metrics.Metric, but is a {type(found).__name__}.")
    return found
