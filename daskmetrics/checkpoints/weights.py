"""Which files of a model's folder decide its numbers, and what the headers of its weights say.

All who read weights, hash them or look whether they are complete ask `weight_files`, so that
nothing else in the folder is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from itertools import chain
from pathlib import Path

from daskmetrics.core.serialization import parse
from daskmetrics.core.text import plural, shortened

Headers = Mapping[str, tuple[str, tuple[int, ...]]]  # type and shape of tensors, by name

MODULES = "modules.json"  #: of a folder of sentence-transformers
NETWORK = "config.json"  #: of a whole model
ADAPTER = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
BESIDE_WEIGHTS = (  #: suffixes of configuration and tokenizer
    ".json",
    ".txt",
    ".model",
    ".jinja",
    ".spm",
    ".tiktoken",
    ".codes",
    ".bpe",
    ".vocab",
    ".tokenizer",
)
_SINGLE = {".safetensors": "model.safetensors", ".bin": "pytorch_model.bin"}
WEIGHTS = tuple(_SINGLE)  #: suffixes of weights
_INDEX = ".index.json"
_NOT_READ = (
    "generation_config.json",
    "training.json",
    "trainer_state.json",
    "*_results.json",
    "requirements*.txt",
    f"*{_INDEX}",  # that of the weights is one of their files
)
# a file of a module of sentence-transformers, such as 1_Pooling/config.json
_MODULE = re.compile(r"\d+_\w+/[^/]+")
_OF_A_MODEL = ("*", "[0-9]*_*/*")  # patterns of its files, and of those of its modules
#: what wrappers of torch and adapters put before the names of all tensors
WRAPPER = re.compile(r"^(?:(?:base_model\.model|_orig_mod|(?:_fsdp_wrapped_)?module)\.)+")
_HEADER = 100 << 20  # bytes: no header of a safetensors file is longer


class Incomplete(ValueError):
    """A checkpoint cannot be read, or not yet; the message says why, such as "no weights"."""


class Ambiguous(Incomplete):
    """A folder has two sets of weights, and which one is meant is not known."""


def matching_files(folder: Path, patterns: Iterable[str]) -> Iterator[Path]:
    """The files in a folder that match one of the patterns."""
    return filter(Path.is_file, chain.from_iterable(map(folder.glob, patterns)))


def names_of(folder: Path) -> set[str]:
    """Names of the files of a model folder, and of those of its modules."""
    paths = matching_files(folder, _OF_A_MODEL)
    return {path.relative_to(folder).as_posix() for path in paths}


def are_of_adapter(names: Iterable[str]) -> bool:
    """Whether files of these names are an adapter's, and not a whole model's."""
    names = set(names)
    return ADAPTER in names and NETWORK not in names


def relevant(names: Iterable[str], pickled: bool = False) -> tuple[str, ...]:
    """The names of files that decide a checkpoint's numbers: weights, configuration, tokenizer; none
    without weights. Which shards an index names is not known from names, so that all count.

    >>> relevant(["model.safetensors", "config.json", "README.md", "pytorch_model.bin", "generation_config.json"])
    ('config.json', 'model.safetensors')
    """
    names = set(names)
    if are_of_adapter(names):
        weights = names & {ADAPTER_WEIGHTS}
        return tuple(sorted(weights | beside_weights(names, pickled))) if weights else ()
    for suffix in _suffixes(pickled):
        single = _SINGLE[suffix]
        weights = names & {single}
        if single + _INDEX in names:
            weights = {name for name in names if name.endswith(suffix) and "/" not in name}
            weights = weights - {ADAPTER_WEIGHTS} | {single + _INDEX}
        if weights:
            return tuple(sorted(weights | beside_weights(names, pickled)))
    return ()


def beside_weights(names: Iterable[str], pickled: bool = False) -> set[str]:
    """Those files of a model that are read beside its weights, and the modules around it whole."""
    names = set(names)
    left_over = set() if are_of_adapter(names) else {ADAPTER}
    top = {name for name in names - left_over if "/" not in name}
    beside = {name for name in top if decides(name) and not name.endswith(WEIGHTS)}
    if MODULES in names:
        beside |= {name for name in filter(_MODULE.fullmatch, names) if decides(name, pickled)}
    return beside


def decides(name: str, pickled: bool = False) -> bool:
    """Whether a file of this name may be read when a model is loaded."""
    return name.endswith((*BESIDE_WEIGHTS, *_suffixes(pickled))) and not any(
        fnmatch(name, pattern) for pattern in _NOT_READ
    )


def weight_files(folder: Path, pickled: bool = False) -> tuple[str, ...]:
    """Names of the files with a model's weights: one, or an index and the shards that it names.

    Pickled files count where they are allowed, if there are no others. Raises `Incomplete` if there
    are none or one is missing, and `Ambiguous` if there are two sets.
    """
    names = {path.name for path in matching_files(folder, "*")}
    if are_of_adapter(names):
        return _single_file(names, ADAPTER_WEIGHTS)
    for suffix in _suffixes(pickled):
        files = _one_set(folder, names, _SINGLE[suffix])
        if files:
            return files
    return _single_file(names, _SINGLE[".safetensors"])


def _one_set(folder: Path, names: set[str], single: str) -> tuple[str, ...]:
    """The file of this name, or the index and the shards in its place; none if there is neither."""
    index = single + _INDEX
    shards = set()
    if index in names:
        shards = set(_weight_map(folder / index).values())
    here = shards & names
    # where none of its shards is left, a later save has left nothing of an earlier one but the index
    if single in names and (not here or index not in names):
        return (single,)
    if single in names - shards:
        raise Ambiguous(
            f"two sets of weights, {single} and {plural(len(here), 'file')} of those that {index}"
            f" names, such as {min(here)}; remove the set that is not meant, as that of an earlier save"
        )
    if shards != here:
        raise Incomplete(
            f"{len(shards - here)} of the {len(shards)} files that {index} names are missing:"
            f" {shortened(sorted(shards - here))}"
        )
    return (index, *sorted(shards)) if shards else ()


def files_of(folder: Path, pickled: bool = False) -> tuple[str, ...]:
    """Names of the files of a folder that decide a checkpoint's numbers; `Incomplete` as of
    `weight_files`.
    """
    weights = weight_files(folder, pickled)
    return tuple(sorted({*weights, *beside_weights(names_of(folder), pickled)}))


def has_weights(folder: Path, pickled: bool = False) -> bool:
    """Whether a folder has all files with the weights of a model."""
    try:
        return bool(weight_files(folder, pickled))
    except Incomplete:
        return False


def _suffixes(pickled: bool) -> tuple[str, ...]:
    return WEIGHTS[: 1 + pickled]


def _single_file(names: set[str], wanted: str) -> tuple[str]:
    """The only file with weights; `Incomplete` without it, with those of other names."""
    if wanted in names:
        return (wanted,)
    others = sorted(name for name in names if name.endswith(WEIGHTS))
    reason = f"no weights: no {wanted}"
    if others:
        reason += f", only {shortened(others)}"
    if ADAPTER_WEIGHTS in others:
        reason += f" (without {NETWORK}, the folder is that of a LoRA adapter)"
    raise Incomplete(reason)


def _weight_map(index: Path) -> dict[str, str]:
    """The file of each tensor, as an index says."""
    try:
        weight_map = parse(index.read_bytes())["weight_map"]
        return {str(tensor): str(file) for tensor, file in weight_map.items()}
    except (ValueError, LookupError, TypeError, AttributeError):
        raise Incomplete(f"{index.name} cannot be read as an index of weights") from None


def weight_headers(folder: Path) -> Headers:
    """Type, such as F32, and shape of the tensors in a folder, by name, as the headers of its
    .safetensors files say.

    Raises `Incomplete` if the weights cannot be read, and `Ambiguous` if a shard has a tensor that
    the index does not name for it.
    """
    headers: dict[str, tuple[str, tuple[int, ...]]] = {}
    weight_map = None
    for name in weight_files(folder, pickled=True):
        if name.endswith(_INDEX):
            weight_map = _weight_map(folder / name)
        if name.endswith(".safetensors"):
            header = _header(folder / name)
            if weight_map is not None:
                _require_named(header, name, weight_map)
            headers |= header
    return headers


def _require_named(header: Headers, shard: str, weight_map: Mapping[str, str]) -> None:
    for tensor in header:
        other = weight_map.get(tensor, "none")
        if other != shard:
            raise Ambiguous(
                f"two sets of weights: '{tensor}' is in {shard}, and by the index it belongs in"
                f" {other}; copy all files of one save again"
            )


def unwrapped(prefix: str) -> str:
    """How to save weights without what a wrapper has put before their names."""
    remedy = "save the model within its wrapper, such as model.module"
    if "base_model" in prefix:
        remedy = "merge the adapter with merge_and_unload() of peft"
    elif "_orig_mod" in prefix:
        remedy = "save the model that was given to torch.compile (model._orig_mod)"
    return f"{remedy}, with save_pretrained(), or take the prefix off the names"


def _header(file: Path) -> Headers:
    """The header of one .safetensors file, as long as it says; else `Incomplete`."""
    size = file.stat().st_size
    headers = {}
    try:
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            if length > _HEADER:
                raise ValueError(f"a header of {length} bytes")
            header = parse(opened.read(length))
        header.pop("__metadata__", None)
        ends = [8 + length + tensor["data_offsets"][1] for tensor in header.values()]
        wanted = max(ends, default=size)
        for tensor, values in header.items():
            headers[tensor] = str(values["dtype"]), tuple(map(int, values["shape"]))
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
        raise Incomplete(f"{file.name} has no complete header") from None
    if size != wanted:
        raise Incomplete(f"{file.name} has {size:,} of {wanted:,} bytes")
    return headers
