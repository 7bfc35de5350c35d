"""How the folder of a model is laid out: the network, the modules of sentence-transformers around
it, the tokenizer; and which of these files decide its numbers.

All who read weights, hash them or look whether they are complete ask `weight_files`, so that
nothing else in the folder is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from itertools import chain
from pathlib import Path, PurePath
from typing import Any

from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.serialization import parse, read_json
from daskmetrics.core.text import plural, shortened
from daskmetrics.domain.names import step_of

MODULES = "modules.json"  #: of a folder of sentence-transformers
NETWORK = "config.json"  #: of a whole model
ADAPTER = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
_BESIDE_WEIGHTS = (  # suffixes of configuration and tokenizer
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
INDEX = ".index.json"
_NOT_READ = (
    "generation_config.json",
    "training.json",
    "trainer_state.json",
    "*_results.json",
    "requirements*.txt",
    f"*{INDEX}",  # that of the weights is one of their files
)
# a file of a module of sentence-transformers, such as 1_Pooling/config.json
_MODULE = re.compile(r"\d+_\w+/[^/]+")
_OF_A_MODEL = ("*", "[0-9]*_*/*")  # patterns of its files, and of those of its modules
# patterns of the files of a tokenizer
_TOKENIZER = (
    "tokenizer*",
    "vocab*",
    "merges.txt",
    "*.model",
    "*.spm",
    "*.tiktoken",
    "*.codes",
    "tekken.json",
)
_BESIDE_TOKENIZER = (
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "*_vocab.json",
    "*.bpe",
    "*.tokenizer",
    "dict.txt",
    "emoji.json",
    "byte_maps.json",
    "normalizer.json",
    "word_*.json",
)


class Incomplete(ValueError):
    """A checkpoint cannot be read, or not yet.

    The message says why, such as "no weights".
    """


class Ambiguous(Incomplete):
    """A folder has two sets of weights; either may be meant."""


def transformer_folder(folder: Path) -> Path:
    """The folder with the weights of a model's network.

    A sub-folder in some folders of sentence-transformers.
    """
    modules = modules_of(folder)
    if modules:
        return folder / str(modules[0].get("path", ""))
    return folder


def root_of(folder: Path) -> Path | None:
    """The sentence-transformers folder of a network, if any.

    Its own folder, or the one around it.
    """
    for root in (folder, folder.parent):
        if modules_of(root) and transformer_folder(root) == folder:
            return root
    return None


def modules_of(folder: Path) -> list[dict[str, Any]]:
    """The modules that a folder of sentence-transformers lists."""
    file = folder / MODULES
    modules = []
    if file.is_file():
        modules = read_json(file, list)
    for module in modules:
        path = None
        if isinstance(module, dict):
            path = PurePath(str(module.get("path", "")))
        if path is None or path.is_absolute() or ".." in path.parts:
            raise DataError(
                f"'{file}' is no list of modules in folders below it. Copy the whole folder again."
            )
    return modules


def is_adapter(folder: Path) -> bool:
    """Whether a folder has an adapter, and no whole model."""
    return are_of_adapter(name for name in (ADAPTER, NETWORK) if (folder / name).is_file())


def matching_files(folder: Path, patterns: Iterable[str]) -> Iterator[Path]:
    """The files in a folder that match a pattern."""
    return filter(Path.is_file, chain.from_iterable(map(folder.glob, patterns)))


def names_of(folder: Path) -> set[str]:
    """Names of the files of a model and its modules."""
    paths = matching_files(folder, _OF_A_MODEL)
    return {path.relative_to(folder).as_posix() for path in paths}


def are_of_adapter(names: Iterable[str]) -> bool:
    """Whether such files are an adapter's, and no whole model's."""
    names = set(names)
    return ADAPTER in names and NETWORK not in names


def relevant(names: Iterable[str], pickled: bool = False) -> tuple[str, ...]:
    """The files that decide a checkpoint's numbers, by their names.

    Weights, configuration, tokenizer; none without weights. Which shards an index names is not
    known from names, so that all count.

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
        if single + INDEX in names:
            weights = {name for name in names if name.endswith(suffix) and "/" not in name}
            weights = weights - {ADAPTER_WEIGHTS} | {single + INDEX}
        if weights:
            return tuple(sorted(weights | beside_weights(names, pickled)))
    return ()


def beside_weights(names: Iterable[str], pickled: bool = False) -> set[str]:
    """The files that are read beside a model's weights.

    The modules around it count whole.
    """
    names = set(names)
    left_over = set() if are_of_adapter(names) else {ADAPTER}
    top = {name for name in names - left_over if "/" not in name}
    beside = {name for name in top if decides(name) and not name.endswith(WEIGHTS)}
    if MODULES in names:
        beside |= {name for name in filter(_MODULE.fullmatch, names) if decides(name, pickled)}
    return beside


def decides(name: str, pickled: bool = False) -> bool:
    """Whether a file of this name may be read."""
    return name.endswith((*_BESIDE_WEIGHTS, *_suffixes(pickled))) and not any(
        fnmatch(name, pattern) for pattern in _NOT_READ
    )


def _suffixes(pickled: bool) -> tuple[str, ...]:
    return WEIGHTS[: 1 + pickled]


def weight_files(folder: Path, pickled: bool = False) -> tuple[str, ...]:
    """The files with a model's weights.

    One, or an index and the shards that it names. Pickled files count where they are allowed, if
    there are no others. Raises `Incomplete` if there are none or one is missing, and `Ambiguous` if
    there are two sets.
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
    """The file of this name, or the index and its shards.

    Empty if there is neither.
    """
    index = single + INDEX
    shards = set()
    if index in names:
        shards = set(read_index(folder / index).values())
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


def has_weights(folder: Path, pickled: bool = False) -> bool:
    """Whether a folder has all files of a model's weights."""
    try:
        return bool(weight_files(folder, pickled))
    except Incomplete:
        return False


def _single_file(names: set[str], wanted: str) -> tuple[str]:
    if wanted in names:
        return (wanted,)
    others = sorted(name for name in names if name.endswith(WEIGHTS))
    reason = f"no weights: no {wanted}"
    if others:
        reason += f", only {shortened(others)}"
    if ADAPTER_WEIGHTS in others:
        reason += f" (without {NETWORK}, the folder is that of a LoRA adapter)"
    raise Incomplete(reason)


def read_index(index: Path) -> dict[str, str]:
    """The files of weights by their tensors, as an index names them."""
    try:
        weight_map = parse(index.read_bytes())["weight_map"]
        return {str(tensor): str(file) for tensor, file in weight_map.items()}
    except (ValueError, LookupError, TypeError, AttributeError):
        raise Incomplete(f"{index.name} cannot be read as an index of weights") from None


def required_files(folder: Path, pickled: bool) -> dict[str, Path]:
    """The files that decide a checkpoint's numbers, by name in its key.

    They are of its folder, of the modules around it, and the tokenizer of its suite if it has none.
    """
    try:
        weights = weight_files(folder, pickled)
    except Incomplete as problem:
        hint = ""
        if not pickled and any(folder.glob("*.bin")):
            hint = (
                " (Pickled .bin files are loaded only with 'pickled: true' for the model, and even"
                " then no code in them is run.)"
            )
        raise ConfigError(f"The weights in '{folder}' cannot be read: {problem}.{hint}") from None
    names = {*weights, *beside_weights(names_of(folder), pickled)}
    files = {name: folder / name for name in sorted(names)}
    root = root_of(folder)
    if root not in (None, folder):
        for name in sorted(names_of(root)):
            if (root / name).parent != folder and decides(name, pickled):
                files[f"../{name}"] = folder / f"../{name}"
    shared = tokenizer_folder(folder)
    if shared not in (None, folder):
        for path in sorted(matching_files(shared, (*_TOKENIZER, *_BESIDE_TOKENIZER))):
            if decides(path.name):
                files[path.name] = path
    return files


def tokenizer_folder(folder: Path) -> Path | None:
    """Where the tokenizer of a checkpoint is; None without one.

    In its folder, or in that of its suite. A trainer that is not given the tokenizer writes
    checkpoints without it.
    """
    # tokenizer_config.json alone is enough: tokenizers of bytes have no vocabulary
    if any(matching_files(folder, _TOKENIZER)):
        return folder
    if step_of(folder.name) is not None and any(matching_files(folder.parent, _TOKENIZER)):
        return folder.parent
    return None
