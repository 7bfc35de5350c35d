"""Policies by name; other packages add theirs by the entry point group ``daskmetrics.policies``."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from importlib.metadata import entry_points
from types import BuiltinFunctionType

from daskmetrics.bandit._policy import Policy
from daskmetrics.bandit.policies import baselines, halving, lucb, race, thompson
from daskmetrics.core.errors import ConfigError, unknown

GROUP = "daskmetrics.policies"

BUILT_IN: Mapping[str, Policy] = {
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


def installed_policies() -> Mapping[str, Policy]:
    """All installed policies by name; an entry point cannot replace a built-in policy.

    Examples
    --------
    >>> {"race", "random", "sweep"} <= set(installed_policies())
    True
    """
    return {point.name: point.load() for point in entry_points(group=GROUP)} | dict(BUILT_IN)


def policy_named(name: str) -> Policy:
    """The policy with a name, or at an import path such as ``mypackage.search:ask``.

    Raises
    ------
    ConfigError
        If the name is unknown (the message names the nearest valid one), or if there is no function at the path.
    """
    if ":" not in name:
        policies = installed_policies()
        if name not in policies:
            raise unknown("policy", name, policies)
        return policies[name]
    try:
        policy = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"Policy '{name}' cannot be loaded: {error}. Write it as 'package.module:function'."
        ) from error
    if not callable(policy) or isinstance(policy, BuiltinFunctionType):
        raise ConfigError(f"Policy '{name}' must be a function of a State, but is a {type(policy).__name__}.")
    return policy  # type: ignore[no-any-return]


def policy_path(policy: Policy) -> str:
    """The import path of a policy that was passed as an object, for the record.

    Examples
    --------
    >>> policy_path(race.ask)
    'daskmetrics.bandit.policies.race:ask'
    """
    named = policy if hasattr(policy, "__qualname__") else type(policy)
    return f"{named.__module__}:{named.__qualname__}"
