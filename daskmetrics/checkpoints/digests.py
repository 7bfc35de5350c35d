"""Digests of the files that decide the numbers of a model, and the key of its content.

Every byte of these files is read, but once: the digest of a file is kept in the cache folder until
the file changes.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path

from daskmetrics.checkpoints.cache import keep, recall
from daskmetrics.checkpoints.layout import WEIGHTS
from daskmetrics.core.errors import DataError
from daskmetrics.core.files import cache_folder
from daskmetrics.core.keys import Key, content_key
from daskmetrics.core.text import OnMessage

Stamp = tuple[str, list[int]]  # path, and what changes with the content of the file

_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SMALL = 1 << 16  # bytes: smaller files are read each time
# seconds; a file that changed more recently can change again within the resolution of its times
_SETTLED = 2.0
_LONG = 10e9  # bytes whose reading is announced


def weights_key(digests: Mapping[str, str], base: Key | None = None) -> Key:
    """The key of a checkpoint's content, from its files' digests.

    The name of a single weight file is not part of it; of an adapter, the key of its base is.
    """
    files = sorted(digests.items())
    weights = [(name, digest) for name, digest in files if name.endswith(WEIGHTS)]
    beside = [(name, digest) for name, digest in files if not name.endswith(WEIGHTS)]
    named = weights if len(weights) > 1 else [digest for _, digest in weights]
    key = content_key(named, beside)
    if base is None:
        return key
    return content_key("adapter", base, key)


def files_of(path: Path) -> dict[str, Path]:
    """The files in a folder and below it, by their names there; the name of a file alone is empty."""
    if path.is_file():
        return {"": path}
    return {str(file.relative_to(path)): file for file in filter(Path.is_file, path.rglob("*"))}


def digests_of(
    folders: Sequence[Mapping[str, Path]], on_message: OnMessage | None = None
) -> list[dict[str, str]]:
    """The digests of the files of folders, by name.

    They do not depend on places and times.

    Raises
    ------
    DataError
        If a file cannot be read.
    """
    paths = list(chain.from_iterable(files.values() for files in folders))
    with content_errors():
        kept = [_known(path) for path in paths]
        size = sum(
            path.stat().st_size for path, digest in zip(paths, kept, strict=True) if digest is None
        )
        if on_message and size > _LONG:
            on_message(
                f"Reading {size / 1e9:,.0f} GB of weights once, to recognise changed and identical"
                " checkpoints ..."
            )
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            read = pool.map(lambda path, digest: digest or _read(path), paths, kept)
            digests = iter(list(read))
    return [dict(zip(files, digests, strict=False)) for files in folders]


def stamps_of(paths: Iterable[Path]) -> tuple[Stamp, ...]:
    """What changes with the content of files."""
    with content_errors():
        return tuple((str(path), _stamp(path.stat())) for path in paths)


@contextmanager
def content_errors() -> Iterator[None]:
    """Name a file that cannot be read.

    A trainer removes old checkpoints at any time.
    """
    try:
        yield
    except OSError as error:
        raise DataError(
            f"'{error.filename}' cannot be read ({error.strerror}), so its content is not known."
        ) from None


def has_changed(stamps: Iterable[Stamp]) -> bool:
    """Whether a file was written again; a deleted one was not."""
    for path, stamp in stamps:
        with suppress(FileNotFoundError):
            if _stamp(Path(path).stat()) != stamp:
                return True
    return False


def _known(path: Path) -> str | None:
    """The digest of a large file that need not be read.

    It is kept, or the hub's cache names the file by it. The name is trusted until the file changes.
    """
    status = path.stat()
    if status.st_size < _SMALL:
        return None
    entry, stamp = _kept_digest(status)
    kept = recall(entry)
    if kept is None:
        kept = {"stamp": stamp, "digest": _name_by_content(path)}
        if kept["digest"]:
            keep(entry, kept)
    if kept.get("stamp") == stamp:
        return kept.get("digest")
    return None


def _read(path: Path) -> str:
    """The digest of a file; that of a large one is kept."""
    _, stamp_before = _kept_digest(path.stat())
    digest = digest_of(path, like=_name_by_content(path))
    after = path.stat()
    entry, stamp = _kept_digest(after)
    has_settled = time.time() - after.st_ctime > _SETTLED
    if after.st_size >= _SMALL and has_settled and stamp_before == stamp:
        keep(entry, {"stamp": stamp, "digest": digest})
    return digest


def _kept_digest(status: os.stat_result) -> tuple[Path, list[int]]:
    entry = cache_folder() / "digests" / f"{status.st_dev:x}-{status.st_ino:x}.json"
    return entry, _stamp(status)


def _stamp(status: os.stat_result) -> list[int]:
    """What changes with the content of a file.

    No program can set the last number, the time of the change of the inode.
    """
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def digest_of(path: Path, like: str | None) -> str:
    """The digest of a file's bytes.

    SHA-256, or git's own if the hub names the file ``like`` that.
    """
    is_git = like is not None and len(like) == 40
    header = b"blob %d\0" % path.stat().st_size
    digest = hashlib.sha256()
    if is_git:
        digest = hashlib.sha1(header, usedforsecurity=False)
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: digest).hexdigest()


def _name_by_content(path: Path) -> str | None:
    file = path.resolve()
    if file.parent.name == "blobs" and _HASH.fullmatch(file.name):
        return file.name
    return None
