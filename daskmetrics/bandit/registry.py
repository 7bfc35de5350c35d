"""Policies by name; other packages add theirs by the entry point group ``daskmetrics.policies``."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points

from daskmetrics.bandit import (
    gp_ei,
    gp_ucb,
    halving,
    hyperband,
    linear_ts,
    linucb,
    lucb,
    race,
    random,
    sweep,
    thompson,
)
from daskmetrics.bandit.policy import Policy
from daskmetrics.errors import unknown

GROUP = "daskmetrics.policies"

OWN: Mapping[str, Policy] = {
    "race": race.ask,
    "lucb": lucb.ask,
    "halving": halving.ask,
    "hyperband": hyperband.ask,
    "thompson": thompson.ask,
    "linucb": linucb.ask,
    "linear-ts": linear_ts.ask,
    "gp-ei": gp_ei.ask,
    "gp-ucb": gp_ucb.ask,
    "random": random.ask,
    "sweep": sweep.ask,
}


def policies() -> Mapping[str, Policy]:
    """All policies that are installed; an entry point cannot replace one of our own.

    Examples
    --------
    >>> {"race", "random", "sweep"} <= set(policies())
    True
    """
    found = {point.name: point.load() for point in entry_points(group=GROUP)}
    return {**found, **OWN}


def policy_named(name: str) -> Policy:
    """The policy of a name.

    Raises
    ------
    ConfigError
        For an unknown name, with the nearest valid one.
    """
    known = policies()
    if name not in known:
        raise unknown("policy", name, known)
    return known[name]
