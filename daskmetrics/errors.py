"""The errors a user can meet: one base, few kinds, each naming what was got, what was wanted and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class DaskmetricsError(Exception):
    """Base of every error that daskmetrics raises on purpose."""


class ConfigError(DaskmetricsError):
    """The user's input cannot be used as it stands; nothing was started (exit code 2)."""


class DataError(DaskmetricsError):
    """A file of a run, suite or task is damaged or does not hold what its place promises."""


class UndefinedError(DaskmetricsError):
    """A result that is not a number, with the reason; recorded as status ``nan``."""


class ClusterLostError(DaskmetricsError):
    """The scheduler went away, or no worker is left that could do the work; nothing recorded is lost."""


class LockedError(DaskmetricsError):
    """Another driver holds the run."""


def unknown(kind: str, got: str, valid: Iterable[str]) -> ConfigError:
    """The error for a name that is not among the valid ones, with the nearest of them.

    Examples
    --------
    >>> print(unknown("metric", "efective_rank", ["curvature", "effective_rank"]))
    Unknown metric 'efective_rank'. Did you mean 'effective_rank'? Valid: curvature, effective_rank.
    """
    names = sorted(valid)
    near = difflib.get_close_matches(got, names, n=1, cutoff=0.5)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return ConfigError(f"Unknown {kind} '{got}'.{hint} Valid: {', '.join(names)}.")
