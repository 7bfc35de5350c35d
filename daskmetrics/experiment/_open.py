"""From what a user calls a model (a folder, a hub id, a model in memory) to an encoder that reads
as a run does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from daskmetrics import config as configuration
from daskmetrics.checkpoints import locations as checkpoints
from daskmetrics.checkpoints.folders import MODULES, is_model
from daskmetrics.checkpoints.hub import require_answer
from daskmetrics.checkpoints.locations import Location
from daskmetrics.checkpoints.shipped import ModelProtocol, Shipped, protocol_of
from daskmetrics.checkpoints.shipped import read as read_shipped
from daskmetrics.config import Config
from daskmetrics.config.prompts import Prompts
from daskmetrics.config.schema import name_of
from daskmetrics.core.errors import ConfigError, unknown
from daskmetrics.core.names import Checkpoint, Suite
from daskmetrics.experiment import prefetch as prefetch

if TYPE_CHECKING:
    from daskmetrics.models import Encoder

# keys that a model sets for itself, which also replace what its folder ships; those that hold for
# a network that is read by hooks
_MODEL_KEYS = ("pooling", "max_length")
_MAIN = "main"


@contextmanager
def opened(
    model: Any, layers: Any, tokenizer: Any, protocol: Mapping[str, Any]
) -> Iterator[tuple[Encoder, Checkpoint]]:
    """The encoder of what a user calls a model, and the name of its checkpoint.

    A model in memory is in evaluation mode within the block, and each of its modules in training
    again after it.
    """
    if isinstance(model, (str, Path)) and not isinstance(layers, Mapping):
        if tokenizer is not None:
            raise ConfigError("A folder or a hub id has its own tokenizer; leave out 'tokenizer'.")
        encoder, checkpoint = _from_source(str(model), layers, protocol)
        with encoder:
            yield encoder, checkpoint
        return
    import torch

    if not isinstance(model, torch.nn.Module):
        raise ConfigError(
            f"A {type(model).__name__} is no model: give a folder, a hub id such as"
            " EleutherAI/pythia-14m, or a model of transformers, sentence-transformers or torch."
        )
    libraries = {kind.__module__.partition(".")[0] for kind in type(model).__mro__}
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        with TemporaryDirectory() as folder:  # of what a SentenceTransformer would save
            if isinstance(layers, Mapping):
                encoder, checkpoint = _from_modules(model, layers, tokenizer, protocol)
            elif "sentence_transformers" in libraries:
                network, shipped = _shipped_by(model, Path(folder))
                encoder, checkpoint = _from_transformers(
                    network, layers, tokenizer or model.tokenizer, protocol, shipped
                )
            elif "transformers" in libraries:
                encoder, checkpoint = _from_transformers(model, layers, tokenizer, protocol)
            else:
                raise ConfigError(
                    f"The layers of a {type(model).__name__} are not known. Name the modules whose"
                    " outputs are the layers, such as layers={'first': model.blocks[0]}."
                )
            with encoder:
                yield encoder, checkpoint
    finally:
        for module in training:
            module.training = True


def _settings(
    name: str, source: str, revision: str, layers: Any, protocol: Mapping[str, Any]
) -> Config:
    """These arguments as a configuration of one model, which checks them."""
    chosen = layers if isinstance(layers, str) else [int(layer) for layer in layers]
    model = {"name": name, "source": source, "revisions": revision, "layers": chosen}
    model |= {key: protocol[key] for key in _MODEL_KEYS if key in protocol}
    return configuration.parse(
        {"name": "direct", "models": [model], "protocol": dict(protocol)}, where="arguments"
    )


def _from_source(
    model: str, layers: Any, protocol: Mapping[str, Any]
) -> tuple[Encoder, Checkpoint]:
    """The encoder of a folder or of a hub id, whose files are downloaded if they are not on this
    machine.
    """
    from daskmetrics.models import Encoder, LoadedModel

    source, revision = model, ""
    if not Path(model).expanduser().is_dir():
        source, _, revision = model.partition("@")
    on_hub = checkpoints.is_hub_id(source)
    # a trainer's checkpoints may lie in the folder of the model with which it ended
    is_one = on_hub or is_model(Path(source).expanduser())
    revisions = revision or (_MAIN if is_one else "all")
    settings = _settings(name_of(source), source, revisions, layers, protocol)
    if on_hub and checkpoints.folder_of(Location(source, revision or _MAIN, "")) is None:
        _download(source, revision or _MAIN)
    (section,) = settings.models
    located = checkpoints.locate(section)
    if len(located.suite.revisions) > 1:
        names = located.suite.revisions
        raise ConfigError(
            f"'{model}' has {len(names)} checkpoints. Name one, such as '{model}@{names[-1]}'."
        )
    if located.missing:
        _download(source, located.missing[0])
    (location,) = located.locations
    (checkpoint,) = located.suite.checkpoints()
    read = protocol_of(settings.protocol, section, checkpoints.shipped_folder(location))
    return Encoder(LoadedModel(location, read.base), read, located.suite.layers), checkpoint


def _download(source: str, revision: str) -> None:
    require_answer(source)
    try:
        prefetch.checkpoint(source, revision, prefetch.FILES).fetch()
    except Exception as error:  # of the network, the hub or the disk
        raise ConfigError(
            f"'{source}' cannot be downloaded: {' '.join(str(error).split())[:300]}"
        ) from None


def _from_transformers(
    model: Any,
    layers: Any,
    tokenizer: Any,
    protocol: Mapping[str, Any],
    shipped: Shipped | None = None,
) -> tuple[Encoder, Checkpoint]:
    """The encoder of a model of transformers in memory, without its head."""
    from daskmetrics.models import Encoder, InMemory, LoadedModel

    name = name_of(str(getattr(model, "name_or_path", "") or type(model).__name__))
    keys = {"dtype": str(model.dtype).removeprefix("torch."), **protocol}
    if keys.get("pooling") == "as_shipped":
        if shipped is None:
            raise ConfigError(
                "A model of transformers ships no pooling: choose 'mean', 'last' or 'cls'."
            )
        del keys["pooling"]
    settings = _settings(name, f"./{name}", _MAIN, layers, keys)
    (section,) = settings.models
    base, prompts = settings.protocol, Prompts({})
    if shipped is None or section.pooling:
        shipped = None
        changes: dict[str, Any] = {"pooling": section.pooling or "mean"}
    else:
        prompts = Prompts(shipped.prompts, shipped.default_prompt)
        max_length = section.max_length or shipped.max_length or base.max_length
        changes = {"padding": shipped.padding, "max_length": max_length}
    base = base.model_copy(update=changes)
    loaded = LoadedModel(InMemory(model.base_model, tokenizer or _tokenizer_of(model), name), base)
    chosen = checkpoints.layers_of(section, loaded.depth)
    suite = Suite(name, (_MAIN,), chosen, loaded.depth)  # checks the layers
    encoder = Encoder(loaded, ModelProtocol(base, prompts, shipped), suite.layers)
    return encoder, Checkpoint(name, _MAIN)


def _tokenizer_of(model: Any) -> Any:
    """The tokenizer of the folder or hub id that a model was loaded from."""
    from transformers import AutoTokenizer

    with suppress(OSError, ValueError):
        if source := getattr(model, "name_or_path", ""):
            return AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    raise ConfigError(
        f"No tokenizer was found beside this {type(model).__name__}: give it as 'tokenizer'."
    )


def _shipped_by(model: Any, folder: Path) -> tuple[Any, Shipped | None]:
    """The network of a SentenceTransformer in memory, and what the modules after it do, from the
    files that they save into the folder.
    """
    transformer = model[0]
    network = getattr(transformer, "auto_model", None) or getattr(transformer, "model", None)
    if network is None:
        raise ConfigError(
            f"The first module of this SentenceTransformer is a {type(transformer).__name__}, no"
            " Transformer."
        )
    entries = []
    for i, module in enumerate(model):
        library = type(module).__module__.partition(".")[0]
        kind = f"{library}.models.{type(module).__name__}"
        entries.append({"idx": i, "path": str(i or ""), "type": kind})
        if i:
            (folder / str(i)).mkdir()
            module.save(str(folder / str(i)))
    settings = {
        "prompts": dict(model.prompts or {}),
        "default_prompt_name": model.default_prompt_name,
        "similarity_fn_name": model.similarity_fn_name,
        "truncate_dim": model.truncate_dim,
    }
    for name, content in ((MODULES, entries), ("config_sentence_transformers.json", settings)):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    network.config.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    transformer.save_config(str(folder))
    shipped = read_shipped(folder)
    assert shipped is not None
    return network, replace(shipped, max_length=model.max_seq_length)


def _from_modules(
    model: Any, layers: Mapping[str, Any], tokenizer: Any, protocol: Mapping[str, Any]
) -> tuple[Encoder, Checkpoint]:
    """The encoder of any network whose layers are modules of it."""
    from daskmetrics.models import Encoder, HookedModel

    for key in protocol:
        if key not in _MODEL_KEYS:
            raise unknown("argument for layers that are modules", key, _MODEL_KEYS)
    kind, modules = type(model).__name__, set(model.modules())
    if not layers or not all(layers):
        raise ConfigError(
            "No layers: name at least one module, such as layers={'first': model.blocks[0]}; a name"
            " must not be empty."
        )
    for name, module in layers.items():
        if module not in modules:
            raise ConfigError(f"Layer '{name}' is not a module of this {kind}.")
    name = name_of(kind)
    base = _settings(name, f"./{name}", _MAIN, "all", {"pooling": "mean", **protocol}).protocol
    if base.pooling == "as_shipped":
        raise ConfigError(
            "A network that is read by its modules ships no pooling: choose 'mean', 'last' or"
            " 'cls'."
        )
    prepare = tokenizer
    if hasattr(tokenizer, "model_max_length"):
        prepare = partial(
            tokenizer,
            padding=True,
            truncation=True,
            max_length=base.max_length,
            return_tensors="pt",
        )
    hooked = HookedModel(model, layers, prepare)
    encoder = Encoder(hooked, ModelProtocol(base), range(len(layers)), list(layers))
    return encoder, Checkpoint(name, _MAIN)
