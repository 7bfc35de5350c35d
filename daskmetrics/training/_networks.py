"""The model that a recipe trains, and its loss: a new GPT-NeoX or a local model, with the head of
its objective.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from daskmetrics.config import Recipe
from daskmetrics.core.errors import DataError
from daskmetrics.core.names import seed_of
from daskmetrics.training import _tokenizer as tokenizer
from daskmetrics.training import data as data


def new(recipe: Recipe, corpus: Path) -> Any:
    """The model at step 0; its random weights follow from the recipe's seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of("weights", recipe.seed))
        model = _started_from(recipe, corpus) if recipe.init_from else _random(recipe, corpus)
    if recipe.activation_checkpointing:
        # transformers 5.10 renamed the method
        enable = (
            getattr(model, "activation_checkpointing_enable", None)
            or model.gradient_checkpointing_enable
        )
        enable({"use_reentrant": False})
    return model.train()


def _random(recipe: Recipe, corpus: Path) -> Any:
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, GPTNeoXForSequenceClassification

    kinds = {"next-token": GPTNeoXForCausalLM, "classification": GPTNeoXForSequenceClassification}
    end, vocabulary = tokenizer.END_ID, recipe.vocabulary
    if recipe.tokenizer:
        given = tokenizer.load(corpus)
        end, vocabulary = tokenizer.end_of(given), given.get_vocab_size()
    config = GPTNeoXConfig(
        vocab_size=vocabulary,
        hidden_size=recipe.width,
        num_hidden_layers=recipe.depth,
        num_attention_heads=recipe.heads,
        intermediate_size=4 * recipe.width,
        initializer_range=(2 / (5 * recipe.width))
        ** 0.5,  # "small init" of Nguyen and Salazar (2019), as in Pythia
        max_position_embeddings=recipe.context,
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=end,
        **_head(corpus),
    )
    return kinds[recipe.objective](config)


def _head(corpus: Path) -> dict[str, Any]:
    """The classes as keywords of a transformers configuration; empty for packed tokens."""
    names = data.classes(corpus)
    if not names:
        return {}
    return {
        "id2label": dict(enumerate(names)),
        "label2id": {name: index for index, name in enumerate(names)},
    }


def _started_from(recipe: Recipe, corpus: Path) -> Any:
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    kinds = {
        "next-token": AutoModelForCausalLM,
        "classification": AutoModelForSequenceClassification,
    }
    try:
        model = kinds[recipe.objective].from_pretrained(
            str(Path(recipe.init_from or "").expanduser()),
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=False,
            **_head(corpus),
        )
    except Exception as error:  # transformers may raise anything for a damaged or foreign file
        raise DataError(
            f"Cannot load the model in '{recipe.init_from}' (init_from): {error}"
        ) from error
    # the classifier of a decoder reads the last token before the padding
    if model.config.pad_token_id is None:
        model.config.pad_token_id = tokenizer.end_of(tokenizer.load(corpus))
    return model


def loss(model: Any, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Mean loss in nats: per next token, or per label where the batch has labels."""
    ids = batch["ids"]
    if "labels" in batch:
        logits = model(input_ids=ids, attention_mask=batch["mask"]).logits
        return cross_entropy(logits.float(), batch["labels"])
    logits = model(input_ids=ids[:, :-1], use_cache=False).logits
    return cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())


def export(model: Any, folder: Path) -> None:
    """Write ``config.json`` and ``model.safetensors``, as `transformers.AutoModel` reads them."""
    from safetensors.torch import save_file

    # as save_pretrained does, but without its progress bar, which only a process-wide switch turns
    # off
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    tied = set(getattr(model, "all_tied_weights_keys", None) or ())
    state = {
        name: tensor.contiguous() for name, tensor in model.state_dict().items() if name not in tied
    }
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
