"""A model cut after a layer, in the format of sentence-transformers, with a model card."""

from __future__ import annotations

import json
from copy import deepcopy
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from daskmetrics.checkpoints.layout import MODULES
from daskmetrics.checkpoints.locations import Location
from daskmetrics.checkpoints.shipped import Dense, ModelProtocol
from daskmetrics.core.errors import DataError, foreign_errors
from daskmetrics.core.files import atomic_folder, native_errors, require_new
from daskmetrics.domain.readouts import Readout
from daskmetrics.models._model import LoadedModel
from daskmetrics.models._networks import load_module, open_weights
from daskmetrics.models._pooler import MODES, Pooler, load_dense
from daskmetrics.models._tokens import IDS, Tokenizer

#: of the saved model's vectors, relative to the greatest number in them; half precision has its own
TOLERANCE = 1e-5
PROBE = (
    "Which layer is best?",
    "A longer text, of which the model reads every token until its end or its limit.",
)
_OF_ALL_BLOCKS = "contact_head"  # ESM's, which no layer reads, of the size of all blocks together
_LIBRARY = "sentence_transformers.models."  # the names that all versions of the library read


def save(
    model: LoadedModel,
    protocol: ModelProtocol,
    layer: int,
    folder: Path,
    card: str,
    readout: Readout,
) -> Path:
    """Save the network up to a layer, for sentence-transformers.

    It is a `DataError` if the library cannot give the same vectors.
    """
    require_new(folder)
    # the saved model ends with its final norm
    if model.network.parts.final_norm is not None and not model.is_normed(layer):
        raise DataError(
            f"Layer {layer} was read with 'state_norm: {model.protocol.state_norm}', before the"
            " final norm of the model, which a saved model applies. Run with 'state_norm: final_ln'"
            " to save a layer, or read it with `run.best().load()`."
        )
    # safetensors has an exception of its own, and tokenizers has none
    with native_errors(Exception, folder), atomic_folder(folder.resolve()) as building:
        _cut(model.network.module, layer, model.depth).save_pretrained(building)
        tokenizer = deepcopy(model.tokenizer.of_transformers)
        # positions then count from the first token, also without a mask
        tokenizer.padding_side = "right"
        tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token or tokenizer.bos_token
        tokenizer.model_max_length = model.max_length
        tokenizer.init_kwargs["model_input_names"] = tokenizer.model_input_names
        tokenizer.save_pretrained(building)
        _save_modules(model, protocol, readout, building)
        (building / "README.md").write_text(
            _card(model, protocol, layer, card, readout), encoding="utf-8"
        )
        _check_equal(model, protocol, layer, building, readout.pooling)
    return folder


def _cut(module: Any, layer: int, depth: int) -> Any:
    config = deepcopy(module.config)
    for name, value in vars(config).items():
        # one entry for each block, such as layer_types
        if isinstance(value, list) and len(value) == depth > 1:
            setattr(config, name, value[:layer])
    config.num_hidden_layers = layer
    with foreign_errors(f"A {config.model_type} cannot be cut after layer {layer}", DataError):
        network = type(module)(config).to(dtype=module.dtype, device=module.device).eval()
    weights = {
        name: tensor for name, tensor in module.state_dict().items() if _OF_ALL_BLOCKS not in name
    }
    missing_keys = network.load_state_dict(weights, strict=False).missing_keys
    missing = [name for name in missing_keys if _OF_ALL_BLOCKS not in name]
    if missing:
        raise DataError(
            f"A {config.model_type} cannot be cut after layer {layer}: it would lack {missing[0]}."
        )
    return network


def _save_modules(
    model: LoadedModel, protocol: ModelProtocol, readout: Readout, folder: Path
) -> None:
    lower = bool(protocol.shipped and protocol.shipped.lower_case)
    prompts = protocol.prompts
    # what follows its pooling
    shipped = None
    if readout.pooling in ("", "as_shipped"):
        shipped = protocol.shipped
    settings: dict[str, object] = {
        "prompts": dict(prompts.texts),
        "default_prompt_name": prompts.default,
        "similarity_fn_name": shipped.similarity if shipped else "cosine",
    }
    dimensions = readout.dimensions or (shipped and shipped.dimensions)
    if dimensions:
        settings["truncate_dim"] = dimensions
    _write(
        folder / "sentence_bert_config.json",
        {"max_seq_length": model.max_length, "do_lower_case": lower},
    )
    _write(folder / "config_sentence_transformers.json", settings)
    pooling = readout.pooling or protocol.base.pooling
    modes = shipped.pooling if shipped else (MODES[pooling],)
    pooled = {
        "word_embedding_dimension": model.width,
        "pooling_mode": modes[0] if len(modes) == 1 else modes,
        "include_prompt": shipped is None or shipped.include_prompt,
    }
    _write(folder / "1_Pooling" / "config.json", pooled)
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]

    def add(kind: str) -> Path:
        modules.append((f"{len(modules)}_{kind}", kind))
        module_folder = folder / modules[-1][0]
        module_folder.mkdir()
        return module_folder

    for step in shipped.steps if shipped else ():
        if isinstance(step, Dense):
            _save_dense(step, load_dense(step), add("Dense"))
        else:
            add("Normalize")
    entries = [
        {"idx": number, "name": str(number), "path": path, "type": _LIBRARY + kind}
        for number, (path, kind) in enumerate(modules)
    ]
    _write(folder / MODULES, entries)


def _save_dense(step: Dense, weights: dict[str, torch.Tensor], folder: Path) -> None:
    out_features, in_features = weights["linear.weight"].shape
    config = {
        "in_features": in_features,
        "out_features": out_features,
        "bias": "linear.bias" in weights,
        "activation_function": f"torch.nn.{step.activation}",
    }
    if step.residual:  # earlier versions of the library do not know it
        config["use_residual"] = True
    _write(folder / "config.json", config)
    save_file(weights, folder / "model.safetensors")


@torch.inference_mode()
def _check_equal(
    model: LoadedModel, protocol: ModelProtocol, layer: int, folder: Path, pooling: str
) -> None:
    location = Location(str(folder), None, "saved")
    weights = open_weights(location)
    module = load_module(location, model.network.dtype, weights).to(model.device)
    reader = module
    if module.config.is_encoder_decoder:
        reader = module.get_encoder()
    pooler = Pooler(model, protocol, PROBE, protocol.prompts.of(None), [pooling])
    tokens = Tokenizer(location).inputs(pooler.texts, model.max_length)
    cut = f"A {module.config.model_type} cut after layer {layer}"
    taken = signature(reader.forward).parameters.keys() & tokens.keys()
    for row, vector in enumerate(pooler.vectors((layer,))[0][0]):
        inputs = {
            name: torch.tensor(tokens[name][row][None], device=model.device).long()
            for name in taken
        }
        mask = torch.ones_like(inputs[IDS])
        with foreign_errors(f"{cut} cannot be read", DataError):
            states = reader(**inputs, attention_mask=mask).last_hidden_state
        index = torch.tensor([row], device=model.device)
        vectors = pooler(index, states, mask.bool())
        saved_vector = vectors[0].cpu().numpy()
        difference = np.abs(saved_vector - vector).max()
        allowed = max(TOLERANCE, 4 * torch.finfo(states.dtype).eps)
        if not difference <= allowed * np.abs(vector).max():
            raise DataError(
                f"{cut} gives other vectors (by up to {difference:.2g}), so it is not saved. Read the"
                " layer with `run.best().load()` instead."
            )


def _card(
    model: LoadedModel, protocol: ModelProtocol, layer: int, text: str, readout: Readout
) -> str:
    source = model.network.location
    origin = source.path
    read = str(readout) or "the layer"
    revision = ""
    if source.revision:
        revision = f" (revision {source.revision})"
    return f"""---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags:
- sentence-transformers
- feature-extraction
---

# {Path(origin).name}, cut after layer {layer}

The first {layer} of {model.depth} blocks of `{origin}`{revision}. Texts are read as: {protocol.summary}; readout: {read}.

```python
from sentence_transformers import SentenceTransformer

SentenceTransformer("this folder").encode(["Which layer is best?"])
```
{text}"""


def _write(path: Path, content: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
