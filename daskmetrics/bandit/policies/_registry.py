"""Policies by name; other packages add theirs by the entry point group ``daskmetrics.policies``."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from importlib.metadata import entry_points

from daskmetrics.bandit._policy import Policy
from daskmetrics.bandit.policies import baselines, halving, lucb, race, thompson
from daskmetrics.core.errors import ConfigError, unknown

GROUP = "daskmetrics.policies"

OWN: Mapping[str, Policy] = {
    "race": race.ask,
    "lucb": lucb.ask,
    "halving": halving.halving,
    "hyperband": halving.hyperband,
    "thompson": thompson.ask,
    "linucb": baselines.linucb,
    "linear-ts": baselines.linear_ts,
    "gp-ei": baselines.gp_ei,
    "gp-ucb": baselines.gp_ucb,
    "random": baselines.random,
    "sweep": baselines.sweep,
}


def installed() -> Mapping[str, Policy]:
    """All policies that are installed; an entry point cannot replace one of our own.

    Examples
    --------
    >>> {"race", "random", "sweep"} <= set(installed())
    True
    """
    found = {point.name: point.load() for point in entry_points(group=GROUP)}
    return {**found, **OWN}


def policy_named(name: str) -> Policy:
    """The policy of a name, or at a place such as ``mypackage.search:ask``.

    Raises
    ------
    ConfigError
        For an unknown name, with the nearest valid one, or a place where no function is.
    """
    if ":" in name:
        return _at(name)
    known = installed()
    if name not in known:
        raise unknown("policy", name, known)
    return known[name]


def _at(place: str) -> Policy:
    """A user's own policy, where it lies."""
    try:
        found = pkgutil.resolve_name(place)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"Policy '{place}' cannot be loaded: {error}. Write it as 'package.module:function'."
        ) from error
    if not callable(found):
        raise ConfigError(f"Policy '{place}' must be a function of a State, but is a {type(found).__name__}.")
    return found  # type: ignore[no-any-return]


def place_of(policy: Policy) -> str:
    """By what a policy that was passed as an object is recorded.

    Examples
    --------
    >>> place_of(race.ask)
    'daskmetrics.bandit.policies.race:ask'
    """
    own = policy if hasattr(policy, "__qualname__") else type(policy)
    return f"{own.__module__}:{own.__qualname__}"
