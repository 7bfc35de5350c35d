"""Whether the files of a model are complete and fit each other, read without torch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

from daskmetrics.checkpoints.digests import content_errors, files_of
from daskmetrics.checkpoints.layout import (
    ADAPTER,
    INDEX,
    NETWORK,
    Ambiguous,
    Incomplete,
    is_adapter,
    read_index,
    tokenizer_folder,
    transformer_folder,
    weight_files,
)
from daskmetrics.config import Model
from daskmetrics.config.section import DEEPEST, WIDEST
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.serialization import parse, read_json, readable

Headers = Mapping[str, tuple[str, tuple[int, ...]]]  # type and shape of tensors, by name

STATE = "trainer_state.json"  # what the trainers of transformers write last
# of which an empty one is cut; others, such as _SUCCESS, may have nothing in them
_WEIGHTS = (".pt", ".pth", ".ckpt", ".bin", ".npz", ".npy", ".onnx", ".h5", ".keras", ".msgpack")
_OF_A_TRAINER = ("training_args.bin", "optimizer.*", "scheduler.pt", "rng_state*.pth", STATE)
_FLOATS = {"F64", "F32", "F16", "BF16"}  # types of safetensors
_BLOCK = re.compile(r"(.*?)\.(\d+)\.")  # the name of a tensor of a block: its stack and its number
#: what wrappers of torch and adapters put before the names of all tensors
WRAPPER = re.compile(r"^(?:(?:base_model\.model|_orig_mod|(?:_fsdp_wrapped_)?module)\.)+")
_ARCHIVE = b"PK\x03\x04"  # the first bytes of a zip archive
_HEADER = 100 << 20  # bytes: no header of a safetensors file is longer

# keys of a configuration; the last of the first is CANINE's, which reads characters
_VOCABULARY = ("vocab_size", "n_words", "num_hash_buckets")
_OTHER_INPUTS = ("image_size", "num_mel_bins", "feat_extract_norm")  # images, sound
_DEPTHS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers")
_KINDS_OF_BLOCKS = ("layers_block_type", "hybrid_override_pattern", "layer_types")
_WIDTHS = ("hidden_size", "n_embd", "d_model", "dim", "emb_dim")


def shape_of(config: Path) -> tuple[int, int]:
    """Number of blocks and hidden size of a text model."""
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


def refuse_classes(model: Model, folder: Path) -> None:
    """Raise a `ConfigError` for a folder with classes of its own, unless ignored."""
    for name in (NETWORK, "tokenizer_config.json"):
        file = folder / name
        if file.is_file() and (classes := read_json(file, dict).get("auto_map")):
            refuse_code(model, str(folder), f"{name}: {classes!s:.200}")


def refuse_code(model: Model, where: str, code: str) -> None:
    """Raise a `ConfigError` for code beside weights, unless ignored."""
    if not model.ignore_code:
        raise ConfigError(
            f"Model '{model.name}': '{where}' has code of its own ({code}), which is not run, and"
            " the class that transformers has for this type may compute something else. If that"
            " class is meant, write 'ignore_code: true' into the model; otherwise load it yourself"
            " and pass it to daskmetrics.layers (docs/models.md)."
        )


def require_complete(folder: Path) -> None:
    """Raise `Incomplete` unless all files of a checkpoint are there.

    Its configuration can be read, every weight file that its index names has the size that its
    header says, and the trainer has written the file that it writes last.
    """
    network = transformer_folder(folder)
    with _deleted_meanwhile():
        _require_json(network / (ADAPTER if is_adapter(network) else NETWORK))
        _require_state(folder)
        weight_headers(network)


def require_whole(checkpoint: Path) -> None:
    """Raise `Incomplete` if a file of a checkpoint of any program is seen to be cut.

    Weights in an empty file are. An archive, as `torch.save` and NumPy write it, ends with its
    directory, and the header of safetensors says how long its file is. Other formats do not say it.
    """
    with _deleted_meanwhile():
        files = files_of(checkpoint).values()
        if not files:
            raise Incomplete("it has no files")
        for file in files:
            with file.open("rb") as opened:
                begin = opened.read(len(_ARCHIVE))
            is_empty = not begin and (file == checkpoint or file.suffix in _WEIGHTS)
            if file.suffix == ".safetensors":
                _header(file)
            elif is_empty or (begin == _ARCHIVE and not is_zipfile(file)):
                raise Incomplete(f"{file.name} is not complete")
        if checkpoint.is_dir():
            _require_state(checkpoint, (STATE,))


def _require_state(folder: Path, of_a_trainer: Sequence[str] = _OF_A_TRAINER) -> None:
    """Check that a trainer has written the file that it writes last.

    A trainer is known by its files in the folder, or by that file in the folders beside it.
    """
    # others, which somebody copied without the files of the trainer, need none
    beside = folder.parent.glob(f"checkpoint-*/{STATE}")
    if any(chain(*map(folder.glob, of_a_trainer), beside)):
        _require_json(folder / STATE)


def _require_json(file: Path) -> None:
    try:
        read_json(file, dict)
    except DataError:
        raise Incomplete(f"{file.name} is missing or not complete") from None


@contextmanager
def _deleted_meanwhile() -> Iterator[None]:
    """A trainer removes old checkpoints at any time."""
    try:
        yield
    except (DataError, OSError):
        raise Incomplete("it cannot be read") from None


def weights_problem(folder: Path) -> str:
    """Why the weights in a folder cannot be read; empty if they can."""
    try:
        with content_errors():
            require_agreement(folder, weight_headers(folder))
    except Ambiguous as error:
        raise ConfigError(f"The weights in '{folder}' cannot be read: {error}.") from None
    except Incomplete as error:
        return str(error)
    return ""


def weight_headers(folder: Path) -> Headers:
    """Type, such as F32, and shape of tensors, by name.

    As the headers of the .safetensors files in a folder say.

    Raises `Incomplete` if the weights cannot be read, and `Ambiguous` if a shard has a tensor that
    the index does not name for it.
    """
    headers: dict[str, tuple[str, tuple[int, ...]]] = {}
    weight_map = None
    for name in weight_files(folder, pickled=True):
        if name.endswith(INDEX):
            weight_map = read_index(folder / name)
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


def _header(file: Path) -> Headers:
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


def require_agreement(folder: Path, headers: Headers) -> None:
    """Check that tensors and tokenizer fit the configuration.

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
    if not any("quantization" in name or "compression" in name for name in config):
        _check_types(headers)
    sizes = set(chain.from_iterable(shape for _, shape in headers.values()))
    for key, size in (("vocab_size", config.get("vocab_size", width)), ("the hidden size", width)):
        if type(size) is int and size not in sizes:
            raise ConfigError(f"{key} is {size:,}, and no tensor has this dimension")
    _check_depth(config, depth, {len(numbers) for numbers in blocks.values()})


def unwrapped(prefix: str) -> str:
    """How to save weights without the names of a wrapper."""
    remedy = "save the model within its wrapper, such as model.module"
    if "base_model" in prefix:
        remedy = "merge the adapter with merge_and_unload() of peft"
    elif "_orig_mod" in prefix:
        remedy = "save the model that was given to torch.compile (model._orig_mod)"
    return f"{remedy}, with save_pretrained(), or take the prefix off the names"


def _check_types(headers: Headers) -> None:
    for name, (dtype, shape) in headers.items():
        is_matrix = name.endswith(".weight") and len(shape) > 1
        if is_matrix and dtype not in _FLOATS:
            raise ConfigError(
                f"'{name}' has numbers of the type {dtype}, and no quantization is named"
            )


def _check_depth(config: Mapping[str, Any], depth: int, counts: set[int]) -> None:
    """Compare the depth with the numbers of blocks in each stack of the weights."""
    # blocks may share their weights
    if any("groups" in name or "share" in name for name in config):
        return
    # a block that predicts further tokens is behind the others
    further = config.get("num_nextn_predict_layers")
    allowed = {depth, depth + (further if type(further) is int else 0)}
    fits = bool(allowed & counts)
    if not depth:  # nothing is left but the blocks of a decoder
        fits = counts <= {config.get("decoder_layers"), config.get("num_decoder_layers")}
    if not fits:
        raise ConfigError(f"it says {depth} blocks, and there are weights of {max(counts)}")


@cache
def _greatest_token(file: Path, size: int, changed: int) -> int:
    """The greatest number of a token; -1 if there is none.

    Size and time of the file are part of what is cached.
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
