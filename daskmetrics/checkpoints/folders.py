"""What the folder of a model holds, read without torch: its shape, its tokenizer, an adapter,
checkpoints; whether its files are complete and fit each other, and their digests.

Every byte of these files is read, but once: the digest of a file is kept in the cache folder until
the file changes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path, PurePath
from typing import Any, TypeVar

from daskmetrics.checkpoints.weights import (
    ADAPTER,
    ADAPTER_WEIGHTS,
    MODULES,
    NETWORK,
    WEIGHTS,
    WRAPPER,
    Ambiguous,
    Headers,
    Incomplete,
    are_of_adapter,
    decides,
    files_of,
    matching_files,
    names_of,
    unwrapped,
    weight_files,
    weight_headers,
)
from daskmetrics.config import Model
from daskmetrics.config.section import DEEPEST, WIDEST
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.files import atomic_write, cache_folder
from daskmetrics.core.names import Key, content_key, select_revisions, step_of, training_order
from daskmetrics.core.serialization import parse, readable
from daskmetrics.core.text import OnMessage, listed

Stamp = tuple[str, list[int]]  # path, and what changes with the content of the file
T = TypeVar("T")

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

# what a training writes beside its last model; others may be exports of that model
_BESIDE_MODEL = re.compile(r"[0-9]+|.*(?:step|iter|epoch|update|checkpoint|ckpt).*", re.IGNORECASE)

STATE = "trainer_state.json"  # what these trainers write last
_OF_A_TRAINER = ("training_args.bin", "optimizer.*", "scheduler.pt", "rng_state*.pth", STATE)

_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SMALL = 1 << 16  # bytes: smaller files are read each time
# seconds; a file that changed more recently can change again within the resolution of its times
_SETTLED = 2.0
_LONG = 10e9  # bytes whose reading is announced
_FLOATS = {"F64", "F32", "F16", "BF16"}  # types of safetensors
_BLOCK = re.compile(r"(.*?)\.(\d+)\.")  # the name of a tensor of a block: its stack and its number
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
# others change the weights of the base when they begin
_PLAIN = (
    True,
    False,
    None,
    "gaussian",
    "eva",
    "orthogonal",
)
_KNOWN = {
    "peft_type",
    "peft_version",
    "task_type",
    "auto_mapping",
    "inference_mode",
    "revision",
    "base_model_name_or_path",
    "r",
    "lora_alpha",
    "rank_pattern",
    "alpha_pattern",
    "use_rslora",
    "lora_dropout",
    "lora_bias",
    "bias",
    "target_modules",
    "exclude_modules",
    "layers_to_transform",
    "layers_pattern",
    "modules_to_save",
    "fan_in_fan_out",
    "init_lora_weights",
    "eva_config",
    "megatron_core",
    "qalora_group_size",
}
"""Options that are applied here, or that change no number after training."""


# the last is CANINE's, which reads characters
_VOCABULARY = (
    "vocab_size",
    "n_words",
    "num_hash_buckets",
)
_OTHER_INPUTS = ("image_size", "num_mel_bins", "feat_extract_norm")  # images, sound
_DEPTHS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers")
_KINDS_OF_BLOCKS = ("layers_block_type", "hybrid_override_pattern", "layer_types")
_WIDTHS = ("hidden_size", "n_embd", "d_model", "dim", "emb_dim")


@dataclass(frozen=True)
class Adapter:
    """What the configuration of a LoRA adapter says."""

    base: str  # a folder, or a hub id
    revision: str  # of the hub
    alpha: float
    alphas: Mapping[str, float]  # by a pattern of names of modules, in place of alpha
    rank_stabilized: bool

    def scale(self, module: str, rank: int) -> float:
        """The factor of the product of the two matrices, for a module of this name.

        Hu et al. (2022), section 4.1: alpha / r; Kalajdzievski (2023): alpha / sqrt(r),
        rank-stabilized.
        """
        patterns = (pattern for pattern in self.alphas if re.match(rf"(.*\.)?({pattern})$", module))
        alpha = self.alphas.get(next(patterns, ""), self.alpha)
        if self.rank_stabilized:
            return alpha / math.sqrt(rank)
        return alpha / rank


# networks, and the modules of sentence-transformers around them


def transformer_folder(folder: Path) -> Path:
    """The folder with the weights of a model's network: a sub-folder in some sentence-transformers
    folders.
    """
    modules = modules_of(folder)
    if modules:
        return folder / str(modules[0].get("path", ""))
    return folder


def root_of(folder: Path) -> Path | None:
    """The sentence-transformers folder of a network: its own folder, the one around it, or None."""
    for root in (folder, folder.parent):
        if modules_of(root) and transformer_folder(root) == folder:
            return root
    return None


def modules_of(folder: Path) -> list[dict[str, Any]]:
    """The modules that a folder of sentence-transformers lists; none for another folder."""
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


def read_json(file: Path, kind: Callable[[Any], T]) -> T:
    """The content of a JSON file as a dict or a list; a `DataError` if it is not one."""
    try:
        return kind(parse(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError, OSError) as error:
        raise DataError(f"'{file}' cannot be read as JSON: {error}") from None


def is_model(folder: Path) -> bool:
    """Whether a folder is itself that of a model or an adapter, and not one of folders of
    models.
    """
    network = transformer_folder(folder)
    return is_adapter(network) or (network / NETWORK).is_file()


def revision_folders(folder: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """The model folders of a suite by revision, and why checkpoints of a trainer are not complete.

    The checkpoints of a training may be beside the model with which it ended, which is then ``main``.
    """
    paths = {path.name: path for path in folder.glob("*/")}
    incomplete = {}
    for name, path in paths.items():
        if not CHECKPOINT.fullmatch(name):
            continue
        try:
            require_complete(path)
        except Incomplete as problem:
            incomplete[name] = str(problem)
    inside = paths
    if is_model(folder):
        trained = filter(_BESIDE_MODEL.fullmatch, paths)
        inside = {name: paths[name] for name in trained if step_of(name) is not None}
        inside["main"] = folder
    networks = {
        name: transformer_folder(path) for name, path in inside.items() if name not in incomplete
    }
    return {name: path for name, path in networks.items() if is_model(path)}, incomplete


def read_suite(
    model: Model, folder: Path, on_message: OnMessage | None
) -> tuple[list[ModelFolder], list[str]]:
    """The folders of the revisions that a configuration selects, read once; and a warning of each
    checkpoint that is left out. What is missing or wrong is a `ConfigError`, as in `read_folders`.
    """
    folders, incomplete = revision_folders(folder)
    names = (model.revisions,) if isinstance(model.revisions, str) else model.revisions
    wrong = [name for name in incomplete if not folders or name in names]
    if wrong:
        raise ConfigError(
            f"Model '{model.name}': '{folder / wrong[0]}' is not complete: {incomplete[wrong[0]]}."
        )
    if not folders:
        raise ConfigError(
            f"Model '{model.name}': no model in '{folder}': no config.json in it or in its"
            " sub-folders."
        )
    chosen = {name: folders[name] for name in revisions_of(model, training_order(folders))}
    for path in chosen.values():
        if tokenizer_folder(path) is None and not is_adapter(path):
            raise ConfigError(
                f"'{path}' has no tokenizer: no tokenizer.json, tokenizer_config.json or"
                " vocabulary. Copy tokenizer.json and tokenizer_config.json of the base model into"
                " it, or write them with"
                f" AutoTokenizer.from_pretrained(BASE).save_pretrained('{path}')."
            )
    left_out = [
        f"{name} is left out, since it is not complete: {incomplete[name]}"
        for name in training_order(incomplete)
    ]
    return read_folders(chosen, model, on_message), left_out


def revisions_of(model: Model, available: Sequence[str] | None) -> tuple[str, ...]:
    """The revisions that a configuration selects from the available ones (None: not known)."""
    try:
        return select_revisions(model.revisions, available)
    except ConfigError as error:
        raise ConfigError(f"Model '{model.name}': {error}") from None


@dataclass(frozen=True)
class ModelFolder:
    """What the folder of a checkpoint holds, read once."""

    name: str  # of its revision
    path: Path
    adapter: Adapter | None  # None for a whole model
    shape: tuple[int, int] | None  # number of blocks and hidden size; None for an adapter
    stamps: tuple[Stamp, ...]  # of the files that decide its numbers, before they were read
    digests: Mapping[str, str]  # of these files
    problem: str  # why its weights cannot be read; empty if they can


def read_folders(
    paths: Mapping[str, Path], model: Model, on_message: OnMessage | None
) -> list[ModelFolder]:
    """What these folders of a model hold, by revision.

    Raises
    ------
    ConfigError
        If one has no weights, has code of its own that is not to be ignored, or its files do not
        fit each other.
    DataError
        If a file cannot be read.
    """
    adapters = {}
    shapes = {}
    for name, path in paths.items():  # what takes long is read last
        if is_adapter(path):
            adapters[name] = read_adapter(path)
        else:
            shapes[name] = shape_of(path / NETWORK)
        for file in (NETWORK, "tokenizer_config.json"):
            classes = None
            if (path / file).is_file():
                classes = read_json(path / file, dict).get("auto_map")
            if classes:
                refuse_code(model, str(path), f"{file}: {classes!s:.200}")
    folders = []
    stamps = {name: stamps_of(path, model.pickled) for name, path in paths.items()}
    read = digests_of(list(paths.values()), model.pickled, on_message)
    for (name, path), digests in zip(paths.items(), read, strict=True):
        problem = ""
        try:
            require_agreement(path, weight_headers(path))
        except Ambiguous as error:
            raise ConfigError(f"The weights in '{path}' cannot be read: {error}.") from None
        except Incomplete as error:
            problem = str(error)
        shape = shapes.get(name)
        folders.append(
            ModelFolder(name, path, adapters.get(name), shape, stamps[name], digests, problem)
        )
    return folders


def refuse_code(model: Model, where: str, code: str) -> None:
    """Raise the `ConfigError` for code beside weights, unless it is to be ignored."""
    if not model.ignore_code:
        raise ConfigError(
            f"Model '{model.name}': '{where}' has code of its own ({code}), which is not run, and"
            " the class that transformers has for this type may compute something else. If that"
            " class is meant, write 'ignore_code: true' into the model; otherwise load it yourself"
            " and pass it to daskmetrics.layers (docs/models.md)."
        )


def shape_of(config: Path) -> tuple[int, int]:
    """Number of blocks and hidden size of a model that reads text."""
    data = read_json(config, dict)
    if data.keys().isdisjoint(_VOCABULARY) or not data.keys().isdisjoint(_OTHER_INPUTS):
        kind = data.get("model_type", "model of an unknown type")
        raise ConfigError(
            f"'{config}' is of a {kind}, which is no model that reads text alone: it has no"
            " vocabulary (vocab_size), or reads images or sound."
        )
    counts = {name: data.get(name) for name in (*_DEPTHS, *_WIDTHS)}
    for name in _KINDS_OF_BLOCKS:  # a list with the kind of each block states the depth, too
        if isinstance(data.get(name), list | str):
            counts["num_layers"] = counts["num_layers"] or len(data[name])
    shape = []
    # a model that was saved at its layer 0 has no blocks
    for names, least, greatest in ((_DEPTHS, 0, DEEPEST), (_WIDTHS, 1, WIDEST)):
        stated = (counts[name] for name in names)
        shape += [n for n in stated if type(n) is int and least <= n <= greatest][:1]
    if len(shape) < 2:
        raise DataError(
            f"'{config}' has no depth and width of the model (num_hidden_layers, hidden_size),"
            f" numbers from 0 to {DEEPEST:,} and from 1 to {WIDEST:,}."
        )
    return shape[0], shape[1]


def is_adapter(folder: Path) -> bool:
    """Whether a folder has an adapter, and not the weights of a whole model."""
    return are_of_adapter(name for name in (ADAPTER, NETWORK) if (folder / name).is_file())


def read_adapter(folder: Path) -> Adapter:
    """The LoRA adapter in a folder, as the library ``peft`` writes it.

    Raises
    ------
    ConfigError
        If it is not a plain LoRA adapter in a .safetensors file, with the reason.
    DataError
        If its configuration cannot be read.
    """
    with readable("The adapter", folder / ADAPTER):
        config = read_json(folder / ADAPTER, dict)
        kind = config.get("peft_type")
        start = config.get("init_lora_weights")
        unknown = sorted(name for name, value in config.items() if value and name not in _KNOWN)
        problem = ""
        if kind != "LORA":
            problem = f"it is of the type {kind}, where LORA is expected"
        elif unknown:
            problem = f"it uses {listed(unknown)}, which is not applied here"
        elif start not in _PLAIN:
            problem = f"'init_lora_weights: {start}' changes the weights of the base model"
        elif not (folder / ADAPTER_WEIGHTS).is_file():
            problem = f"it has no {ADAPTER_WEIGHTS}"
        if problem:
            raise ConfigError(
                f"The adapter in '{folder}' cannot be read: {problem}. Merge it into its base model"
                " with merge_and_unload() of peft, save that with save_pretrained(), and give the"
                " folder of the merged model."
            )
        patterns = config.get("alpha_pattern") or {}
        return Adapter(
            base=str(config.get("base_model_name_or_path") or ""),
            revision=str(config.get("revision") or "main"),
            alpha=float(config.get("lora_alpha", 8)),
            alphas={str(name): float(alpha) for name, alpha in patterns.items()},
            rank_stabilized=bool(config.get("use_rslora")),
        )


# the files of a checkpoint


def required_files(folder: Path, pickled: bool) -> dict[str, Path]:
    """The files that decide a checkpoint's numbers, by the name that is part of its key: of its
    folder, of the modules around it, and the tokenizer of its suite if it has none.
    """
    try:
        files = {name: folder / name for name in files_of(folder, pickled)}
    except Incomplete as problem:
        hint = ""
        if not pickled and any(folder.glob("*.bin")):
            hint = (
                " (Pickled .bin files are loaded only with 'pickled: true' for the model, and even"
                " then no code in them is run.)"
            )
        raise ConfigError(f"The weights in '{folder}' cannot be read: {problem}.{hint}") from None
    root = root_of(folder)
    if root not in (None, folder):
        for name in sorted(names_of(root)):
            if (root / name).parent != folder and decides(name, pickled):
                files[f"../{name}"] = folder / f"../{name}"
    shared = tokenizer_folder(folder)
    if shared not in (None, folder):
        for path in sorted(matching_files(shared, (*TOKENIZER, *_BESIDE_TOKENIZER))):
            if decides(path.name):
                files[path.name] = path
    return files


def tokenizer_folder(folder: Path) -> Path | None:
    """Where the tokenizer of a checkpoint is: in its folder, or in that of its suite; None if there
    is none.

    A trainer that is not given the tokenizer writes checkpoints without it.
    """
    # tokenizer_config.json alone is enough: tokenizers of bytes have no vocabulary
    if any(matching_files(folder, TOKENIZER)):
        return folder
    if step_of(folder.name) is not None and any(matching_files(folder.parent, TOKENIZER)):
        return folder.parent
    return None


def require_complete(folder: Path) -> None:
    """Raise `Incomplete` unless the configuration of a checkpoint can be read, every weight file
    that its index names is there and has the size that its header says, and the trainer has written
    the file that it writes last.
    """
    network = transformer_folder(folder)
    files = [network / (ADAPTER if is_adapter(network) else NETWORK)]
    # others, which somebody copied without the files of the trainer, need none
    beside = folder.parent.glob(f"checkpoint-*/{STATE}")
    try:
        if any(chain(*map(folder.glob, _OF_A_TRAINER), beside)):
            files.append(folder / STATE)
        for file in files:
            read_json(file, dict)
        weight_headers(network)
    except DataError:
        raise Incomplete(f"{file.name} is missing or not complete") from None
    except OSError:  # a trainer removes old checkpoints at any time
        raise Incomplete("it cannot be read") from None


def require_agreement(folder: Path, headers: Headers) -> None:
    """Check that the tensors and the tokenizer of a folder fit its configuration.

    A network of another depth would silently be cut, and numbers of another type be read as if they
    were weights. A folder without a configuration, such as that of an adapter, is not checked.

    Raises
    ------
    ConfigError
        With what the configuration says, what is there, and the remedy.
    """
    if not (folder / NETWORK).is_file():
        return
    config = read_json(folder / NETWORK, dict)
    shape = shape_of(folder / NETWORK)
    rows = config.get("vocab_size")
    file = (tokenizer_folder(folder) or folder) / "tokenizer.json"
    named = config.get("transformers_weights")
    try:
        if named and named not in weight_files(folder, pickled=True):
            raise ConfigError(
                f"it names '{named}' as its weights (transformers_weights), and model.safetensors or"
                " its index is what is read"
            )
        _compare_tensors(config, *shape, headers)
        if type(rows) is int and file.is_file():
            greatest = _greatest_token(file, file.stat().st_size, file.stat().st_mtime_ns)
            if greatest >= rows:
                raise ConfigError(
                    f"its tokenizer has the token number {greatest:,}, and the embedding has"
                    f" {rows:,} rows (vocab_size)"
                )
    except ConfigError as problem:
        raise ConfigError(
            f"'{folder}' does not fit its config.json: {problem}. Copy config.json, the weights and"
            " the tokenizer of one model into it, or leave it out of 'revisions'."
        ) from None


def _compare_tensors(config: Mapping[str, Any], depth: int, width: int, headers: Headers) -> None:
    """Raise a `ConfigError` with what the tensors have and the configuration does not say."""
    wrapper = next(filter(None, map(WRAPPER.match, headers)), None)
    if wrapper:
        raise ConfigError(
            f"the names of tensors begin with '{wrapper[0]}': {unwrapped(wrapper[0])}"
        )
    blocks: dict[str, set[str]] = {}
    for name in headers:
        if match := _BLOCK.match(name):
            blocks.setdefault(match[1], set()).add(match[2])
    if not blocks:
        return  # the loader says which names are missing
    is_quantized = any("quantization" in name or "compression" in name for name in config)
    for name, (dtype, shape) in headers.items():
        is_matrix = name.endswith(".weight") and len(shape) > 1
        if is_matrix and dtype not in _FLOATS and not is_quantized:
            raise ConfigError(
                f"'{name}' has numbers of the type {dtype}, and no quantization is named"
            )
    sizes = set(chain.from_iterable(shape for _, shape in headers.values()))
    for key, size in (("vocab_size", config.get("vocab_size", width)), ("the hidden size", width)):
        if type(size) is int and size not in sizes:
            raise ConfigError(f"{key} is {size:,}, and no tensor has this dimension")
    counts = sorted(map(len, blocks.values()))
    # a block that predicts further tokens is behind the others, and blocks may share their weights
    is_shared = any("groups" in name or "share" in name for name in config)
    further = config.get("num_nextn_predict_layers")
    allowed = {depth, depth + (further if type(further) is int else 0)}
    fits = bool(allowed & set(counts))
    if not depth:  # nothing is left but the blocks of a decoder
        fits = set(counts) <= {config.get("decoder_layers"), config.get("num_decoder_layers")}
    if not is_shared and not fits:
        raise ConfigError(f"it says {depth} blocks, and there are weights of {counts[-1]}")


@cache
def _greatest_token(file: Path, size: int, changed: int) -> int:
    """The greatest number of a token in a tokenizer.json of this size and time; -1 if it names
    none.
    """
    content = read_json(file, dict)
    with readable("The tokenizer", file):
        vocabulary = (content.get("model") or {}).get("vocab") or {}
        numbers = [token["id"] for token in content.get("added_tokens") or ()]
        if isinstance(vocabulary, Mapping):
            numbers += vocabulary.values()
        else:
            numbers.append(len(vocabulary) - 1)
        return max(map(int, numbers), default=-1)


# the content of the files


def weights_key(digests: Mapping[str, str]) -> Key:
    """The key of a checkpoint's content, from the digests of its files by name; the name of a single
    weight file is not part of it.
    """
    files = sorted(digests.items())
    weights = [(name, digest) for name, digest in files if name.endswith(WEIGHTS)]
    beside = [(name, digest) for name, digest in files if not name.endswith(WEIGHTS)]
    named = weights if len(weights) > 1 else [digest for _, digest in weights]
    return content_key(named, beside)


def digests_of(
    folders: Sequence[Path], pickled: bool = False, on_message: OnMessage | None = None
) -> list[dict[str, str]]:
    """The digests of the files that decide the numbers of model folders, by name; those of equal
    content in other places, or with other times, are equal. Pickled weights are an error unless
    they are allowed.

    Raises
    ------
    ConfigError
        If a folder has no weights.
    DataError
        If a file cannot be read.
    """
    required = [required_files(folder, pickled) for folder in folders]
    paths = list(chain.from_iterable(files.values() for files in required))
    with _content_errors():
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
    return [dict(zip(files, digests, strict=False)) for files in required]


def stamps_of(folder: Path, pickled: bool) -> tuple[Stamp, ...]:
    """Of the files that decide the numbers of a model folder, what changes with their content."""
    paths = required_files(folder, pickled).values()
    with _content_errors():
        return tuple((str(path), _stamp(path.stat())) for path in paths)


@contextmanager
def _content_errors() -> Iterator[None]:
    """Name a file that cannot be read; a trainer removes old checkpoints at any time."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"'{error.filename}' cannot be read ({error.strerror}), so its content is not known."
        ) from None


def has_changed(stamps: Iterable[Stamp]) -> bool:
    """Whether a file was written again; one that a trainer has deleted was not."""
    for path, stamp in stamps:
        with suppress(FileNotFoundError):
            if _stamp(Path(path).stat()) != stamp:
                return True
    return False


def _known(path: Path) -> str | None:
    """The digest of a large file that need not be read: it is kept, or the hub's cache names the
    file by it.

    The name is trusted until the file changes.
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
    """The file that keeps the digest of a file, and the file's stamp."""
    entry = cache_folder() / "digests" / f"{status.st_dev:x}-{status.st_ino:x}.json"
    return entry, _stamp(status)


def _stamp(status: os.stat_result) -> list[int]:
    """What changes with the content of a file; no program can set the last number, the time of the
    change of the inode.
    """
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def digest_of(path: Path, like: str | None) -> str:
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
