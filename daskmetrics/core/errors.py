"""The exceptions of this package; each message says what happened, why, and what to do."""

from __future__ import annotations

import difflib
import errno
import re
import traceback
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

__all__ = [
    "ClusterLostError",
    "ConfigError",
    "DamageError",
    "DaskmetricsError",
    "DataError",
    "LockedError",
    "StorageError",
    "UndefinedError",
    "describe",
    "did_you_mean",
    "foreign_errors",
    "is_out_of_memory",
    "room_for",
    "system_error",
    "unknown",
    "unsigned",
]

#: Error numbers for a full disk, an exceeded quota, and a file that is too large.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_PERMISSIONS = "make the place readable and writable"
_REMEDIES = {
    **dict.fromkeys(NO_ROOM, "free some space, or raise the quota or the limit of file sizes"),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), _PERMISSIONS),
    **dict.fromkeys((errno.EIO, errno.ESTALE), "check the disk or the network file system"),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "raise the limit of open files (ulimit -n)"),
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOENT: "check the path, and whether the file or the current folder was removed",
}
"""What to do, by the number of the error. All but the last two come and go while a run writes into
its own folder, which then waits.
"""
_PASSING = frozenset(_REMEDIES) - {errno.ENAMETOOLONG, errno.ENOENT}

OTHER_VERSION = "Another version wrote it: use that one, or another folder, with --folder."

_LONGEST = 2000  # characters of each end of a message
# Of what CUDA's libraries say in a plain RuntimeError when they get no memory, and of what a CPU
# says.
_NO_MEMORY = ("_ALLOC_FAILED", "out of memory", "can't allocate memory")


class DaskmetricsError(Exception):
    """Base of all exceptions of this package."""

    def __str__(self) -> str:
        """The message; of a long one the begin and the end.

        The end has the remedy.
        """
        text = super().__str__()
        if len(text) <= 2 * _LONGEST:
            return text
        return f"{text[:_LONGEST]} ... {text[-_LONGEST:]}"


class ConfigError(DaskmetricsError):
    """The user's input is not valid; nothing was started (exit code 2)."""


class DataError(DaskmetricsError):
    """A file of a run, suite or task is damaged."""


class DamageError(DataError):
    """A file that the run wrote itself is damaged or missing.

    No unit is blamed, and the same command writes it again.
    """


class UndefinedError(DaskmetricsError):
    """A result is not defined; recorded with the status ``nan``."""


class ClusterLostError(DaskmetricsError):
    """The scheduler does not answer, or no worker is left.

    Recorded results are safe.
    """


class LockedError(DaskmetricsError):
    """Another process is driving the run."""


class StorageError(DaskmetricsError):
    """A file cannot be written.

    Recorded results are safe, and the run can be resumed.
    """


def system_error(error: OSError) -> str:
    """The path, reason and remedy of a system's error.

    >>> system_error(OSError(errno.ENAMETOOLONG, "File name too long", "runs/aaa"))
    "'runs/aaa': File name too long. Please choose a shorter name, and run the same command again."
    """
    reason = error.strerror or " ".join(str(error).split()) or type(error).__name__
    # of a file that is renamed, the new name: the old one may be that of a partial file
    path = error.filename2 or error.filename
    if path is not None:
        reason = f"'{path!s:.300}': {reason}"
    remedy = _REMEDIES.get(error.errno or 0, "remove the cause")
    return f"{reason.removesuffix('.')}. Please {remedy}, and run the same command again."


@contextmanager
def room_for(what: str) -> Iterator[None]:
    """Turn an error of the disk into one that names what was written.

    Raises
    ------
    StorageError
        In place of the OSError, if the disk or a quota is full, the place takes no writing, or too
        many files are open.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _PASSING:
            raise
        raise StorageError(
            f"Cannot write {what} ({error.strerror}). Recorded results are safe: "
            f"{_REMEDIES[error.errno]}, and run the same command again."
        ) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception of Python, torch or CUDA means no memory.

    Examples
    --------
    >>> is_out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"))
    True
    >>> is_out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered"))
    False
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _NO_MEMORY)


def unknown(kind: str, name: str, valid: Iterable[str]) -> ConfigError:
    """The error for an unknown name, with the nearest valid one.

    Examples
    --------
    >>> print(unknown("metric", "efective_rank", ["curvature", "effective_rank"]))
    Unknown metric 'efective_rank'. Did you mean 'effective_rank'? Valid: curvature, effective_rank.
    """
    names = sorted(valid)
    return ConfigError(
        f"Unknown {kind} '{name}'.{did_you_mean(name, names)} Valid: {', '.join(names)}."
    )


def require_known(kind: str, name: str, valid: Collection[str]) -> None:
    """Raise the error of `unknown` for a name that is not valid."""
    if name not in valid:
        raise unknown(kind, name, valid)


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """A question with the nearest valid name; empty if none is near.

    Examples
    --------
    >>> did_you_mean("dmeo", ["demo", "pythia"]), did_you_mean("minilm", ["demo"])
    (" Did you mean 'demo'?", '')
    """
    matches = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.5)
    if matches:
        return f" Did you mean '{matches[0]}'?"
    return ""


def unsigned(text: str) -> str:
    """A text whose addresses have no query, which can hold a signature.

    >>> unsigned("500 for url 'https://host/file?signature=x'")
    "500 for url 'https://host/file?...'"
    """
    return re.sub(r"(https?://[^\s?'\"]+\?)[^\s'\"]+", r"\1...", text)


def describe(error: BaseException) -> str:
    """One line that names the error, short enough for a table.

    >>> describe(ValueError("two\\nlines"))
    'ValueError: two lines'
    """
    # the exception of somebody else may have no readable text
    text = str(traceback.TracebackException(type(error), error, None))
    return f"{type(error).__name__}: {unsigned(' '.join(text.split()))}"[:500]


@contextmanager
def foreign_errors(
    what: str, kind: type[DaskmetricsError] = ConfigError, remedy: str = ""
) -> Iterator[None]:
    """Turn whatever foreign code raises into an error of ours.

    It says what was not done.

    >>> with foreign_errors("The policy has no name"):
    ...     {}["name"]
    Traceback (most recent call last):
    daskmetrics.core.errors.ConfigError: The policy has no name: KeyError: 'name'.
    """
    try:
        yield
    except (Exception, SystemExit) as error:  # a script without a main guard ends with exit(0)
        raise kind(f"{what}: {describe(error).rstrip('.')}.{remedy}") from error
