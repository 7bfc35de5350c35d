"""The exceptions of this package; each message says what happened, why, and what to do."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

__all__ = [
    "ClusterLostError",
    "ConfigError",
    "DaskmetricsError",
    "DataError",
    "DiskFullError",
    "LockedError",
    "UndefinedError",
    "room_for",
    "unknown",
]

#: Error numbers for a full disk, an exceeded quota, and a file that is too large.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class DaskmetricsError(Exception):
    """Base of all exceptions of this package."""


class ConfigError(DaskmetricsError):
    """The input of the user is not valid; nothing was started (exit code 2)."""


class DataError(DaskmetricsError):
    """A file of a run, suite or task is damaged or has unexpected content."""


class UndefinedError(DaskmetricsError):
    """A result is not defined; recorded with its reason and the status ``nan``."""


class ClusterLostError(DaskmetricsError):
    """The scheduler does not answer, or no worker is left for the work; recorded results are safe."""


class LockedError(DaskmetricsError):
    """Another process is driving the run."""


class DiskFullError(DaskmetricsError):
    """The disk or a quota is full; recorded results are safe, and the run can be resumed."""


@contextmanager
def room_for(what: str) -> Iterator[None]:
    """Turn a full disk or quota into an error that names what was written.

    Raises
    ------
    DiskFullError
        In place of the OSError.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise DiskFullError(
            f"No room for {what} ({error.strerror}). Recorded results are safe: free some space and run the same "
            "command again."
        ) from error


def unknown(kind: str, name: str, valid: Iterable[str]) -> ConfigError:
    """The error for a name that is not valid; suggests the nearest valid name.

    Examples
    --------
    >>> print(unknown("metric", "efective_rank", ["curvature", "effective_rank"]))
    Unknown metric 'efective_rank'. Did you mean 'effective_rank'? Valid: curvature, effective_rank.
    """
    names = sorted(valid)
    name = name if len(name) <= 100 else f"{name[:100]} ..."
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return ConfigError(f"Unknown {kind} '{name}'.{hint} Valid: {', '.join(names)}.")
