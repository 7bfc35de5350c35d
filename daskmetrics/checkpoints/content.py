"""The content of a checkpoint: digests of the files that decide its numbers.

Every byte is read, but once: the digest of a file is kept in the cache folder until the file
changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from daskmetrics.checkpoints.folders import required_files
from daskmetrics.core.errors import DataError
from daskmetrics.core.files import atomic_write, cache_folder
from daskmetrics.core.names import Key, content_key
from daskmetrics.core.serialization import parse

OnMessage = Callable[[str], None]

_WEIGHTS = (".safetensors", ".bin")
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SMALL = 1 << 16  # bytes: smaller files are read each time
# seconds; a file that changed more recently can change again within the resolution of its times
_SETTLED = 2.0
_LONG = 10e9  # bytes whose reading is announced


@dataclass(frozen=True)
class Content:
    """The keys of a checkpoint's content; the name of a single weight file is not part of them."""

    key: Key  # of all files that decide its numbers: weights, configuration, tokenizer
    weights: Key  # of every byte of the weights alone
    digests: Mapping[str, str]  # by file

    @classmethod
    def of(cls, digests: Mapping[str, str]) -> Content:
        """From the digests of the `relevant` files."""
        files = sorted(digests.items())
        weights = [(name, digest) for name, digest in files if name.endswith(_WEIGHTS)]
        beside = [(name, digest) for name, digest in files if not name.endswith(_WEIGHTS)]
        named = weights if len(weights) > 1 else [digest for _, digest in weights]
        return cls(content_key(named, beside), content_key(named), digests)


def contents(
    folders: Sequence[Path], pickled: bool = False, on_message: OnMessage | None = None
) -> list[Content]:
    """The content of model folders; files of equal content in other places, or with other times,
    have equal keys. Pickled weights are an error unless they are allowed.

    Raises
    ------
    ConfigError
        If a folder has no weights.
    DataError
        If a file cannot be read.
    """
    required = [required_files(folder, pickled) for folder in folders]
    paths = list(chain.from_iterable(files.values() for files in required))
    digests = iter(_digests(paths, on_message))
    return [Content.of(dict(zip(files, digests, strict=False))) for files in required]


def _digests(paths: Sequence[Path], on_message: OnMessage | None) -> list[str]:
    """The digest of each file, read by several threads."""
    try:
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
            return list(pool.map(lambda path, digest: digest or _read(path), paths, kept))
    except OSError as error:
        raise DataError(
            f"'{error.filename}' cannot be read ({error.strerror}), so its content is not known."
        ) from None


def _known(path: Path) -> str | None:
    """The digest of a large file that need not be read: it is kept, or the hub's cache names the
    file by it.

    The name is trusted until the file changes.
    """
    status = path.stat()
    if status.st_size < _SMALL:
        return None
    entry, stamp = _kept_digest(status)
    kept = recall(entry) or {}
    is_whole = _HASH.fullmatch(str(kept.get("digest"))) and isinstance(kept.get("stamp"), list)
    if is_whole:
        if kept["stamp"] == stamp:
            return str(kept["digest"])
        return None
    name = _name_by_content(path)
    if name:
        keep(entry, {"stamp": stamp, "digest": name})
    return name


def _read(path: Path) -> str:
    """The digest of a file, in the form by which the hub's cache names it; kept if the file is
    large.
    """
    _, stamp_before = _kept_digest(path.stat())
    digest = digest_of(path, like=_name_by_content(path))
    after = path.stat()
    entry, stamp = _kept_digest(after)
    has_settled = time.time() - after.st_ctime > _SETTLED
    if after.st_size >= _SMALL and has_settled and stamp_before == stamp:
        keep(entry, {"stamp": stamp, "digest": digest})
    return digest


def _kept_digest(status: os.stat_result) -> tuple[Path, list[int]]:
    """The file that keeps the digest of a file, and what changes with the file's content; no
    program can set the last number, the time of the change of the inode.
    """
    entry = cache_folder() / "digests" / f"{status.st_dev:x}-{status.st_ino:x}.json"
    return entry, [status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def digest_of(path: Path, like: str | None = None) -> str:
    """The digest of a file's bytes: SHA-256, or git's own if the hub names the file ``like``
    that.
    """
    is_git = like is not None and len(like) == 40
    header = b"blob %d\0" % path.stat().st_size
    digest = hashlib.sha256()
    if is_git:
        digest = hashlib.sha1(header, usedforsecurity=False)
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: digest).hexdigest()


def _name_by_content(path: Path) -> str | None:
    """The name of a file of the hub's cache, which is a hash of its content."""
    file = path.resolve()
    if file.parent.name == "blobs" and _HASH.fullmatch(file.name):
        return file.name
    return None


def recall(path: Path) -> dict[str, Any] | None:
    """What is kept in a file of the cache folder; None if there is none, or it is damaged."""
    with suppress(OSError, ValueError):
        kept = parse(path.read_bytes())
        return kept if isinstance(kept, dict) else None
    return None


def keep(path: Path, content: object) -> None:
    """Keep something in a file of the cache folder; one that cannot be written costs only time and
    requests.
    """
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, json.dumps(content))
