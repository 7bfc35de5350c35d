"""How the texts of one checkpoint become vectors: what its folder says, and its protocol, which is
that of the configuration, what its model overrides, and what its folder says.

The files are ``config.json`` and those that sentence-transformers 2 to 6 writes: ``modules.json``,
a configuration for each module, and ``config_sentence_transformers.json``. What is not read here,
such as a module with code of its own, is an error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daskmetrics.checkpoints.layout import MODULES, NETWORK, modules_of, root_of
from daskmetrics.config.prompts import NO_PROMPTS, Prompts, configured
from daskmetrics.config.schema import Model, Protocol
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.keys import Key, content_key
from daskmetrics.core.serialization import read_json, readable

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
# of a Transformer, which change what it reads
_SETTINGS = (
    "query_length",
    "document_length",
    "query_expansion",
    "processing_kwargs",
    "tokenizer_name_or_path",
)
_OF_LOADER = {"torch_dtype", "dtype", "attn_implementation", "device_map", "trust_remote_code"}
_OF_TOKENIZER = _OF_LOADER | {"model_max_length", "padding_side"}
# options that change no number, or are read here
_OPTIONS = {
    **dict.fromkeys(("model_kwargs", "model_args", "config_kwargs", "config_args"), _OF_LOADER),
    **dict.fromkeys(("processor_kwargs", "tokenizer_args"), _OF_TOKENIZER),
}


@dataclass(frozen=True)
class Dense:
    """A linear layer after the pooling."""

    weights: str  # file
    digest: Key  # of that file
    activation: str  # a class of torch.nn
    residual: bool
    width: int = 0  # numbers of a vector after it


NORMALIZE = "normalize"  # the step that scales a vector to length one


@dataclass(frozen=True)
class Shipped:
    """How texts become vectors, by the authors of a model."""

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
        """What a protocol does not say, as JSON values."""
        steps: list[object] = []
        for step in self.steps:
            if isinstance(step, Dense):
                named = {"activation": step.activation, "residual": step.residual}
                steps.append({"dense": step.digest, **named})
            else:
                steps.append(step)
        return {
            "pooling": list(self.pooling),
            "include_prompt": self.include_prompt,
            "steps": steps,
            "dimensions": self.dimensions,
            "lower_case": self.lower_case,
            "similarity": self.similarity,
        }

    def width(self, hidden: int) -> int:
        """Numbers of a vector, for this hidden size."""
        dense = [step.width for step in self.steps if isinstance(step, Dense) and step.width]
        width = hidden * len(self.pooling)
        if dense:
            width = dense[-1]
        return min(width, self.dimensions or width)


def read(folder: Path, pickled: bool = False) -> Shipped | None:
    """What a sentence-transformers folder says about its vectors.

    None for another folder.

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
    modules = [(str(module["type"]), str(module.get("path", ""))) for module in modules_of(root)]
    for kind, _ in modules:
        if not kind.startswith(_LIBRARY):
            raise _refused(root, f"its module '{kind}' has code of its own, which is not run")
    named = [(kind.rpartition(".")[2], path) for kind, path in modules]
    beginning = [kind for kind, _ in named[:2]]
    if beginning != ["Transformer", "Pooling"]:
        raise _refused(
            root,
            f"its modules begin with {', '.join(beginning)}, where Transformer, Pooling is"
            " expected",
        )
    (_, pooling), *further = named[1:]
    settings_files = (_json(network / name) for name in _TRANSFORMER_FILES)
    transformer = next(filter(None, settings_files), {})
    _check_transformer(root, transformer)
    processor = transformer.get("processor_kwargs") or transformer.get("tokenizer_args") or {}
    tokenizer = _json(network / "tokenizer_config.json") | processor
    settings = _json(root / "config_sentence_transformers.json")
    prompts = {"query": "", "document": ""} | (settings.get("prompts") or {})
    similarity = settings.get("similarity_fn_name") or "cosine"
    if similarity not in ("cosine", "dot"):
        raise _refused(root, f"its similarity is {similarity}, where cosine or dot is expected")
    config = _json(root / pooling / "config.json", required=True)
    modes = config.get("pooling_mode") or [
        mode for name, mode in _MODES.items() if config.get(name)
    ]
    if isinstance(modes, str):
        modes = [modes]
    for mode in modes:
        if mode not in _MODES.values():
            raise _refused(root, f"its pooling '{mode}' is not known")
    modes = tuple(modes) or ("mean",)
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


def _check_transformer(root: Path, config: Mapping[str, Any]) -> None:
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
    refused = list(filter(config.get, _SETTINGS))
    for name, harmless in _OPTIONS.items():
        options = sorted(config.get(name, {}).keys() - harmless)
        if options:
            refused.append(f"{name}: {', '.join(options)}")
    if refused:
        raise _refused(root, f"its Transformer sets {refused[0]}")


def _steps(
    root: Path, modules: Sequence[tuple[str, str]], width: int, pickled: bool
) -> Iterator[Dense | str]:
    for kind, path in modules:
        config = _json(root / path / "config.json")
        names = {config.get("module_input_name"), config.get("module_output_name")}
        if not names <= {None, "sentence_embedding"}:
            raise _refused(root, f"its module {kind} does not read or write the vector of the text")
        if kind == "Normalize":
            yield NORMALIZE
        elif kind == "Dense":
            if width and config.get("in_features") != width:
                raise _refused(
                    root,
                    f"its Dense reads {config.get('in_features')} numbers, and a vector has"
                    f" {width}",
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
    files = [folder / name for name in ("model.safetensors", "pytorch_model.bin")]
    weights = next(filter(Path.is_file, files), None)
    if weights is None:
        raise _incomplete(files[0])
    if weights == files[1] and not pickled:
        raise ConfigError(
            f"'{weights}' is pickled, and is loaded only with 'pickled: true' for the model."
        )
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    residual = bool(config.get("use_residual"))
    width = int(config.get("out_features", 0))
    name = activation.rpartition(".")[2]
    return Dense(str(weights), digest, name, residual, width)


def _max_length(
    transformer: Mapping[str, Any],
    processor: Mapping[str, Any],
    tokenizer: Mapping[str, Any],
    network: Mapping[str, Any],
) -> int | None:
    """The limit as sentence-transformers decides it.

    Its own limit, else the tokenizer's within the positions of the network.
    """
    stated = processor.get("model_max_length") or transformer.get("max_seq_length")
    if stated:
        return int(stated)
    positions = network.get("max_position_embeddings", network.get("n_positions"))
    stated_limits = (tokenizer.get("model_max_length"), positions)
    limits = [limit for limit in stated_limits if limit and 0 < limit < 10**9]
    if limits:
        return int(min(limits))
    return None


def _json(file: Path, required: bool = False) -> dict[str, Any]:
    if not file.is_file():
        if required:
            raise _incomplete(file)
        return {}
    return read_json(file, dict)


def _refused(root: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"'{root}' is a sentence-transformers folder that cannot be used as shipped: {reason}."
        " Choose how its states become vectors with 'pooling: mean' (or last, cls) for the model."
    )


def _incomplete(file: Path) -> ConfigError:
    return ConfigError(
        f"'{file.parent.parent / MODULES}' names a module whose file '{file}' is missing. Copy or"
        " download the whole folder (hf download, or daskmetrics runs prefetch), or choose"
        " 'pooling: mean' (or last, cls) for the model."
    )


@dataclass(frozen=True)
class ModelProtocol:
    """How the texts of one checkpoint become vectors.

    ``base`` has the length, padding and pooling that hold for the checkpoint; the pooling is
    ``as_shipped`` exactly if ``shipped`` is given, which is what a sentence-transformers folder
    says.
    """

    base: Protocol
    prompts: Prompts = NO_PROMPTS
    shipped: Shipped | None = None

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values.

        Those of the protocol alone if there are neither prompts nor modules.
        """
        values = self.base.model_dump(mode="json")
        if self.shipped:
            values["shipped"] = self.shipped.as_dict()
        return values | self.prompts.as_dict()

    @property
    def key(self) -> Key:
        return content_key(self.as_dict())

    @property
    def summary(self) -> str:
        """In a few words.

        The network or its tokenizer may read less than these tokens.

        >>> ModelProtocol(Protocol(pooling="mean")).summary
        'mean, at most 256 tokens, prompts: none'
        """
        pooling: str = self.base.pooling
        if shipped := self.shipped:
            modules = ["+".join(shipped.pooling)]
            modules += (
                step if isinstance(step, str) else f"dense ({step.activation})"
                for step in shipped.steps
            )
            if shipped.dimensions:
                modules.append(f"first {shipped.dimensions} dimensions")
            if shipped.similarity != "cosine":
                modules.append(f"compared by {shipped.similarity} in tasks of mteb")
            pooling = f"as shipped ({', '.join(modules)})"
        return (
            f"{pooling}, at most {self.base.max_length:,} tokens, prompts: {self.prompts.summary}"
        )


def protocol_of(
    protocol: Protocol, model: Model, folder: Path | None, shipped: Shipped | None = None
) -> ModelProtocol:
    """The protocol of a checkpoint with its weights in this folder.

    None: not on this machine.

    Raises
    ------
    ConfigError
        If the model is to be read as shipped and is not a sentence-transformers folder, or is one
        that cannot be applied here; or if it attends to fewer tokens than a text may have.
    """
    pooling = model.pooling or protocol.pooling
    modules = None
    if pooling == "as_shipped":
        modules = shipped
        if folder:
            modules = read(folder, model.pickled)
    changes: dict[str, Any] = {"pooling": pooling}
    prompts = NO_PROMPTS
    if modules:
        prompts = Prompts(modules.prompts, modules.default_prompt)
        changes["padding"] = modules.padding
        changes["max_length"] = modules.max_length or protocol.max_length
    elif pooling == "as_shipped":
        if model.pooling:
            reason = f"'{folder}' has no {MODULES}"
            if folder is None:
                reason = "it is not on this machine, so what it ships is not known"
            raise ConfigError(
                f"Model '{model.name}' has 'pooling: as_shipped', but {reason}. "
                "Give a folder of sentence-transformers, or choose 'pooling: mean' (or last, cls)."
            )
        changes["pooling"] = "mean"
    if model.max_length:
        changes["max_length"] = model.max_length
    if model.prompts is not None:
        prompts = configured(model.prompts)
    base = protocol.model_copy(update=changes)
    network = _json(folder / NETWORK) if folder else {}
    if folder and "index_topk" in network:
        limit = _max_length({}, {}, _json(folder / "tokenizer_config.json"), network)
        refuse_selection(network, min(base.max_length, limit or base.max_length))
    return ModelProtocol(base, prompts, modules)


def refuse_selection(network: Mapping[str, Any], longest: int) -> None:
    """Raise a `ConfigError` if a network attends to fewer tokens than this.

    Padding and rounding change which tokens it selects, by their scores.
    """
    selected = network.get("index_topk")
    if selected and longest > selected:
        raise ConfigError(
            f"A {network.get('model_type')} attends to {selected} tokens of a text (index_topk), and"
            f" texts of up to {longest} would be read: which ones depends on rounding. Use"
            f" 'max_length: {selected}' for the model."
        )
