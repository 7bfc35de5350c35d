"""The content of a checkpoint's files: which of them decide its numbers, their digests, and
whether they are complete.

Every byte is read, but once: the digest of a file is kept in the cache folder until the file
changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import chain
from pathlib import Path
from typing import Any

from daskmetrics.checkpoints import adapters as adapters
from daskmetrics.checkpoints.shipped import MODULES, root_of, transformer_folder
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.files import atomic_write, cache_folder
from daskmetrics.core.names import Key, content_key, step_of
from daskmetrics.core.serialization import parse

#: Patterns of the files of a tokenizer
TOKENIZER = (
    "tokenizer*",
    "vocab*",
    "merges.txt",
    "*.model",
    "*.spm",
    "*.tiktoken",
    "*.codes",
    "tekken.json",
)

CHECKPOINT = re.compile(r"checkpoint-\d+")
"""Names of the folders that the trainers of transformers and sentence-transformers write."""

STATE = "trainer_state.json"  # what these trainers write last
_OF_A_TRAINER = ("training_args.bin", "optimizer.*", "scheduler.pt", "rng_state*.pth", STATE)

OnMessage = Callable[[str], None]

_WEIGHTS = (".safetensors", ".bin")
_BESIDE_WEIGHTS = (
    ".json",
    ".txt",
    ".model",
    ".jinja",
    ".spm",
    ".tiktoken",
    ".codes",
    ".bpe",
    ".vocab",
)
_NOT_READ = (
    "generation_config.json",
    "training.json",
    "trainer_state.json",
    "*_results.json",
    "requirements*.txt",
)
# a file of a module of sentence-transformers, such as 1_Pooling/config.json
_MODULE = re.compile(r"\d+_\w+/[^/]+")
_OF_A_MODEL = ("*", "[0-9]*_*/*")  # patterns of its files, and of those of its modules
_BESIDE_TOKENIZER = ("special_tokens_map.json", "added_tokens.json", "chat_template.jinja")
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SMALL = 1 << 16  # bytes: smaller files are read each time
# seconds; a file that changed more recently can change again within the resolution of its times
_SETTLED = 2.0
_LONG = 10e9  # bytes whose reading is announced
_HEADER = 100 << 20  # bytes: no header of a safetensors file is longer


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


def fingerprint(folder: Path, pickled: bool = False) -> Key:
    """Key of the content of a model folder, of every byte; pickled weights are an error unless they
    are allowed.
    """
    return contents([folder], pickled)[0].key


def contents(
    folders: Sequence[Path], pickled: bool = False, on_message: OnMessage | None = None
) -> list[Content]:
    """The content of model folders; files of equal content in other places, or with other times,
    have equal keys.

    Raises
    ------
    ConfigError
        If a folder has no weights.
    DataError
        If a file cannot be read.
    """
    required = [_required(folder, pickled) for folder in folders]
    paths = list(chain.from_iterable(files.values() for files in required))
    digests = iter(_digests(paths, on_message))
    return [Content.of(dict(zip(files, digests, strict=False))) for files in required]


def _required(folder: Path, pickled: bool) -> dict[str, Path]:
    """The files that decide a checkpoint's numbers, by the name that is part of the key."""
    names = files_of(folder, pickled)
    if not names:
        raise ConfigError(
            f"'{folder}' has no weights: no .safetensors file. (Pickled .bin files are loaded only with "
            "'pickled: true' for the model, and even then no code in them is run.)"
        )
    files = {name: folder / name for name in (*names, *_modules_around(folder))}
    return files | _shared_tokenizer(folder)


def _files(folder: Path, patterns: Iterable[str]) -> Iterator[Path]:
    """The files in a folder that match one of the patterns."""
    return filter(Path.is_file, chain.from_iterable(map(folder.glob, patterns)))


def files_of(folder: Path, pickled: bool = False) -> tuple[str, ...]:
    """Names of the `relevant` files of a model folder; none if a file with weights is missing."""
    paths = _files(folder, _OF_A_MODEL)
    names = relevant((path.relative_to(folder).as_posix() for path in paths), pickled)
    for index in (name for name in names if name.endswith(".index.json")):
        # a foreign file: the loader says what is wrong
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            if not set(parse((folder / index).read_bytes())["weight_map"].values()) <= set(names):
                return ()
    return names


def tokenizer_folder(folder: Path) -> Path | None:
    """Where the tokenizer of a checkpoint is: in its folder, or in that of its suite; None if there
    is none.

    A trainer that is not given the tokenizer writes checkpoints without it.
    """
    # tokenizer_config.json alone is enough: tokenizers of bytes have no vocabulary
    if any(_files(folder, TOKENIZER)):
        return folder
    if step_of(folder.name) is not None and any(_files(folder.parent, TOKENIZER)):
        return folder.parent
    return None


def _shared_tokenizer(folder: Path) -> dict[str, Path]:
    """Files of the tokenizer of the suite, for a checkpoint that has none; named as if they were
    its own.
    """
    shared = tokenizer_folder(folder)
    if shared in (None, folder):
        return {}
    paths = sorted(_files(shared, (*TOKENIZER, *_BESIDE_TOKENIZER)))
    return {path.name: path for path in paths if _decides(path.name, ".safetensors")}


def _modules_around(folder: Path) -> tuple[str, ...]:
    """Files of the other modules of a sentence-transformers folder whose network is this sub-folder
    of it.
    """
    root = root_of(folder)
    if root in (None, folder):
        return ()
    paths = _files(root, _OF_A_MODEL)
    names = (f"../{path.relative_to(root).as_posix()}" for path in paths if path.parent != folder)
    return tuple(sorted(name for name in names if _decides(name, ".safetensors")))


def relevant(names: Iterable[str], pickled: bool = False) -> tuple[str, ...]:
    """Those files of a checkpoint that decide its numbers: weights, configuration, tokenizer; none
    without weights.

    >>> relevant(["model.safetensors", "config.json", "README.md", "pytorch_model.bin", "generation_config.json"])
    ('config.json', 'model.safetensors')
    """
    names = set(names)
    top = {name for name in names if "/" not in name}
    suffixes = {Path(name).suffix for name in top}
    weights = ".bin" if pickled and ".safetensors" not in suffixes else ".safetensors"
    if weights not in suffixes:
        return ()
    if MODULES in names:
        top |= set(filter(_MODULE.fullmatch, names))
    return tuple(sorted(name for name in top if _decides(name, weights)))


def _decides(name: str, weights: str) -> bool:
    if any(fnmatch(name, pattern) for pattern in _NOT_READ):
        return False
    is_index_of_others = name.endswith(".index.json") and weights not in name
    return name.endswith((weights, *_BESIDE_WEIGHTS)) and not is_index_of_others


def _digests(paths: Sequence[Path], on_message: OnMessage | None) -> list[str]:
    """The digest of each file, read by several threads."""
    try:
        kept = [_known(path) for path in paths]
        size = sum(
            path.stat().st_size for path, digest in zip(paths, kept, strict=True) if digest is None
        )
        if on_message and size > _LONG:
            on_message(
                f"Reading {size / 1e9:,.0f} GB of weights once, to recognise changed and identical checkpoints ..."
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
    entry = _entry(status)
    kept = _kept(entry)
    if kept is None:
        name = _name_by_content(path)
        if name:
            _keep(entry, status, name)
        return name
    return str(kept["digest"]) if kept["stamp"] == _stamp(status) else None


def _read(path: Path) -> str:
    """The digest of a file, in the form by which the hub's cache names it; kept if the file is
    large.
    """
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
    """What changes with a file's content; no program can set the last, the time of the change of
    the inode.
    """
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _kept(entry: Path) -> dict[str, Any] | None:
    """A kept digest; None if there is none, or its file is damaged."""
    kept = recall(entry) or {}
    is_whole = _HASH.fullmatch(str(kept.get("digest"))) and isinstance(kept.get("stamp"), list)
    return kept if is_whole else None


def _keep(entry: Path, status: os.stat_result, digest: str) -> None:
    keep(entry, {"stamp": _stamp(status), "digest": digest})


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


def tensors_of(path: Path) -> list[tuple[str, str, int, int]]:
    """Name, type of numbers, first and last byte of each tensor of a safetensors file."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _HEADER:
            raise ValueError(f"'{path}' is not a safetensors file")
        header = parse(file.read(length))
    data = 8 + length
    return [
        (name, tensor["dtype"], data + tensor["data_offsets"][0], data + tensor["data_offsets"][1])
        for name, tensor in header.items()
        if name != "__metadata__"
    ]


def fault(folder: Path) -> str:
    """Why a checkpoint is not complete, such as "no config.json"; empty if it is complete.

    It is complete if its configuration can be read, every weight file that its index names is there
    and has the size that its header says, and the trainer has written the file that it writes last.
    """
    network = transformer_folder(folder)
    config = network / (adapters.CONFIG if adapters.is_adapter(network) else "config.json")
    with suppress(OSError):  # a trainer removes old checkpoints at any time
        return _unreadable(config) or weights_fault(network) or _without_state(folder)
    return "it cannot be read"


def _unreadable(file: Path) -> str:
    """Why a file of JSON cannot be read."""
    if not file.is_file():
        return f"no {file.name}"
    try:
        return "" if isinstance(parse(file.read_bytes()), Mapping) else f"{file.name} is no mapping"
    except ValueError:
        return f"{file.name} is not complete"


def weights_fault(folder: Path) -> str:
    """Why the weights in a folder cannot be read, by the headers of its files; empty if nothing is
    wrong with them.
    """
    names = files_of(folder) or files_of(folder, pickled=True)
    if not names:
        return "not all weights" if any(folder.glob("*.index.json")) else "no weights"
    reasons = (_cut_off(folder / name) for name in names if name.endswith(".safetensors"))
    return next(filter(None, reasons), "")


def _cut_off(file: Path) -> str:
    size = file.stat().st_size
    try:
        wanted = max((end for *_, end in tensors_of(file)), default=size)
    except (ValueError, LookupError, TypeError, AttributeError):
        return f"{file.name} has no complete header"
    return "" if size == wanted else f"{file.name} has {size:,} of {wanted:,} bytes"


def _without_state(folder: Path) -> str:
    """A trainer's checkpoint has files of its state; others, which somebody copied without them,
    need none.
    """
    reason = _unreadable(folder / STATE)
    beside = folder.parent.glob(f"checkpoint-*/{STATE}")
    of_trainer = chain(*map(folder.glob, _OF_A_TRAINER), beside)
    return f"{reason}, which the trainer writes last" if reason and any(of_trainer) else ""
