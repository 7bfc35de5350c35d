"""The errors a user can meet: one base, few kinds, each naming what was got, what was wanted and the remedy."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

#: Error numbers with which a file system says that there is no room: disk, quota, limit of a file's size.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


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


class DiskFullError(DaskmetricsError):
    """There is no room for what must be kept; nothing recorded is lost, and it goes on once there is."""


@contextmanager
def room_for(what: str) -> Iterator[None]:
    """Says what there was no room for, should the disk or a quota be full.

    Raises
    ------
    DiskFullError
        In place of the system's error.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise DiskFullError(
            f"No room for {what} ({error.strerror}). Nothing recorded is lost: free some space and run the same "
            "command again."
        ) from error


def unknown(kind: str, got: str, valid: Iterable[str]) -> ConfigError:
    """The error for a name that is not among the valid ones, with the nearest of them.

    Examples
    --------
    >>> print(unknown("metric", "efective_rank", ["curvature", "effective_rank"]))
    Unknown metric 'efective_rank'. Did you mean 'effective_rank'? Valid: curvature, effective_rank.
    """
    names = sorted(valid)
    got = got if len(got) <= 100 else f"{got[:100]} ..."
    near = difflib.get_close_matches(got, names, n=1, cutoff=0.5)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return ConfigError(f"Unknown {kind} '{got}'.{hint} Valid: {', '.join(names)}.")
