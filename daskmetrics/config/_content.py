"""The content of a checkpoint's files: which of them decide its numbers, their digests, and a sample of its weights.

Every byte is read, but once: the digest of a file is kept in the cache folder until the file changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskmetrics.config._shipped import MODULES, root_of
from daskmetrics.core._files import atomic_write, cache_folder
from daskmetrics.core._json import parse
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.names import Key, content_key, step_of

#: Patterns of the files of a tokenizer
TOKENIZER = ("tokenizer*", "vocab*", "merges.txt", "*.model", "*.spm", "*.tiktoken", "*.codes", "tekken.json")

OnMessage = Callable[[str], None]

_WEIGHTS = (".safetensors", ".bin")
_BESIDE_WEIGHTS = (".json", ".txt", ".model", ".jinja", ".spm", ".tiktoken", ".codes", ".bpe", ".vocab")
_NOT_READ = ("generation_config.json", "training.json", "trainer_state.json", "*_results.json", "requirements*.txt")
_MODULE = re.compile(r"\d+_\w+/[^/]+")  # a file of a module of sentence-transformers, such as 1_Pooling/config.json
_BESIDE_TOKENIZER = ("special_tokens_map.json", "added_tokens.json", "chat_template.jinja")
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SMALL = 1 << 16  # bytes: smaller files are read each time
_SETTLED = 2.0  # seconds; a file that changed more recently can change again within the resolution of its times
_LONG = 10e9  # bytes whose reading is announced
_SAMPLE = 1 << 15  # values of a sample
_HEADER = 100 << 20  # bytes: no header of a safetensors file is longer
_NUMBERS: Mapping[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
}


@dataclass(frozen=True)
class Content:
    """The keys of a checkpoint's content; the name of a single weight file is not part of them."""

    key: Key  # of all files that decide its numbers: weights, configuration, tokenizer
    weights: Key  # of every byte of the weights alone
    digests: Mapping[str, str]  # by file

    @classmethod
    def of(cls, digests: Mapping[str, str]) -> Content:
        """From the digests of the `relevant` files."""
        weights = sorted((name, digest) for name, digest in digests.items() if name.endswith(_WEIGHTS))
        beside = sorted((name, digest) for name, digest in digests.items() if not name.endswith(_WEIGHTS))
        named = weights if len(weights) > 1 else [digest for _, digest in weights]
        return cls(content_key(named, beside), content_key(named), digests)


def fingerprint(folder: Path, pickled: bool = False) -> Key:
    """Key of the content of a model folder, of every byte; pickled weights are an error unless they are allowed."""
    return contents([folder], pickled)[0].key


def contents(folders: Sequence[Path], pickled: bool = False, on_message: OnMessage | None = None) -> list[Content]:
    """The content of model folders; files of equal content in other places, or with other times, have equal keys.

    Raises
    ------
    ConfigError
        If a folder has no weights.
    DataError
        If a file cannot be read.
    """
    required = [_required(folder, pickled) for folder in folders]
    digests = iter(_digests([path for files in required for path in files.values()], on_message))
    return [Content.of({name: next(digests) for name in files}) for files in required]


def _required(folder: Path, pickled: bool) -> dict[str, Path]:
    """The files that decide a checkpoint's numbers, by the name that is part of the key."""
    if names := files_of(folder, pickled):
        return {name: folder / name for name in (*names, *_modules_around(folder))} | _shared_tokenizer(folder)
    raise ConfigError(
        f"'{folder}' has no weights: no .safetensors file. (Pickled .bin files are loaded only with "
        "'pickled: true' for the model, and even then no code in them is run.)"
    )


def files_of(folder: Path, pickled: bool = False) -> tuple[str, ...]:
    """Names of the `relevant` files of a model folder; none if a file with weights is missing."""
    found = (path for pattern in ("*", "[0-9]*_*/*") for path in folder.glob(pattern) if path.is_file())
    names = relevant((path.relative_to(folder).as_posix() for path in found), pickled)
    for index in (name for name in names if name.endswith(".index.json")):
        with suppress(ValueError, KeyError, TypeError, AttributeError):  # a foreign file: the loader says what is wrong
            if not set(parse((folder / index).read_bytes())["weight_map"].values()) <= set(names):
                return ()
    return names


def tokenizer_folder(folder: Path) -> Path | None:
    """Where the tokenizer of a checkpoint is: in its folder, or in that of its suite; None if there is none.

    A trainer that is not given the tokenizer writes checkpoints without it.
    """
    places = (folder, folder.parent) if step_of(folder.name) is not None else (folder,)
    # tokenizer_config.json alone is enough: tokenizers of bytes have no vocabulary
    return next(
        (place for place in places if any(file.is_file() for each in TOKENIZER for file in place.glob(each))), None
    )


def _shared_tokenizer(folder: Path) -> dict[str, Path]:
    """Files of the tokenizer of the suite, for a checkpoint that has none; named as if they were its own."""
    place = tokenizer_folder(folder)
    if place in (None, folder):
        return {}
    found = (path for pattern in (*TOKENIZER, *_BESIDE_TOKENIZER) for path in place.glob(pattern) if path.is_file())
    return {path.name: path for path in sorted(found) if _decides(path.name, ".safetensors")}


def _modules_around(folder: Path) -> tuple[str, ...]:
    """Files of the other modules of a sentence-transformers folder whose network is this sub-folder of it."""
    root = root_of(folder)
    if root in (None, folder):
        return ()
    found = (path for pattern in ("*", "[0-9]*_*/*") for path in root.glob(pattern) if path.is_file())
    names = (f"../{path.relative_to(root).as_posix()}" for path in found if path.parent != folder)
    return tuple(sorted(name for name in names if _decides(name, ".safetensors")))


def relevant(names: Iterable[str], pickled: bool = False) -> tuple[str, ...]:
    """Those files of a checkpoint that decide its numbers: weights, configuration, tokenizer; none without weights.

    >>> relevant(["model.safetensors", "config.json", "README.md", "pytorch_model.bin", "generation_config.json"])
    ('config.json', 'model.safetensors')
    """
    names = set(names)
    top = {name for name in names if "/" not in name}
    suffixes = {Path(name).suffix for name in top}
    weights = ".bin" if pickled and ".safetensors" not in suffixes else ".safetensors"
    if weights not in suffixes:
        return ()
    modules = {name for name in names if _MODULE.fullmatch(name)} if MODULES in names else set()
    return tuple(sorted(name for name in top | modules if _decides(name, weights)))


def _decides(name: str, weights: str) -> bool:
    if any(fnmatch(name, pattern) for pattern in _NOT_READ):
        return False
    is_index_of_others = name.endswith(".index.json") and weights not in name
    return name.endswith((weights, *_BESIDE_WEIGHTS)) and not is_index_of_others


def _digests(paths: Sequence[Path], on_message: OnMessage | None) -> list[str]:
    """The digest of each file, read by several threads."""
    try:
        known = [_known(path) for path in paths]
        size = sum(path.stat().st_size for path, digest in zip(paths, known, strict=True) if digest is None)
        if on_message and size > _LONG:
            on_message(
                f"Reading {size / 1e9:,.0f} GB of weights once, to recognise changed and identical checkpoints ..."
            )
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            return list(pool.map(lambda path, digest: digest or _read(path), paths, known))
    except OSError as error:
        raise DataError(f"'{error.filename}' cannot be read ({error.strerror}), so its content is not known.") from None


def _known(path: Path) -> str | None:
    """The digest of a large file that need not be read: it is kept, or the hub's cache names the file by it.

    The name is trusted until the file changes.
    """
    status = path.stat()
    if status.st_size < _SMALL:
        return None
    if (kept := _kept(_entry(status))) is None:
        name = _name_by_content(path)
        if name:
            _keep(_entry(status), status, name)
        return name
    return str(kept["digest"]) if kept["stamp"] == _stamp(status) else None


def _read(path: Path) -> str:
    """The digest of a file, in the form by which the hub's cache names it; kept if the file is large."""
    before = path.stat()
    text = digest_of(path, like=_name_by_content(path))
    after = path.stat()
    has_settled = time.time() - after.st_ctime > _SETTLED
    if after.st_size >= _SMALL and has_settled and _stamp(before) == _stamp(after):
        _keep(_entry(after), after, text)
    return text


def digest_of(path: Path, like: str | None = None) -> str:
    """The digest of a file's bytes: SHA-256, or git's own if the hub names the file ``like`` that."""
    is_git = like is not None and len(like) == 40
    header = b"blob %d\0" % path.stat().st_size
    digest = hashlib.sha1(header, usedforsecurity=False) if is_git else hashlib.sha256()
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: digest).hexdigest()


def _name_by_content(path: Path) -> str | None:
    """The name of a file of the hub's cache, which is a hash of its content."""
    file = path.resolve()
    return file.name if file.parent.name == "blobs" and _HASH.fullmatch(file.name) else None


def _entry(status: os.stat_result) -> Path:
    """The file that keeps the digest of a file."""
    return cache_folder() / "digests" / f"{status.st_dev:x}-{status.st_ino:x}.json"


def _stamp(status: os.stat_result) -> list[int]:
    """What changes with a file's content; no program can set the last, the time of the change of the inode."""
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _kept(entry: Path) -> dict[str, Any] | None:
    """A kept digest; None if there is none, or its file is damaged."""
    kept = recall(entry) or {}
    is_whole = _HASH.fullmatch(str(kept.get("digest"))) and isinstance(kept.get("stamp"), list)
    return kept if is_whole else None


def _keep(entry: Path, status: os.stat_result, digest: str) -> None:
    keep(entry, {"stamp": _stamp(status), "digest": digest})


def recall(place: Path) -> dict[str, Any] | None:
    """What is kept in a file of the cache folder; None if there is none, or it is damaged."""
    with suppress(OSError, ValueError):
        kept = parse(place.read_bytes())
        return kept if isinstance(kept, dict) else None
    return None


def keep(place: Path, content: object) -> None:
    """Keep something in a file of the cache folder; one that cannot be written costs only time and requests."""
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(place, json.dumps(content))


def sample(folder: Path, content: Content) -> NDArray[np.float32] | None:
    """About 32,000 weights of a checkpoint, at equal places for equal shapes; kept in the cache folder.

    From the middle of each tensor of floating-point numbers. None without readable safetensors files.
    """
    kept = cache_folder() / "samples" / content_key(1, content.weights)
    with suppress(OSError):
        stored = kept.read_bytes()
        check, values = stored[:32], stored[32:]
        if values and hashlib.sha256(values).digest() == check:
            return np.frombuffer(values, "<f4")
    files = [folder / name for name in sorted(content.digests) if name.endswith(".safetensors")]
    try:
        drawn = _draw(files)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # a foreign file: the loader says it
        return None
    with suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(kept, hashlib.sha256(drawn.tobytes()).digest() + drawn.tobytes())
    return drawn if len(drawn) else None


def _draw(files: Sequence[Path]) -> NDArray[np.float32]:
    tensors = sorted(
        (name, path, number, start, end)
        for path in files
        for name, number, start, end in tensors_of(path)
        if number in _NUMBERS
    )
    each = max(8, _SAMPLE // max(1, len(tensors)))
    parts = [_middle(path, _NUMBERS[number], start, end, each) for _, path, number, start, end in tensors]
    values = np.concatenate(parts) if parts else np.empty(0, np.float32)
    return np.where(np.isfinite(values), values, 0).astype("<f4")


def tensors_of(path: Path) -> list[tuple[str, str, int, int]]:
    """Name, type of numbers, first and last byte of each tensor of a safetensors file."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _HEADER:
            raise ValueError(f"'{path}' is not a safetensors file")
        header = parse(file.read(length))
    data = 8 + length
    return [
        (name, about["dtype"], data + about["data_offsets"][0], data + about["data_offsets"][1])
        for name, about in header.items()
        if name != "__metadata__"
    ]


def _middle(path: Path, dtype: np.dtype[Any], start: int, end: int, most: int) -> NDArray[np.float32]:
    """Up to ``most`` values from the middle of a tensor."""
    count = (end - start) // dtype.itemsize
    taken = min(count, most)
    values = np.fromfile(path, dtype, taken, offset=start + (count - taken) // 2 * dtype.itemsize)
    if dtype == np.dtype("<u2"):  # bfloat16 is the upper half of float32
        values = (values.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(over="ignore"):  # a float64 beyond float32
        return values.astype(np.float32)
