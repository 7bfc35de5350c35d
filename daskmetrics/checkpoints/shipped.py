"""What the folder of a model says: depth and width, and how texts become vectors; read without
torch.

The files are ``config.json`` and those that sentence-transformers 2 to 6 writes: ``modules.json``,
a configuration for each module, and ``config_sentence_transformers.json``. What is not read here,
such as a module with code of its own, is an error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, TypeVar

from daskmetrics.config.section import DEEPEST, WIDEST
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.names import Key
from daskmetrics.core.serialization import parse, readable

T = TypeVar("T")

MODULES = "modules.json"
_LIBRARY = "sentence_transformers."
_MODES = {  # earlier names, in the order in which several are joined
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_TRANSFORMER_FILES = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
_LAST_STATES = ("last_hidden_state", ["last_hidden_state"])
# of a loader's options
_HARMLESS = {
    "torch_dtype",
    "dtype",
    "attn_implementation",
    "device_map",
    "trust_remote_code",
}


# the last is CANINE's, which reads characters
_VOCABULARY = (
    "vocab_size",
    "n_words",
    "num_hash_buckets",
)
_OTHER_INPUTS = {"image_size": "images", "num_mel_bins": "sound", "feat_extract_norm": "sound"}


@dataclass(frozen=True)
class Dense:
    """A linear layer after the pooling."""

    weights: str  # file
    digest: Key  # of that file
    activation: str  # a class of torch.nn
    residual: bool
    width: int = 0  # numbers of a vector after it

    def as_dict(self) -> dict[str, Any]:
        return {"dense": self.digest, "activation": self.activation, "residual": self.residual}


NORMALIZE = "normalize"  # the step that scales a vector to length one


@dataclass(frozen=True)
class Shipped:
    """How texts become vectors, as the authors of a model mean it."""

    pooling: tuple[str, ...]  # several are joined
    include_prompt: bool  # whether the tokens of a prompt are pooled
    steps: tuple[Dense | str, ...]  # after the pooling, in order: `Dense` or `NORMALIZE`
    dimensions: int | None  # of a vector that are kept; None keeps all
    lower_case: bool  # of the texts, before the tokenizer
    padding: str
    max_length: int | None  # tokens of a text that are read; None if the folder gives no limit
    similarity: str  # by which the benchmark compares vectors: ``cosine`` or ``dot``
    prompts: Mapping[str, str]
    default_prompt: str | None  # name of the prompt of texts without a role

    def as_dict(self) -> dict[str, Any]:
        """What a protocol does not say otherwise, as plain JSON values."""
        return {
            "pooling": list(self.pooling),
            "include_prompt": self.include_prompt,
            "steps": [step if isinstance(step, str) else step.as_dict() for step in self.steps],
            "dimensions": self.dimensions,
            "lower_case": self.lower_case,
            "similarity": self.similarity,
        }

    def width(self, hidden: int) -> int:
        """Numbers of a vector, for a network of this hidden size."""
        dense = [step.width for step in self.steps if isinstance(step, Dense) and step.width]
        width = dense[-1] if dense else hidden * len(self.pooling)
        return min(width, self.dimensions or width)

    @property
    def summary(self) -> str:
        """The modules in a few words, such as ``mean, normalize``."""
        steps = (
            step if isinstance(step, str) else f"dense ({step.activation})" for step in self.steps
        )
        modules = ["+".join(self.pooling), *steps]
        if self.dimensions:
            modules.append(f"first {self.dimensions} dimensions")
        if self.similarity != "cosine":
            modules.append(f"compared by {self.similarity} in tasks of mteb")
        return ", ".join(modules)


def transformer_folder(folder: Path) -> Path:
    """The folder with the weights of a model's network: a sub-folder in some sentence-transformers
    folders.
    """
    modules = _modules(folder)
    return folder / str(modules[0].get("path", "")) if modules else folder


def root_of(folder: Path) -> Path | None:
    """The sentence-transformers folder of a network: its own folder, the one around it, or None."""
    roots = (
        root
        for root in (folder, folder.parent)
        if _modules(root) and transformer_folder(root) == folder
    )
    return next(roots, None)


def read(folder: Path, pickled: bool = False) -> Shipped | None:
    """What the folder of a network says about its vectors; None unless it is one of
    sentence-transformers.

    Parameters
    ----------
    folder : Path
        The folder with the weights of the network.
    pickled : bool
        Whether pickled weights of a dense module may be loaded.

    Raises
    ------
    ConfigError
        If a module is not one that can be applied here, with the reason.
    DataError
        If a file cannot be read.
    """
    root = root_of(folder)
    if root is None:
        return None
    with readable("How the vectors of a text are read", root):
        return _read(root, folder, pickled)


def _read(root: Path, network: Path, pickled: bool) -> Shipped:
    (reader, _), (pooler, pooling), *further = _named(root)
    if (reader, pooler) != ("Transformer", "Pooling"):
        raise _refused(
            root,
            f"its modules begin with {reader} and {pooler}, where Transformer and Pooling are expected",
        )
    transformer = next(filter(None, (_json(network / name) for name in _TRANSFORMER_FILES)), {})
    _check_transformer(root, transformer)
    processor = transformer.get("processor_kwargs") or transformer.get("tokenizer_args") or {}
    tokenizer = _json(network / "tokenizer_config.json") | processor
    settings = _json(root / "config_sentence_transformers.json")
    prompts = {"query": "", "document": ""} | (settings.get("prompts") or {})
    similarity = settings.get("similarity_fn_name") or "cosine"
    if similarity not in ("cosine", "dot"):
        raise _refused(root, f"its similarity is {similarity}, where cosine or dot is expected")
    config = _json(root / pooling / "config.json", required=True)
    modes = _pooling_modes(root, config)
    width = int(config.get("embedding_dimension") or config.get("word_embedding_dimension") or 0)
    return Shipped(
        pooling=modes,
        include_prompt=bool(config.get("include_prompt", True)),
        steps=tuple(_steps(root, further, len(modes) * width, pickled)),
        dimensions=settings.get("truncate_dim"),
        lower_case=bool(transformer.get("do_lower_case", False)),
        padding="left" if tokenizer.get("padding_side") == "left" else "right",
        max_length=_max_length(transformer, processor, tokenizer, _json(network / "config.json")),
        similarity=similarity,
        prompts={name: text or "" for name, text in prompts.items()},
        default_prompt=settings.get("default_prompt_name"),
    )


def _named(root: Path) -> list[tuple[str, str]]:
    """Class name and sub-folder of each module; only classes of the library are known."""
    modules = [(str(module["type"]), str(module.get("path", ""))) for module in _modules(root)]
    for kind, _ in modules:
        if not kind.startswith(_LIBRARY):
            raise _refused(root, f"its module '{kind}' has code of its own, which is not run")
    if len(modules) < 2:
        raise _refused(root, "it has no Pooling module")
    return [(kind.rpartition(".")[2], path) for kind, path in modules]


def _check_transformer(root: Path, config: Mapping[str, Any]) -> None:
    """Only plain texts and the last hidden states of a network are read."""
    modalities = config.get(
        "modality_config",
        {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    )
    text = modalities.get("text", {})
    plain = text.get("method") == "forward" and text.get("method_output_name") in _LAST_STATES
    if (
        "message" in modalities
        or not plain
        or config.get("transformer_task", "feature-extraction") != "feature-extraction"
    ):
        raise _refused(
            root,
            "its Transformer does not read plain texts, or does not return the last hidden states",
        )
    for name in (
        "query_length",
        "document_length",
        "query_expansion",
        "processing_kwargs",
        "tokenizer_name_or_path",
    ):
        if config.get(name):
            raise _refused(root, f"its Transformer sets {name}")
    for name in (
        "model_kwargs",
        "model_args",
        "config_kwargs",
        "config_args",
        "processor_kwargs",
        "tokenizer_args",
    ):
        options = config.get(name, {}).keys() - _HARMLESS
        if name[0] in "pt":
            options -= {"model_max_length", "padding_side"}
        if options:
            raise _refused(root, f"its Transformer sets {name}: {', '.join(sorted(options))}")


def _pooling_modes(root: Path, config: Mapping[str, Any]) -> tuple[str, ...]:
    modes = config.get("pooling_mode") or [
        mode for name, mode in _MODES.items() if config.get(name)
    ]
    if isinstance(modes, str):
        modes = (modes,)
    for mode in modes:
        if mode not in _MODES.values():
            raise _refused(root, f"its pooling '{mode}' is not known")
    return tuple(modes) or ("mean",)


def _steps(
    root: Path, modules: Sequence[tuple[str, str]], width: int, pickled: bool
) -> Iterator[Dense | str]:
    for kind, path in modules:
        config = _json(root / path / "config.json")
        if any(
            config.get(name) not in (None, "sentence_embedding")
            for name in ("module_input_name", "module_output_name")
        ):
            raise _refused(root, f"its module {kind} does not read or write the vector of the text")
        if kind == "Normalize":
            yield NORMALIZE
        elif kind == "Dense":
            if width and config.get("in_features") != width:
                raise _refused(
                    root,
                    f"its Dense reads {config.get('in_features')} numbers, and a vector has {width}",
                )
            width = int(config.get("out_features", 0))
            yield _dense(root, root / path, config, pickled)
        elif kind != "Dropout":  # which does nothing after training
            raise _refused(root, f"its module {kind} is not known")


def _dense(root: Path, folder: Path, config: Mapping[str, Any], pickled: bool) -> Dense:
    activation = str(config.get("activation_function") or "torch.nn.Tanh")
    if not activation.startswith("torch.nn."):
        raise _refused(
            root,
            f"the activation '{activation}' of its Dense has code of its own, which is not run",
        )
    weights = folder / "model.safetensors"
    if not weights.is_file():
        weights = folder / "pytorch_model.bin"
        if not weights.is_file():
            raise _incomplete(weights.with_name("model.safetensors"))
        if not pickled:
            raise ConfigError(
                f"'{weights}' is pickled, and is loaded only with 'pickled: true' for the model."
            )
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    residual, width = bool(config.get("use_residual")), int(config.get("out_features", 0))
    return Dense(str(weights), digest, activation.rpartition(".")[2], residual, width)


def _max_length(
    transformer: Mapping[str, Any],
    processor: Mapping[str, Any],
    tokenizer: Mapping[str, Any],
    network: Mapping[str, Any],
) -> int | None:
    """As sentence-transformers decides it: its own limit, else the tokenizer's within the positions
    of the network.
    """
    stated = processor.get("model_max_length") or transformer.get("max_seq_length")
    if stated:
        return int(stated)
    positions = network.get("max_position_embeddings", network.get("n_positions"))
    stated_limits = (tokenizer.get("model_max_length"), positions)
    limits = [limit for limit in stated_limits if limit and 0 < limit < 10**9]
    return int(min(limits)) if limits else None


def _modules(folder: Path) -> list[dict[str, Any]]:
    file = folder / MODULES
    modules = read_json(file, list) if file.is_file() else []
    for module in modules:
        path = PurePath(str(module.get("path", ""))) if isinstance(module, dict) else None
        if path is None or path.is_absolute() or ".." in path.parts:
            raise DataError(
                f"'{file}' is no list of modules in folders below it. Copy the whole folder again."
            )
    return modules


def _json(file: Path, required: bool = False) -> dict[str, Any]:
    if not file.is_file():
        if required:
            raise _incomplete(file)
        return {}
    return read_json(file, dict)


def read_json(file: Path, kind: Callable[[Any], T]) -> T:
    """The content of a JSON file as a dict or a list; a `DataError` if it is not one."""
    try:
        return kind(parse(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError, OSError) as error:
        raise DataError(f"'{file}' cannot be read as JSON: {error}") from None


def _refused(root: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"'{root}' is a sentence-transformers folder that cannot be used as shipped: {reason}. Choose how its states "
        "become vectors with 'pooling: mean' (or last, cls) for the model."
    )


def _incomplete(file: Path) -> ConfigError:
    return ConfigError(
        f"'{file.parent.parent / MODULES}' names a module whose file '{file}' is missing. Copy or download the whole "
        "folder (hf download, or daskmetrics runs prefetch), or choose 'pooling: mean' (or last, cls) for the model."
    )


def shape_of(config: Path) -> tuple[int, int]:
    """Number of blocks and hidden size of a model that reads text."""
    data = read_json(config, dict)
    other = next((medium for name, medium in _OTHER_INPUTS.items() if name in data), None)
    if other or not any(name in data for name in _VOCABULARY):
        kind = data.get("model_type", "model of an unknown type")
        reason = f"it reads {other}" if other else "it has no vocabulary (vocab_size)"
        raise ConfigError(
            f"'{config}' is of a {kind}, which is no model that reads text: {reason}."
        )
    depth = _count(
        data, DEEPEST, "num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers"
    )
    width = _count(data, WIDEST, "hidden_size", "n_embd", "d_model", "dim", "emb_dim")
    if depth is None or width is None:
        raise DataError(
            f"'{config}' has no depth and width of the model (num_hidden_layers, hidden_size), numbers from 1 to "
            f"{DEEPEST:,} and {WIDEST:,}."
        )
    return depth, width


def _count(config: Mapping[str, Any], greatest: int, *names: str) -> int | None:
    """The first of these entries that is a whole number from 1 to the greatest; None without one."""
    for name in names:
        count = config.get(name)
        if type(count) is int and 0 < count <= greatest:
            return count
    return None
